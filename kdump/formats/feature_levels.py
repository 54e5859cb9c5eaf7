"""The features of a cluster, and the levels that this kdump knows of each.

Follows ``MetadataVersion`` and ``Feature`` of Kafka 4.4.0; levels that no release finalizes are not
known. ``tests/differential/test_newest_kafka.py`` holds the tables to Kafka's classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"

METADATA_VERSIONS: Final[Mapping[int, str]] = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
    31: "4.4-IV0",
    32: "4.4-IV1",
    33: "4.4-IV2",
}
"""Kafka's names of the levels of ``metadata.version``, from the lowest that Kafka 4 has."""
LOWEST_METADATA_VERSION: Final = min(METADATA_VERSIONS)
HIGHEST_METADATA_VERSION: Final = max(METADATA_VERSIONS)

HIGHEST_LEVELS: Final[Mapping[str, int]] = {
    METADATA_VERSION: HIGHEST_METADATA_VERSION,
    KRAFT_VERSION: 1,
    "transaction.version": 2,
    "group.version": 1,
    "eligible.leader.replicas.version": 1,
    "share.version": 2,
    "streams.version": 1,
}
"""The highest known level of each known feature."""


def unknown_level(feature: str, level: int) -> str | None:
    """A sentence about a level of a feature that this kdump does not know; None if it knows it."""
    highest = HIGHEST_LEVELS.get(feature)
    if highest is None:
        return f"the feature {feature} (level {level}) is unknown to this kdump"
    if level > highest:
        return f"{feature} {level} is unknown to this kdump, which knows levels up to {highest}"
    return None
