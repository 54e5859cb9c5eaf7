"""A log that is cut, as a broker has it then."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats import names
from kdump.formats.message_set import Message
from kdump.formats.names import FileKind, FileStage
from kdump.repair.log_end import end_log
from kdump.repair.rewind.group_offsets import LoweredOffset
from kdump.repair.rewind.log_facts import NotRewindableError, loaded, valid_windows_of
from kdump.scan.batches import Column, Window
from kdump.scan.control_batches import is_control
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, expand_window
from kdump.state.compacted.latest_records import LatestRecords
from kdump.state.epochs.leader_epochs import LeaderEpochs
from kdump.storage.location import Location
from kdump.target.virtual_directory import VirtualDirectory

_COMPARED = (
    "base_offset",
    "last_offset_delta",
    "partition_leader_epoch",
    "size_bytes",
    "crc",
)
"""The columns in which a batch is the same on all replicas."""


class Removed(Struct, frozen=True):
    """What a cut removes.

    Attributes:
        records: how many, without control records.
        on_time: how many of them are not later than the moment of the cut.
        size_bytes: of all batches.
    """

    records: int = 0
    on_time: int = 0
    size_bytes: int = 0


class RewoundLog(Struct, frozen=True):
    """A log that is cut.

    Attributes:
        before: as a broker has it without the cut.
        after: as a broker has it then.
        end_offset: where the cut ends it; records that were appended come after it.
        removed: what the cut removes.
        digests: by offset, a digest of the batches before it, to compare replicas.
        lowered: the committed offsets that were set to the ends of their logs.
        shares: by group, topic id and partition, the states that share groups expect to find.
    """

    before: Recovered
    after: Recovered
    end_offset: int
    removed: Removed
    digests: Mapping[int, str]
    lowered: tuple[LoweredOffset, ...] = ()
    shares: tuple[tuple[str, str, int], ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether anything is removed."""
        return self.end_offset < self.before.log_end_offset

    @property
    def is_changed(self) -> bool:
        """Whether anything is removed or appended."""
        return self.is_cut or self.after.log_end_offset > self.end_offset


def rewound(
    path: Location,
    context: LoadContext,
    cut: int | None,
    time_ms: int | None,
    compared_from: int,
    compared_to: Sequence[int],
) -> tuple[VirtualDirectory, RewoundLog]:
    """Cut a log, and load it as a broker does.

    Args:
        path: of its directory.
        cut: no offset at or after it is kept; None to cut nothing.
        time_ms: records that are not later are counted.
        compared_from: the first offset that is compared with other replicas.
        compared_to: the offsets up to which it is compared, in order.

    Returns:
        The directory as it is then, and the log.

    Raises:
        NotRewindableError: it is damaged.
        OSError: a file cannot be read.
    """
    directory = VirtualDirectory(path, context.store)
    before = loaded(directory, context)
    digests = dict(_digests(directory, compared_from, compared_to)) if compared_to else {}
    removed = Removed()
    after = before
    start = before.log_start_offset
    if cut is not None and max(cut, start) < before.log_end_offset:
        cut = max(cut, start)
        removed = _removed(directory, cut, time_ms)
        if cut == start > directory.base_offsets()[0]:
            # What is left was deleted before, and may not reach the start.
            _empty(directory, start)
            last = start
        else:
            last = end_log(directory, cut)
        again = replace(
            context,
            is_clean=False,
            recovery_point=last,
            log_start_offset=start,
            high_watermark=min(context.high_watermark, cut),
        )
        if before.leader_epochs and before.leader_epochs[0].start_offset >= cut > start:
            # Records were deleted after the cut, and have come back: no epoch would be left.
            LeaderEpochs(directory).clear()
            again = replace(again, recovery_point=start)
        after = loaded(directory, again)
    return directory, RewoundLog(before, after, after.log_end_offset, removed, digests)


def _empty(directory: VirtualDirectory, offset: int) -> None:
    """Make a log empty, so that it begins and ends at an offset."""
    for name in directory.names():
        parsed = names.parse_offset_file_name(name)
        if parsed is None or parsed.stage is not FileStage.LIVE:
            continue
        if parsed.kind is not FileKind.PRODUCER_SNAPSHOT or parsed.offset > offset:
            directory.remove(name)
    directory.put_segment(offset, b"")


def _removed(directory: VirtualDirectory, cut: int, time_ms: int | None) -> Removed:
    records = on_time = size_bytes = 0
    for window, _ in valid_windows_of(directory, cut):
        rows = window.batches.last_offset >= cut
        if not rows.any():
            continue
        gone = window.rows(rows)
        size_bytes += int(gone.batches.size_bytes.sum())
        batches = gone.batches
        is_set = batches.is_compressed_set
        data = gone.rows(~is_control(batches) & ~is_set)
        counts = data.batches.counts
        records += int(counts.sum())
        if time_ms is not None:
            on_time += _on_time(data, counts, time_ms)
        for messages in _messages_of(gone.rows(is_set)):
            records += len(messages)
            if time_ms is not None:
                on_time += sum(each.timestamp <= time_ms for each in messages)
    return Removed(records, on_time, size_bytes)


def _messages_of(sets: Window) -> Iterator[Sequence[Message]]:
    """The messages in compressed message sets of magic 0 and 1, whose headers do not count them."""
    for found in expand_window(sets, with_records=True):
        if isinstance(found, MessageSet):
            yield found.messages


def _on_time(window: Window, counts: Column, time_ms: int) -> int:
    """How many records are not later than a moment."""
    batches = window.batches
    is_early = batches.max_timestamp <= time_ms
    found = int(counts[is_early].sum())
    is_mixed = ~is_early & (counts > 1)
    if is_mixed.any():
        for columns in expand_window(window.rows(is_mixed), with_records=True):
            if isinstance(columns, RecordColumns):
                found += int((columns.timestamp <= time_ms).sum())
    return found


def _digests(
    directory: VirtualDirectory, start: int, ends: Sequence[int]
) -> Iterator[tuple[int, str]]:
    """A digest of the batches from an offset up to each of some others."""
    digest = hashlib.sha256()
    waiting = list(ends)
    for window, _ in valid_windows_of(directory, start):
        batches = window.batches.rows(window.batches.base_offset >= start)
        rows = np.stack([getattr(batches, name) for name in _COMPARED], axis=1)
        done = 0
        while waiting and batches.count and int(batches.last_offset[-1]) >= waiting[0]:
            stop = int(np.searchsorted(batches.last_offset, waiting[0]))
            digest.update(rows[done:stop].tobytes())
            done = stop
            yield waiting.pop(0), digest.hexdigest()
        digest.update(rows[done:].tobytes())
    for end in waiting:
        yield end, digest.hexdigest()


def latest_records(directory: VirtualDirectory, end: int | None = None) -> LatestRecords:
    """The latest records of a coordinator's log.

    Args:
        directory: of the log.
        end: where a segment begins that is not read, nor those after it; None to read all.

    Raises:
        NotRewindableError: a record cannot be read.
        OSError: a file cannot be read.
    """
    latest = LatestRecords()

    def refuse(damage: object) -> None:
        raise NotRewindableError(f"{damage}; repair it first")

    for window, _ in valid_windows_of(directory, to_offset=end):
        latest.add(window, refuse)
    return latest


def with_appended(
    directory: VirtualDirectory,
    log: RewoundLog,
    context: LoadContext,
    encode: Callable[[int, int, int], Iterable[bytes]],
) -> RewoundLog:
    """Append batches, in a segment of their own.

    They have the time of the last batch, wherever segments begin, so that they are the same on
    every replica and in every run.

    Args:
        directory: of the log.
        log: as it is so far.
        encode: the batches, by the end of the log, its latest leader epoch, and their time.

    Raises:
        NotRewindableError: a batch is damaged.
        OSError: a file cannot be read.
    """
    end = log.after.log_end_offset
    batches = encode(end, latest_epoch(log), time_of_last_batch(directory))
    directory.put_segment(end, b"".join(batches))
    again = replace(
        context,
        is_clean=False,
        recovery_point=end,
        log_start_offset=log.after.log_start_offset,
    )
    return replace(log, after=loaded(directory, again))


def time_of_last_batch(directory: VirtualDirectory, end: int | None = None) -> int:
    """The time of the last batch of a log; 0 if it has none.

    Args:
        directory: of the log.
        end: where a segment begins that is not read, nor those after it; None to read all.

    Raises:
        NotRewindableError: a batch is damaged.
        OSError: a file cannot be read.
    """
    bases = directory.base_offsets()
    for base in reversed([each for each in bases if end is None or each < end]):
        time_ms = None
        for window, _ in valid_windows_of(directory, base, end):
            if window.batches.count:
                time_ms = int(window.batches.max_timestamp[-1])
        if time_ms is not None:
            return max(time_ms, 0)
    return 0


def latest_epoch(log: RewoundLog) -> int:
    """The latest leader epoch of a log; 0 if it has none."""
    epochs = log.after.leader_epochs
    return epochs[-1].epoch if epochs else 0
