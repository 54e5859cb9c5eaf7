"""The rows of tables about single partitions, for which a listing and a few small reads suffice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.record_batch import NO_TIMESTAMP
from kdump.jobs.listing.listed_rows import partition_row, remote_fields
from kdump.jobs.listing.partition_facts import LonePartition, loaded_or_reported
from kdump.jobs.loading.loaded_producers import loaded_producers
from kdump.jobs.loading.verdict_words import STATE_VERDICTS
from kdump.jobs.problems.unreadable import Unreadable
from kdump.jobs.table_rows.log_tables import PARTITIONS, SEGMENTS
from kdump.jobs.table_rows.partition_splits import (
    ListingSplit,
    LoggedProblems,
    UnlistedPartition,
    listed,
    listing_splits,
)
from kdump.jobs.table_rows.state_tables import PRODUCERS
from kdump.log.bounds import read_segment_end
from kdump.log.directory import LogDirectory
from kdump.log.living import while_it_changes
from kdump.log.lock_holders import is_in_use_around
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.rows.common_rows import directory_values
from kdump.state.transactions.living_producers import living_producers
from kdump.state.transactions.markers import InvalidMarker
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.table import TableColumn, row_batches
from kdump.tables.table_options import TableOptions
from kdump.target.refusal import Refused
from kdump.tiered.tiered_storage import remote_part

Row = Mapping[str, Any]
Listed = LonePartition | UnlistedPartition
_RANK: Final = "is_most_advanced"


class ListingReader(Struct, frozen=True):
    """Reads a table about single partitions."""

    options: TableOptions
    columns: tuple[TableColumn, ...]

    def splits(self, filters: PushedFilters, /) -> Sequence[ListingSplit]:
        is_ranked = any(column.name == _RANK for column in self.columns)
        if filters.is_empty:
            return []
        return list(listing_splits(self.options, filters, is_ranked=is_ranked))

    def read(self, split: ListingSplit, filters: PushedFilters, /) -> Iterator[pa.RecordBatch]:
        return row_batches(self._rows(split, filters), self.columns)

    def _rows(self, split: ListingSplit, filters: PushedFilters) -> Iterator[Row]:
        rows_of = _ROWS[self.options.table.name]
        for each in listed(split):
            is_listed = isinstance(each, LonePartition)
            for row in rows_of(each, filters):
                is_best = row["directory"] in split.most_advanced
                yield {**row, _RANK: is_best if is_listed else None}


def _partition_rows(each: Listed, _filters: PushedFilters) -> Iterator[Row]:
    if isinstance(each, LonePartition):
        row = partition_row(each.partition, each.log_directory, LoggedProblems())
        yield {**row, **remote_fields(each.partition)}
    else:
        yield {"log_dir": each.log_dir, "directory": each.directory}


def _segment_rows(each: Listed, filters: PushedFilters) -> Iterator[Row]:
    if not isinstance(each, LonePartition):
        return
    partition = loaded_or_reported(each.partition, LoggedProblems())
    if partition is None:
        return
    around = each.log_directory
    log_dir = around.path if around else partition.path.parent
    row = directory_values(log_dir, partition.path.name, partition.topic_partition)
    remote = remote_part(each.partition)
    for segment, following in partition.with_following():
        if filters.offsets.has(segment.base_offset):
            yield {
                **row,
                "state": partition.state.name.lower(),
                "path": str(partition.segment_path(segment, segment.log_kind)),
                "base_offset": segment.base_offset,
                **_end_fields(partition, segment),
                "log_bytes": segment.log_bytes,
                "offset_index_bytes": segment.offset_index_bytes,
                "time_index_bytes": segment.time_index_bytes,
                "transaction_index_bytes": segment.transaction_index_bytes,
                "is_active": following is None,
                "is_remote": remote is not None and segment.log_name in remote.files,
            }


def _end_fields(partition: Partition, segment: Segment) -> dict[str, int | None]:
    try:
        end = read_segment_end(partition, segment)
    except OSError as failure:
        is_gone = isinstance(failure, FileNotFoundError)
        if not (is_gone and is_in_use_around(partition.path)):
            LoggedProblems().report(partition.segment_path(segment, segment.log_kind), failure)
        return {"end_offset": None, "latest_timestamp_ms": None}
    return {
        "end_offset": end.offset,
        "latest_timestamp_ms": None if end.timestamp == NO_TIMESTAMP else end.timestamp,
    }


def _producer_rows(each: Listed, _filters: PushedFilters) -> Iterator[Row]:
    """The producers as a starting broker has them, after it recovered the log if need be.

    Of a log in use those that its broker has, as far as the log was read.
    """
    if not isinstance(each, LonePartition) or each.log_directory is None:
        return
    partition, around = each.partition, each.log_directory
    if partition.is_0_7 or partition.state in STATE_VERDICTS or partition.topic_partition is None:
        return
    producers = _loaded_producers(partition, around)
    if producers is None:
        producers = _living_producers(partition)
    row = directory_values(around.path, partition.path.name, partition.topic_partition)
    for entry in sorted(producers, key=lambda entry: entry.producer_id):
        yield {
            **row,
            "producer_id": entry.producer_id,
            "producer_epoch": _known(entry.epoch),
            "coordinator_epoch": _known(entry.coordinator_epoch),
            "first_sequence": _known(entry.first_sequence),
            "last_sequence": _known(entry.last_sequence),
            "last_offset": _known(entry.last_offset),
            "offset_delta": entry.offset_delta if entry.last_offset >= 0 else None,
            "timestamp_ms": _known(entry.timestamp),
            "current_txn_first_offset": _known(entry.current_txn_first_offset),
        }


def _loaded_producers(partition: Partition, around: LogDirectory) -> Sequence[ProducerEntry] | None:
    """The producers after a start, none if a broker does not load it; None if one is using it."""
    if is_in_use_around(partition.path):
        return None
    found = loaded_producers(partition, around)
    if isinstance(found, tuple):
        return found
    if is_in_use_around(partition.path):
        return None
    if isinstance(found, Unreadable):
        LoggedProblems().report_problem(found.path, found.what, is_damage=False)
    else:
        LoggedProblems().report(partition.path, f"a broker does not load it: {found}")
    return ()


def _living_producers(partition: Partition) -> Sequence[ProducerEntry]:
    """The producers that a running broker has."""
    problems = LoggedProblems()
    try:
        return while_it_changes(
            partition,
            lambda listed: living_producers(listed, problems.report_damage),
            gone=(),
        )
    except OSError as failure:
        problems.report(partition.path, failure)
    except (InvalidMarker, Refused) as failure:
        problems.report(partition.path, str(failure))
    return ()


def _known(value: int) -> int | None:
    """A value; None where Kafka writes -1 for "none"."""
    return None if value < 0 else value


_ROWS: Final[dict[str, Callable[[Listed, PushedFilters], Iterator[Row]]]] = {
    PARTITIONS.name: _partition_rows,
    SEGMENTS.name: _segment_rows,
    PRODUCERS.name: _producer_rows,
}
