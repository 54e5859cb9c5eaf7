"""Salvage a partition: keep every valid batch, and quarantine damaged bytes.

1. Resolve leftover files as a broker does, but keep data that no log has.
2. Check every batch of every log, flushed or not. After damage, search for the next valid batch, so
   that a wrong header costs only its own batch.
3. Drop batches of another log and copies (:mod:`kdump.repair.salvage.foreign`).
4. Keep a sequence of batches with increasing offsets (:mod:`kdump.repair.salvage.offset_order`).
   Begin a new log where offsets span more than an index can hold.
5. Load the result as after a crash, from the first offset on, so that all derived files are as
   Kafka leaves them. If the loader refuses a batch, insert the marker that was lost before it, or
   drop the batch, which may let others stay, and load again.

Dropped ranges are quarantined: each becomes a file beside the logs, which Kafka ignores; zeroes do
not. Offsets do not change, so the log has gaps. A gap that was there before, in a log that is not
compacted, gets an empty file (:mod:`kdump.repair.salvage.missing_offsets`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.load_report import (
    AddedMarker,
    Cause,
    LoadReport,
    QuarantinedRange,
    RecoveredSegment,
    SplitSegment,
)
from kdump.broker.loader.loaded_segment import INDEX_MISSING
from kdump.broker.loader.loader import load_directory
from kdump.broker.loader.recovered_partition import Recovered
from kdump.broker.loader.swap_losses import SwapRules
from kdump.formats import names, transaction_index
from kdump.formats.checkpoints import EpochEntry, known_leader_epochs
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind
from kdump.formats.record_batch import decode_header
from kdump.repair.salvage.kept_logs import KeptLog, KeptLogs, SalvagedSegment
from kdump.repair.salvage.lost_ranges import lost_ranges
from kdump.repair.salvage.missing_offsets import missing_ranges
from kdump.repair.salvage.salvage_files import quarantine_name, resolve_for_salvage
from kdump.state.epochs.epoch_history import start_within
from kdump.target.refusal import Refusal, Refused
from kdump.target.target_file import CopiedFrom, Gone, NewBytes
from kdump.target.virtual_directory import (
    INDEX_SUFFIXES,
    SNAPSHOT_SUFFIX,
    VirtualDirectory,
    Written,
    file_name,
    part_of,
    require_readable_length,
)

_MAX_LOADS: Final = 1000
"""How often to load; each time another batch or file has gone."""
_MAX_ZEROES: Final = 4096
"""More zeroes at the end of a damaged range are space that was never written."""
_OUTSIDE_OF_TXN: Final = "InvalidTxnStateException"
_LOG_CHANGES: Final = "its log changes"
_OTHER_ENTRIES: Final = "they contradict its log"
_INDEX_KINDS: Final = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)


def salvage_partition(directory: VirtualDirectory, context: LoadContext) -> Recovered | Refusal:
    """Salvage the partition in ``directory``, a virtual directory that this changes.

    If nothing is damaged, and a broker would lose nothing, the outcome is that of a broker.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    untouched = directory.copy()
    try:
        salvage = _Salvage(directory, context)
    except Refused as refused:
        return refused.refusal
    if salvage.is_valid:
        rebuilt = untouched.copy()
        outcome = load_directory(rebuilt, salvage.from_the_start)
        # After a clean shutdown a broker leaves zeroes at the end.
        is_cut = context.is_clean and not salvage.is_whole
        is_wrong = context.is_clean and _differ_in_aborted(untouched, rebuilt, context)
        if not (_loses(outcome) or is_cut or is_wrong) and context != salvage.from_the_start:
            outcome = load_directory(untouched, context)
        if not _loses(outcome):
            return salvage.with_notes(outcome)
    return salvage.with_notes(salvage.run())


def _loses(outcome: Recovered | Refusal) -> bool:
    """Whether a broker would truncate, delete or hide batches, or not load the partition."""
    if isinstance(outcome, Refusal) or outcome.report.dropped or outcome.report.hides_data:
        return True
    return any(cut.loss.batches for cut in outcome.report.cuts)


def _differ_in_aborted(
    directory: VirtualDirectory, rebuilt: VirtualDirectory, context: LoadContext
) -> bool:
    """Whether the logs abort other transactions than the transaction indexes say.

    That cannot be told of a compacted log, which may lack batches and markers of a transaction.

    Args:
        directory: as it is.
        rebuilt: after all segments were recovered.
    """
    start_offset = context.log_start_offset
    return not context.is_compacted and (
        _aborted(directory, start_offset) != _aborted(rebuilt, start_offset)
    )


def _aborted(directory: VirtualDirectory, since_offset: int) -> set[tuple[int, int, int]]:
    """Producer and range of each aborted transaction in the transaction indexes."""
    return {
        (txn.producer_id, txn.first_offset, txn.last_offset)
        for name in directory.names()
        if name.endswith(FileKind.TRANSACTION_INDEX.value)
        for txn in transaction_index.decode(directory.read(name)).entries
        if txn.first_offset >= since_offset
    }


class _Salvage:
    def __init__(self, directory: VirtualDirectory, context: LoadContext) -> None:
        self._directory = directory
        self._leftovers = resolve_for_salvage(directory, context.settings, SwapRules.of(context))
        self._dropped_files: set[str] = set()
        self._drops_snapshots = False
        self._was_clean = context.is_clean
        live = dict(_live_logs(directory))
        for name in live.values():
            require_readable_length(name, directory.size_bytes(name))
        start_offset = context.log_start_offset
        self._logs = KeptLogs(directory, live, start_offset)
        self._since_offset = start_within(start_offset, self._logs.end_offset, _epochs(directory))
        self._ignored_start = start_offset if self._since_offset != start_offset else None
        self.from_the_start = replace(
            context, is_clean=False, recovery_point=0, log_start_offset=self._since_offset
        )

    @property
    def is_valid(self) -> bool:
        """Whether a broker would keep everything."""
        return (
            all(self._is_valid(log) for log in self._logs.logs)
            and self._leftovers.is_as_broker
            and self._ignored_start is None
            and self._logs.has_own_names
            and not self._logs.has_lost_markers
        )

    @property
    def is_whole(self) -> bool:
        """Whether all logs consist of valid batches only."""
        return all(log.is_whole for log in self._logs.logs)

    def _is_valid(self, log: KeptLog) -> bool:
        """Whether the log is valid, except for zeroes at its end."""
        if log.is_whole:
            return True
        if not log.keep.all() or len(log.batches.damaged) > 1:
            return False
        (damaged,) = log.batches.damaged
        content = part_of(log.content, damaged.start, damaged.end)
        is_at_end = damaged.end == log.content.size_bytes
        return is_at_end and not self._directory.end_of_data(content)

    def run(self) -> Recovered | Refusal:
        """Load what stays, and drop what the loader refuses, until it loads."""
        self._logs.end_lost_txns(self._since_offset)
        for left in reversed(range(_MAX_LOADS)):
            directory = self._directory.copy()
            for name in self._dropped_files:
                directory.remove(name)
            if self._drops_snapshots:
                for name in directory.snapshot_names():
                    directory.remove(name)
            segments = self._logs.segments()
            self._logs.lay_out(directory, segments)
            missing = _add_missing_indexes(directory)
            outcome = load_directory(directory, self.from_the_start)
            if isinstance(outcome, Recovered) and not outcome.report.loses_data:
                if outcome.report.wrong_txns and left and not self._drops_snapshots:
                    self._drops_snapshots = True
                    continue
                return self._finish(directory, outcome, segments, missing)
            refusal = _as_refusal(outcome)
            if not left or not self._get_past(refusal, segments):
                return refusal
        raise AssertionError("the last try ends it")

    def _get_past(self, refusal: Refusal, segments: list[SalvagedSegment]) -> bool:
        """Drop or add something to get the loader past ``refusal``; False if nothing helps."""
        name = refusal.file
        is_derived = name.endswith((*INDEX_SUFFIXES, SNAPSHOT_SUFFIX))
        if is_derived or name == names.LEADER_EPOCH_CHECKPOINT:
            is_new = name in self._directory and name not in self._dropped_files
            self._dropped_files.add(name)
            return is_new
        segment = next((segment for segment in segments if segment.name == name), None)
        if segment is None:
            return False
        if not self._drops_snapshots and self._directory.snapshot_names():
            # A snapshot may contradict the log about a producer.
            self._drops_snapshots = True
            return True
        row = None
        if refusal.position is not None:
            row = self._logs.row_at(segment, refusal.position)
        if row is None:
            return False
        is_outside = refusal.exception == _OUTSIDE_OF_TXN
        if is_outside and self._since_offset:
            self._since_offset = 0  # the loader knows of a transaction before the start
        elif self._logs.drop(segment.log, row, Cause.NOT_LOADABLE, refusal.reason):
            return True
        self._logs.end_lost_txns(self._since_offset)
        return True

    def with_notes(self, outcome: Recovered | Refusal) -> Recovered | Refusal:
        """``outcome`` with what is seen of the logs that stay: gaps, and which are doubtful."""
        if isinstance(outcome, Refusal):
            return outcome
        report = replace(outcome.report, doubtful=tuple(self._logs.doubtful()))
        return self._with_gaps(replace(outcome, report=report))

    def _with_gaps(self, outcome: Recovered) -> Recovered:
        """``outcome`` with an empty file for each gap that is not known yet."""
        if self.from_the_start.is_compacted is not False:
            return outcome
        known = [name for name, file in outcome.files.items() if not isinstance(file, Gone)]
        known += [each.file for each in outcome.report.quarantined if each.file is not None]
        gaps = list(missing_ranges(self._logs.log_offsets, known))
        if not gaps:
            return outcome
        notes = {gap.file: NewBytes(b"") for gap in gaps if gap.file is not None}
        report = replace(outcome.report, quarantined=(*outcome.report.quarantined, *gaps))
        return replace(outcome, files={**outcome.files, **notes}, report=report)

    def _finish(
        self,
        directory: VirtualDirectory,
        outcome: Recovered,
        segments: list[SalvagedSegment],
        missing: Collection[int],
    ) -> Recovered:
        """Add the quarantined files to those that the loader leaves."""
        quarantined = [*self._leftovers.quarantined, *self._quarantine(directory)]
        report = replace(
            outcome.report,
            quarantined=tuple(quarantined),
            added_markers=tuple(_added_markers(segments)),
            splits=(*_splits(segments), *outcome.report.splits),
            leftovers=(*self._leftovers.leftovers, *outcome.report.leftovers),
            recovered=tuple(self._recovered(outcome.report, segments, missing)),
            ignored_log_start_offset=self._ignored_start,
        )
        return replace(outcome, files=directory.target_files(), report=report)

    def _recovered(
        self,
        report: LoadReport,
        segments: list[SalvagedSegment],
        missing: Collection[int],
    ) -> Iterator[RecoveredSegment]:
        """The recovered segments, with the reasons for those that would not be after a crash.

        Args:
            report: of loading them.
            segments: that were loaded.
            missing: base offsets of those without an offset index.
        """
        changed = {segment.base_offset for segment in segments if not segment.is_as_before}
        rebuilt = set(report.rebuilt_indexes) if self._was_clean else set()
        for each in sorted(report.recovered, key=lambda each: each.base_offset not in missing):
            if each.base_offset in missing:
                why = _LOG_CHANGES if each.base_offset in changed else INDEX_MISSING
            elif any(file_name(each.base_offset, kind) in rebuilt for kind in _INDEX_KINDS):
                why = _LOG_CHANGES if each.base_offset in changed else _OTHER_ENTRIES
            else:
                yield each
                continue
            yield replace(each, reason=why, is_rebuilt=True)

    def _quarantine(self, directory: VirtualDirectory) -> Iterator[QuarantinedRange]:
        for base_offset, lost in lost_ranges(self._logs.logs):
            content = CopiedFrom(lost.name, lost.start, lost.end)
            data_bytes = directory.end_of_data(content)
            if not data_bytes:
                yield lost
                continue
            if content.size_bytes - data_bytes > _MAX_ZEROES:
                content = CopiedFrom(lost.name, lost.start, lost.start + data_bytes)
            log = file_name(base_offset, FileKind.LOG)
            file = quarantine_name(directory, log, content)
            directory.put(file, content)
            yield replace(lost, file=file)


def _epochs(directory: VirtualDirectory) -> Sequence[EpochEntry]:
    if names.LEADER_EPOCH_CHECKPOINT not in directory:
        return ()
    try:
        return known_leader_epochs(directory.read(names.LEADER_EPOCH_CHECKPOINT))
    except FormatError:
        return ()


def _live_logs(directory: VirtualDirectory) -> Iterator[tuple[int, str]]:
    """Base offset and name of each log that the loader opens."""
    for name in directory.names():
        parsed = names.parse_offset_file_name(name)
        if parsed is not None and str(parsed) == name and name.endswith(FileKind.LOG.value):
            yield parsed.offset, name


def _add_missing_indexes(directory: VirtualDirectory) -> set[int]:
    """Add an empty offset index to each log that has none; returns their base offsets.

    A broker recovers such a segment when it opens it, and again when it recovers all segments. The
    result is the same as if it does so once.
    """
    missing = set()
    for base_offset, _ in _live_logs(directory):
        name = file_name(base_offset, FileKind.OFFSET_INDEX)
        if name not in directory and not directory.is_directory(name):
            directory.put(name, Written(b""))
            missing.add(base_offset)
    return missing


def _as_refusal(outcome: Recovered | Refusal) -> Refusal:
    """Why the loader does not keep everything; a cut counts as a refusal."""
    if isinstance(outcome, Refusal):
        return outcome
    report = outcome.report
    if report.cuts:
        cut = report.cuts[0]
        return Refusal(cut.reason, cut.name, "", cut.position)
    return Refusal(report.dropped[0].reason, report.dropped[0].name, "")


def _splits(segments: list[SalvagedSegment]) -> Iterator[SplitSegment]:
    """The logs that are split, not counting inserted markers."""
    parts: dict[int, list[int]] = {}
    for segment in segments:
        if segment.rows.size:
            parts.setdefault(segment.log.base_offset, []).append(segment.base_offset)
    for base_offset, base_offsets in parts.items():
        if len(base_offsets) > 1:
            yield SplitSegment(file_name(base_offset, FileKind.LOG), tuple(base_offsets))


def _added_markers(segments: list[SalvagedSegment]) -> Iterator[AddedMarker]:
    for segment in segments:
        if segment.marker:
            header = decode_header(segment.marker)
            yield AddedMarker(segment.name, header.producer_id, header.base_offset)
