"""Offsets that are in no remote segment: a consumer cannot read past them."""

from __future__ import annotations

from kdump.formats.names import REMOTE_LOG_METADATA_TOPIC
from kdump.log.partition import Partition
from kdump.log.valid_windows import Damage
from kdump.tiered.tiered_storage import remote_metadata, remote_part


def missing_offsets(
    partition: Partition, from_offset: int = 0, to_offset: int | None = None
) -> list[Damage]:
    """Offsets of a range that no remote segment has, or not whole; or that one may have had.

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
    damage = [
        Damage(str(partition.path), 0, 0, f"{what} {gap.from_offset} to {gap.to_offset - 1}")
        for gap, what in found
        if gap.to_offset > from_offset and (to_offset is None or gap.from_offset < to_offset)
    ]
    metadata = remote_metadata(partition)
    if plan.is_by_metadata and metadata is not None and (metadata.damage or metadata.problems):
        what = f"records of {REMOTE_LOG_METADATA_TOPIC} cannot be read: segments may be missing"
        damage.append(Damage(str(partition.path), 0, 0, what))
    return damage
