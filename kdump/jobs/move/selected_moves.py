"""Which partitions ``kdump move`` moves, and whether their log directories allow it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from kdump.apply.copied_directory import difference, file_system_of
from kdump.apply.files import free_bytes_at
from kdump.apply.originals import ends_of
from kdump.errors import KdumpError
from kdump.formats import names
from kdump.formats.names import PartitionState, TopicPartition
from kdump.jobs.move.placement import Move, Room, balanced, placed
from kdump.log.directory import LogDirectory
from kdump.log.lock_holders import how_to_clean
from kdump.log.partition import Partition
from kdump.log.selection import PartitionSelection
from kdump.phases import phase
from kdump.words import shell_command


class PlannedMove(Struct, frozen=True):
    """A move, and what it consists of.

    Attributes:
        is_copied: whether the target has an equal copy: an earlier run was interrupted, and only
            the original is left to remove.
        futures: copies that the broker began, by directory: names with ``-future``. They are
            removed, because the log itself goes elsewhere.
        refusal: why the partition cannot be moved; None if it can.
    """

    move: Move
    is_copied: bool = False
    futures: tuple[tuple[LogDirectory, str], ...] = ()
    refusal: str | None = None


def require_one_clean_broker(directories: Sequence[LogDirectory]) -> None:
    """Refuse directories that are not of one broker, or were not shut down cleanly.

    Raises:
        KdumpError: says which, and what to do first.
    """
    first = directories[0]
    for each in directories:
        properties = each.meta_properties
        if properties is None or properties.node_id is None:
            path = each.path / names.META_PROPERTIES
            errors = [str(problem.error) for problem in each.problems if problem.path == path]
            raise KdumpError(
                f"{path}: {errors[0] if errors else 'missing, or without a node id'}; see:"
                f" {shell_command('identity', [other.path for other in directories])}"
            )
        known = first.meta_properties
        assert known is not None
        if (properties.cluster_id, properties.node_id) != (known.cluster_id, known.node_id):
            raise KdumpError(
                f"{each.path}: of node {properties.node_id} in cluster {properties.cluster_id}, but"
                f" {first.path} of node {known.node_id} in cluster {known.cluster_id}; a partition"
                " moves only between the disks of one broker"
            )
    for each in directories:
        _require_clean(each)


def _require_clean(directory: LogDirectory) -> None:
    if not directory.is_clean and not is_without_logs(directory):
        raise KdumpError(
            f"{directory.path}: the broker was not shut down cleanly, and logs are recovered only"
            f" with their own checkpoints; {how_to_clean(directory.path)}"
        )
    for problem in directory.problems:
        if problem.path.name in directory.checkpoints.by_file_name():
            raise KdumpError(
                f"{problem.path}: {problem.error}; first:"
                f" {shell_command('checkpoint rebuild', [directory.path])}"
            )


def is_without_logs(directory: LogDirectory) -> bool:
    """Whether a broker loads no log from a directory, as from a new disk."""
    return not directory.refused and not any(
        state in (PartitionState.LIVE, PartitionState.FUTURE)
        and key.topic != names.CLUSTER_METADATA_TOPIC
        for key, state in directory.identities
    )


def moves_between(
    source: LogDirectory,
    targets: Sequence[LogDirectory],
    selection: PartitionSelection,
) -> list[PlannedMove]:
    """Plan to move the selected partitions of one directory to others.

    Args:
        targets: where they go; the largest partitions first, to the disk with the most space.

    Raises:
        OSError: a directory cannot be read.
    """
    own = list(_movable(source, selection))
    twice = {each.topic_partition: each for each in own if _places(each, targets)}
    moves = [
        Move(each, source, _places(each, targets)[0])
        for each in own
        if each.topic_partition in twice
    ]
    moves += placed(
        [(source, each) for each in own if each.topic_partition not in twice],
        targets,
        _rooms(targets),
    )
    order = {each.path: at for at, each in enumerate(own)}
    moves.sort(key=lambda each: order[each.partition.path])
    return _planned(moves, [source, *targets])


def moves_to_balance(
    directories: Sequence[LogDirectory], selection: PartitionSelection
) -> list[PlannedMove]:
    """Plan to even out directories by bytes.

    A partition with an equal copy in two directories, as an interrupted run leaves it, is removed
    from the one that is named first.

    Raises:
        OSError: a directory cannot be read.
    """
    moves: list[Move] = []
    candidates: dict[int, list[Partition]] = {}
    for at, directory in enumerate(directories):
        others = [each for each in directories if each is not directory]
        candidates[at] = []
        for partition in _movable(directory, selection):
            places = _places(partition, others)
            if not places:
                candidates[at].append(partition)
            elif directories.index(places[0]) > at:
                moves.append(Move(partition, directory, places[0]))
    return _planned([*moves, *balanced(candidates, directories)], directories)


def _movable(directory: LogDirectory, selection: PartitionSelection) -> Iterator[Partition]:
    for each in directory.partitions:
        is_log = not each.is_cluster_metadata and not each.is_0_7
        if is_log and each.state is PartitionState.LIVE and each in selection:
            yield each


def _places(partition: Partition, directories: Iterable[LogDirectory]) -> list[LogDirectory]:
    """The directories that have a log of the same partition."""
    key = (partition.topic_partition, PartitionState.LIVE)
    return [each for each in directories if key in each.identities]


def _rooms(targets: Sequence[LogDirectory]) -> list[Room]:
    """The space of each target; those on one file system share one."""
    rooms: dict[int, Room] = {}
    found = []
    for each in targets:
        path = each.path.local_path
        room = rooms.setdefault(file_system_of(path), Room(free_bytes_at(path)))
        found.append(room)
    return found


def _planned(moves: Sequence[Move], directories: Sequence[LogDirectory]) -> list[PlannedMove]:
    futures = _futures(directories)
    planned = []
    for move in moves:
        key = move.partition.key
        own = tuple(futures.get(key, ()))
        path, other = move.partition.path.local_path, move.target.path.local_path / move.name
        if not _places(move.partition, [move.target]):
            planned.append(PlannedMove(move, futures=own))
            continue
        with phase(f"comparing {path} with {other}"):
            found = difference(path, other)
        refusal = None
        if found is not None:
            where = [move.source.path, move.target.path]
            diff = shell_command("diff", [*where, "--partition", move.name])
            refusal = (
                f"{other} is there too, and is no copy: {found}; {ends_of(path, other)}; a broker"
                f" does not start with both: see '{diff}', and move the wrong one, usually the one"
                " that ends earlier, out of its log directory"
            )
        planned.append(PlannedMove(move, found is None, own, refusal))
    return planned


def _futures(
    directories: Sequence[LogDirectory],
) -> dict[TopicPartition, list[tuple[LogDirectory, str]]]:
    """The ``-future`` directories by partition."""
    found: dict[TopicPartition, list[tuple[LogDirectory, str]]] = {}
    for directory in directories:
        for each in directory.partitions:
            if each.state is PartitionState.FUTURE and each.topic_partition is not None:
                found.setdefault(each.topic_partition, []).append((directory, each.path.name))
    return found


def require_space(moves: Iterable[PlannedMove]) -> None:
    """Refuse moves for which a disk has too little space.

    Partitions that stay on their file system need space for one batch only.

    Raises:
        KdumpError: says how much is needed, and how much there is.
        OSError: a file system cannot be asked.
    """
    needed: dict[int, int] = {}
    paths = {}
    for each in moves:
        if each.is_copied or each.refusal is not None:
            continue
        source, target = each.move.source.path.local_path, each.move.target.path.local_path
        system = file_system_of(target)
        if system != file_system_of(source):
            needed[system] = needed.get(system, 0) + each.move.partition.total_bytes
            paths[system] = target
    for system, size_bytes in needed.items():
        free_bytes = free_bytes_at(paths[system])
        if free_bytes < size_bytes:
            raise KdumpError(
                f"{paths[system]}: needs {size_bytes} bytes of free space, has {free_bytes};"
                " nothing has been changed; move fewer partitions, or give another --to"
            )
