"""A partition with all the valid batches that it has: what is damaged goes out of the logs.

What is kept and what goes, log by log:

1. Leftovers are resolved as a broker does it, but for data that nothing else holds.
2. Every batch of every log is checked, flushed or not. Behind damage the next one is looked for,
   so that a header that lies costs only itself.
3. Batches of another log go, and those that are there twice (:mod:`kdump.repair.salvage.foreign`).
4. Batches stay whose offsets rise. A batch that has offsets that are others' goes. Where offsets
   leap over more than indexes can hold, another log begins.
5. What stays is handed to the loader, as after a crash and from the first offset on, so that all
   that is derived from the logs is as Kafka itself leaves it. Where loading ends on a batch all
   the same, it is given the marker that was lost in front of it, or goes too, which may let
   others stay, and the loader begins again.

Whatever goes is put into a file of its own beside the logs, which Kafka leaves alone, unless it
is zeroes. Offsets stay as they are: the log has gaps. A gap that was there before, in a log that
is not compacted, gets an empty file (:mod:`kdump.repair.salvage.missing_offsets`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from kdump.broker.loader.load_report import (
    AddedMarker,
    Cause,
    QuarantinedRange,
    RecoveredSegment,
    SplitSegment,
)
from kdump.broker.loader.loader import LoadContext, Recovered, load_directory
from kdump.formats import names
from kdump.formats.names import FileKind
from kdump.formats.record_batch import decode_header
from kdump.repair.salvage.kept_logs import KeptLog, KeptLogs, SalvagedSegment
from kdump.repair.salvage.lost_ranges import lost_ranges
from kdump.repair.salvage.missing_offsets import missing_ranges
from kdump.repair.salvage.salvage_files import aside_name, resolve_for_salvage
from kdump.target.refusal import Refusal, Refused
from kdump.target.target_file import Gone, NewBytes
from kdump.target.virtual_directory import (
    INDEX_SUFFIXES,
    SNAPSHOT_SUFFIX,
    Stored,
    VirtualDirectory,
    file_name,
    part_of,
    require_readable_length,
)

_MOST_TRIES: Final = 1000
"""How often the loader begins again; each time another batch or file has gone."""
_MOST_ZEROES: Final = 4096
"""More of them at the end of a damaged range are space that was never written."""
_OUTSIDE_OF_TXN: Final = "InvalidTxnStateException"


def salvage_partition(directory: VirtualDirectory, context: LoadContext) -> Recovered | Refusal:
    """Keep what can be kept of the partition in ``directory``, which is changed for it.

    Where nothing is damaged, and a broker would lose nothing, the outcome is the broker's.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    untouched = directory.copy()
    try:
        salvage = _Salvage(directory, context)
    except Refused as refused:
        return refused.refusal
    if salvage.is_sound:
        outcome = load_directory(untouched.copy(), salvage.from_the_start)
        # Behind a clean stop a broker would leave zeroes at the end where they are.
        is_cut = context.is_clean and not salvage.is_whole
        if not _loses(outcome) and context != salvage.from_the_start and not is_cut:
            outcome = load_directory(untouched, context)
        if not _loses(outcome):
            return salvage.with_holes(outcome)
    return salvage.with_holes(salvage.run())


def _loses(outcome: Recovered | Refusal) -> bool:
    """Whether a broker would take batches off a log, or not load it at all."""
    if isinstance(outcome, Refusal) or outcome.report.dropped:
        return True
    return any(cut.loss.batches for cut in outcome.report.cuts)


class _Salvage:
    def __init__(self, directory: VirtualDirectory, context: LoadContext) -> None:
        self._directory = directory
        self._leftovers = resolve_for_salvage(directory, context.settings, context.swap_rules)
        self._dropped_files: set[str] = set()
        self._drops_snapshots = False
        live = dict(_live_logs(directory))
        for name in live.values():
            require_readable_length(name, directory.size_bytes(name))
        self._logs = KeptLogs(directory, live)
        start_offset = context.log_start_offset
        self._ignores_start = start_offset > self._logs.end_offset
        self.from_the_start = replace(
            context,
            is_clean=False,
            recovery_point=0,
            log_start_offset=0 if self._ignores_start else start_offset,
        )
        self._ignored_start = start_offset if self._ignores_start else None

    @property
    def is_sound(self) -> bool:
        """Whether nothing is found that a broker would not keep."""
        return (
            all(self._is_sound(log) for log in self._logs.logs)
            and self._leftovers.is_as_broker
            and not self._ignores_start
            and self._logs.has_own_names
        )

    @property
    def is_whole(self) -> bool:
        """Whether all logs hold batches and nothing else."""
        return all(log.is_whole for log in self._logs.logs)

    def _is_sound(self, log: KeptLog) -> bool:
        """Whether nothing is damaged but space behind the batches that was never written."""
        if log.is_whole:
            return True
        if not log.keep.all() or len(log.batches.damaged) > 1:
            return False
        (damaged,) = log.batches.damaged
        content = part_of(log.content, damaged.start, damaged.end)
        is_at_end = damaged.end == log.content.size_bytes
        return is_at_end and not self._directory.end_of_data(content)

    def run(self) -> Recovered | Refusal:
        """Load what stays until the loader takes it."""
        for left in reversed(range(_MOST_TRIES)):
            directory = self._directory.copy()
            for name in self._dropped_files:
                directory.remove(name)
            if self._drops_snapshots:
                for name in directory.snapshot_names():
                    directory.remove(name)
            segments = self._logs.segments()
            self._logs.lay_out(directory, segments)
            outcome = load_directory(directory, self.from_the_start)
            if isinstance(outcome, Recovered) and not outcome.report.loses_data:
                return self._finish(directory, outcome, segments)
            refusal = _as_refusal(outcome)
            if not left or not self._give_way(refusal, segments):
                return refusal
        raise AssertionError("the last try ends it")

    def _give_way(self, refusal: Refusal, segments: list[SalvagedSegment]) -> bool:
        """Do something about what loading ended on; gives whether there was anything."""
        name = refusal.file
        is_derived = name.endswith((*INDEX_SUFFIXES, SNAPSHOT_SUFFIX))
        if is_derived or name == names.LEADER_EPOCH_CHECKPOINT:
            is_news = name in self._directory and name not in self._dropped_files
            self._dropped_files.add(name)
            return is_news
        segment = next((segment for segment in segments if segment.name == name), None)
        if segment is None:
            return False
        if not self._drops_snapshots and self._directory.snapshot_names():
            # A snapshot may say of a producer what the log does not.
            self._drops_snapshots = True
            return True
        row = None
        if refusal.position is not None:
            row = self._logs.row_at(segment, refusal.position)
        if row is None:
            return False
        is_ended = refusal.exception == _OUTSIDE_OF_TXN and self._logs.end_txn(segment, row)
        if not is_ended:
            self._logs.let_go(segment, row, Cause.NOT_LOADABLE, refusal.reason)
        return True

    def with_holes(self, outcome: Recovered | Refusal) -> Recovered | Refusal:
        """``outcome`` with a file for each hole that nothing tells of yet."""
        if isinstance(outcome, Refusal) or self.from_the_start.is_compacted is not False:
            return outcome
        known = [name for name, file in outcome.files.items() if not isinstance(file, Gone)]
        known += [each.file for each in outcome.report.quarantined if each.file is not None]
        holes = list(missing_ranges(self._logs.log_offsets, known))
        if not holes:
            return outcome
        notes = {hole.file: NewBytes(b"") for hole in holes if hole.file is not None}
        report = replace(outcome.report, quarantined=(*outcome.report.quarantined, *holes))
        return replace(outcome, files={**outcome.files, **notes}, report=report)

    def _finish(
        self, directory: VirtualDirectory, outcome: Recovered, segments: list[SalvagedSegment]
    ) -> Recovered:
        """Put the files that are set aside beside those that the loader leaves."""
        aside = [*self._leftovers.quarantined, *self._set_aside(directory)]
        report = replace(
            outcome.report,
            quarantined=tuple(aside),
            added_markers=tuple(_made_markers(segments)),
            splits=(*_splits(segments), *outcome.report.splits),
            leftovers=(*self._leftovers.leftovers, *outcome.report.leftovers),
            recovered=tuple(_recovered(outcome.report.recovered, segments)),
            ignored_log_start_offset=self._ignored_start,
        )
        return replace(outcome, files=directory.target_files(), report=report)

    def _set_aside(self, directory: VirtualDirectory) -> Iterator[QuarantinedRange]:
        for base_offset, lost in lost_ranges(self._logs.logs):
            content = Stored(lost.name, lost.start, lost.end)
            data_bytes = directory.end_of_data(content)
            if not data_bytes:
                yield lost
                continue
            if content.size_bytes - data_bytes > _MOST_ZEROES:
                content = Stored(lost.name, lost.start, lost.start + data_bytes)
            log = file_name(base_offset, FileKind.LOG)
            file = aside_name(directory, log, content)
            directory.put(file, content)
            yield replace(lost, file=file)


def _live_logs(directory: VirtualDirectory) -> Iterator[tuple[int, str]]:
    """Base offset and name of the logs that a loader opens."""
    for name in directory.names():
        parsed = names.parse_offset_file_name(name)
        if parsed is not None and str(parsed) == name and name.endswith(FileKind.LOG.value):
            yield parsed.offset, name


def _as_refusal(outcome: Recovered | Refusal) -> Refusal:
    """What the loader does not take, put as a refusal where it would cut."""
    if isinstance(outcome, Refusal):
        return outcome
    report = outcome.report
    if report.cuts:
        cut = report.cuts[0]
        return Refusal(cut.reason, cut.name, "", cut.position)
    return Refusal(report.dropped[0].reason, report.dropped[0].name, "")


def _recovered(
    recovered: Iterable[RecoveredSegment], segments: list[SalvagedSegment]
) -> Iterator[RecoveredSegment]:
    """Those that the loader went through; that it found no index of some is our doing."""
    changed = {segment.base_offset for segment in segments if not segment.is_as_before}
    for each in recovered:
        is_ours = each.is_rebuilt and each.base_offset in changed
        yield replace(each, reason="its log is another then") if is_ours else each


def _splits(segments: list[SalvagedSegment]) -> Iterator[SplitSegment]:
    """The logs that become several, but for markers that are made."""
    parts: dict[int, list[int]] = {}
    for segment in segments:
        if segment.rows.size:
            parts.setdefault(segment.log.base_offset, []).append(segment.base_offset)
    for base_offset, base_offsets in parts.items():
        if len(base_offsets) > 1:
            yield SplitSegment(file_name(base_offset, FileKind.LOG), tuple(base_offsets))


def _made_markers(segments: list[SalvagedSegment]) -> Iterator[AddedMarker]:
    for segment in segments:
        if segment.marker:
            header = decode_header(segment.marker)
            yield AddedMarker(segment.name, header.producer_id, header.base_offset)
