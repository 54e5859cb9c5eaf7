"""The records of ``__cluster_metadata`` and of its snapshots: the state of a KRaft cluster.

Each record begins with its type and version (``MetadataRecordSerde``).
"""

from __future__ import annotations

from typing import Final

from kdump.formats.schemas.definitions import read_record_types

RECORD_TYPES: Final = read_record_types("metadata.txt")
