"""The records of ``__remote_log_metadata``: segments in tiered storage.

(``RemoteLogMetadataSerde`` of the topic-based metadata manager)
"""

from __future__ import annotations

from typing import Final

from kdump.formats.schemas.definitions import read_record_types

RECORD_TYPES: Final = read_record_types("remote_storage.txt")
