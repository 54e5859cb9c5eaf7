"""Segments whose content changes: which of them have to be exchanged together.

A broker knows one safe way to put new segments in the place of old ones (above
``LocalLog.replaceSegments``), and finishes or undoes it when it is started in the middle: the new
files are complete under names with ``.cleaned``; they are renamed to ``.swap``, from the last
segment to the first; the old files go; the new ones lose their suffix. As long as one ``.cleaned``
is there, every ``.swap`` at or above its offset is dropped by a broker, and the old files count;
after that the new ones do, for all offsets that they span, and with whatever of them is there.

So all files of a segment take part, also those that stay as they are; and segments of which one
is made from the other go together, and nobody else with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kdump.apply.operations import FileState
from kdump.apply.segment_names import CLEANED, SEGMENT_SUFFIXES, SWAP, is_log
from kdump.formats.names import FileKind, leading_offset
from kdump.target.target_file import (
    CopiedFrom,
    Gone,
    JoinedFrom,
    Kept,
    KeptUpTo,
    NewBytes,
    RenamedFrom,
    TargetFile,
)

_LOG = FileKind.LOG.value


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Segments that are exchanged together.

    Attributes:
        files: by name what becomes of each file of the old and the new segments: Gone for the
            old ones that have no successor of the same name, RenamedFrom for what lies ready with
            the suffix ``.cleaned``, and content for the others.
        swaps: those logs that they are made from which have the suffix ``.swap``. They are taken
            into use first: beside a ``.cleaned`` they would not count any more.
    """

    files: dict[str, TargetFile]
    swaps: frozenset[str]


def find_rewrites(
    target: Mapping[str, TargetFile], states: Mapping[str, FileState]
) -> list[Rewrite]:
    """The exchanges of segments among what is wanted, in the order of their offsets.

    That order is the one in which they can be done: a ``.cleaned`` that lies ready for a later
    one does no harm to a ``.swap`` below it.
    """
    found = []
    for logs, sources in _together(target):
        ready = any(isinstance(target[log], RenamedFrom) for log in logs)
        old = {log for source in sources if is_log(log := _live(source))}
        if ready:
            old |= _replaced_by(max(logs), target, states)
        stems = {log.removesuffix(_LOG) for log in (logs | old)}
        files: dict[str, TargetFile] = {}
        for stem in stems:
            for suffix in SEGMENT_SUFFIXES:
                each = _in_rewrite(stem + suffix, target, states)
                if each is not None:
                    files[stem + suffix] = each
        swaps = frozenset(
            source
            for source in sources
            if is_log(source, SWAP) and isinstance(target.get(source), Gone)
        )
        for swap in swaps:
            files.setdefault(_live(swap), Gone())
        found.append(Rewrite(files, swaps))
    return sorted(found, key=lambda rewrite: min(map(_offset, rewrite.files)))


def _together(target: Mapping[str, TargetFile]) -> list[tuple[set[str], set[str]]]:
    """Logs that are made anew, and what they are made from, as sets that have nothing in common."""
    found: list[tuple[set[str], set[str]]] = []
    for name, each in target.items():
        if not is_log(name):
            continue
        match each:
            case CopiedFrom(source, _, _):
                sources = {source}
            case JoinedFrom(pieces):
                sources = {piece.name for piece in pieces} or {name}
            case RenamedFrom(source, _) if source.endswith(CLEANED):
                sources = set()
            case _:
                continue
        logs = {name}
        for other in [other for other in found if _overlap(logs, sources, *other)]:
            found.remove(other)
            logs |= other[0]
            sources |= other[1]
        found.append((logs, sources))
    return found


def _overlap(logs: set[str], sources: set[str], more: set[str], more_sources: set[str]) -> bool:
    names = logs | {_live(source) for source in sources}
    return not names.isdisjoint(more | {_live(source) for source in more_sources})


def _replaced_by(
    log: str, target: Mapping[str, TargetFile], states: Mapping[str, FileState]
) -> set[str]:
    """The logs that go from this one's offset to that of the next one that stays."""
    logs = sorted(name for name in states.keys() | target.keys() if is_log(name) and name > log)
    replaced = set()
    for name in logs:
        if not isinstance(target.get(name), Gone):
            break
        replaced.add(name)
    return replaced


def _in_rewrite(
    name: str, target: Mapping[str, TargetFile], states: Mapping[str, FileState]
) -> TargetFile | None:
    """What the file is in the exchange; None where there is and will be none."""
    state = states.get(name)
    each = target.get(name, Kept())
    match each:
        case Kept():
            return None if state is None else CopiedFrom(name, 0, state.size_bytes)
        case KeptUpTo(size_bytes):
            return CopiedFrom(name, 0, size_bytes)
        case RenamedFrom(source, size_bytes) if not source.endswith(CLEANED):
            return CopiedFrom(source, 0, size_bytes)
        case RenamedFrom() | CopiedFrom() | JoinedFrom() | NewBytes() | Gone():
            return each


def _live(name: str) -> str:
    return name.removesuffix(SWAP)


def _offset(name: str) -> int:
    offset = leading_offset(name)
    return 0 if offset is None else offset
