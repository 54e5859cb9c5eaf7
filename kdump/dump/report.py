"""Reports of a dump on standard error, with the official tool's messages and order.

``org.apache.kafka.tools.DumpLogSegments`` collects problems of indexes and offsets while it prints,
and reports them after the last file: file by file in the iteration order of a ``java.util.HashMap``
keyed by absolute file name, within a file in the order of a ``TreeMap`` or of arrival.
:class:`DumpReport` does the same, and also collects the problems that end that tool.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kdump.dump.offset_pairs import OffsetPairs
from kdump.dump.problems import DumpProblem
from kdump.formats.java.java_text import java_string_hash

if TYPE_CHECKING:
    from kdump.dump.offset_pairs import Offsets

_NO_OFFSET: Final = -1
"""The official tool's offset before a file's first record."""


class DumpReport:
    """Collects the problems of dumped files, and reports them.

    The ``file`` that methods take is a :attr:`~kdump.dump.dumped_file.DumpedFile.absolute_name`;
    offsets and timestamps are signed 64-bit integers.

    Args:
        say: writes one line (without its line end) to standard error, at once.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._damaged = self._is_incomplete = False
        self._printed = 0
        self._offset_mismatches = _PairsByFile()
        self._timestamp_mismatches = _PairsByFile()
        self._out_of_order_timestamps = _PairsByFile()
        self._offsets_not_found = _PairsByFile()
        self._non_consecutive = _PairsByFile()

    @property
    def damaged(self) -> bool:
        """Whether anything seen so far calls for exit status 4."""
        return self._damaged

    @property
    def is_incomplete(self) -> bool:
        """Whether something was left out that may be valid."""
        return self._is_incomplete

    def printed(self, count: int) -> None:
        """Count records, or batches where no records are printed."""
        self._printed += count

    def left_of(self, limit: int | None) -> int | None:
        """How many may still be printed, of all files together; None for any number."""
        return None if limit is None else max(0, limit - self._printed)

    def problem(self, problem: DumpProblem) -> None:
        """Report at once a problem that ends the official tool, or that it does not notice."""
        self._damaged = True
        self._say(str(problem))

    def not_decoded(self, problem: DumpProblem) -> None:
        """Report at once what was left out because it is over a limit."""
        self._is_incomplete = True
        self._say(str(problem))

    @contextlib.contextmanager
    def as_harmless(self) -> Iterator[None]:
        """Report in the words of the official tool what is no damage."""
        damaged = self._damaged
        yield
        self._damaged = damaged

    def note_damage(self) -> None:
        """Note damage that the output itself shows, without reporting it."""
        self._damaged = True

    def remark(self, line: str, *, damage: bool) -> None:
        """Report at once a line that the official tool reports at once too."""
        self._damaged |= damage
        self._say(line)

    def offset_mismatches(self, file: str, indexed: Offsets, last_in_batch: Offsets) -> None:
        """Offset index entries whose position holds a batch that ends with another offset."""
        self._damaged |= len(indexed) > 0
        self._offset_mismatches.extend(file, indexed, last_in_batch)

    def timestamp_mismatches(self, file: str, indexed: Offsets, in_log: Offsets) -> None:
        """Time index entries whose timestamp is not the greatest in the batch they name."""
        self._damaged |= len(indexed) > 0
        self._timestamp_mismatches.extend(file, indexed, in_log)

    def out_of_order_timestamps(self, file: str, timestamps: Offsets, previous: Offsets) -> None:
        """Time index entries that are not later than the entry before them."""
        self._damaged |= len(timestamps) > 0
        self._out_of_order_timestamps.extend(file, timestamps, previous)

    def offsets_not_found(self, file: str, indexed: Offsets, in_log: Offsets) -> None:
        """Time index entries whose offset is no batch's last: the next last offset, or -1."""
        self._damaged |= len(indexed) > 0
        self._offsets_not_found.extend(file, indexed, in_log)

    def non_consecutive(self, file: str, previous_offset: int, offset: int) -> None:
        """A record whose offset is not its predecessor's plus one.

        ``previous_offset`` is -1 before the first record. Gaps are not damage: compaction leaves
        them. A falling offset is.
        """
        self._damaged |= offset <= previous_offset != _NO_OFFSET
        self._non_consecutive.append(file, previous_offset, offset)

    def non_consecutives(self, file: str, previous_offsets: Offsets, offsets: Offsets) -> None:
        """Many of :meth:`non_consecutive` at once, in the order of the log."""
        goes_back = (offsets <= previous_offsets) & (previous_offsets != _NO_OFFSET)
        self._damaged |= bool(goes_back.any())
        self._non_consecutive.extend(file, previous_offsets, offsets)

    def finish(self) -> None:
        """Report what was collected, after the last file."""
        for line in self.collected_lines():
            self._say(line)

    def collected_lines(self) -> Iterator[str]:
        """The lines of :meth:`finish`."""
        for file, pairs in self._offset_mismatches.items():
            yield f"Mismatches in :{file}"
            for offset, log_offset in pairs.descending():
                yield f"  Index offset: {offset}, log offset: {log_offset}"
        for file, pairs in self._timestamp_mismatches.items():
            yield f"Found timestamp mismatch in :{file}"
            for timestamp, log_timestamp in pairs.as_arrived():
                yield f"  Index timestamp: {timestamp}, log timestamp: {log_timestamp}"
        for file, pairs in self._out_of_order_timestamps.items():
            yield f"Found out of order timestamp in :{file}"
            for timestamp, previous in pairs.as_arrived():
                yield f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"
        for file, pairs in self._offsets_not_found.items():
            yield f"The following indexed offsets are not found in :{file}"
            for offset, log_offset in pairs.as_arrived():
                yield f"Indexed offset: {offset}, found log offset: {log_offset}"
        for file, pairs in self._non_consecutive.items():
            yield f"Non-consecutive offsets in {file}"
            for previous, offset in pairs.ascending():
                yield f"  {previous} is followed by {offset}"


class _PairsByFile:
    """``HashMap<String, …>`` as ``computeIfAbsent`` fills it, one call a pair."""

    def __init__(self) -> None:
        self._pairs: dict[str, OffsetPairs] = {}
        self._order = JavaHashOrder()

    def append(self, file: str, key: int, value: int) -> None:
        self._order.touch(file)
        self._pairs.setdefault(file, OffsetPairs()).append(key, value)

    def extend(self, file: str, keys: Offsets, values: Offsets) -> None:
        if not len(keys):
            return
        self._order.touch(file)
        if len(keys) > 1:
            # The map grows in the call after the one that filled it, also for a known key. A
            # third call finds nothing left to do.
            self._order.touch(file)
        self._pairs.setdefault(file, OffsetPairs()).extend(keys, values)

    def items(self) -> Iterator[tuple[str, OffsetPairs]]:
        for file in self._order:
            yield file, self._pairs[file]


class JavaHashOrder:
    """The order in which a ``java.util.HashMap`` filled by ``computeIfAbsent`` lists its keys.

    Buckets in the order of the hash; within a bucket a new key goes first, and doubling the table
    keeps the order within each half. Buckets of eight keys or more in a table of 64 or more, which
    Java turns into trees, are kept as lists.
    """

    def __init__(self) -> None:
        self._buckets: list[list[str]] = [[] for _ in range(16)]
        self._count = 0

    def touch(self, key: str) -> None:
        """One call of ``computeIfAbsent`` for ``key``."""
        if self._count > len(self._buckets) * 3 // 4:
            self._double()
        bucket = self._bucket(key)
        if key in bucket:
            return
        bucket.insert(0, key)
        self._count += 1
        if len(bucket) >= _CROWDED and len(self._buckets) < _SMALLEST_TABLE_WITH_TREES:
            self._double()

    def __iter__(self) -> Iterator[str]:
        for bucket in self._buckets:
            yield from bucket

    def _bucket(self, key: str) -> list[str]:
        spread = java_string_hash(key)
        spread ^= spread >> 16
        return self._buckets[spread & (len(self._buckets) - 1)]

    def _double(self) -> None:
        keys = list(self)
        self._buckets = [[] for _ in range(2 * len(self._buckets))]
        for key in keys:
            self._bucket(key).append(key)


_CROWDED: Final = 8
_SMALLEST_TABLE_WITH_TREES: Final = 64
