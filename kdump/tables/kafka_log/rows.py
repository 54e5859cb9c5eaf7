"""Records of one segment, of any magic, from which the columns of ``kafka-log`` are built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from kdump.formats import record_batch
from kdump.formats.java.java_text import java_utf8
from kdump.log.partition import Partition
from kdump.payloads.payload_decoder import Texts
from kdump.payloads.record_payloads import HeadersAt, RecordPayloads
from kdump.scan.arrow import gather_bytes
from kdump.scan.batches import BatchColumns, Column
from kdump.scan.control_batches import is_control
from kdump.scan.records import RecordColumns, locate_headers
from kdump.scan.walk import MessageSet
from kdump.storage.location import Location

_LARGEST_COLUMN: Final = (1 << 31) - 1
"""The bytes of a column of text, whose positions have 32 bits."""
_OVER_COLUMN: Final = "with the texts of the records before it, it takes more than 2 GiB"

HEADERS_TYPE: Final = pa.list_(
    pa.field(
        "element",
        pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]),
    )
)


class RecordOrigin(Struct, frozen=True):
    """Where records come from.

    Attributes:
        topic: from the name of the directory; None if it has another form.
        partition: like ``topic``.
        segment: path of the log.
    """

    topic: str | None
    partition: int | None
    segment: str
    log_dir: str

    @classmethod
    def of(cls, partition: Partition, log: Location) -> RecordOrigin:
        """The origin of the records of a log, local or remote, of a partition."""
        topic, number = partition.topic_partition or (None, None)
        return cls(topic, number, str(log), str(partition.path.parent))


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of one segment, in order; columns have shape (n,).

    Attributes:
        batches: the batches that hold them.
        batch: of each record, the row of its batch.
        offset: absolute.
        timestamp: epoch milliseconds, -1 for none.
        sequence: -1 for none.
        state: ``TransactionState`` of each batch; None if not needed.
        key: builds the keys, as a binary array.
        value: builds the values, as a binary array.
        headers: builds the headers, as an array of lists.
        headers_at: gives those of a row; None if no record has any.
    """

    origin: RecordOrigin
    batches: BatchColumns
    batch: Column
    offset: Column
    timestamp: Column
    sequence: Column
    state: Column | None
    key: Callable[[], pa.Array]
    value: Callable[[], pa.Array]
    headers: Callable[[], pa.Array]
    headers_at: HeadersAt = None
    payloads: RecordPayloads = field(default_factory=RecordPayloads)
    _texts: dict[str, Texts] = field(default_factory=dict, init=False, repr=False)

    @property
    def count(self) -> int:
        return len(self.offset)

    @property
    def key_texts(self) -> Texts:
        """The keys as text, which are decoded once."""
        if "key" not in self._texts:
            found = self.payloads.key_texts(self.key(), self.headers_at)
            self._texts["key"] = self._in_column(found)
        return self._texts["key"]

    @property
    def value_texts(self) -> Texts:
        """The same of values."""
        if "value" not in self._texts:
            found = self.payloads.value_texts(self.value(), self.headers_at)
            self._texts["value"] = self._in_column(found)
        return self._texts["value"]

    def _in_column(self, texts: Texts) -> Texts:
        """Texts in a column that holds at most 2 GiB, and without problems of control records."""
        column, problems = texts.column, texts.problems
        if column.nbytes > _LARGEST_COLUMN:
            sizes = pc.fill_null(pc.binary_length(column), 0)
            is_within = pc.less_equal(pc.cumulative_sum(sizes), _LARGEST_COLUMN)
            over = pc.and_(pc.invert(is_within), column.is_valid()).to_numpy(zero_copy_only=False)
            problems = problems | dict.fromkeys(np.flatnonzero(over).tolist(), _OVER_COLUMN)
            column = pc.if_else(is_within, column, pa.scalar(None, column.type))
        flags = is_control(self.batches)
        if problems and flags.any():
            problems = {row: why for row, why in problems.items() if not flags[self.batch[row]]}
        return Texts(column.cast(pa.string()), problems)


def rows_of_records(origin: RecordOrigin, columns: RecordColumns, state: Column | None) -> Rows:
    """Rows for records of magic 2."""
    return Rows(
        origin=origin,
        batches=columns.batches,
        batch=columns.batch,
        offset=columns.offset,
        timestamp=columns.timestamp,
        sequence=columns.sequence,
        state=state,
        key=lambda: _gathered(columns, columns.key_start, columns.key_size),
        value=lambda: _gathered(columns, columns.value_start, columns.value_size),
        headers=lambda: _headers(columns),
        headers_at=columns.headers if columns.headers_count.any() else None,
    )


def rows_of_messages(origin: RecordOrigin, sets: Sequence[MessageSet]) -> Rows:
    """Rows for messages of magic 0 or 1.

    Raises:
        FormatError: a key or value reaches past its message.
    """
    messages = [message for each in sets for message in each.messages]
    count = len(messages)
    keys = [message.key for message in messages]
    values = [message.value for message in messages]
    return Rows(
        origin=origin,
        batches=BatchColumns.joined([each.window.batches for each in sets]),
        batch=np.repeat(np.arange(len(sets)), [len(each.messages) for each in sets]),
        offset=np.array([message.offset for message in messages], np.int64),
        timestamp=np.array([message.timestamp for message in messages], np.int64),
        sequence=np.full(count, record_batch.NO_SEQUENCE, np.int64),
        state=None,
        key=lambda: pa.array(keys, pa.binary()),
        value=lambda: pa.array(values, pa.binary()),
        headers=lambda: pa.nulls(count, HEADERS_TYPE),
    )


def _gathered(columns: RecordColumns, start: Column, size: Column) -> pa.Array:
    return gather_bytes(columns.data, start, size, size >= 0).cast(pa.binary())


def _headers(columns: RecordColumns) -> pa.Array:
    """The headers; null for a record without any, as in Spark's source."""
    count = columns.headers_count
    found = locate_headers(columns)
    edges = np.zeros(columns.count + 1, np.int32)
    np.cumsum(count, out=edges[1:])
    struct = pa.StructArray.from_arrays(
        [
            _as_text(_gathered(columns, found.key_start, found.key_size)),
            _gathered(columns, found.value_start, found.value_size),
        ],
        fields=list(HEADERS_TYPE.value_type),
    )
    return pa.ListArray.from_arrays(
        pa.array(edges), struct, type=HEADERS_TYPE, mask=pa.array(count == 0)
    )


def _as_text(names: pa.Array) -> pa.Array:
    """Names as Kafka decodes them: it replaces bytes that are not UTF-8."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([java_utf8(name) for name in names.to_pylist()], pa.string())
