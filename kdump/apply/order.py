"""What is done in a directory, and in which order.

A broker may be started at any moment between two operations. It then does what it always does with
a partition that was not stopped cleanly, and must not lose anything that it would have kept of the
partition as it was. So the phases follow what a broker does itself:

``ADD``
    Files that a broker does not look at come first: what salvage sets aside is there before it
    is gone elsewhere.
``TEMPORARY``
    Leftovers that count for nothing. A ``.swap`` at or above the lowest ``.cleaned`` is invalid
    because of that, so it goes first: without the ``.cleaned`` a broker would take it into use,
    and delete what it stands for.
``SWAP``
    A valid ``.swap`` is complete, and stands for all files from its base offset to its end. Those
    go first, then the ``.swap`` loses its suffix: the other way round a broker would find batches
    twice.
``REWRITE``
    Segments that get other content, as :mod:`kdump.apply.rewrites` says.
``DROP``
    Segments that go: the last one first, so that what is left has no hole, and of each the log
    first, because a log without its index is recovered, and may be cut, while an index without a
    log is nothing.
``CUT``
    Files that end earlier; logs before indexes.
``WRITE``
    Small files that are new or get other content. What makes a broker rebuild a segment's
    indexes (that the offset index is missing, or the transaction index damaged) is put right
    last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kdump.apply.operations import FileState, Operation, OperationKind, Phase
from kdump.apply.rewrites import Rewrite, find_rewrites
from kdump.apply.segment_names import (
    CLEANED,
    SEGMENT_SUFFIXES,
    SWAP,
    is_log,
    is_temporary,
    offset_of,
)
from kdump.errors import KdumpError
from kdump.formats.names import CLEAN_SHUTDOWN_MARKER, PARTITION_FILES, FileKind
from kdump.repair.wanted import (
    CopiedFrom,
    Gone,
    JoinedFrom,
    Kept,
    KeptUpTo,
    NewBytes,
    RenamedFrom,
    WantedFile,
)

_NO_OFFSET: Final = -(2**63) - 1


def partition_operations(
    path: Path, wanted: Mapping[str, WantedFile], states: Mapping[str, FileState]
) -> tuple[Operation, ...]:
    """What has to be done in the partition ``path``, whose files are as ``states`` says.

    Raises:
        KdumpError: a file is not what ``wanted`` assumes.
        OSError: a file cannot be read.
    """
    return _Planner(path, states, _different(path, wanted, states)).in_partition()


def root_operations(
    path: Path,
    wanted: Mapping[str, WantedFile],
    states: Mapping[str, FileState],
    *,
    has_partitions: bool,
) -> tuple[Operation, ...]:
    """The same for the log directory ``path`` itself.

    Where something is done in partitions, and a marker of a clean stop is wanted, that is written
    anew even if it is there: it must not be while things change.
    """
    different = _different(path, wanted, states)
    marker = wanted.get(CLEAN_SHUTDOWN_MARKER)
    if has_partitions and isinstance(marker, NewBytes):
        different[CLEAN_SHUTDOWN_MARKER] = marker
    return _Planner(path, states, different).in_root()


def _different(
    path: Path, wanted: Mapping[str, WantedFile], states: Mapping[str, FileState]
) -> dict[str, WantedFile]:
    """What is not as wanted yet, in terms of what can be done to such files."""
    found: dict[str, WantedFile] = {}
    for name, each in sorted(wanted.items()):
        for source, end in sources_of(name, each):
            if source not in states or states[source].size_bytes < end:
                raise KdumpError(
                    f"{path / source}: is missing or has become shorter since it was read; "
                    "run the command again"
                )
        state = states.get(name)
        match each:
            case Kept():
                continue
            case Gone() if state is None:
                continue
            case KeptUpTo(size_bytes) if state is not None:
                if size_bytes == state.size_bytes:
                    continue
                if not state.is_own:
                    each = CopiedFrom(name, 0, size_bytes)
            case RenamedFrom(source, size_bytes) if size_bytes < states[source].size_bytes:
                if not (states[source].is_own and source.endswith(SWAP)):
                    each = CopiedFrom(source, 0, size_bytes)
            case NewBytes(data) if state is not None and state.size_bytes == len(data):
                if (path / name).read_bytes() == data:
                    continue
            case _:
                pass
        if state is None and not isinstance(each, Gone) and (path / name).is_symlink():
            raise KdumpError(f"{path / name}: is a symbolic link to nothing; remove it first")
        found[name] = each
    sources = {each.name: name for name, each in found.items() if isinstance(each, RenamedFrom)}
    for name in sources:
        found.pop(name, None)
    for name, each in wanted.items():
        # What is copied instead of renamed leaves its old name behind.
        if isinstance(each, RenamedFrom) and not isinstance(found.get(name), RenamedFrom):
            found[each.name] = Gone()
    return found


def sources_of(name: str, wanted: WantedFile) -> list[tuple[str, int]]:
    """The files that the wanted file ``name`` is made of, and up to where each is needed."""
    match wanted:
        case Kept():
            return [(name, 0)]
        case KeptUpTo(size_bytes):
            return [(name, size_bytes)]
        case RenamedFrom(source, size_bytes):
            return [(source, size_bytes)]
        case CopiedFrom(source, _, end):
            return [(source, end)]
        case JoinedFrom(pieces):
            return [(piece.name, piece.end) for piece in pieces]
        case NewBytes() | Gone():
            return []


@dataclass(slots=True)
class _Planner:
    """Makes the operations of one directory."""

    path: Path
    states: Mapping[str, FileState]
    wanted: dict[str, WantedFile]
    _lost: dict[str, int] = field(init=False)
    _done: list[Operation] = field(init=False)

    def __post_init__(self) -> None:
        self._lost = _lost_bytes(self.states, self.wanted)
        self._done = []

    def in_root(self) -> tuple[Operation, ...]:
        for name in sorted(self.wanted, key=lambda name: (name == CLEAN_SHUTDOWN_MARKER, name)):
            self._plain(name, Phase.WRITE)
        return tuple(self._done)

    def in_partition(self) -> tuple[Operation, ...]:
        rewrites = find_rewrites(self.wanted, self.states)
        of_rewrites = {name for rewrite in rewrites for name in rewrite.files}
        for name in of_rewrites:
            self._require_free(name + CLEANED, name + SWAP)
            each = self.wanted.get(name)
            if isinstance(each, RenamedFrom) and not each.name.endswith(CLEANED):
                self.wanted[each.name] = Gone()  # copied instead
        plain = {name: each for name, each in self.wanted.items() if name not in of_rewrites}
        self._add(plain)
        self._drop_temporary(plain)
        self._swap(plain, rewrites)
        for number, rewrite in enumerate(rewrites):
            self._rewrite(number, rewrite)
        self._drop(plain)
        self._cut(plain)
        self._write(plain)
        return tuple(self._done)

    def _require_free(self, *names: str) -> None:
        """Refuse to exchange segments where leftovers have the names that it takes, and stay."""
        leaving = {each.name for each in self.wanted.values() if isinstance(each, RenamedFrom)}
        for name in names:
            is_free = name not in self.states or isinstance(self.wanted.get(name), Gone)
            if name in self.wanted and not isinstance(self.wanted[name], Gone):
                is_free = False
            if not (is_free or name in leaving):
                raise KdumpError(
                    f"{self.path / name}: is left over from something else, and in the way; "
                    f"run 'kdump resolve {self.path}' first"
                )

    def _add(self, plain: dict[str, WantedFile]) -> None:
        for name in sorted(plain):
            if not (
                self._is_there(name)
                or offset_of(name) is not None
                or name in PARTITION_FILES
                or isinstance(plain[name], RenamedFrom)
            ):
                self._plain(name, Phase.ADD)
                del plain[name]

    def _drop_temporary(self, plain: dict[str, WantedFile]) -> None:
        least_cleaned = self._least_cleaned()
        gone = [name for name, each in plain.items() if isinstance(each, Gone)]
        for suffix in (SWAP, CLEANED, ".deleted"):
            for name in sorted(gone):
                if name.endswith(suffix) and not (suffix == SWAP and _offset(name) < least_cleaned):
                    self._plain(name, Phase.TEMPORARY)
                    del plain[name]

    def _least_cleaned(self) -> int:
        offsets = [_offset(name) for name in self.states if name.endswith(CLEANED)]
        return min(offsets, default=2**63)

    def _swap(self, plain: dict[str, WantedFile], rewrites: list[Rewrite]) -> None:
        least_cleaned = self._least_cleaned()
        swaps = [
            name for name in self.states if name.endswith(SWAP) and _offset(name) < least_cleaned
        ]
        low = min((_offset(name) for name in swaps if is_log(name, SWAP)), default=2**63)
        self._drop(plain, at_least=low)
        used = {swap for rewrite in rewrites for swap in rewrite.swaps}
        for name in sorted(used.intersection(swaps), key=_by_segment):
            live = name.removesuffix(SWAP)
            self._rename(live, RenamedFrom(name, self.states[name].size_bytes), Phase.SWAP)
            plain.pop(name, None)
        renamed = [
            (name, each)
            for name, each in plain.items()
            if isinstance(each, RenamedFrom) and each.name.endswith(SWAP)
        ]
        for name, each in sorted(renamed, key=lambda item: _by_segment(item[0])):
            self._rename(name, each, Phase.SWAP)
            del plain[name]
        for name in sorted(swaps):
            if isinstance(plain.get(name), Gone):
                self._plain(name, Phase.SWAP)
                del plain[name]

    def _rewrite(self, number: int, rewrite: Rewrite) -> None:
        for name in sorted(rewrite.files, key=_by_segment):
            each = rewrite.files[name]
            if isinstance(each, RenamedFrom):
                self._rename(name, each, Phase.REWRITE, number)
            else:
                self._plain(name, Phase.REWRITE, each, number)

    def _drop(self, plain: dict[str, WantedFile], at_least: int | None = None) -> None:
        """Remove what goes, or what goes at or above an offset to make room for a swap."""
        phase = Phase.DROP if at_least is None else Phase.SWAP
        going = [
            name
            for name, each in plain.items()
            if isinstance(each, Gone)
            and not is_temporary(name)
            and (at_least is None or _offset(name) >= at_least)
        ]
        for name in sorted(going, key=lambda name: (-_offset(name), _by_segment(name))):
            self._plain(name, phase)
            del plain[name]

    def _cut(self, plain: dict[str, WantedFile]) -> None:
        cuts = [name for name, each in plain.items() if isinstance(each, KeptUpTo)]
        for name in sorted(cuts, key=_by_segment):
            self._plain(name, Phase.CUT)
            del plain[name]

    def _write(self, plain: dict[str, WantedFile]) -> None:
        for name in sorted(plain, key=lambda name: (self._turn(name), name)):
            each = plain[name]
            if isinstance(each, RenamedFrom):
                self._rename(name, each, Phase.WRITE)
            else:
                self._plain(name, Phase.WRITE)

    def _turn(self, name: str) -> int:
        """When a small file is written; what sets a broker to rebuilding indexes comes last."""
        if name.endswith(FileKind.LOG.value):
            return 0
        if name.endswith(FileKind.TRANSACTION_INDEX.value):
            return 4
        if name.endswith(FileKind.OFFSET_INDEX.value):
            return 3 if self._is_there(name) else 5
        return 2 if name.endswith(FileKind.TIME_INDEX.value) else 1

    def _is_there(self, name: str) -> bool:
        return name in self.states

    def _plain(
        self,
        name: str,
        phase: Phase,
        wanted: WantedFile | None = None,
        rewrite: int | None = None,
    ) -> None:
        each = self.wanted[name] if wanted is None else wanted
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
        self, name: str, wanted: RenamedFrom, phase: Phase, rewrite: int | None = None
    ) -> None:
        lost_bytes = self._lost.pop(wanted.name, 0) + self._lost.pop(name, 0)
        self._done.append(
            Operation(
                OperationKind.RENAME,
                self.path,
                name,
                wanted,
                wanted.size_bytes,
                lost_bytes,
                phase,
                wanted.name,
                rewrite,
            )
        )


def _lost_bytes(
    states: Mapping[str, FileState], wanted: Mapping[str, WantedFile]
) -> dict[str, int]:
    """How much of each file is nowhere afterwards."""
    kept: dict[str, list[tuple[int, int]]] = {}
    touched = set(wanted)
    for name, each in wanted.items():
        match each:
            case KeptUpTo(size_bytes):
                kept.setdefault(name, []).append((0, size_bytes))
            case RenamedFrom(source, size_bytes):
                touched.add(source)
                kept.setdefault(source, []).append((0, size_bytes))
            case CopiedFrom(source, start, end):
                kept.setdefault(source, []).append((start, end))
            case JoinedFrom(pieces):
                for piece in pieces:
                    kept.setdefault(piece.name, []).append((piece.start, piece.end))
            case _:
                pass
    lost = {}
    for name in touched:
        if name in states:
            gaps = gaps_between(kept.get(name, []), states[name].size_bytes)
            size_bytes = sum(end - start for start, end in gaps)
            lost[name] = min(size_bytes, states[name].allocated_bytes)
    return lost


def gaps_between(ranges: list[tuple[int, int]], size_bytes: int) -> list[tuple[int, int]]:
    """The parts of a file of ``size_bytes`` bytes that are in none of ``ranges``."""
    gaps = []
    position = 0
    for start, end in sorted(ranges):
        if start > position:
            gaps.append((position, start))
        position = max(position, end)
    if position < size_bytes:
        gaps.append((position, size_bytes))
    return gaps


def _offset(name: str) -> int:
    offset = offset_of(name)
    return _NO_OFFSET if offset is None else offset


def _by_segment(name: str) -> tuple[int, int, str]:
    """Segments in their order; of each the log first, then what is derived from it."""
    stem = name
    for suffix in (SWAP, CLEANED):
        stem = stem.removesuffix(suffix)
    kinds = [at for at, suffix in enumerate(SEGMENT_SUFFIXES) if stem.endswith(suffix)]
    return _offset(name), kinds[0] if kinds else len(SEGMENT_SUFFIXES), name
