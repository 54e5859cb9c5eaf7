"""The records of ``__share_group_state``: snapshots of share group state, and updates to them.

They are laid out like those of ``__consumer_offsets`` (``ShareCoordinatorRecordSerde``).
"""

from __future__ import annotations

from typing import Final

from kdump.formats.schemas.definitions import read_record_types

RECORD_TYPES: Final = read_record_types("share.txt")
SHARE_SNAPSHOT: Final = RECORD_TYPES[0]
SHARE_UPDATE: Final = RECORD_TYPES[1]
