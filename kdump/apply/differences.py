"""Compare files with their target state: what has to change, and which bytes that loses."""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path

from kdump.apply.operations import FileState
from kdump.apply.segment_names import SWAP
from kdump.errors import KdumpError
from kdump.storage.local_disk import local
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


def changes_needed(
    path: Path, target: Mapping[str, TargetFile], states: Mapping[str, FileState]
) -> dict[str, TargetFile]:
    """Find the files that do not have their target state yet.

    A target that an operation cannot reach is replaced by an equivalent one: a file that shares its
    content with another name is copied instead of truncated, for example.

    Raises:
        KdumpError: a file does not have the content that ``target`` refers to.
        OSError: a file cannot be read.
    """
    found: dict[str, TargetFile] = {}
    others = [
        (name, each)
        for name, each in target.items()
        if not (isinstance(each, Kept) and name in states)
    ]
    for name, each in sorted(others, key=itemgetter(0)):
        for source, end in _sources_of(name, each):
            if source not in states or states[source].size_bytes < end:
                raise KdumpError(
                    f"{path / source}: is missing or has become shorter since it was read; "
                    "run the command again"
                )
        is_there = name in states
        match each:
            case Gone() if not is_there:
                continue
            case KeptUpTo(size_bytes) if is_there:
                if size_bytes == states[name].size_bytes:
                    continue
                if not states[name].is_own:
                    each = CopiedFrom(name, 0, size_bytes)
            case RenamedFrom(source, size_bytes) if size_bytes < states[source].size_bytes:
                if not (states[source].is_own and source.endswith(SWAP)):
                    each = CopiedFrom(source, 0, size_bytes)
            case NewBytes(data) if is_there and states[name].size_bytes == len(data):
                if local(path / name).read() == data:
                    continue
            case _:
                pass
        if not is_there and not isinstance(each, Gone) and os.path.lexists(f"{path}/{name}"):
            if not (path / name).exists():
                raise KdumpError(f"{path / name}: is a symbolic link to nothing; remove it first")
            raise KdumpError(f"{path / name}: not a regular file; remove it first")
        found[name] = each
    sources = {each.name: name for name, each in found.items() if isinstance(each, RenamedFrom)}
    for name in sources:
        found.pop(name, None)
    for name, each in others:
        # A file that is copied instead of renamed is removed under its old name.
        if isinstance(each, RenamedFrom) and not isinstance(found.get(name), RenamedFrom):
            found[each.name] = Gone()
    return found


def _sources_of(name: str, target: TargetFile) -> list[tuple[str, int]]:
    """The source files of the target file ``name``, and up to which byte each is needed."""
    match target:
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
        case NewBytes() | StagedBytes() | Gone():
            return []


def lost_bytes(states: Mapping[str, FileState], target: Mapping[str, TargetFile]) -> dict[str, int]:
    """How many bytes of each file exist nowhere afterwards."""
    kept: dict[str, list[tuple[int, int]]] = {}
    changed_paths = set(target)
    for name, each in target.items():
        match each:
            case KeptUpTo(size_bytes):
                kept.setdefault(name, []).append((0, size_bytes))
            case RenamedFrom(source, size_bytes):
                changed_paths.add(source)
                kept.setdefault(source, []).append((0, size_bytes))
            case CopiedFrom(source, start, end):
                kept.setdefault(source, []).append((start, end))
            case JoinedFrom(pieces):
                for piece in pieces:
                    kept.setdefault(piece.name, []).append((piece.start, piece.end))
            case _:
                pass
    lost = {}
    for name in changed_paths:
        if name not in states:
            continue
        state = states[name]
        lost[name] = state.allocated_bytes
        if name in kept:
            gaps = gaps_between(kept[name], state.size_bytes)
            lost[name] = min(sum(end - start for start, end in gaps), lost[name])
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
