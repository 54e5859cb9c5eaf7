"""Select batches and records of a log by offset, time and key, up to a limit.

A selection also serves where records are read one by one, so importing it does not import NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kdump.formats import record_batch
from kdump.formats.message_set import Message

if TYPE_CHECKING:
    from kdump.scan.batches import BatchColumns, Flags
    from kdump.scan.records import RecordColumns

_PER_RECORD = (
    "batch",
    "offset",
    "timestamp",
    "sequence",
    "attributes",
    "key_start",
    "key_size",
    "value_start",
    "value_size",
    "headers_start",
    "headers_count",
    "end",
)


class Selection(Struct, frozen=True):
    """What to keep; None does not restrict. Both ``to`` bounds are exclusive."""

    from_offset: int | None = None
    to_offset: int | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    key: bytes | None = None
    limit: int | None = None

    @property
    def is_all(self) -> bool:
        """Whether everything is selected."""
        return self == Selection()

    def wants_offset(self, offset: int) -> bool:
        """Whether ``offset`` is in range."""
        return (self.from_offset is None or offset >= self.from_offset) and (
            self.to_offset is None or offset < self.to_offset
        )

    def wants(self, offset: int, timestamp: int) -> bool:
        """Whether offset and time of a record are in range."""
        return (
            self.wants_offset(offset)
            and (self.from_time_ms is None or timestamp >= self.from_time_ms)
            and (self.to_time_ms is None or timestamp < self.to_time_ms)
        )

    def batches(self, batches: BatchColumns) -> Flags:
        """Return which batches may hold a selected record, as far as headers can be trusted.

        The largest timestamp in a header may be wrong, and the base timestamp is that of the first
        record only. Both are exact if the broker set them, and in plain messages of magic 0 and 1.
        """
        import numpy as np

        mask = np.ones(batches.count, np.bool_)
        if self.from_offset is not None:
            mask &= batches.last_offset >= self.from_offset
        if self.to_offset is not None:
            # A set compressed in a message of magic 0 or 1 may begin far below its offset.
            mask &= (batches.base_offset < self.to_offset) | (batches.magic < 2)
        if self.has_times:
            is_plain = (batches.magic < 2) & (batches.attributes & record_batch.CODEC_MASK == 0)
            is_stamped = batches.attributes & record_batch.LOG_APPEND_TIME_FLAG != 0
            is_exact = (is_plain | is_stamped) & batches.is_valid
            mask &= self._has_selected_time(batches) | ~is_exact
        return mask

    @property
    def has_times(self) -> bool:
        """Whether it restricts times."""
        return self.from_time_ms is not None or self.to_time_ms is not None

    def _has_selected_time(self, batches: BatchColumns) -> Flags:
        """Return which batches are selected, if all records have the time in the header."""
        import numpy as np

        mask = np.ones(batches.count, np.bool_)
        if self.from_time_ms is not None:
            mask &= batches.max_timestamp >= self.from_time_ms
        if self.to_time_ms is not None:
            mask &= batches.max_timestamp < self.to_time_ms
        return mask

    def is_past(self, batches: BatchColumns) -> bool:
        """Whether everything after ``batches`` has offsets past the selected ones."""
        if self.to_offset is None:
            return False
        # Damage can put a high offset anywhere: only valid batches say how far the log is.
        last_offset = batches.last_offset[batches.is_valid]
        return bool(last_offset.size) and int(last_offset[-1]) >= self.to_offset - 1

    def needed_for(self, batches: BatchColumns) -> Selection:
        """Return what is left to check of the records of ``batches``.

        That is nothing if all records are selected, as far as offsets in headers say it.
        """
        if self.has_times or self.key is not None or not batches.count:
            return self
        is_inside = int(batches.magic.min()) >= 2
        if self.from_offset is not None:
            is_inside &= int(batches.base_offset.min()) >= self.from_offset
        if self.to_offset is not None:
            is_inside &= int(batches.last_offset.max()) < self.to_offset
        return Selection(limit=self.limit) if is_inside else self

    def records(self, columns: RecordColumns) -> RecordColumns:
        """Return only the selected records, and only the batches that have one."""
        import numpy as np

        mask = np.ones(columns.count, np.bool_)
        if self.from_offset is not None:
            mask &= columns.offset >= self.from_offset
        if self.to_offset is not None:
            mask &= columns.offset < self.to_offset
        if self.from_time_ms is not None:
            mask &= columns.timestamp >= self.from_time_ms
        if self.to_time_ms is not None:
            mask &= columns.timestamp < self.to_time_ms
        if self.key is not None:
            mask &= _has_key(columns, self.key)
        return with_rows(columns, mask)

    def messages(self, messages: list[Message]) -> list[Message]:
        """Return only the selected messages."""
        return [message for message in messages if self._has_message(message)]

    def _has_message(self, message: Message) -> bool:
        return self.wants(message.offset, message.timestamp) and (
            self.key is None or message.key == self.key
        )


def _has_key(columns: RecordColumns, key: bytes) -> Flags:
    import numpy as np

    rows = np.flatnonzero(columns.key_size == len(key))
    for index, byte in enumerate(key):
        rows = rows[columns.data[columns.key_start[rows] + index] == byte]
    mask = np.zeros(columns.count, np.bool_)
    mask[rows] = True
    return mask


def with_rows(columns: RecordColumns, mask: Flags) -> RecordColumns:
    """Return only the records in ``mask``, and only the batches with one or with a problem."""
    import numpy as np

    kept = {name: getattr(columns, name)[mask] for name in _PER_RECORD}
    is_kept = np.zeros(columns.batches.count, np.bool_)
    is_kept[kept["batch"]] = True
    is_kept[list(columns.problems)] = True
    rows = np.flatnonzero(is_kept)
    kept["batch"] = np.searchsorted(rows, kept["batch"])
    problems = {
        int(np.searchsorted(rows, row)): problem for row, problem in columns.problems.items()
    }
    return replace(columns, batches=columns.batches.rows(rows), problems=problems, **kept)
