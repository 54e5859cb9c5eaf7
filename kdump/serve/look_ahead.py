"""The batches after those that a reader gets, to see how transactions end.

Between two fetches no file is open: a broker may delete segments, and their space is free only when
nobody has them open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Self

from msgspec.structs import replace

from kdump.formats.names import FileKind
from kdump.log.batch_validity import LogPart
from kdump.log.partition import Partition
from kdump.log.valid_windows import Damage, segment_part, valid_windows
from kdump.scan.batches import Window
from kdump.state.transactions.transaction_outcomes import Step
from kdump.storage.location import StoredFile

_AHEAD_BYTES: Final = 256 << 10


class LookAhead:
    """Reads a partition from a byte of a segment on.

    After :meth:`rest` it goes on where it was. A segment that was replaced meanwhile counts as
    gone.

    Args:
        partition: as it was listed.
        first: the number of the segment to begin with.
        position: the byte of that segment to begin at.
    """

    def __init__(self, partition: Partition, first: int, position: int) -> None:
        self._partition = partition
        self._segments = list(partition.with_following())[first:]
        self._position = position
        self._part: LogPart | None = None
        self._damaged_to = 0
        self._identity: tuple[int | str, ...] | None = None
        self._log: StoredFile | None = None
        self._steps: Iterator[Window | Damage] = iter(())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Step:
        """The next batches or damage.

        Raises:
            OSError: a log cannot be read.
        """
        while True:
            if self._log is None:
                self._open()
            found = next(self._steps, None)
            if found is None:
                self.rest()
                self._segments.pop(0)
                self._part, self._position, self._damaged_to = None, 0, 0
            elif self._is_new(found):
                return Step(found, False)

    def rest(self) -> None:
        """Close the log; it is opened again when it is needed."""
        self._steps = iter(())
        if self._log is not None:
            self._log.close()
            self._log = None

    def _open(self) -> None:
        if not self._segments:
            raise StopIteration
        segment, following = self._segments[0]
        log = self._partition.segment_path(segment, FileKind.LOG).open_file()
        try:
            identity = log.identity()
            if self._part is None:
                self._part = segment_part(segment, following, self._position)
                self._identity = identity
            elif identity != self._identity and following is not None:
                raise FileNotFoundError(None, "replaced by its broker", str(log.location))
        except BaseException:
            log.close()
            raise
        self._log = log
        self._steps = valid_windows(log, self._part, window_bytes=_AHEAD_BYTES)

    def _is_new(self, found: Window | Damage) -> bool:
        """Note what was read; damage after the last batches is found again after a rest."""
        if isinstance(found, Damage):
            is_new = found.end > self._damaged_to
            self._damaged_to = max(self._damaged_to, found.end)
            return is_new
        assert self._part is not None
        self._part = replace(
            self._part,
            start=int(found.batches.next_position[-1]),
            least_offset=int(found.batches.last_offset[-1]) + 1,
        )
        return True
