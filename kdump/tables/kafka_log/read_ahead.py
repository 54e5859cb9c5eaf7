"""The log of a split and what follows it, read ahead to find how transactions end."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from kdump.broker.loader.swapped_partition import as_loaded
from kdump.formats import names
from kdump.formats.names import FileKind, FileStage
from kdump.log.batch_validity import LogPart
from kdump.log.directory import read_lone_partition
from kdump.log.living_windows import living_windows_from
from kdump.log.lock_holders import is_in_use_around
from kdump.log.valid_windows import segment_part, valid_windows
from kdump.state.transactions.transaction_outcomes import Step
from kdump.storage.location import Location


def read_ahead(log: Location, part: LogPart) -> Iterator[Step]:
    """The batches and the damage of a segment from a part on, then those of the segments after it.

    Args:
        part: what will be asked about.

    Raises:
        OSError: a log cannot be read.
    """
    if is_in_use_around(log.around):
        # What follows may have come into this segment's file meanwhile: nothing is surely ahead.
        for step in living_windows_from(log.parent, part.least_offset):
            yield Step(step, False)
        return
    with log.open_file() as source:
        for step in valid_windows(source, replace(part, end=None)):
            yield Step(step, part.end is not None and step.start >= part.end)
    for path, later in _logs_after(log):
        with path.open_file() as source:
            for step in valid_windows(source, later):
                yield Step(step, True)


def _logs_after(log: Location) -> list[tuple[Location, LogPart]]:
    """The logs after this one in the partition as a starting broker loads it.

    None follow a leftover file that is not loaded.
    """
    partition = as_loaded(read_lone_partition(log.parent, log.as_absolute().parent.name))
    segment = partition.segment_of(log.name)
    base_offset = None if segment is None else segment.base_offset
    if segment is None:
        parsed = names.parse_offset_file_name(log.name)
        if parsed is not None and parsed.stage is FileStage.LIVE:
            base_offset = parsed.offset
    return [
        (partition.segment_path(each, FileKind.LOG), segment_part(each, following))
        for each, following in partition.with_following()
        if base_offset is not None and each.base_offset > base_offset
    ]
