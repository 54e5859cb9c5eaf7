"""What a round of compaction does to a partition, in figures for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kdump.broker.cleaner.cleanable_range import CleanableRange
from kdump.broker.cleaner.compaction_parts import Amount
from kdump.broker.cleaner.compaction_round import Compacted, Round
from kdump.broker.cleaner.compaction_scan import ScannedPart


@dataclass(frozen=True, slots=True)
class Preview:
    """What becomes of the segments that a round goes over.

    Attributes:
        cleanable: the range, and what holds it back.
        before: how much is in the segments.
        after: how much is left of it.
        segments_before: how many they are.
        segments_after: how many are left.
        keys_before: how many distinct keys they hold.
        keys_after: how many of those are left: a key goes with its last tombstone.
        records_without_key: how many records go because they have no key.
        tombstones_before: how many records have no value.
        tombstones_dropped: how many keys' last records were one whose time is over.
    """

    cleanable: CleanableRange
    before: Amount
    after: Amount
    segments_before: int
    segments_after: int
    keys_before: int
    keys_after: int
    records_without_key: int
    tombstones_before: int
    tombstones_dropped: int

    @property
    def freed_bytes(self) -> int:
        """Of logs; indexes shrink likewise."""
        return self.before.size_bytes - self.after.size_bytes


def preview(
    begun: Round, scanned: Iterable[ScannedPart], keys: int, compacted: Compacted
) -> Preview:
    """Sum up a round.

    Args:
        begun: the round.
        scanned: what was found in all parts of its segments.
        keys: how many distinct keys that makes.
        compacted: the outcome.
    """
    parts: Sequence[ScannedPart] = list(scanned)
    groups = compacted.groups
    dropped = sum(group.tombstones_dropped for group in groups)
    return Preview(
        cleanable=begun.cleanable,
        before=sum((group.before for group in groups), Amount()),
        after=sum((group.after for group in groups), Amount()),
        segments_before=sum(len(group.replaced) for group in groups),
        segments_after=len(groups),
        keys_before=keys,
        keys_after=keys - dropped,
        records_without_key=sum(part.records_without_key for part in parts),
        tombstones_before=sum(part.tombstones for part in parts),
        tombstones_dropped=dropped,
    )
