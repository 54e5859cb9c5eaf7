"""The ids of log directories that stand for none. Follows ``DirectoryId``."""

from __future__ import annotations

import functools
from typing import Final
from uuid import UUID

from kdump.formats.uuids import parse_uuid

_FIRST_FREE_ID: Final = 100


def is_reserved(directory_id: UUID) -> bool:
    """Whether Kafka reserves a directory id (``DirectoryId.reserved``)."""
    most, least = directory_id.int >> 64, directory_id.int & (1 << 64) - 1
    # Kafka compares the lower half as a signed number.
    return most == 0 and (least < _FIRST_FREE_ID or least >= 1 << 63)


@functools.lru_cache(maxsize=1024)
def is_reserved_text(directory_id: str) -> bool:
    """The same of an id in Kafka's form; also true of what is none.

    The metadata of a cluster has a few ids tens of thousands of times.
    """
    found = parse_uuid(directory_id)
    return found is None or is_reserved(found)
