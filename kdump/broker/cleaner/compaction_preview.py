"""Sum up what a round of compaction does to a partition, for people."""

from __future__ import annotations

from msgspec import Struct

from kdump.broker.cleaner.cleanable_range import CleanableRange
from kdump.broker.cleaner.compaction_parts import Amount
from kdump.broker.cleaner.compaction_round import Compacted, Round


class Preview(Struct, frozen=True):
    """The segments of a round, before and after.

    Attributes:
        cleanable: the range, and what limits it.
        before: amount of data in the segments.
        after: amount of data that is left.
        segments_before: number of segments.
        segments_after: number of segments that are left.
        keys_before: number of distinct keys.
        keys_after: number of keys that are left: a key is removed with its last tombstone.
        records_without_key: number of records that are removed because they have no key.
        tombstones_before: number of records without a value.
        tombstones_dropped: number of tombstones that are past their delete horizon.
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
        """Freed bytes of logs; indexes shrink as well."""
        return self.before.size_bytes - self.after.size_bytes


def preview(
    begun: Round, compacted: Compacted, *, keys: int, records_without_key: int, tombstones: int
) -> Preview:
    """Sum up a round.

    Args:
        compacted: the outcome.
        keys: number of distinct keys in its segments.
        records_without_key: number of data records without a key in them.
        tombstones: number of records without a value in them.
    """
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
        records_without_key=records_without_key,
        tombstones_before=tombstones,
        tombstones_dropped=dropped,
    )
