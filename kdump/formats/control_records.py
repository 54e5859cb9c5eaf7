"""Control records of any type.

End transaction markers have their own module, :mod:`kdump.formats.end_txn_marker`. The other types,
which the Raft layer writes, are decoded by their schemas in :mod:`kdump.formats.schemas.control`.
"""

from __future__ import annotations

from typing import NamedTuple

from kdump.formats.cursor import Cursor
from kdump.formats.end_txn_marker import ControlRecordError, parse_end_txn_marker, parse_type
from kdump.formats.message_decoder import MessageValue, decode
from kdump.formats.schema import RecordType
from kdump.formats.schemas import control


class ControlRecord(NamedTuple):
    """A decoded control record.

    Attributes:
        type_id: from the key.
        record_type: None for an unknown type.
        fields: of the value; empty for an unknown type.
    """

    type_id: int
    record_type: RecordType | None
    fields: MessageValue


def parse_control_record(key: bytes | None, value: bytes | None) -> ControlRecord:
    """A control record of any type. Follows ``ControlRecordUtils`` and ``EndTransactionMarker``.

    Raises:
        FormatError: key or value cannot be read.
    """
    type_id = parse_type(key)
    record_type = control.RECORD_TYPES.get(type_id)
    if record_type is None:
        return ControlRecord(type_id, None, {})
    if record_type.value is control.END_TXN_MARKER:
        marker = parse_end_txn_marker(key, value)
        return ControlRecord(type_id, record_type, {"coordinatorEpoch": marker.coordinator_epoch})
    if value is None:
        raise ControlRecordError(
            f"control record of type {record_type.name} has no value",
            exception="NullPointerException",
        )
    return ControlRecord(type_id, record_type, decode(record_type.value, Cursor(value), 0))
