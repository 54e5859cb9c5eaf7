"""Find the operations that a directory needs, in an order that is safe at every point.

A broker may be started at any moment between two operations. It then does what it always does with
a partition after an unclean shutdown, and must not lose anything that it would have kept of the
original partition. So the phases follow what a broker does itself:

``INTERIM``
    In the log directory itself: files get the content that they need while partitions change.
``ADD``
    Files that a broker ignores come first: quarantined data exists before it is removed elsewhere.
``TEMPORARY``
    Invalid leftover files. A ``.swap`` at or above the lowest ``.cleaned`` is invalid because of
    that file, so the ``.swap`` goes first: without the ``.cleaned``, a broker would use the
    ``.swap`` and delete the segments that it replaces.
``SWAP``
    A valid ``.swap`` is complete and replaces all segments from its base offset to its end. Those
    are removed first, then the ``.swap`` loses its suffix: in the other order, a broker would find
    batches twice.
``REWRITE``
    Segments that get other content, as :mod:`kdump.apply.rewrites` says.
``ROLL``
    If all segments of a log are removed and replaced by an empty one after them, that one is
    created before they go.
``DROP``
    Removed segments, in the order that never leaves a hole: those at the start of the log from the
    first one up (as ``UnifiedLog.deleteOldSegments`` deletes), those at its end from the last one
    down. Its log is the first file of a segment to go: a broker recovers a log without an index,
    and may truncate it, while it ignores an index without a log.
``CUT``
    Truncations; logs before indexes.
``WRITE``
    Small files that are new or get other content. What makes a broker rebuild the indexes of a
    segment (a missing offset index, a damaged transaction index) is corrected last.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kdump.apply.differences import changes_needed, lost_bytes
from kdump.apply.operations import FileState, Operation, OperationKind, OperationPhase
from kdump.apply.rewrites import Rewrite, find_rewrites
from kdump.apply.segment_names import (
    CLEANED,
    SEGMENT_SUFFIXES,
    SWAP,
    is_log,
    is_staged,
    is_temporary,
)
from kdump.errors import KdumpError
from kdump.formats.names import CLEAN_SHUTDOWN_MARKER, PARTITION_FILES, FileKind, leading_offset
from kdump.storage.local_disk import local
from kdump.target.target_file import (
    CopiedFrom,
    Gone,
    Kept,
    KeptUpTo,
    NewBytes,
    RenamedFrom,
    StagedBytes,
    TargetFile,
)

_NO_OFFSET: Final = -(2**63) - 1


def partition_operations(
    path: Path, target: Mapping[str, TargetFile], states: Mapping[str, FileState]
) -> tuple[Operation, ...]:
    """Find the operations that give the files of the partition ``path`` their target state.

    Raises:
        KdumpError: a file does not have the content that ``target`` refers to.
        OSError: a file cannot be read.
    """
    return _Planner(path, states, changes_needed(path, target, states)).in_partition()


def root_operations(
    path: Path,
    target: Mapping[str, TargetFile],
    states: Mapping[str, FileState],
    *,
    interim: Mapping[str, TargetFile],
    has_partitions: bool,
) -> tuple[Operation, ...]:
    """Find the operations in the log directory ``path`` itself.

    If partitions change and the target state has a clean shutdown marker, the marker is written
    even if it exists already: it must not exist while partitions change. A file with interim
    content has two operations: one for that, one for its target state.
    """
    changes = changes_needed(path, interim, states)
    at_last = {name: _target_after(path / name, target.get(name, Kept())) for name in changes}
    if not all(isinstance(each, NewBytes) for each in changes.values()):
        raise ValueError(f"not new bytes: {changes}")
    others = {name: each for name, each in target.items() if name not in changes}
    found = changes_needed(path, others, states)
    found |= {name: each for name, each in at_last.items() if each != changes[name]}
    marker = target.get(CLEAN_SHUTDOWN_MARKER)
    if isinstance(marker, Gone) and (path / CLEAN_SHUTDOWN_MARKER).is_dir():
        raise KdumpError(f"{path / CLEAN_SHUTDOWN_MARKER}: is a directory; remove it first")
    if has_partitions and isinstance(marker, NewBytes):
        found[CLEAN_SHUTDOWN_MARKER] = marker
    return (
        *_Planner(path, states, changes).in_root(OperationPhase.INTERIM),
        *_Planner(path, states, found, frozenset(changes)).in_root(OperationPhase.WRITE),
    )


def _target_after(path: Path, target: TargetFile) -> TargetFile:
    """The target state of a file that has interim content."""
    if isinstance(target, Kept):
        return NewBytes(local(path).read()) if path.exists() else Gone()
    if not isinstance(target, NewBytes | Gone):
        raise ValueError(f"{path}: cannot become {target} after its interim content")
    return target


@dataclass(slots=True)
class _Planner:
    """Makes the operations of one directory.

    Attributes:
        target: the files that change.
        made: files that earlier operations have created, and whose lost bytes those have counted.
    """

    path: Path
    states: Mapping[str, FileState]
    target: dict[str, TargetFile]
    made: frozenset[str] = frozenset()
    _lost: dict[str, int] = field(init=False)
    _done: list[Operation] = field(init=False)

    def __post_init__(self) -> None:
        lost = lost_bytes(self.states, self.target)
        self._lost = {name: count for name, count in lost.items() if name not in self.made}
        self._done = []

    def in_root(self, phase: OperationPhase) -> tuple[Operation, ...]:
        for name in sorted(self.target, key=lambda name: (name == CLEAN_SHUTDOWN_MARKER, name)):
            self._plain(name, phase)
        return tuple(self._done)

    def in_partition(self) -> tuple[Operation, ...]:
        rewrites = find_rewrites(self.target, self.states)
        of_rewrites = {name for rewrite in rewrites for name in rewrite.files}
        self._copy_aside({name + suffix for name in of_rewrites for suffix in (CLEANED, SWAP)})
        leaving = {each.name for each in self.target.values() if isinstance(each, RenamedFrom)}
        for name in of_rewrites:
            self._require_free(leaving, name + CLEANED, name + SWAP)
            each = self.target.get(name)
            if isinstance(each, RenamedFrom) and not is_staged(name, each.name):
                self.target[each.name] = Gone()  # copied instead
        plain = {name: each for name, each in self.target.items() if name not in of_rewrites}
        self._add(plain)
        if any(map(is_temporary, self.states)):
            self._drop_temporary(plain)
            self._swap(plain, rewrites)
        for number, rewrite in enumerate(rewrites):
            self._rewrite(number, rewrite)
        self._roll(plain)
        self._drop(plain)
        self._cut(plain)
        self._write(plain)
        return tuple(self._done)

    def _copy_aside(self, needed: Container[str]) -> None:
        """Copy leftover files that get other names, if new segments need theirs meanwhile.

        Who finishes an interrupted run cannot tell by its name which of the two a file is.
        """
        for name, each in list(self.target.items()):
            if (
                isinstance(each, RenamedFrom)
                and each.name in needed
                and each.name not in (name + CLEANED, name + SWAP)
            ):
                self.target[name] = CopiedFrom(each.name, 0, each.size_bytes)
                self.target[each.name] = Gone()

    def _require_free(self, leaving: Container[str], *names: str) -> None:
        """Refuse to replace segments if leftover files that stay have the names that this needs.

        Files in ``leaving`` are renamed themselves.
        """
        for name in names:
            is_free = name not in self.states or isinstance(self.target.get(name), Gone)
            if name in self.target and not isinstance(self.target[name], Gone):
                is_free = False
            if not (is_free or name in leaving):
                raise KdumpError(
                    f"{self.path / name}: is a leftover file, and in the way; "
                    f"run 'kdump resolve {self.path}' first"
                )

    def _add(self, plain: dict[str, TargetFile]) -> None:
        for name in sorted(plain):
            if not (
                self._is_there(name)
                or leading_offset(name) is not None
                or name in PARTITION_FILES
                or isinstance(plain[name], RenamedFrom)
            ):
                self._plain(name, OperationPhase.ADD)
                del plain[name]

    def _drop_temporary(self, plain: dict[str, TargetFile]) -> None:
        least_cleaned = self._least_cleaned()
        gone = [name for name, each in plain.items() if isinstance(each, Gone)]
        for suffix in (SWAP, CLEANED, ".deleted"):
            for name in sorted(gone):
                if name.endswith(suffix) and not (suffix == SWAP and _offset(name) < least_cleaned):
                    self._plain(name, OperationPhase.TEMPORARY)
                    del plain[name]

    def _least_cleaned(self) -> int:
        offsets = [_offset(name) for name in self.states if name.endswith(CLEANED)]
        return min(offsets, default=2**63)

    def _swap(self, plain: dict[str, TargetFile], rewrites: list[Rewrite]) -> None:
        least_cleaned = self._least_cleaned()
        swaps = [
            name for name in self.states if name.endswith(SWAP) and _offset(name) < least_cleaned
        ]
        low = min((_offset(name) for name in swaps if is_log(name, SWAP)), default=2**63)
        # The segments that a swap replaces go from the last one down.
        self._remove(plain, low, OperationPhase.SWAP)
        used = {swap for rewrite in rewrites for swap in rewrite.swaps}
        for name in sorted(used.intersection(swaps), key=_by_segment):
            live = name.removesuffix(SWAP)
            self._rename(live, RenamedFrom(name, self.states[name].size_bytes), OperationPhase.SWAP)
            plain.pop(name, None)
        renamed = [
            (name, each)
            for name, each in plain.items()
            if isinstance(each, RenamedFrom) and each.name.endswith(SWAP)
        ]
        for name, each in sorted(renamed, key=lambda item: _by_segment(item[0])):
            self._rename(name, each, OperationPhase.SWAP)
            del plain[name]
        for name in sorted(swaps):
            if isinstance(plain.get(name), Gone):
                self._plain(name, OperationPhase.SWAP)
                del plain[name]

    def _rewrite(self, number: int, rewrite: Rewrite) -> None:
        for name in sorted(rewrite.files, key=_by_segment):
            each = rewrite.files[name]
            if isinstance(each, RenamedFrom):
                self._rename(name, each, OperationPhase.REWRITE, number)
            else:
                self._plain(name, OperationPhase.REWRITE, each, number)

    def _roll(self, plain: dict[str, TargetFile]) -> None:
        """Create the segment that replaces all existing ones."""
        gone = [
            _offset(name) for name, each in plain.items() if isinstance(each, Gone) and is_log(name)
        ]
        if not gone:
            return
        first = self._first_offset()
        if max(gone) >= first:
            return
        new = [name for name, each in plain.items() if isinstance(each, NewBytes | StagedBytes)]
        new = [name for name in new if _offset(name) == first and name.endswith(SEGMENT_SUFFIXES)]
        if any(map(is_log, new)) and not any(map(self._is_there, new)):
            for name in sorted(new, key=_by_segment):
                self._plain(name, OperationPhase.ROLL)
                del plain[name]

    def _drop(self, plain: dict[str, TargetFile]) -> None:
        going = self._going(plain)
        if not going:
            return
        first = self._first_offset()
        before = [name for name in going if _NO_OFFSET < _offset(name) < first]
        for name in sorted(before, key=_by_segment):
            self._plain(name, OperationPhase.DROP)
            del plain[name]
        self._remove(plain, _NO_OFFSET, OperationPhase.DROP)

    def _first_offset(self) -> int:
        """Base offset of the first segment of the target state; the least offset if none."""
        left = [name for name in self.states if is_log(name) and name not in self.target]
        left += [
            name
            for name, each in self.target.items()
            if is_log(name) and not isinstance(each, Gone)
        ]
        return min(map(_offset, left), default=_NO_OFFSET)

    def _remove(self, plain: dict[str, TargetFile], at_least: int, phase: OperationPhase) -> None:
        """Remove those segments at or above an offset that go, from the last one down."""
        going = [name for name in self._going(plain) if _offset(name) >= at_least]
        for name in sorted(going, key=lambda name: (-_offset(name), _by_segment(name))):
            self._plain(name, phase)
            del plain[name]

    def _going(self, plain: dict[str, TargetFile]) -> list[str]:
        return [
            name
            for name, each in plain.items()
            if isinstance(each, Gone) and not is_temporary(name)
        ]

    def _cut(self, plain: dict[str, TargetFile]) -> None:
        cuts = [name for name, each in plain.items() if isinstance(each, KeptUpTo)]
        for name in sorted(cuts, key=_by_segment):
            self._plain(name, OperationPhase.CUT)
            del plain[name]

    def _write(self, plain: dict[str, TargetFile]) -> None:
        for name in sorted(plain, key=lambda name: (self._turn(name), name)):
            each = plain[name]
            if isinstance(each, RenamedFrom):
                self._rename(name, each, OperationPhase.WRITE)
            else:
                self._plain(name, OperationPhase.WRITE)

    def _turn(self, name: str) -> int:
        """Order of small files; what makes a broker rebuild indexes comes last."""
        if name.endswith(FileKind.LOG.extension):
            return 0
        if name.endswith(FileKind.TRANSACTION_INDEX.extension):
            return 4
        if name.endswith(FileKind.OFFSET_INDEX.extension):
            return 3 if self._is_there(name) else 5
        return 2 if name.endswith(FileKind.TIME_INDEX.extension) else 1

    def _is_there(self, name: str) -> bool:
        return name in self.states or name in self.made

    def _plain(
        self,
        name: str,
        phase: OperationPhase,
        target: TargetFile | None = None,
        rewrite: int | None = None,
    ) -> None:
        each = self.target[name] if target is None else target
        if isinstance(each, Kept):
            return
        if isinstance(each, RenamedFrom):
            self._rename(name, each, phase, rewrite)
            return
        size_bytes = 0 if isinstance(each, Gone) else each.size_bytes
        if isinstance(each, Gone):
            kind = OperationKind.REMOVE
        elif isinstance(each, KeptUpTo):
            kind = OperationKind.CUT
        else:
            kind = OperationKind.REPLACE if self._is_there(name) else OperationKind.CREATE
        lost_bytes = self._lost.pop(name, 0)
        self._done.append(
            Operation(kind, self.path, name, each, size_bytes, lost_bytes, phase, None, rewrite)
        )

    def _rename(
        self, name: str, target: RenamedFrom, phase: OperationPhase, rewrite: int | None = None
    ) -> None:
        lost_bytes = self._lost.pop(target.name, 0) + self._lost.pop(name, 0)
        self._done.append(
            Operation(
                OperationKind.RENAME,
                self.path,
                name,
                target,
                target.size_bytes,
                lost_bytes,
                phase,
                target.name,
                rewrite,
            )
        )


@functools.lru_cache(maxsize=1024)
def _offset(name: str) -> int:
    """The offset in a name. Each name is asked for several times, and partitions share many."""
    offset = leading_offset(name)
    return _NO_OFFSET if offset is None else offset


@functools.lru_cache(maxsize=1024)
def _by_segment(name: str) -> tuple[int, int, str]:
    """Sort key: segments in order; within each the log first, then its indexes."""
    stem = name
    for suffix in (SWAP, CLEANED):
        stem = stem.removesuffix(suffix)
    kinds = [at for at, suffix in enumerate(SEGMENT_SUFFIXES) if stem.endswith(suffix)]
    return _offset(name), kinds[0] if kinds else len(SEGMENT_SUFFIXES), name
