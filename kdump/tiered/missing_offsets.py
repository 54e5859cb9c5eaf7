"""Offsets that are in no remote segment: a consumer cannot read past them."""

from __future__ import annotations

from kdump.log.partition import Partition
from kdump.log.valid_windows import Damage
from kdump.tiered.tiered_storage import remote_part


def missing_offsets(
    partition: Partition, from_offset: int = 0, to_offset: int | None = None
) -> list[Damage]:
    """Offsets of a range that no remote segment has, between others that one has, or not whole.

    None for a partition that was not listed with its remote segments.

    Raises:
        KdumpError: ``__remote_log_metadata`` cannot be loaded.
        OSError: something cannot be read.
    """
    plan = remote_part(partition)
    if plan is None:
        return []
    short = "a remote log is shorter than its metadata say; it should have the offsets"
    found = [(each, "no remote segment has the offsets") for each in plan.gaps]
    found += [(each, short) for each in plan.shorter]
    return [
        Damage(str(partition.path), 0, 0, f"{what} {gap.from_offset} to {gap.to_offset - 1}")
        for gap, what in found
        if gap.to_offset > from_offset and (to_offset is None or gap.from_offset < to_offset)
    ]
