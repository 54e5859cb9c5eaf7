"""Find the segments whose content changes, and which of them must be replaced together.

A broker has one safe way to replace segments (see above ``LocalLog.replaceSegments``), and finishes
or reverts it when it is started in the middle: the new files are complete under names with
``.cleaned``; they are renamed to ``.swap``, from the last segment to the first; the old files are
deleted; the new ones lose their suffix. As long as one ``.cleaned`` exists, a broker drops every
``.swap`` at or above its offset, and the old files are valid. After that the new files are valid,
for all offsets that they span, and with whichever of their indexes exist.

So all files of a segment take part, including unchanged ones. Segments where one is made from
the other are in one group, and no others are in it.
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
    StagedBytes,
    TargetFile,
)

_LOG = FileKind.LOG.value


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A group of segments that are replaced together.

    Attributes:
        files: target state of each file of the old and new segments, by name: Gone for old files
            without a successor of the same name, RenamedFrom for staged ``.cleaned`` files, and
            content for the others.
        swaps: source logs that have the suffix ``.swap``. These are renamed first: beside a
            ``.cleaned`` they would be invalid.
    """

    files: dict[str, TargetFile]
    swaps: frozenset[str]


def find_rewrites(
    target: Mapping[str, TargetFile], states: Mapping[str, FileState]
) -> list[Rewrite]:
    """Find the groups of segments that the target state replaces, by offset.

    They can be replaced in this order: a staged ``.cleaned`` of a later group does not make a
    ``.swap`` below it invalid.
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
    """Rewritten logs with their sources, as disjoint sets."""
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
    """The removed logs between this one and the next one that stays."""
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
    """Target state of a file in its group; None if it does not exist before or after."""
    state = states.get(name)
    each = target.get(name, Kept())
    match each:
        case Kept():
            return None if state is None else CopiedFrom(name, 0, state.size_bytes)
        case KeptUpTo(size_bytes):
            return CopiedFrom(name, 0, size_bytes)
        case RenamedFrom(source, size_bytes) if not source.endswith(CLEANED):
            return CopiedFrom(source, 0, size_bytes)
        case RenamedFrom() | CopiedFrom() | JoinedFrom() | NewBytes() | StagedBytes() | Gone():
            return each


def _live(name: str) -> str:
    return name.removesuffix(SWAP)


def _offset(name: str) -> int:
    offset = leading_offset(name)
    return 0 if offset is None else offset
