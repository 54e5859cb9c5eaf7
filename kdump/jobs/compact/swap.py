"""Write new segments beside the old ones, and swap them in, a few at a time.

Only one group of segments, or a few small groups, need space at the same time: if there is not
enough for the next group, the segments written so far are swapped in, which frees the old ones. In
a partition with thousands of files, more groups are swapped in together where there is space.
Each swap is a run of :mod:`kdump.apply`, before and after which the directory is clean: a broker
started between two of them finds partitions with some compacted segments.

With undo data all swaps are one run, because nothing is freed before the undo data is discarded.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.apply.apply import apply_plan
from kdump.apply.disk_space import DISK_FULL
from kdump.apply.early_content import EarlyContent
from kdump.apply.files import DISK, Content, FileRange, Files, free_bytes_at
from kdump.apply.plan import Plan, TargetDirectory, TargetPartition, make_plan
from kdump.apply.staging import stage_file
from kdump.broker.cleaner.cleaned_root import compacted_root
from kdump.broker.cleaner.cleaned_segment import GroupRewriter, GroupToRewrite, RewrittenGroup
from kdump.broker.cleaner.compaction_rewrite import Chunk
from kdump.broker.cleaner.compaction_round import Compacted, Round, staged_name
from kdump.formats.names import FileKind, TopicPartition
from kdump.jobs.writing.execution import Writing
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.storage.location import Location
from kdump.target.content_store import without_content
from kdump.target.refusal import Refusal
from kdump.target.target_file import CopiedFrom, Gone, StagedBytes, TargetFile
from kdump.target.virtual_directory import file_name

SWAPPED_BYTES: Final = 64 << 20
"""New segments of this size together are swapped in: a swap takes some syncs."""
_EXAMINED_FILES: Final = 1000
"""A swap takes the fingerprint of every file in its partitions. For each so many of them, it waits
for as many bytes again, if there is space: otherwise a log of twice the size takes four times as
long."""
SWAPPED_PARTITIONS: Final = 500
"""So many partitions are swapped in, however small: their plan is in memory."""

_SPARE_BYTES: Final = 1 << 20
"""Space for checkpoints and the journal."""
_INDEXED_SHARE: Final = 128
"""Indexes take at most one byte for this many bytes of log, with Kafka's default settings."""
_NS_PER_MS: Final = 1_000_000

Rewritten = Iterable[Iterable[Chunk] | Refusal]


class NoSpace(Struct, frozen=True):
    """There is not enough space for the next group of segments of a partition.

    Attributes:
        base_offset: of the group.
        needed_bytes: how much it may need.
        free_bytes: how much there is.
    """

    base_offset: int
    needed_bytes: int
    free_bytes: int


class Discarder:
    """Writes nothing, for a dry run."""

    undos: tuple[str, ...] = ()
    is_first: bool = True

    def drop_unfinished(self, partitions: Iterable[Partition]) -> None:
        """Leave unfinished segments of an earlier run."""

    def write(
        self, begun: Round, group: GroupToRewrite, rewritten: Rewritten
    ) -> RewrittenGroup | Refusal | NoSpace:
        """Compute what a group would become."""
        rewriter = GroupRewriter(group)
        for _ in rewriter.pieces(rewritten):
            pass
        outcome = rewriter.outcome
        if isinstance(outcome, Refusal):
            return outcome
        indexes = {kind: without_content(each) for kind, each in outcome.indexes.items()}
        return replace(outcome, indexes=indexes)

    def complete(self, partition: TopicPartition, compacted: Compacted) -> None:
        """Note that all groups of a partition are done."""

    def swap(self) -> None:
        """Swap nothing."""

    def close(self) -> None:
        """Leave nothing."""


class Swapper(Struct):
    """Writes new segments to a locked, clean log directory.

    Attributes:
        directory: the directory as it was.
        is_first: whether the command has changed nothing yet in the directory.
    """

    directory: LogDirectory
    writing: Writing
    files: Files = DISK
    is_first: bool = True
    _early: EarlyContent | None = None
    _undos: list[str] = field(default_factory=list)
    _pending: dict[Location, dict[str, TargetFile]] = field(default_factory=dict)
    _swapped: dict[Location, set[str]] = field(default_factory=dict)
    _staged: list[Path] = field(default_factory=list)
    _staged_bytes: int = 0
    _examined_files: int = 0
    _completed: dict[TopicPartition, Compacted] = field(default_factory=dict)

    @property
    def undos(self) -> tuple[str, ...]:
        """The undo IDs, oldest first."""
        return tuple(self._undos)

    def drop_unfinished(self, partitions: Iterable[Partition]) -> None:
        """Remove unfinished segments (``.cleaned``), as a broker does.

        Raises:
            KdumpError: they cannot be removed; says what to do.
            OSError: the disk fails.
        """
        for partition in partitions:
            if partition.unfinished_files:
                self._pending[partition.path] = {
                    each.name: Gone() for each in partition.unfinished_files
                }
        if self._pending:
            self.swap()

    def write(
        self, begun: Round, group: GroupToRewrite, rewritten: Rewritten
    ) -> RewrittenGroup | Refusal | NoSpace:
        """Write the new segment of ``group``; it is swapped in now or later.

        Raises:
            KdumpError: earlier segments cannot be swapped in.
            OSError: the disk fails.
        """
        no_space = self._without_space_for(group)
        if no_space is not None:
            return no_space
        staged = group.path / staged_name(group.base_offset)
        try:
            outcome = self._staged_group(group, staged.local_path, rewritten)
        except OSError as failure:
            if failure.errno not in DISK_FULL:
                raise
            return NoSpace(group.base_offset, _most_bytes(group), self._free_bytes())
        if isinstance(outcome, Refusal):
            return outcome
        if self._early is None:
            self._early = EarlyContent.of_next_run(self.directory.path.local_path, self.files)
        indexes = {kind: self._early.staged(each) for kind, each in outcome.indexes.items()}
        outcome = replace(outcome, indexes=indexes)
        self._staged_bytes += sum(
            each.size_bytes for each in indexes.values() if isinstance(each, StagedBytes)
        )
        changed = begun.files_of(outcome)
        if group.path not in self._pending:
            self._examined_files += len(begun.loaded.files)
        self._pending.setdefault(group.path, {}).update(changed)
        self._swapped.setdefault(group.path, set()).update(changed)
        if self._is_enough() and not self.writing.keep_undo:
            self.swap()
        return outcome

    def _is_enough(self) -> bool:
        """Whether what was written is worth a swap, or takes half of the free space."""
        if self._staged_bytes < SWAPPED_BYTES:
            return False
        worth_bytes = SWAPPED_BYTES * self._examined_files // _EXAMINED_FILES
        return self._staged_bytes >= min(worth_bytes, self._free_bytes())

    def _staged_group(
        self, group: GroupToRewrite, staged: Path, rewritten: Rewritten
    ) -> RewrittenGroup | Refusal:
        rewriter = GroupRewriter(group)
        log = group.path / file_name(group.base_offset, FileKind.LOG)
        content = _content(rewriter, rewritten, group.path.local_path)
        try:
            modified_ns = group.modified_ms * _NS_PER_MS
            stage_file(
                staged, content, like=log.local_path, modified_ns=modified_ns, files=self.files
            )
        except _NotUsed:
            return rewriter.outcome
        outcome = rewriter.outcome
        assert isinstance(outcome, RewrittenGroup), "otherwise it is not used"
        self._staged.append(staged)
        self._staged_bytes += outcome.after.size_bytes
        return outcome

    def complete(self, partition: TopicPartition, compacted: Compacted) -> None:
        """Add the other changes of a partition, after its last group, to the next swap."""
        path = self.directory.path / str(partition)
        written = self._swapped.pop(path, set())
        rest = {name: each for name, each in compacted.files.items() if name not in written}
        self._pending.setdefault(path, {}).update(rest)
        self._completed[partition] = compacted.without_files()
        if len(self._pending) >= SWAPPED_PARTITIONS and not self.writing.keep_undo:
            self.swap()

    def swap(self) -> None:
        """Swap in what was written.

        Raises:
            KdumpError: it cannot be swapped in; says what to do.
            OSError: the disk fails.
        """
        changes = tuple(
            TargetPartition(path.local_path, files) for path, files in self._pending.items()
        )
        plan = self._plan(changes)
        self._pending.clear()
        # From here on they belong to apply.
        self._early = None
        self._staged.clear()
        self._staged_bytes = self._examined_files = 0
        keep_undo, command = self.writing.keep_undo, self.writing.command
        undo = apply_plan(
            plan,
            keep_undo=keep_undo,
            command=command,
            files=self.files,
            is_first=self.is_first,
        )
        self.is_first &= plan.is_empty
        if undo is not None:
            self._undos.append(undo)

    def close(self) -> None:
        """Remove segments that were written and are not swapped in."""
        for path in self._staged:
            self.files.unlink(path)
        self._staged.clear()

    def _plan(self, changes: tuple[TargetPartition, ...]) -> Plan:
        root = compacted_root(self.directory, self._completed)
        # The clean shutdown marker stays: a loading broker resolves every state in between, and
        # without the marker it would recover segments that are not compacted.
        return make_plan(TargetDirectory(self.directory.path.local_path, changes, root))

    def _without_space_for(self, group: GroupToRewrite) -> NoSpace | None:
        needed_bytes = _most_bytes(group)
        if self._free_bytes() >= needed_bytes:
            return None
        if self._pending and not self.writing.keep_undo:
            self.swap()
        # It is usually much less; computing it takes as long as rewriting the group.
        if self._free_bytes() < needed_bytes:
            rewriter = GroupRewriter(group)
            for _ in rewriter.pieces():
                pass
            if isinstance(rewriter.outcome, RewrittenGroup):
                needed_bytes = _with_spare(rewriter.outcome.after.size_bytes)
        free_bytes = self._free_bytes()
        if free_bytes < needed_bytes:
            return NoSpace(group.base_offset, needed_bytes, free_bytes)
        return None

    def _free_bytes(self) -> int:
        return free_bytes_at(self.directory.path.local_path)


def _most_bytes(group: GroupToRewrite) -> int:
    return _with_spare(sum(part.size_bytes for part in group.parts))


def _with_spare(size_bytes: int) -> int:
    return size_bytes + size_bytes // _INDEXED_SHARE + _SPARE_BYTES


class _NotUsed(Exception):
    """A new segment equals the old one, or cannot be completed."""


def _content(rewriter: GroupRewriter, rewritten: Rewritten, folder: Path) -> Content:
    """The content of the new log.

    Raises:
        _NotUsed: there is no new log; raised before the last piece.
    """
    last: bytes | FileRange | None = None
    for piece in rewriter.pieces(rewritten):
        if last is not None:
            yield last
        if isinstance(piece, CopiedFrom):
            last = FileRange(folder / piece.name, piece.start, piece.end)
        else:
            last = piece
    outcome = rewriter.outcome
    if isinstance(outcome, Refusal) or outcome.is_unchanged:
        raise _NotUsed
    if last is not None:
        yield last
