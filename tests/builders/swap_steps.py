"""The files of a partition after every rename of ``LocalLog.replaceSegments``: crash points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdump.formats.names import FileKind, OffsetFileName

Files = dict[str, bytes]

KINDS = (
    FileKind.LOG,
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TRANSACTION_INDEX,
)
"""Suffixes in the order in which Kafka renames the files of a segment."""


def crash_points(
    files: Files, old: Sequence[int], new: Sequence[tuple[int, Files]]
) -> Iterator[tuple[str, Files]]:
    """Yield the last rename and the files after it, from before the swap to its end.

    Args:
        files: files of the partition before the swap.
        old: base offsets of the segments that are replaced, in order.
        new: base offset and files, by their final names, of each segment that replaces them.
    """
    now = dict(files)
    for base_offset, contents in new:
        for name in _names(base_offset):
            if name in contents:
                now[name + ".cleaned"] = contents[name]
    yield "all is cleaned", dict(now)
    for base_offset, _ in reversed(new):
        yield from _renamed(now, base_offset, ".cleaned", ".swap")
    for base_offset in old:
        yield from _renamed(now, base_offset, "", ".deleted")
        snapshot = str(OffsetFileName(base_offset, FileKind.PRODUCER_SNAPSHOT))
        if snapshot in now and base_offset not in [base for base, _ in new]:
            now[snapshot + ".deleted"] = now.pop(snapshot)
            yield snapshot + ".deleted", dict(now)
    for base_offset, _ in new:
        yield from _renamed(now, base_offset, ".swap", "")
    for name in sorted(now):
        if name.endswith(".deleted"):
            del now[name]
            yield f"{name} is gone", dict(now)


def _renamed(
    files: Files, base_offset: int, suffix: str, new_suffix: str
) -> Iterator[tuple[str, Files]]:
    for name in _names(base_offset):
        if name + suffix in files:
            files[name + new_suffix] = files.pop(name + suffix)
            yield f"{name}{suffix} to {name}{new_suffix}", dict(files)


def _names(base_offset: int) -> list[str]:
    return [str(OffsetFileName(base_offset, kind)) for kind in KINDS]
