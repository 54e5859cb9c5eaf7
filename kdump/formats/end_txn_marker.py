"""The one record of a control batch that ends a transaction, as brokers write it.

Every broker writes the same 17 bytes but for the outcome and the coordinator's epoch::

    length 16 | attributes 0 | timestamp delta 0 | offset delta 0
    key length 4   | version 0: int16 | type: int16 (0 abort, 1 commit)
    value length 6 | version 0: int16 | coordinator epoch: int32
    headers 0

Follows ``MemoryRecords.writeEndTransactionalMarker`` and ``EndTransactionMarker``. Anything else
that a reader would take for a marker is for the decoders of records and of control records.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

ABORT: Final = 0
COMMIT: Final = 1

_LAYOUT: Final = struct.Struct(">7sh3sib")
_BEFORE_TYPE: Final = bytes((32, 0, 0, 0, 8, 0, 0))
_BEFORE_EPOCH: Final = bytes((12, 0, 0))


class EndTxnMarker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that said so."""

    is_abort: bool
    coordinator_epoch: int


def decode_as_written(body: bytes | bytearray | memoryview) -> EndTxnMarker | None:
    """The marker in ``body``, the bytes of a batch after its header; None for any other layout."""
    if len(body) != _LAYOUT.size:
        return None
    before_type, kind, before_epoch, coordinator_epoch, header_count = _LAYOUT.unpack(body)
    if (before_type, before_epoch, header_count) != (_BEFORE_TYPE, _BEFORE_EPOCH, 0):
        return None
    return EndTxnMarker(kind == ABORT, coordinator_epoch) if kind in (ABORT, COMMIT) else None
