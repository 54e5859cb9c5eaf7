"""What a plan for a usual deletion comes to, without making it.

A preview of 10,000 partitions counts their changes and lists none. To plan each is a fourth of its
work: the planner looks at every file, and goes through all phases. Where files at the start of a
log go, nothing is left over, and at most small files get other content, each target file is one
operation, and its place in the plan follows from its name. Anything else is left to
:func:`~kdump.apply.plan.plan_partition`, which comes to the same for these.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kdump.apply.operations import OperationKind
from kdump.apply.segment_names import SEGMENT_SUFFIXES
from kdump.formats.names import PARTITION_FILES, FileKind, FileStage, parse_offset_file_name
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.local_disk import local
from kdump.target.target_file import Gone, NewBytes, TargetFile

_LOG: Final = FileKind.LOG.value
_ORDER: Final = {suffix: at for at, suffix in enumerate(SEGMENT_SUFFIXES)} | {
    FileKind.PRODUCER_SNAPSHOT.value: len(SEGMENT_SUFFIXES)
}
"""The order in which files at an offset change."""
_Place = tuple[int, int]
"""The offset in the name of a file, and where it comes among the files at that offset."""


class UsualDeletion(NamedTuple):
    """What a plan comes to.

    Attributes:
        changes: what is done to which file, in the order of the plan.
        needed_bytes: the space that it needs before any is freed, with or without undo data.
    """

    changes: tuple[tuple[OperationKind, str], ...]
    needed_bytes: int


def usual_deletion(
    path: Path, target: Mapping[str, TargetFile], entries: Iterable[Entry]
) -> UsualDeletion | None:
    """Find what changes in a partition from which segments are deleted; None if it is not as usual.

    Args:
        path: its directory, which is known to be in its log directory.
        entries: of the directory, which was just listed.

    Raises:
        OSError: a file cannot be read.
    """
    sizes: dict[str, int] = {}
    remaining = []
    for entry in entries:
        name = entry.name
        if entry.kind is not EntryKind.FILE or entry.is_link:
            return None
        if name not in PARTITION_FILES:
            place = _place(name)
            if place is None:
                return None
            if name not in target and not place[1]:
                remaining.append(place[0])
        sizes[name] = entry.size_bytes
    removed, created, replaced = [], [], []
    needed_bytes = 0
    for name, each in target.items():
        place = _place(name)
        if isinstance(each, Gone) and place is not None and name in sizes:
            removed.append((place, name))
        elif not isinstance(each, NewBytes):
            return None
        elif place is None and name in sizes:
            if sizes[name] != len(each.data) or local(path / name).read() != each.data:
                replaced.append(name)
                needed_bytes += len(each.data)
        elif place is not None and name not in sizes:
            created.append((place, name))
            needed_bytes += len(each.data)
        else:
            return None
    remaining += [place[0] for place, name in created]
    first = min(remaining, default=-1)
    if any(place[0] >= first for place, _ in removed):
        return None
    if created and not _is_new_segment(created, removed, first):
        return None
    return UsualDeletion(
        (
            *((OperationKind.CREATE, name) for _, name in sorted(created)),
            *((OperationKind.REMOVE, name) for _, name in sorted(removed)),
            *((OperationKind.REPLACE, name) for name in sorted(replaced)),
        ),
        needed_bytes,
    )


@functools.lru_cache(maxsize=1024)
def _place(name: str) -> _Place | None:
    """The place of a file that is in use and named after an offset; None for any other.

    Partitions share many names, so results are cached.
    """
    parsed = parse_offset_file_name(name)
    if parsed is None or parsed.stage is not FileStage.LIVE:
        return None
    order = _ORDER.get(parsed.kind.extension)
    return None if order is None else (parsed.offset, order)


def _is_new_segment(
    created: Iterable[tuple[_Place, str]], removed: Iterable[tuple[_Place, str]], first: int
) -> bool:
    """Whether one segment without entries replaces all those of a log."""
    snapshot = len(SEGMENT_SUFFIXES)
    return (
        any(order == 0 for (_, order), _ in created)
        and any(order == 0 for (_, order), _ in removed)
        and all(offset == first and order < snapshot for (offset, order), _ in created)
    )
