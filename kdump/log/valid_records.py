"""The records of a partition's valid batches in order, and the damage between them."""

from __future__ import annotations

from collections.abc import Iterator

from kdump.formats.names import FileKind
from kdump.log.living_windows import log_windows
from kdump.log.partition import Partition
from kdump.log.valid_windows import Damage, OnDamage, batch_damage, segment_part
from kdump.scan.batches import Window
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, expand_window


def valid_records(
    partition: Partition, on_damage: OnDamage
) -> Iterator[RecordColumns | MessageSet]:
    """Yield the records of all valid batches of a partition, in offset order.

    Memory holds one window, whatever the size of the log. A torn tail is damage, preallocated
    space is not. Records that follow damage are yielded: who adds records up has to know from
    ``on_damage`` that some are missing in between.

    Args:
        partition: as a starting broker loads it; not of Kafka 0.7.
        on_damage: takes the damage, each before the records that follow it.

    Raises:
        OSError: a log cannot be read.
    """
    for segment, following in partition.with_following():
        log = partition.segment_path(segment, FileKind.LOG)
        for step in log_windows(log, segment_part(segment, following)):
            if isinstance(step, Damage):
                on_damage(step)
                continue
            for records in expand_window(step, with_records=True, only_valid=True):
                yield from _reported(records, step, str(log), on_damage)


def _reported(
    records: Window | RecordColumns | MessageSet, window: Window, path: str, on_damage: OnDamage
) -> Iterator[RecordColumns | MessageSet]:
    """Report the batches of ``window`` whose records end early, then yield the records."""
    if isinstance(records, RecordColumns):
        for row, problem in sorted(records.problems.items()):
            position = records.batches.position[row]
            at = int(window.batches.position.searchsorted(position))
            on_damage(batch_damage(window, at, path, problem))
        if records.count:
            yield records
    elif isinstance(records, MessageSet):
        if records.problem is not None:
            on_damage(batch_damage(records.window, 0, path, records.problem))
        if records.messages:
            yield records
