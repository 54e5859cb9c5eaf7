"""Move partitions between the log directories of a broker.

The directories stay clean, so that the broker starts without recovery. For each batch of
partitions, with all directories locked:

1. In the target: the copy is written, synced, read back and compared; its log start offset is in
   the checkpoint; then it gets its name, and its lines of the other checkpoints.
2. In the source: the original is out of use and deleted, then its lines are.

If the machine stops before the end of 1, the source is unchanged, and the next run, or a broker,
deletes what the target has. Between 1 and 2 both have the partition: a broker refuses to start, and
the next run compares them and continues with 2. Follows ``LogManager.loadLogs`` for what a broker
reads, and ``LogCleanerManager.updateCheckpoints`` for the line at the source: with a stale one the
cleaner stalls. The controllers learn the new directory from the broker, which compares its logs
with their assignments when it starts (``ReplicaManager.maybeUpdateTopicAssignment``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.apply.copied_directory import copy_of
from kdump.apply.directory_changes import DirectoryChange, RemovedDirectory
from kdump.apply.interrupted_runs import unfinished
from kdump.apply.originals import copying_command, leaving_command
from kdump.apply.plan import TargetDirectory
from kdump.broker.loader.checkpoints import NO_BROKER_EPOCH, with_lines
from kdump.engine.progress import SILENT, Progress
from kdump.errors import KdumpError, reason_of
from kdump.formats import names
from kdump.formats.clean_shutdown import encode_clean_shutdown
from kdump.formats.names import PartitionState, TopicPartition
from kdump.jobs.move.selected_moves import PlannedMove, is_without_logs
from kdump.jobs.writing.execution import PlanResult, Writing, plan_and_apply
from kdump.log.directory import LogDirectory, Offsets, read_log_directory
from kdump.storage.location import Location
from kdump.target.target_file import NewBytes, TargetFile

BATCH_BYTES: Final = 1 << 30
BATCH_PARTITIONS: Final = 200
"""A run that is stopped has to copy at most one batch again."""

Item = TypeVar("Item", bound=Hashable)
Lines = dict[TopicPartition, int | None]


class MoveResult(Struct):
    """What was moved, or would be.

    Attributes:
        moved: the moves that were carried out.
        left: the others, each with the reason.
        plans: what was done to the directories, in order; without the contents of files.
    """

    moved: list[PlannedMove] = field(default_factory=list)
    left: list[tuple[PlannedMove, str]] = field(default_factory=list)
    plans: list[PlanResult] = field(default_factory=list)

    def without(self, moves: Iterable[PlannedMove]) -> list[PlannedMove]:
        """Those of ``moves`` that are in neither list yet."""
        known = {each.move.partition.path for each in self.moved}
        known |= {each.move.partition.path for each, _ in self.left}
        return [each for each in moves if each.move.partition.path not in known]


def carry_out(
    moves: Sequence[PlannedMove],
    directories: Sequence[LogDirectory],
    writing: Writing,
    progress: Progress = SILENT,
) -> MoveResult:
    """Move partitions, batch by batch. A partition that cannot be moved does not stop the others.

    Args:
        moves: of partitions between ``directories``, which are locked and clean.
        directories: as they were read after locking.
        writing: how to write; a dry run previews all batches as one.
    """
    run = _Run({each.path: each for each in directories}, writing, progress)
    run.result.left = [(each, each.refusal) for each in moves if each.refusal is not None]
    allowed = [each for each in moves if each.refusal is None]
    copied = (each for each in allowed if not each.is_copied)
    progress.begin(sum(each.move.partition.total_bytes for each in copied))
    try:
        for batch in [allowed] if writing.dry_run else _batches(allowed):
            run.move(batch)
            if run.is_interrupted():
                run.result.left += (
                    (each, "not tried, because an earlier change failed; run the command again")
                    for each in run.result.without(allowed)
                )
                break
    finally:
        progress.end()
    return run.result


def _batches(moves: Iterable[PlannedMove]) -> Iterator[list[PlannedMove]]:
    batch: list[PlannedMove] = []
    size_bytes = 0
    for each in moves:
        size_bytes += each.move.partition.total_bytes
        if batch and (size_bytes > BATCH_BYTES or len(batch) == BATCH_PARTITIONS):
            yield batch
            batch, size_bytes = [], each.move.partition.total_bytes
        batch.append(each)
    if batch:
        yield batch


class _Run(Struct):
    """A run of the command.

    Attributes:
        directories: as they are now.
    """

    directories: dict[Location, LogDirectory]
    writing: Writing
    progress: Progress
    result: MoveResult = field(default_factory=MoveResult)

    def move(self, batch: Sequence[PlannedMove]) -> None:
        """Move the partitions of a batch; if that fails, one by one."""
        if not batch:
            return
        entered, failed = [], []
        for way in _unique(each.move.way for each in batch):
            own = [each for each in batch if each.move.way == way]
            failure = self._enter(own)
            if failure is None:
                entered += own
            else:
                failed += [(each, failure) for each in own]
        for source in _unique(each.move.source.path for each in entered):
            own = [each for each in entered if each.move.source.path == source]
            # Whoever undoes this run brings the originals back: it has to find the copies.
            targets = [each.move.target.path.local_path for each in own]
            command = leaving_command(targets)
            writing = replace(self.writing, command=command, is_first=False)
            failure = self._apply([self._leaving(source, own)], writing)
            if failure is None:
                self.result.moved += own
            else:
                failed += [(each, _left_twice(each, failure)) for each in own]
        if len(batch) == 1 or self.is_interrupted():
            self.result.left += failed
            return
        for each, failure in failed:
            # One after the other, because only a part of them may be the cause.
            if self.is_interrupted():
                self.result.left.append((each, failure))
            else:
                self.move([self._as_it_is(each)])

    def _enter(self, moves: Sequence[PlannedMove]) -> str | None:
        """Copy partitions from one directory to another; returns why that failed."""
        source, target = moves[0].move.way
        # Whoever undoes this run deletes the copies: it has to find the originals.
        writing = replace(self.writing, command=copying_command(source.local_path))
        failure = self._apply(self._without_futures(moves), self.writing)
        return failure or self._apply([self._entering(target, moves)], writing)

    def is_interrupted(self) -> bool:
        """Whether a plan failed in the middle: the next run of kdump has to finish it first."""
        try:
            return not self.writing.dry_run and any(
                unfinished(path.local_path) for path in self.directories
            )
        except KdumpError:  # a journal that cannot be finished
            return True

    def _as_it_is(self, planned: PlannedMove) -> PlannedMove:
        """A move after its batch failed: the copy may be complete."""
        key = planned.move.partition.topic_partition
        target = self.directories[planned.move.target.path]
        is_copied = (key, PartitionState.LIVE) in target.identities
        return replace(planned, is_copied=is_copied, futures=() if is_copied else planned.futures)

    def _apply(
        self, targets: Iterable[TargetDirectory | KdumpError], writing: Writing
    ) -> str | None:
        """Apply one plan after the other; returns why one failed."""
        for target in targets:
            if self.is_interrupted():
                return "an earlier change failed; run the command again"
            if isinstance(target, KdumpError):
                return str(target)
            try:
                done = plan_and_apply([target], writing)
            except KdumpError as failure:
                return str(failure)
            except OSError as failure:
                return f"{failure.filename or target.path}: {reason_of(failure)}"
            self.result.plans += (
                replace(each, plan=each.plan.without_contents())
                for each in done
                if not each.plan.is_empty
            )
            if not self.writing.dry_run:
                self._read_again(target)
        return None

    def _read_again(self, target: TargetDirectory) -> None:
        for path, each in self.directories.items():
            if path.local_path == target.path:
                self.directories[path] = read_log_directory(
                    path, each.kind, select=lambda _name, _key: False
                )

    # 1.

    def _entering(
        self, target: Location, moves: Sequence[PlannedMove]
    ) -> TargetDirectory | KdumpError:
        """The target state of a directory that partitions enter."""
        directory = self.directories[target]
        entering = [each for each in moves if not each.is_copied]
        changes: dict[str, DirectoryChange] = {}
        try:
            for each in entering:
                path = each.move.partition.path.local_path
                changes[each.move.name] = copy_of(path, self.progress.advance)
        except KdumpError as failure:
            return failure
        except OSError as failure:
            return KdumpError(f"{failure.filename}: {failure.strerror}")
        for each in moves:
            changes |= {
                name: RemovedDirectory() for around, name in each.futures if around.path == target
            }
        root = self._root(directory, entering)
        start = names.LOG_START_OFFSET_CHECKPOINT
        interim = {start: root[start]} if start in root else {}
        if entering and not directory.is_clean and is_without_logs(directory):
            root[names.CLEAN_SHUTDOWN_MARKER] = self._marker(entering[0])
        return TargetDirectory(target.local_path, (), root, interim=interim, directories=changes)

    def _root(
        self, directory: LogDirectory, entering: Iterable[PlannedMove]
    ) -> dict[str, TargetFile]:
        """The checkpoints with the lines that the sources have."""
        lines: dict[str, Lines] = {name: {} for name in directory.checkpoints.by_file_name()}
        for each in entering:
            key = each.move.partition.key
            source = self.directories[each.move.source.path].checkpoints.by_file_name()
            for name, offsets in source.items():
                lines[name][key] = (offsets or {}).get(key)
        return _changed(directory, lines)

    def _marker(self, entering: PlannedMove) -> NewBytes:
        """The marker for a new disk: clean, with the broker epoch of the other directories."""
        found = self.directories[entering.move.source.path].clean_shutdown
        epoch = None if found is None else found.broker_epoch
        return NewBytes(encode_clean_shutdown(NO_BROKER_EPOCH if epoch is None else epoch))

    def _without_futures(self, moves: Sequence[PlannedMove]) -> Iterator[TargetDirectory]:
        """The target states of third directories, in which the broker began a copy."""
        elsewhere: dict[Location, dict[str, TopicPartition]] = {}
        for each in moves:
            key = each.move.partition.key
            for around, name in each.futures:
                if around.path not in (each.move.source.path, each.move.target.path):
                    elsewhere.setdefault(around.path, {})[name] = key
        for path, removed in elsewhere.items():
            yield TargetDirectory(
                path.local_path,
                (),
                _without_lines(self.directories[path], removed.values()),
                directories={name: RemovedDirectory() for name in removed},
            )

    # 2.

    def _leaving(self, source: Location, moves: Sequence[PlannedMove]) -> TargetDirectory:
        """The target state of a directory that partitions leave."""
        removed: dict[str, DirectoryChange] = {each.move.name: RemovedDirectory() for each in moves}
        for each in moves:
            removed |= {
                name: RemovedDirectory() for around, name in each.futures if around.path == source
            }
        keys = [each.move.partition.topic_partition for each in moves]
        root = _without_lines(self.directories[source], [key for key in keys if key is not None])
        return TargetDirectory(source.local_path, (), root, directories=removed)


def _unique(items: Iterable[Item]) -> list[Item]:
    return list(dict.fromkeys(items))


def _left_twice(planned: PlannedMove, failure: str) -> str:
    return (
        f"{failure}; {planned.move.target.path / planned.move.name} is complete, but a broker does"
        " not start with both: run the command again"
    )


def _without_lines(
    directory: LogDirectory, keys: Iterable[TopicPartition]
) -> dict[str, TargetFile]:
    gone: Lines = dict.fromkeys(keys)
    return _changed(directory, dict.fromkeys(directory.checkpoints.by_file_name(), gone))


def _changed(directory: LogDirectory, lines: dict[str, Lines]) -> dict[str, TargetFile]:
    """The checkpoints in which lines change."""
    files: dict[str, TargetFile] = {}
    for name, offsets in directory.checkpoints.by_file_name().items():
        known: Offsets = offsets or {}
        if any(known.get(key) != offset for key, offset in lines[name].items()):
            files |= with_lines(directory, name, lines[name])
    return files
