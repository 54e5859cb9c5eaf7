"""Segments with their indexes in a directory, as a broker leaves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kdump.dump.dumped_file import DumpedFile
from kdump.dump.index_options import IndexDumpOptions
from kdump.dump.report import DumpReport
from kdump.formats import offset_index, time_index
from kdump.formats.offset_index import OffsetIndex
from kdump.formats.record_batch import decode_header
from kdump.formats.time_index import TimeIndex


def offset_index_bytes(entries: Sequence[tuple[int, int]], base_offset: int = 0) -> bytes:
    """Encode an offset index of ``entries``: absolute offset and position."""
    offset, position = _columns(entries)
    return offset_index.encode(OffsetIndex(base_offset, offset, position))


def time_index_bytes(entries: Sequence[tuple[int, int]], base_offset: int = 0) -> bytes:
    """Encode a time index of ``entries``: timestamp and absolute offset."""
    timestamp, offset = _columns(entries)
    return time_index.encode(TimeIndex(base_offset, timestamp, offset))


def _columns(
    entries: Sequence[tuple[int, int]],
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    first = np.array([entry[0] for entry in entries], np.int64)
    second = np.array([entry[1] for entry in entries], np.int64)
    return first, second


@dataclass(frozen=True, slots=True)
class Segment:
    """Paths of the files of one segment."""

    directory: Path
    base_offset: int = 0

    def file(self, suffix: str) -> DumpedFile:
        return DumpedFile.named(str(self.directory / f"{self.base_offset:020d}{suffix}"))

    def write(self, suffix: str, content: bytes) -> DumpedFile:
        file = self.file(suffix)
        file.path.local_path.write_bytes(content)
        return file

    def write_indexed(self, batches: Sequence[bytes]) -> None:
        """Write a log of ``batches`` (magic 2), and indexes with an entry for all but the first."""
        headers = [decode_header(batch) for batch in batches]
        positions = np.cumsum([0, *(len(batch) for batch in batches)]).tolist()
        self.write(".log", b"".join(batches))
        self.write(
            ".index",
            offset_index_bytes(
                [(h.last_offset, p) for h, p in zip(headers, positions, strict=False)][1:],
                self.base_offset,
            ),
        )
        self.write(
            ".timeindex",
            time_index_bytes(
                [(h.max_timestamp, h.last_offset) for h in headers][1:], self.base_offset
            ),
        )


@dataclass(slots=True)
class Said:
    """The lines of a dump on standard error, and its report."""

    lines: list[str] = field(default_factory=list)
    report: DumpReport = field(init=False)

    def __post_init__(self) -> None:
        self.report = DumpReport(self.lines.append)

    def finish(self) -> list[str]:
        """Return all lines, including the summary of the report."""
        self.report.finish()
        return self.lines


VERIFY_ONLY = IndexDumpOptions(verify_index_only=True)
SANITY_CHECK = IndexDumpOptions(index_sanity_check=True)
