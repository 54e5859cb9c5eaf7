"""Read splits of ``kafka-log`` into Arrow batches; used by jobs of both engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace  # noqa: TID251 - not of a struct

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from kdump.formats import record_batch
from kdump.formats.errors import FormatError
from kdump.log.valid_windows import Damage, batch_damage
from kdump.payloads.record_payloads import RecordPayloads
from kdump.payloads.undecoded import NONE_UNDECODED, Undecoded
from kdump.scan.batches import BatchColumns, Column, Window
from kdump.scan.records import RecordColumns
from kdump.scan.selection import Selection
from kdump.scan.walk import MessageSet, expand_window
from kdump.state.transactions.transaction_outcomes import TransactionState
from kdump.tables.kafka_log.columns import (
    KEY_PROBLEM,
    TRANSACTION_STATE,
    VALUE_PROBLEM,
    SourceColumn,
    damage_table,
    record_table,
    with_labels,
)
from kdump.tables.kafka_log.damage import (
    CountedDamage,
    DamagedLogError,
    SkippedRanges,
    UndecodedError,
    log_undecoded,
)
from kdump.tables.kafka_log.options import Mode, SourceOptions
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.kafka_log.rows import Rows, rows_of_messages, rows_of_records
from kdump.tables.kafka_log.splits import SourceSplit
from kdump.tables.kafka_log.visible_windows import visible_windows
from kdump.tables.kafka_log.windows_0_7 import rows_0_7
from kdump.tables.table import arrow_schema


class LeftOut(Struct):
    """What a reading left out; the reading adds to it.

    Attributes:
        damage: what is damaged, or not decoded because it is over the limit.
        aborted_records: how many records the batches of aborted transactions have.
        open_records: the same of transactions that are open, or whose marker may be damaged.
        undecoded: records that are not left out, but have no text for a key or value.
    """

    damage: CountedDamage
    aborted_records: int = 0
    open_records: int = 0
    undecoded: Undecoded = NONE_UNDECODED

    def add_hidden(self, batches: BatchColumns, states: Column) -> None:
        """Count the records of batches that are left out because of their transactions."""
        is_aborted = states == TransactionState.ABORTED
        self.aborted_records += int(batches.records_count[is_aborted].sum())
        self.open_records += int(batches.records_count[~is_aborted].sum())


class SourceReading(Struct, frozen=True):
    """How splits are read; can be pickled.

    Attributes:
        filters: which records, apart from the offsets of a split.
        mode: what to do about damaged bytes.
        is_committed: leave out records of aborted and open transactions.
        with_control: return control records, too.
        largest_record_bytes: larger records of compressed batches are not decoded; ``mode`` treats
            them as damage.
        has_labels: return texts that many records share as dictionaries.
    """

    columns: tuple[SourceColumn, ...]
    filters: PushedFilters
    mode: Mode
    is_committed: bool
    with_control: bool
    largest_record_bytes: int
    payloads: RecordPayloads = field(default_factory=RecordPayloads)
    has_labels: bool = False

    @property
    def schema(self) -> pa.Schema:
        """Of the batches."""
        schema = arrow_schema(self.columns)
        return with_labels(schema) if self.has_labels else schema

    @classmethod
    def of(
        cls,
        options: SourceOptions,
        columns: tuple[SourceColumn, ...],
        filters: PushedFilters,
        payloads: RecordPayloads,
    ) -> SourceReading:
        return cls(
            columns,
            filters,
            options.mode,
            options.is_committed,
            options.with_control,
            options.largest_record_bytes,
            payloads,
        )

    def read(self, split: SourceSplit, left_out: LeftOut | None = None) -> Iterator[pa.RecordBatch]:
        """The records of a split, in order.

        Args:
            left_out: takes damage, which is then skipped whatever the mode is, and what else is
                left out.

        Raises:
            DamagedLogError: the mode is ``FAILFAST``, and there is damage.
            UndecodedError: the same, and a key or value has no text.
            OSError: the log cannot be read; the error names it.
        """
        return _SplitReader(self, split, left_out).tables()


class _SplitReader:
    """One reading of one split."""

    def __init__(
        self, reading: SourceReading, split: SourceSplit, left_out: LeftOut | None
    ) -> None:
        self.reading = reading
        self.split = split
        self.left_out = left_out
        self.schema = reading.schema
        times = reading.filters.timestamps_ms
        self.selection = Selection(
            from_offset=split.from_offset,
            to_offset=split.to_offset,
            from_time_ms=times.least,
            to_time_ms=None if times.most is None else times.most + 1,
        )
        self.skipped = SkippedRanges()
        self.undecoded = NONE_UNDECODED
        self.names = {column.name for column in reading.columns}

    def tables(self) -> Iterator[pa.RecordBatch]:
        reading = self.reading
        if self.split.is_0_7:
            yield from self._tables_0_7()
            return
        for step in visible_windows(
            self.split,
            self._take_damage_ahead,
            is_committed=reading.is_committed,
            with_control=reading.with_control,
            with_states=TRANSACTION_STATE in self.names,
            on_hidden=None if self.left_out is None else self.left_out.add_hidden,
        ):
            # Tables copy the bytes of a window, whose buffer is used again.
            if isinstance(step, Damage):
                yield from self._damaged(step)
            else:
                yield from self._of_window(step.window, step.states)
        self._log_damage()

    def _tables_0_7(self) -> Iterator[pa.RecordBatch]:
        for step in rows_0_7(self.split, self.reading.largest_record_bytes):
            if isinstance(step, Damage):
                yield from self._damaged(step)
            elif self.reading.filters.timestamps_ms.has(record_batch.NO_TIMESTAMP):
                yield from self._table(step)
        self._log_damage()

    def _log_damage(self) -> None:
        if self.reading.mode is Mode.DROPMALFORMED:
            self.skipped.log(self.split)
        log_undecoded(self.split, self.undecoded)

    def _of_window(self, window: Window, states: Column | None) -> Iterator[pa.RecordBatch]:
        state_of = dict(
            zip(window.batches.position.tolist(), states.tolist(), strict=True)
            if states is not None and states.any()
            else ()
        )
        selection = self.selection.needed_for(window.batches)
        sets: list[MessageSet] = []
        for step in expand_window(
            window,
            selection,
            with_records=True,
            largest_record_bytes=self.reading.largest_record_bytes,
            only_valid=True,
        ):
            if isinstance(step, MessageSet):
                sets.append(step)
            elif isinstance(step, RecordColumns):
                yield from self._of_messages(sets)
                sets.clear()
                yield from self._of_records(step, state_of)
        yield from self._of_messages(sets)

    def _of_records(
        self, columns: RecordColumns, states: dict[int, int]
    ) -> Iterator[pa.RecordBatch]:
        state = None
        if states:
            state = np.array([states[at] for at in columns.batches.position.tolist()], np.int64)
        yield from self._table(rows_of_records(self.split.origin, columns, state))
        for row, problem in columns.problems.items():
            start = int(columns.batches.position[row])
            end = int(columns.batches.next_position[row])
            yield from self._undecoded(Damage(str(self.split.path), start, end, problem))

    def _of_messages(self, sets: Sequence[MessageSet]) -> Iterator[pa.RecordBatch]:
        """Messages of magic 0 or 1; of a damaged set, none."""
        sound: list[MessageSet] = []
        for each in sets:
            problem = _problem_of(each)
            if problem is None:
                sound.append(each)
            else:
                yield from self._undecoded(
                    batch_damage(each.window, 0, str(self.split.path), problem)
                )
        if sound:
            yield from self._table(rows_of_messages(self.split.origin, sound))

    def _table(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        if rows.count:
            rows = replace(rows, payloads=self.reading.payloads)
            table = record_table(rows, self.reading.columns, self.schema)
            self._count_undecoded(rows)
            yield table

    def _count_undecoded(self, rows: Rows) -> None:
        """Count the records without a text that was asked for, in a format that was chosen.

        Raises:
            UndecodedError: the mode is ``FAILFAST``, and the reason is not asked for.
        """
        payloads = self.reading.payloads
        keys, values = dict[int, str](), dict[int, str]()
        if payloads.key is not None and self.names & {"key_text", KEY_PROBLEM}:
            keys = rows.key_texts.problems
        if payloads.value is not None and self.names & {"value_text", VALUE_PROBLEM}:
            values = rows.value_texts.problems
        found = Undecoded.of(rows.offset.tolist(), keys, values) if keys or values else None
        if found is None:
            return
        is_hidden = (keys and KEY_PROBLEM not in self.names) or (
            values and VALUE_PROBLEM not in self.names
        )
        if self.left_out is not None:
            self.left_out.undecoded += found
        elif self.reading.mode is Mode.FAILFAST and is_hidden:
            raise UndecodedError(self.split, found)
        else:
            self.undecoded += found

    # Damage

    def _take_damage_ahead(self, damage: Damage) -> None:
        """Damage found while looking ahead for the end of a transaction."""
        if self.left_out is not None:
            self.left_out.damage.add(damage)
        elif self.reading.mode is Mode.FAILFAST:
            raise DamagedLogError(damage)

    def _damaged(self, damage: Damage) -> Iterator[pa.RecordBatch]:
        """Damage that every reading of the log finds."""
        if self.left_out is not None:
            self.left_out.damage.add(damage)
        else:
            yield from self._by_mode(damage)

    def _undecoded(self, damage: Damage) -> Iterator[pa.RecordBatch]:
        """Damage that only the decoding of records finds."""
        if self.left_out is not None:
            self.left_out.damage.add_other(damage)
        else:
            yield from self._by_mode(damage)

    def _by_mode(self, damage: Damage) -> Iterator[pa.RecordBatch]:
        reading = self.reading
        if reading.mode is Mode.FAILFAST:
            raise DamagedLogError(damage)
        self.skipped.add(damage)
        if reading.mode is Mode.PERMISSIVE and not reading.filters.is_without_damage:
            yield damage_table(
                self.split.origin, damage.start, str(damage), reading.columns, self.schema
            )


def _problem_of(messages: MessageSet) -> FormatError | str | None:
    """What is wrong with a message set or one of its messages; None if it is valid."""
    if messages.problem is not None:
        return messages.problem
    try:
        for message in messages.messages:
            # Reading the value checks that key and value lie within the message.
            message.value  # noqa: B018
            if not message.is_valid:
                return "the checksum of a message in it is wrong"
    except FormatError as problem:
        return problem
    return None
