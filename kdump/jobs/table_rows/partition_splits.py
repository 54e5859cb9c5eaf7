"""Listing the partitions that a table is about, divided into splits."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.loader import swapped_partition
from kdump.broker.loader.swapped_partition import UnfinishedSwapError
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.formats.errors import FormatError
from kdump.formats.names import (
    PartitionState,
    TopicPartition,
    parse_partition_directory_name,
)
from kdump.jobs.listing.partition_facts import (
    LonePartition,
    listed_as_loaded,
    read_with_surroundings,
)
from kdump.log import directory
from kdump.log.directory import DirectoryKind, LogDirectory
from kdump.log.partition import Partition
from kdump.log.problems import FileProblem
from kdump.log.replicas import choose_replicas
from kdump.log.valid_windows import Damage
from kdump.processes.worker_pool import usable_cpus
from kdump.size_groups import size_groups
from kdump.storage.location import Location, each_once
from kdump.tables.kafka_log.damage import status_of, with_status
from kdump.tables.kafka_log.found_partitions import refuse_absent
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.table_options import TableOptions

_LOG: Final = logging.getLogger(__name__)
_FEW_PARTITIONS: Final = 250
"""A task costs more than listing so many partitions."""


class LoggedProblems:
    """Logs what cannot be read, as a warning; the table has null there."""

    def report(self, path: Location, problem: FormatError | OSError | str, /) -> None:
        if isinstance(problem, OSError):
            said, status = str(FileProblem(path, problem)), ExitStatus.OPERATIONAL_ERROR
        else:
            said, status = f"{path}: {problem}", ExitStatus.DAMAGE_LEFT
        _LOG.warning("%s", said, extra=with_status(status))

    def remark(self, what: str, /) -> None:
        _LOG.warning("%s", what, extra=with_status(ExitStatus.DAMAGE_LEFT))

    def report_problem(self, path: str, what: str, /, *, is_damage: bool) -> None:
        status = ExitStatus.DAMAGE_LEFT if is_damage else ExitStatus.OPERATIONAL_ERROR
        _LOG.warning("%s: %s", path, what, extra=with_status(status))

    def report_damage(self, damage: Damage, /) -> None:
        _LOG.warning("%s", damage, extra=with_status(status_of(damage)))

    def report_failure(self, failure: KdumpError, /) -> None:
        _LOG.warning("%s", failure, extra=with_status(failure.exit_status))


class UnlistedPartition(Struct, frozen=True):
    """A partition whose directory cannot be listed."""

    log_dir: str
    directory: str


class ListingSplit(Struct, frozen=True):
    """Some partitions of a log directory, or a partition named itself.

    Attributes:
        names: the directories of the partitions; empty for a partition.
        most_advanced: those of the partitions that no other split has a better replica of.
    """

    path: Location
    kind: DirectoryKind
    names: frozenset[str] = frozenset()
    most_advanced: frozenset[str] = frozenset()

    def read_places(self) -> Iterable[Location]:
        """As of a :class:`~kdump.engine.job.Split`."""
        return (self.path, *(self.path / name for name in self.names))


def listing_splits(
    options: TableOptions, filters: PushedFilters, *, is_ranked: bool = False
) -> Iterator[ListingSplit]:
    """The splits of the partitions that match.

    Args:
        filters: that rows have to match.
        is_ranked: whether to find the most advanced replicas.

    Raises:
        UsageProblem: a path is not Kafka's, or has no topic or partition that an option names.
        OSError: a directory cannot be listed.
    """
    present = set[TopicPartition]()
    found: list[ListingSplit] = []
    for path in options.locations():
        found += _splits_at(path, options, filters, present)
    refuse_absent(options.topics.missing(present), options.paths)
    if is_ranked:
        found = list(_ranked(found))
    names = sum(len(each.names) for each in found)
    most = max(_FEW_PARTITIONS, -(-names // (2 * usable_cpus())))
    for each in found:
        if not each.names:
            yield each
        for group in size_groups(sorted(each.names), lambda _: 1, most):
            yield replace(each, names=frozenset(group))


class _Listed(Struct, frozen=True):
    """A replica, and the number of the split that lists it."""

    split: int
    partition: Partition


def _ranked(splits: Sequence[ListingSplit]) -> Iterator[ListingSplit]:
    """The splits with the most advanced replicas; only partitions with several are looked at.

    What cannot be read is no candidate; the row of the partition reports it.
    """
    live = [{name for name in _directories(split) if _is_live(name)} for split in splits]
    counts = Counter(name for names in live for name in names)
    chosen = [{name for name in names if counts[name] == 1} for names in live]
    candidates = [
        _Listed(number, partition)
        for number, split in enumerate(splits)
        if (names := live[number] - chosen[number])
        for partition in _loadable(split, names)
    ]
    for each in choose_replicas(candidates, lambda _replica, _failure: None).chosen:
        chosen[each.split].add(each.partition.path.name)
    for split, own in zip(splits, chosen, strict=True):
        yield replace(split, most_advanced=frozenset(own))


def _directories(split: ListingSplit) -> Iterable[str]:
    return split.names or (split.path.name,)


def _is_live(name: str) -> bool:
    try:
        return parse_partition_directory_name(name).state is PartitionState.LIVE
    except FormatError:
        return False  # a copy of a partition under another name


def _loadable(split: ListingSplit, names: AbstractSet[str]) -> Iterator[Partition]:
    """Partitions of a split as a starting broker loads them, if one does."""
    if split.names:
        listed = directory.read_log_directory(
            split.path, split.kind, select=lambda name, _key: name in names
        ).partitions
    else:
        listed = (read_with_surroundings(split.path).partition,)
    for partition in listed:
        with contextlib.suppress(UnfinishedSwapError, OSError):
            yield swapped_partition.as_loaded(partition)


def _splits_at(
    path: Location,
    options: TableOptions,
    filters: PushedFilters,
    present: set[TopicPartition],
) -> Iterator[ListingSplit]:
    kind = kind_of(path)
    if kind.is_partition:
        key = read_with_surroundings(path).partition.topic_partition
        if key is not None:
            present.add(key)
        if is_selected(key, options, filters):
            yield ListingSplit(path, kind)
    elif kind.is_log_directory:
        yield from _split_of_directory(path, kind, options, filters, present)
    elif inside := directory.log_directories_below(path):
        for each in inside:
            yield from _splits_at(each, options, filters, present)
    else:
        raise UsageProblem(f"{path} is neither a Kafka log directory nor a partition")


def kind_of(path: Location) -> DirectoryKind:
    """What is at a path.

    Raises:
        UsageProblem: nothing is.
        OSError: it cannot be listed.
    """
    if path.kind() is None:
        raise UsageProblem(f"{path} does not exist")
    return directory.directory_kind(path)


def _split_of_directory(
    path: Location,
    kind: DirectoryKind,
    options: TableOptions,
    filters: PushedFilters,
    present: set[TopicPartition],
) -> Iterator[ListingSplit]:
    names: list[str] = []

    def note(name: str, key: TopicPartition) -> bool:
        present.add(key)
        if is_selected(key, options, filters):
            names.append(name)
        return False

    directory.read_log_directory(path, kind, select=note)
    if names:
        yield ListingSplit(path, kind, frozenset(names))


def is_selected(key: TopicPartition | None, options: TableOptions, filters: PushedFilters) -> bool:
    """Whether rows about a partition may match."""
    return (
        options.topics.has(key)
        and filters.has_topic(key.topic if key else None)
        and filters.has_partition(key.partition if key else None)
    )


def listed(split: ListingSplit) -> Iterator[LonePartition | UnlistedPartition]:
    """The partitions of a split; only their names of those that cannot be listed."""
    if not split.names:
        yield read_with_surroundings(split.path)
        return
    found = directory.read_log_directory(
        split.path, split.kind, select=lambda name, _key: name in split.names
    )
    for problem in found.problems:
        LoggedProblems().report(problem.path, problem.error)
    for partition in found.partitions:
        yield LonePartition(partition, found)
    for name in found.unreadable:
        yield UnlistedPartition(str(split.path), name)


def listed_directories(
    directories: Mapping[Location, DirectoryKind], select: Callable[[str, TopicPartition], bool]
) -> list[LogDirectory]:
    """The log directories with the selected partitions as they are loaded."""
    found: list[LogDirectory] = []
    for path, kind in directories.items():
        listed = listed_as_loaded(path, kind, LoggedProblems(), select)
        if listed is not None:
            found.append(listed)
    return found


def directory_kinds(
    options: TableOptions, paths: Iterable[Location] | None = None
) -> dict[Location, DirectoryKind]:
    """The log directories at ``paths``, or below them, each once; None is the paths of the options.

    Raises:
        UsageProblem: a path is not a log directory.
        OSError: it cannot be listed.
    """
    found: list[Location] = []
    for path in options.locations() if paths is None else paths:
        kind = kind_of(path)
        if kind.is_partition:
            raise UsageProblem(
                f"{path} is a partition: for the table {options.table.name}, name its log"
                f" directory, {path.around}"
            )
        inside = [path] if kind.is_log_directory else directory.log_directories_below(path)
        if not inside:
            raise UsageProblem(f"{path} is not a Kafka log directory")
        found += inside
    return {each: directory.directory_kind(each) for each in each_once(found)}
