"""End transaction markers, the control records of producers.

A control batch holds one record. Its key is an int16 version and an int16 type
(``ControlRecordType``). Types 0 and 1 are end transaction markers: they abort or commit the open
transaction of the batch's producer (``EndTransactionMarker``). For the other types see
:mod:`kdump.formats.control_records`.

Every broker writes the same 17 bytes for a marker, apart from the type and the coordinator epoch
(``MemoryRecords.writeEndTransactionalMarker``)::

    length 16 | attributes 0 | timestamp delta 0 | offset delta 0
    key length 4   | version 0: int16 | type: int16 (0 abort, 1 commit)
    value length 6 | version 0: int16 | coordinator epoch: int32
    headers 0

:func:`find_plain_markers` recognizes that layout in many batches at once. Any other layout is left
to the decoders of records and to :func:`parse_end_txn_marker`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kdump.formats.errors import FormatError
from kdump.formats.record_batch import (
    NO_SEQUENCE,
    OF_TRANSACTIONS,
    Record,
    encode_lone_record,
)

ABORT: Final = 0
COMMIT: Final = 1
NO_COORDINATOR_EPOCH: Final = -1

_ANY: Final = -1
_PLAIN_LAYOUT: Final = (
    *(0x20, 0, 0, 0),  # length 16, attributes, timestamp delta, offset delta
    *(0x08, 0, 0, 0, _ANY),  # a key of 4 bytes: version 0, type
    *(0x0C, 0, 0, _ANY, _ANY, _ANY, _ANY),  # a value of 6: version 0, coordinator epoch
    0,  # no headers
)
PLAIN_MARKER_BYTES: Final = len(_PLAIN_LAYOUT)
"""Size of a marker's record as brokers write it."""
_IS_FIXED: Final = np.array([byte != _ANY for byte in _PLAIN_LAYOUT])
_FIXED: Final = np.array([max(byte, 0) for byte in _PLAIN_LAYOUT], np.uint8)
_TYPE_AT: Final = 8
_EPOCH_AT: Final = 12

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_KEY_BYTES: Final = _KEY.size
_VALUE_BYTES: Final = _VALUE.size
_VERSION: Final = 0
_INVALID: Final = "InvalidRecordException"


class ControlRecordError(FormatError):
    """A control record that Kafka cannot read.

    Attributes:
        exception: what Kafka throws. It decides what a broker does: recovery ends the log at an
            ``InvalidRecordException``, any other exception ends the loading.
    """

    def __init__(
        self,
        what: str,
        *,
        exception: str = _INVALID,
        position: int = 0,
        expected: object | None = None,
        found: object | None = None,
    ) -> None:
        super().__init__(what, position=position, expected=expected, found=found)
        self.exception = exception

    @property
    def is_invalid_record(self) -> bool:
        """Whether Kafka throws ``InvalidRecordException``."""
        return self.exception == _INVALID

    def shifted(self, by_bytes: int) -> ControlRecordError:
        return type(self)(
            self.what,
            exception=self.exception,
            position=self.position + by_bytes,
            expected=self.expected,
            found=self.found,
        )


class EndTxnMarker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that ended it."""

    is_abort: bool
    coordinator_epoch: int


ABORTED: Final = EndTxnMarker(is_abort=True, coordinator_epoch=0)
"""That a transaction ended and did not commit, where no coordinator says so."""


def parse_type(key: bytes | None) -> int:
    """The type of a control record, from its key. Follows ``ControlRecordType.parse``.

    Raises:
        ControlRecordError: the key is missing, too short or has a negative version.
    """
    if key is None:
        raise ControlRecordError("control record has no key", exception="NullPointerException")
    if len(key) < _KEY_BYTES:
        raise ControlRecordError(
            "Invalid value size found for control record key. Must have at least "
            f"{_KEY_BYTES} bytes, but found only {len(key)}"
        )
    version = int.from_bytes(key[:2], signed=True)
    if version < 0:
        raise ControlRecordError(
            f"Invalid version found for control record: {version}. May indicate data corruption"
        )
    return int.from_bytes(key[2:_KEY_BYTES], signed=True)


def parse_end_txn_marker(key: bytes | None, value: bytes | None) -> EndTxnMarker:
    """The marker in a control record of a producer. Follows ``EndTransactionMarker.deserialize``.

    Raises:
        ControlRecordError: key or value cannot be read, or the record is of another type.
    """
    type_id = parse_type(key)
    if type_id not in (ABORT, COMMIT):
        raise ControlRecordError(
            f"a control record of type {type_id} has a producer",
            exception="IllegalArgumentException",
        )
    if value is None:
        name = "ABORT" if type_id == ABORT else "COMMIT"
        raise ControlRecordError(
            f"control record of type {name} has no value", exception="NullPointerException"
        )
    version = int.from_bytes(value[:2], signed=True)
    if len(value) >= 2 and version < 0:
        raise ControlRecordError(
            f"Invalid version found for end transaction marker: {version}. "
            "May indicate data corruption"
        )
    if len(value) < _VALUE_BYTES:
        raise ControlRecordError(
            f"end transaction marker ends early: {len(value)} of {_VALUE_BYTES} bytes",
            exception="BufferUnderflowException",
        )
    return EndTxnMarker(type_id == ABORT, int.from_bytes(value[2:_VALUE_BYTES], signed=True))


def encode_end_txn_batch(
    marker: EndTxnMarker,
    producer_id: int,
    producer_epoch: int,
    *,
    offset: int,
    partition_leader_epoch: int,
    timestamp: int,
) -> bytes:
    """Encode the control batch that ends the transaction of a producer.

    Follows ``MemoryRecords.writeEndTransactionalMarker``.
    """
    type_id = ABORT if marker.is_abort else COMMIT
    record = Record(
        offset=offset,
        timestamp=timestamp,
        sequence=NO_SEQUENCE,
        key=_KEY.pack(_VERSION, type_id),
        value=_VALUE.pack(_VERSION, marker.coordinator_epoch),
    )
    return encode_lone_record(
        record,
        partition_leader_epoch,
        attributes=OF_TRANSACTIONS,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


class PlainMarkers(NamedTuple):
    """Records compared with the layout that brokers write, as columns of shape (n,).

    Attributes:
        is_plain: bool; the other columns count only where it is set.
        is_abort: bool.
        coordinator_epoch: int64.
    """

    is_plain: npt.NDArray[np.bool_]
    is_abort: npt.NDArray[np.bool_]
    coordinator_epoch: npt.NDArray[np.int64]


def find_plain_markers(records: npt.NDArray[np.uint8]) -> PlainMarkers:
    """Tell which records are markers as brokers write them.

    Args:
        records: the bytes after the header of each batch, shape (n, PLAIN_MARKER_BYTES).
    """
    is_plain = ((records == _FIXED) | ~_IS_FIXED).all(axis=1) & (records[:, _TYPE_AT] <= COMMIT)
    epochs = np.ascontiguousarray(records[:, _EPOCH_AT : _EPOCH_AT + 4]).view(">i4").ravel()
    return PlainMarkers(is_plain, records[:, _TYPE_AT] == ABORT, epochs.astype(np.int64))
