"""The producers of a log whose broker is running.

The broker writes a snapshot when it begins a segment. With the batches after it, that is what the
broker knows at the end of what is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from kdump.formats.producer_snapshot import ProducerEntry
from kdump.log.living_windows import partition_windows
from kdump.log.partition import Partition
from kdump.log.producer_snapshots import read_producers
from kdump.log.valid_windows import Damage, OnDamage
from kdump.state.transactions.producers import Producers, append_batches


def living_producers(partition: Partition, on_damage: OnDamage) -> tuple[ProducerEntry, ...]:
    """Find the producers of a log that a broker is using.

    Args:
        partition: as it was listed a moment ago.
        on_damage: takes the damage that is found.

    Raises:
        OSError: a segment cannot be read.
        InvalidMarker: a marker cannot be read.
        Refused: a producer writes outside of its open transaction.
    """
    producers = Producers()
    first, entries = next(_snapshots(partition), (0, ()))
    for entry in entries:
        producers.load(entry)
    for step in partition_windows(partition, first):
        if isinstance(step, Damage):
            on_damage(step)
            continue
        for completed in append_batches(step, step.batches.count, producers, str(partition.path)):
            producers.complete(completed)
    return tuple(each.entry() for each in producers.by_id.values())


def _snapshots(partition: Partition) -> Iterator[tuple[int, tuple[ProducerEntry, ...]]]:
    """Yield the readable snapshots, the newest first, with the numbers of their segments.

    One that is being written, or was deleted, is none.
    """
    there = {each.offset for each in partition.producer_snapshots}
    for number, segment in reversed(list(enumerate(partition.segments))):
        if segment.base_offset in there:
            entries = read_producers(partition, segment.base_offset)
            if entries is not None:
                yield number, entries
