"""The small segments of a log as one window of batches.

For the few batches of a small segment, each call of NumPy costs more than what it computes, so a
log of such segments is judged and compared as one. Nothing here says what is wrong: a log with
anything but valid batches is left to who reads it segment by segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from kdump.formats.names import FileKind
from kdump.formats.record_batch import GREATEST_OFFSET, NEWEST_MAGIC
from kdump.log.batch_validity import valid_together
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.scan.batches import WINDOW_BYTES, Flags, Window, new_buffer
from kdump.scan.joined_logs import read_joined
from kdump.scan.usual_batches import LARGEST_SMALL_LOG_BYTES
from kdump.storage.location import Location
from kdump.storage.memory_file import MemoryFile


class JoinedLogs(MemoryFile):
    """The logs of segments, one after another, as a file that has the name of the first one."""

    def __init__(
        self, paths: Sequence[Location], bases: Sequence[int], logs: Sequence[bytes]
    ) -> None:
        super().__init__(paths[0], b"".join(logs))
        self._paths = paths
        self._bases = bases
        self._logs = logs

    def is_copy_of(self, other: JoinedLogs) -> bool:
        """Whether the segments are the same to the byte."""
        return self._bases == other._bases and self._logs == other._logs

    def judged(self) -> Window | None:
        """The batches of all segments; None if there is anything else in them, or no batch.

        Positions count from the start of the first log.
        """
        found = read_joined(self._logs, checksums=True)
        batches, bases = found.batches, np.array(self._bases, np.int64)
        if not found.is_covered.all() or (batches.magic != NEWEST_MAGIC).any():
            return None
        ends = np.append(bases[1:], GREATEST_OFFSET + 1)
        window = Window(self, found.data, 0, replace(batches, position=found.joined_position))
        return valid_together(window, bases[found.log], ends[found.log])

    def by_log(self, window: Window) -> Iterator[tuple[Location, Flags, Window]]:
        """Some of the batches: the log of each segment with any, which rows, and a window of it."""
        begin = 0
        for path, log in zip(self._paths, self._logs, strict=True):
            position = window.batches.position
            rows = (position >= begin) & (position < begin + len(log))
            if rows.any():
                batches = window.batches.rows(rows)
                batches = replace(batches, position=batches.position - begin)
                data = new_buffer(len(log))
                data[: len(log)] = np.frombuffer(log, np.uint8)
                data[len(log) :] = 0
                yield path, rows, Window(MemoryFile(path, log), data, 0, batches)
            begin += len(log)


def joined_window(
    partition: Partition, segments: Sequence[Segment], known: Sequence[Window] = ()
) -> Window | None:
    """The batches of segments, all valid; None if there is anything else in them, or no batch.

    Args:
        segments: of the partition, in order; None is returned unless they are few and small.
        known: such windows of other replicas: the columns of one with the same bytes are taken.
    """
    logs = _read(partition, segments)
    if logs is None:
        return None
    for window in known:
        assert isinstance(window.source, JoinedLogs)
        if logs.is_copy_of(window.source):
            return replace(window, source=logs)
    return logs.judged()


def _read(partition: Partition, segments: Sequence[Segment]) -> JoinedLogs | None:
    """Read small logs; None for any others, if one has changed, and if one cannot be read."""
    if len(segments) < 2 or any(
        each.is_0_7 or each.log_bytes > LARGEST_SMALL_LOG_BYTES for each in segments
    ):
        return None
    if sum(each.log_bytes for each in segments) > WINDOW_BYTES:
        return None
    paths = [partition.segment_path(each, FileKind.LOG) for each in segments]
    try:
        logs = [path.read_listed() for path in paths]
    except OSError:
        return None
    if any(len(log) != each.log_bytes for log, each in zip(logs, segments, strict=True)):
        return None
    return JoinedLogs(paths, [each.base_offset for each in segments], logs)
