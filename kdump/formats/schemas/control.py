"""Control records, which coordinators and the Raft layer write between data records.

The key of each is an int16 version and its type (``ControlRecordType``). The value of an end
transaction marker also begins with its version; the other values are read as version 0, and have a
version field of their own.
"""

from __future__ import annotations

from typing import Final

from kdump.formats.schema import RecordType
from kdump.formats.schemas.definitions import read_messages

_MESSAGES: Final = read_messages("control.txt")
END_TXN_MARKER: Final = _MESSAGES["EndTxnMarker"]
LEADER_CHANGE_MESSAGE: Final = _MESSAGES["LeaderChangeMessage"]
SNAPSHOT_HEADER_RECORD: Final = _MESSAGES["SnapshotHeaderRecord"]
SNAPSHOT_FOOTER_RECORD: Final = _MESSAGES["SnapshotFooterRecord"]
KRAFT_VERSION_RECORD: Final = _MESSAGES["KRaftVersionRecord"]
VOTERS_RECORD: Final = _MESSAGES["VotersRecord"]

RECORD_TYPES: Final = {
    type_id: RecordType(type_id, name, schema)
    for type_id, (name, schema) in enumerate(
        (
            ("ABORT", END_TXN_MARKER),
            ("COMMIT", END_TXN_MARKER),
            ("LEADER_CHANGE", LEADER_CHANGE_MESSAGE),
            ("SNAPSHOT_HEADER", SNAPSHOT_HEADER_RECORD),
            ("SNAPSHOT_FOOTER", SNAPSHOT_FOOTER_RECORD),
            ("KRAFT_VERSION", KRAFT_VERSION_RECORD),
            ("KRAFT_VOTERS", VOTERS_RECORD),
        )
    )
}
"""By the numbers of ``ControlRecordType``."""
