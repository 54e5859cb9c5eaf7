"""The times of ``ListOffsets`` that stand for a place in a log, and isolation levels."""

from __future__ import annotations

import enum
from typing import Final


class SpecialTime(enum.Enum):
    """A place in a log that is asked for as a time; the value is the word for ``--timestamp``.

    Follows ``ListOffsetsRequest``.
    """

    EARLIEST = "earliest"
    """The log start offset."""
    LATEST = "latest"
    """The end of what the isolation level lets a consumer read."""
    MAX = "max"
    """The first record with the largest timestamp."""
    EARLIEST_LOCAL = "earliest-local"
    """The first offset on the local disk, where earlier ones are in remote storage."""
    LATEST_TIERED = "latest-tiered"
    """The last offset in remote storage."""
    EARLIEST_PENDING_UPLOAD = "earliest-pending-upload"
    """The first offset that is not in remote storage yet."""


SPECIAL_BY_WORD: Final = {
    **{each.value: each for each in SpecialTime},
    "max-timestamp": SpecialTime.MAX,
    "-1": SpecialTime.LATEST,
    "-2": SpecialTime.EARLIEST,
    "-3": SpecialTime.MAX,
    "-4": SpecialTime.EARLIEST_LOCAL,
    "-5": SpecialTime.LATEST_TIERED,
    "-6": SpecialTime.EARLIEST_PENDING_UPLOAD,
}
"""Special times by the words and numbers that ``kafka-get-offsets`` takes."""


class IsolationLevel(enum.Enum):
    """What a consumer reads; the value is Kafka's word."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"
