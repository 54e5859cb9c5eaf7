"""Control records of any type.

End transaction markers have their own module, :mod:`kdump.formats.end_txn_marker`. The other types,
which the Raft layer writes, are decoded by their schemas in :mod:`kdump.formats.schemas.control`.
"""

from __future__ import annotations

from typing import NamedTuple

from kdump.formats.cursor import Cursor
from kdump.formats.end_txn_marker import ControlRecordError, parse_end_txn_marker, parse_type
from kdump.formats.feature_levels import KRAFT_VERSION, unknown_level
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


def unknown_control_record(record: ControlRecord) -> str | None:
    """What a control record of the Raft layer says that kdump does not know; None if nothing."""
    if record.record_type is None:
        return f"type {record.type_id} of control records is unknown to this kdump"
    version = record.fields.get("version", 0)
    if version not in record.record_type.value.versions:
        return f"version {version} of {record.record_type.name} is unknown to this kdump"
    if record.record_type.value is control.KRAFT_VERSION_RECORD:
        return unknown_level(KRAFT_VERSION, record.fields["kRaftVersion"])
    return None
