"""Versions of Kafka: which one will start on a directory, and rules that changed between versions.

What a broker does to a directory depends on its version. The rules that kdump repeats are those of
4.3.1 and of 4.4.0; a broker before 4.3 counts as one of 4.3.1. Where the two differ, a
:class:`ChangedRule` stands beside the rule.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from msgspec import Struct

from kdump.formats.feature_levels import LOWEST_METADATA_VERSION, METADATA_VERSIONS


class KafkaVersion(NamedTuple):
    """A version of Kafka."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}" + (f".{self.patch}" if self.patch else "")


KAFKA_4_3_1: Final = KafkaVersion(4, 3, 1)
KAFKA_4_4: Final = KafkaVersion(4, 4)
NEWEST: Final = KAFKA_4_4
"""The newest version whose rules kdump knows."""

_VERSION: Final = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?(?:\.\d{1,3})?", re.ASCII)


def parse_kafka_version(text: str) -> KafkaVersion | None:
    """Read a version such as ``4.4``, ``4.3.1`` or ``0.10.2.2``; None if it is none."""
    found = _VERSION.fullmatch(text)
    return None if found is None else KafkaVersion(*(int(each or 0) for each in found.groups()))


def version_with_level(level: int) -> KafkaVersion:
    """The first version with a level of ``metadata.version``; the newest for higher ones.

    Lower ones than those that Kafka 4 has count as the lowest: only previews wrote them.
    """
    name = METADATA_VERSIONS.get(max(level, LOWEST_METADATA_VERSION))
    found = None if name is None else parse_kafka_version(name.partition("-")[0])
    return NEWEST if found is None else found


class ChangedRule(Struct, frozen=True):
    """A rule that a version of Kafka changed.

    Attributes:
        since: the first version with the new rule.
        ticket: of Kafka; empty if unknown.
        what: the new rule, and the one before it.
    """

    since: KafkaVersion
    ticket: str
    what: str

    def holds_in(self, version: KafkaVersion) -> bool:
        """Whether the new rule holds in a version."""
        return version >= self.since
