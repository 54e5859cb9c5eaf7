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

import itertools
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from msgspec import Struct

from kdump.apply.operations import FileState
from kdump.apply.segment_names import SEGMENT_SUFFIXES, SWAP, is_log, is_staged
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


class Rewrite(Struct, frozen=True):
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
    every = sorted(name for name in states.keys() | target.keys() if is_log(name))
    for logs, sources in _together(target):
        ready = any(isinstance(target[log], RenamedFrom) for log in logs)
        old = {log for source in sources if is_log(log := _live(source))}
        if ready:
            old |= _replaced_by(max(logs), target, every)
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
    group_of: dict[str, tuple[set[str], set[str]]] = {}
    for name, each in target.items():
        if not is_log(name):
            continue
        match each:
            case CopiedFrom(source, _, _):
                sources = {source}
            case JoinedFrom(pieces):
                sources = {piece.name for piece in pieces} or {name}
            case RenamedFrom(source, _) if is_staged(name, source):
                sources = set()
            case _:
                continue
        group = ({name}, sources)
        names = _names_of(group)
        others = {id(group_of[each]): group_of[each] for each in names if each in group_of}
        # The smaller ones are added to the largest: a group may grow by one log a thousand times.
        group, *rest = sorted((*others.values(), group), key=lambda each: -len(each[0]))
        for logs, more_sources in rest:
            group[0].update(logs)
            group[1].update(more_sources)
        group_of.update((name, group) for other in rest for name in _names_of(other))
        group_of.update((name, group) for name in names)
    return list({id(group): group for group in group_of.values()}.values())


def _names_of(group: tuple[set[str], set[str]]) -> set[str]:
    logs, sources = group
    return logs | {_live(source) for source in sources}


def _replaced_by(log: str, target: Mapping[str, TargetFile], logs: Sequence[str]) -> set[str]:
    """The removed ones of all logs, which are sorted, between this one and the next that stays."""
    after = itertools.islice(logs, bisect_right(logs, log), None)
    return set(itertools.takewhile(lambda name: isinstance(target.get(name), Gone), after))


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
        case RenamedFrom(source, size_bytes) if not is_staged(name, source):
            return CopiedFrom(source, 0, size_bytes)
        case RenamedFrom() | CopiedFrom() | JoinedFrom() | NewBytes() | StagedBytes() | Gone():
            return each


def _live(name: str) -> str:
    return name.removesuffix(SWAP)


def _offset(name: str) -> int:
    offset = leading_offset(name)
    return 0 if offset is None else offset
