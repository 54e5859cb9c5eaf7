"""The offsets that clients have committed, in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct, field

from kdump.formats.names import TopicPartition

_MOST_BYTES: Final = 48 << 20
_OFFSET_BYTES: Final = 320
"""What an offset takes with its partition, without its text."""
_GROUP_BYTES: Final = 512
_UNKNOWN: Final = -1


class ServedOffset(NamedTuple):
    """A committed offset, from the disk or from a client.

    Attributes:
        leader_epoch: of the last record that was read; -1 if the consumer did not say.
        metadata: text of the consumer's.
    """

    offset: int
    leader_epoch: int = _UNKNOWN
    metadata: str = ""


class KeptCommits(Struct):
    """What clients have committed; they decide how much that is, so it is bounded.

    Attributes:
        most_bytes: how much it may take.
    """

    most_bytes: int = _MOST_BYTES
    _by_group: dict[str, dict[TopicPartition, ServedOffset]] = field(default_factory=dict)
    _held_bytes: int = 0

    def __iter__(self) -> Iterator[str]:
        """The groups that have committed."""
        return iter(self._by_group)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_group

    def of(self, group_id: str) -> Mapping[TopicPartition, ServedOffset]:
        """The offsets of a group."""
        return self._by_group.get(group_id, {})

    def keep(self, group_id: str, key: TopicPartition, offset: ServedOffset) -> bool:
        """Keep an offset; false if there is no room for it."""
        before = self.of(group_id).get(key)
        more = _bytes_of(offset) - (0 if before is None else _bytes_of(before))
        if group_id not in self:
            more += _GROUP_BYTES + sys.getsizeof(group_id)
        if more > 0 and self._held_bytes + more > self.most_bytes:
            return False
        self._held_bytes += more
        self._by_group.setdefault(group_id, {})[key] = offset
        return True


def _bytes_of(offset: ServedOffset) -> int:
    return _OFFSET_BYTES + sys.getsizeof(offset.metadata)
