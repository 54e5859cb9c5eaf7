"""Find the records that finishing an interrupted swap loses.

A broker replaces logs by complete ``.swap`` files without reading either. The swap is right if it
comes from a split, which keeps every batch, or from the cleaner, which removes only what its rules
allow (``Cleaner.shouldRetainRecord``). Here the replaced logs are compared with the swap, record by
record where batches differ:

- A record is kept if a swap contains one with the same offset, key and value.
- Control batches, and records of aborted transactions, are no loss: no consumer reads them.
- In a compacted log a record may be missing if a later one has its key. So may a tombstone if no
  earlier record of its key is left, and a record without a key.
- If it is unknown whether the log is compacted, a record without a key may not be missing. And if
  the swap is not what compaction would have made, the log is not compacted: then no record may be
  missing.

All other records are lost. Logs that are already gone cannot be compared and are ignored.

A broker deletes ``.cleaned`` files, and ``.swap`` files at or above the lowest of them. Those were
made from logs that still exist; records in them that no log contains are lost by the same rules.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from kdump.broker.loader.interrupted_swaps import finish_swaps
from kdump.broker.loader.load_context import IndexSettings, LoadContext
from kdump.broker.loader.load_report import Loss, Recorder, SwapLoss
from kdump.broker.loader.valid_batches import ValidBatches, find_valid_batches
from kdump.formats.names import FileKind, FileStage
from kdump.formats.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG
from kdump.scan.batches import Column, Flags, Window
from kdump.scan.control_batches import is_control
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, walk_segment
from kdump.state.transactions.markers import marker_rows, read_markers
from kdump.target.target_file import CopiedFrom
from kdump.target.virtual_directory import Content, VirtualDirectory

_NO_PRODUCER = -1
_UNFINISHED_LOGS = tuple(
    FileKind.LOG.value + stage.value for stage in (FileStage.SWAP, FileStage.CLEANED)
)


class SwapRules(Struct, frozen=True):
    """Decides whether a record may be missing from a swap.

    Attributes:
        is_compacted: whether the log is compacted; None if unknown.
        log_start_offset: records before it are no longer part of the log.
    """

    is_compacted: bool | None = None
    log_start_offset: int = 0

    @classmethod
    def of(cls, context: LoadContext) -> SwapRules:
        """The rules for a log that is loaded with ``context``."""
        return cls(context.is_compacted, context.log_start_offset)


def resolve_swaps(
    directory: VirtualDirectory, settings: IndexSettings, recorder: Recorder, rules: SwapRules
) -> None:
    """Finish swaps as a broker does, and record which records that loses.

    Raises:
        OSError: a log cannot be read.
        Refused: as for :func:`~kdump.broker.loader.interrupted_swaps.finish_swaps`.
    """
    before = live_logs(directory) if _has_swap(directory) else {}
    unfinished = _unfinished_logs(directory)
    finish_swaps(directory, settings, recorder)
    for loss in find_losses(directory, before, rules):
        recorder.swap_loss(loss)
    for loss in _find_dropped(directory, unfinished, rules):
        recorder.swap_loss(loss)


def live_logs(directory: VirtualDirectory) -> dict[str, Content]:
    """The live logs, by name."""
    return {
        name: directory.content(name)
        for name in directory.names()
        if name.endswith(FileKind.LOG.value)
    }


def find_losses(
    directory: VirtualDirectory, before: Mapping[str, Content], rules: SwapRules
) -> list[SwapLoss]:
    """Find the records of replaced logs that are lost.

    Args:
        directory: after the swaps are finished.
        before: the live logs before that, by name.
        rules: decide which records may be missing.

    Raises:
        OSError: a log cannot be read.
    """
    if not before:
        return []
    after = live_logs(directory)
    replaced = {name: each for name, each in before.items() if after.get(name) != each}
    if not replaced:
        return []
    swaps = [each for each in after.values() if _was_swap(each)]
    others = [each for each in after.values() if not _was_swap(each)]
    return _Comparison(directory, replaced, swaps, others, rules).losses()


def _find_dropped(
    directory: VirtualDirectory, unfinished: Mapping[str, Content], rules: SwapRules
) -> Iterator[SwapLoss]:
    """Find records of deleted unfinished logs that no log contains."""
    logs = list(live_logs(directory).values()) if unfinished else []
    for name, content in unfinished.items():
        if content in logs:
            continue
        yield from _Comparison(directory, {name: content}, logs, [], rules).losses()
        logs.append(content)  # a record in two of them is lost once


def holds_all(directory: VirtualDirectory, log: Content, others: Iterable[Content]) -> bool:
    """Whether ``others`` contain every record and every marker of ``log``.

    Raises:
        OSError: a log cannot be read.
    """
    rules = SwapRules(is_compacted=False)
    return not _Comparison(directory, {"": log}, list(others), [], rules).losses(with_control=True)


def _unfinished_logs(directory: VirtualDirectory) -> dict[str, Content]:
    """The unfinished logs, by name."""
    return {
        name: directory.content(name)
        for name in directory.names()
        if name.endswith(_UNFINISHED_LOGS)
    }


def _has_swap(directory: VirtualDirectory) -> bool:
    return any(name.endswith(FileStage.SWAP.value) for name in directory.names())


def _was_swap(content: Content) -> bool:
    return isinstance(content, CopiedFrom) and content.name.endswith(FileStage.SWAP.value)


class _Record(NamedTuple):
    """A record of a log.

    Attributes:
        position: of its batch in the log.
        key: None if it has none.
        has_value: False for a tombstone.
        digest: equal for equal keys and values.
        producer_id: of its transaction; -1 if it is in none.
    """

    position: int
    offset: int
    key: bytes | None
    has_value: bool
    digest: int
    producer_id: int


class _Markers(Struct):
    """The markers of each producer: their offsets, rising, and whether they abort."""

    offsets: dict[int, list[int]] = field(default_factory=dict)
    aborts: dict[tuple[int, int], bool] = field(default_factory=dict)

    def is_aborted(self, record: _Record) -> bool:
        """Whether the marker after a record aborts its transaction."""
        if record.producer_id == _NO_PRODUCER:
            return False
        offsets = self.offsets.get(record.producer_id, [])
        at = bisect_right(offsets, record.offset)
        return at < len(offsets) and self.aborts[record.producer_id, offsets[at]]


class _Comparison(Struct, frozen=True):
    """Compares replaced logs with their replacements."""

    directory: VirtualDirectory
    replaced: Mapping[str, Content]
    swaps: list[Content]
    others: list[Content]
    rules: SwapRules

    def losses(self, *, with_control: bool = False) -> list[SwapLoss]:
        """The losses of each log.

        Args:
            with_control: whether control batches that a swap does not contain count as lost.
        """
        found = {name: self._batches(content) for name, content in self.replaced.items()}
        held = [self._batches(content) for content in self.swaps]
        differing = {name: ~_is_in(batches, held) for name, batches in found.items()}
        lost: dict[str, set[int]] = {}
        if with_control:
            for name, batches in found.items():
                is_lost = differing[name] & _is_control(batches)
                lost[name] = set(batches.position[is_lost].tolist())
        missing: dict[str, list[_Record]] = {}
        digests: dict[int, int] | None = None
        for name, batches in found.items():
            positions = batches.position[
                differing[name]
                & ~_is_control(batches)
                & (batches.last_offset >= self.rules.log_start_offset)
                & (batches.records_count != 0)
            ]
            if not positions.size:
                continue
            if digests is None:
                digests = {
                    record.offset: record.digest
                    for content in self.swaps
                    for record in self._records(content)
                }
            unreadable = lost.setdefault(name, set())
            missing[name] = [
                record
                for record in self._records(self.replaced[name], positions, unreadable)
                if digests.get(record.offset) != record.digest
                and record.offset >= self.rules.log_start_offset
            ]
        counts = self._lost_records(missing)
        return [
            loss
            for name, batches in found.items()
            if (loss := _loss(name, batches, lost.get(name, set()), counts.get(name, [])))
        ]

    def _batches(self, content: Content) -> ValidBatches:
        with self.directory.open_content(content) as source:
            return find_valid_batches(source)

    def _lost_records(self, missing: Mapping[str, list[_Record]]) -> dict[str, list[_Record]]:
        """The records that no rule of the cleaner allows to remove."""
        if self.rules.is_compacted is False:
            return dict(missing)
        every = [record for records in missing.values() for record in records]
        if not every:
            return {}
        markers = self._markers()
        standing = [record for record in every if not markers.is_aborted(record)]
        last: dict[bytes, _Record] = {}
        for record in standing:
            if record.key is not None:
                before = last.get(record.key)
                if before is None or before.offset < record.offset:
                    last[record.key] = record
        self._drop_removable(last, markers)
        lost = {id(record) for record in last.values()}
        has_keyless = any(record.key is None for record in standing)
        if self.rules.is_compacted is None and (lost or has_keyless):
            return dict(missing)
        return {
            name: [record for record in records if id(record) in lost]
            for name, records in missing.items()
        }

    def _drop_removable(self, last: dict[bytes, _Record], markers: _Markers) -> None:
        """Remove from ``last`` the records that compaction may have removed."""
        revived: set[bytes] = set()
        for content in (*self.swaps, *self.others):
            if not last:
                return
            for record in self._records(content):
                pending = None if record.key is None else last.get(record.key)
                if record.key is None or pending is None or markers.is_aborted(record):
                    continue
                if record.offset > pending.offset:
                    del last[record.key]
                elif record.has_value:
                    revived.add(record.key)
        for key in [key for key, record in last.items() if not record.has_value]:
            if key not in revived:
                del last[key]

    def _records(
        self,
        content: Content,
        positions: Column | None = None,
        unreadable: set[int] | None = None,
    ) -> Iterator[_Record]:
        """The records of valid batches, without control batches.

        Args:
            content: of the log.
            positions: of the selected batches; None for all.
            unreadable: receives the positions of batches whose records cannot be read.
        """
        selected = None if positions is None else set(positions.tolist())
        with self.directory.open_content(content) as source:
            for step in walk_segment(source, with_records=True, follow_bad=True):
                if isinstance(step, RecordColumns):
                    if unreadable is not None:
                        for row in step.problems:
                            position = int(step.batches.position[row])
                            if selected is None or position in selected:
                                unreadable.add(position)
                    yield from _of_columns(step, selected)
                elif isinstance(step, MessageSet):
                    position = int(step.window.batches.position[0])
                    if not step.window.batches.is_valid[0]:
                        continue
                    if selected is not None and position not in selected:
                        continue
                    if step.problem is not None and unreadable is not None:
                        unreadable.add(position)
                    for message in step.messages:
                        yield _Record(
                            position,
                            message.offset,
                            message.key,
                            message.value is not None,
                            hash((message.key, message.value)),
                            _NO_PRODUCER,
                        )

    def _markers(self) -> _Markers:
        """The markers of all logs."""
        markers = _Markers()
        for content in (*self.replaced.values(), *self.swaps, *self.others):
            with self.directory.open_content(content) as source:
                for step in walk_segment(source, with_records=False, follow_bad=True):
                    if isinstance(step, Window):
                        _take_markers(step, markers)
        for producer_id, offset in sorted(markers.aborts):
            markers.offsets.setdefault(producer_id, []).append(offset)
        return markers


def _of_columns(columns: RecordColumns, selected: set[int] | None) -> Iterator[_Record]:
    batches = columns.batches
    is_selected = batches.is_valid & ~is_control(batches)
    positions = batches.position.tolist()
    if selected is not None:
        is_selected &= np.array([position in selected for position in positions], np.bool_)
    if not is_selected.any():
        return
    in_txn = (batches.attributes & TRANSACTIONAL_FLAG) != 0
    producer_ids = np.where(in_txn, batches.producer_id, _NO_PRODUCER).tolist()
    chosen = np.flatnonzero(is_selected[columns.batch]).tolist()
    offsets, rows = columns.offset.tolist(), columns.batch.tolist()
    for row in chosen:
        key, value = columns.key(row), columns.value(row)
        yield _Record(
            positions[rows[row]],
            offsets[row],
            key,
            value is not None,
            hash((key, value)),
            producer_ids[rows[row]],
        )


def _take_markers(window: Window, markers: _Markers) -> None:
    batches = window.batches
    rows = marker_rows(batches)
    found = read_markers(window, "", rows[batches.is_valid[rows]])
    for row, is_abort in zip(found.row.tolist(), found.is_abort.tolist(), strict=True):
        if row not in found.problems:
            key = int(batches.producer_id[row]), int(batches.base_offset[row])
            markers.aborts[key] = is_abort


def _is_control(batches: ValidBatches) -> Flags:
    flags: Flags = (batches.attributes & CONTROL_FLAG) != 0
    return flags


def _is_in(batches: ValidBatches, held: Iterable[ValidBatches]) -> Flags:
    """Which of ``batches`` are in one of ``held`` with the same offsets and content."""
    known = [_identities(each) for each in held]
    if not known or not batches.count:
        return np.zeros(batches.count, np.bool_)
    is_in: Flags = np.isin(_identities(batches), np.concatenate(known))
    return is_in


def _identities(batches: ValidBatches) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Offsets, size and checksum of each batch, as one value."""
    columns = (batches.first_offset, batches.last_offset, batches.size_bytes, batches.crc)
    stacked = np.ascontiguousarray(np.stack(columns, axis=1), np.int64)
    return stacked.view(np.dtype((np.void, stacked.dtype.itemsize * len(columns)))).ravel()


def _loss(
    name: str, batches: ValidBatches, whole: set[int], records: list[_Record]
) -> SwapLoss | None:
    """The loss of a log: whole batches, and records of others."""
    positions = whole | {record.position for record in records}
    if not positions:
        return None
    rows = np.flatnonzero(np.isin(batches.position, np.array(sorted(positions), np.int64)))
    of_whole = np.isin(batches.position[rows], np.array(sorted(whole), np.int64))
    whole_rows = rows[of_whole]
    counts = batches.records_count[whole_rows]
    known = sum(record.position not in whole for record in records)
    offsets = [record.offset for record in records if record.position not in whole]
    offsets += batches.first_offset[whole_rows].tolist() + batches.last_offset[whole_rows].tolist()
    return SwapLoss(
        name,
        Loss(
            size_bytes=int(batches.size_bytes[rows].sum()),
            batches=len(rows),
            records=None if (counts < 0).any() else known + int(counts.sum()),
            first_offset=min(offsets),
            last_offset=max(offsets),
            damaged_bytes=0,
        ),
    )
