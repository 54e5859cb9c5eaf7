"""Plan an export: the files to write of each partition, and what they depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.engine.range_splits import RecordRange
from kdump.formats.names import TopicPartition
from kdump.jobs.export.export_job import MOST_PROBLEMS, ExportSplit, ReadProblem
from kdump.jobs.export.file_names import Layout, part_name, part_path
from kdump.log.log_search import Trust, find_log_start, log_end
from kdump.log.valid_windows import Damage, valid_windows
from kdump.scan.control_batches import is_control
from kdump.size_groups import size_groups
from kdump.state.transactions.open_transactions import read_transactions, usable_snapshots
from kdump.state.transactions.producers import OpenTxn
from kdump.tables.kafka_log.damage import CountedDamage
from kdump.tables.kafka_log.found_partitions import FoundPartition
from kdump.tables.kafka_log.rows import RecordOrigin
from kdump.tables.kafka_log.splits import SourceSplit, record_splits
from kdump.tiered.missing_offsets import missing_offsets

PART_BYTES: Final = 128 << 20
"""About how much of a log goes into one file. It decides the names of files: never change it."""
_MOST_TRANSACTIONS: Final = 100
"""So many open transactions of a partition are listed."""


class PartitionExport(Struct, frozen=True):
    """A partition to export.

    Attributes:
        path: its directory, as it was named.
        source: what it is read from, for the manifest, with absolute paths.
        fingerprint: changes if the source does.
        unstable_records: how many there are from the last stable offset on, in transactions or not;
            None if they are exported, too.
        transactions: those that are open, for the manifest.
        problems: damage found while looking for the last stable offset.
        unreadable: why the files cannot be planned; there are none then.
    """

    key: TopicPartition
    path: str
    source: dict[str, Any]
    fingerprint: str
    parts: tuple[ExportSplit, ...]
    unstable_records: int | None = None
    transactions: tuple[dict[str, int], ...] = ()
    problems: tuple[ReadProblem, ...] = ()
    more_problems: int = 0
    unreadable: str | None = None


def plan_partition(
    found: FoundPartition,
    records: RecordRange,
    layout: Layout,
    extension: str,
    *,
    is_committed: bool,
    schemas: str | None = None,
) -> PartitionExport:
    """Plan the files of one partition, which has the name of a partition.

    Args:
        records: which offsets, and from which time on.
        is_committed: end at the last stable offset.
        schemas: the fingerprint of those that payloads are decoded with.

    Raises:
        OSError: a file cannot be read.
    """
    key, partition = found.topic_partition, found.partition
    assert key is not None
    damage = CountedDamage(MOST_PROBLEMS)
    stable: int | None = None
    open_transactions: int | None = None
    unstable_records: int | None = None
    listed: tuple[dict[str, int], ...] = ()
    if is_committed and not partition.is_0_7:
        snapshots = usable_snapshots(partition, found.log_start_offset, found.flushed_offset)
        transactions = read_transactions(partition, snapshots, damage.add)
        stable = transactions.first_unstable_offset
        open_transactions = len(transactions.open_txns)
        unstable_records = 0 if stable is None else _records_from(found, stable, records)
        listed = tuple(map(_transaction, transactions.open_txns[:_MOST_TRANSACTIONS]))
    # Consumers do not get records below the log start offset.
    start = max(records.from_offset, found.log_start_offset)
    ends = [end for end in (records.to_offset, stable) if end is not None]
    own = replace(records, from_offset=start, to_offset=min(ends, default=None))
    for missing in missing_offsets(partition, own.from_offset, own.to_offset):
        damage.add_other(missing)
    source = {
        **_source(found),
        "last_stable_offset": stable,
        "open_transactions": open_transactions,
        "schemas": schemas,
    }
    return PartitionExport(
        key,
        str(partition.path),
        source,
        hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest(),
        tuple(_parts(found, key, own, layout, extension)),
        unstable_records,
        listed,
        tuple(map(ReadProblem.of, damage.listed())),
        damage.more,
    )


def _records_from(found: FoundPartition, offset: int, records: RecordRange) -> int:
    """How many records of a range the batches from an offset on have, without control records."""
    count = 0
    rest = replace(records, from_offset=max(offset, records.from_offset))
    for split in record_splits(found, rest, PART_BYTES):
        with split.path.open_file() as source:
            for step in valid_windows(source, split.part):
                if isinstance(step, Damage):  # which the search for transactions has reported
                    continue
                batches = step.batches
                is_counted = (batches.base_offset >= rest.from_offset) & ~is_control(batches)
                if rest.to_offset is not None:
                    is_counted &= batches.base_offset < rest.to_offset
                count += int(batches.counts[is_counted].sum())
    return count


def _transaction(txn: OpenTxn) -> dict[str, int]:
    return {
        "producer_id": txn.producer_id,
        "producer_epoch": txn.producer_epoch,
        "first_offset": txn.first_offset,
        "last_offset": txn.last_offset,
    }


def unreadable_partition(found: FoundPartition, why: str) -> PartitionExport:
    """A partition whose files cannot be planned."""
    assert found.topic_partition is not None
    source: dict[str, Any] = {
        "path": str(found.partition.path.as_absolute()),
        "log_start_offset": find_log_start(found.partition, found.log_start_offset),
        "log_end_offset": None,
        "segments": [],
        "last_stable_offset": None,
        "open_transactions": None,
        "schemas": None,
    }
    path = str(found.partition.path)
    return PartitionExport(found.topic_partition, path, source, "", (), unreadable=why)


def _source(found: FoundPartition) -> dict[str, Any]:
    """What a partition is read from."""
    partition = found.partition
    end = log_end(partition, Trust.CHECKSUMS)
    segments = []
    for segment in partition.segments:
        status = partition.segment_path(segment, segment.log_kind).status()
        segments.append(
            {
                "file": segment.log_name,
                "size_bytes": status.size_bytes,
                "modified_ns": status.modified_ns,
                # A log that was rewritten can have the same size and time, as with masked records.
                "changed_ns": status.changed_ns,
            }
        )
    return {
        "path": str(partition.path.as_absolute()),
        "log_start_offset": find_log_start(found.partition, found.log_start_offset),
        "log_end_offset": end.offset if segments else None,
        "segments": segments,
    }


def _parts(
    found: FoundPartition,
    key: TopicPartition,
    records: RecordRange,
    layout: Layout,
    extension: str,
) -> Iterator[ExportSplit]:
    partition = found.partition
    pieces = list(_pieces(found, key, records))
    for group in size_groups(pieces, lambda piece: piece.size_bytes, PART_BYTES):
        first = group[0]
        name = part_name(first.segment.least_offset, first.start)
        yield ExportSplit(
            path=first.path,
            start=first.start,
            end=group[-1].end,
            size_bytes=sum(piece.size_bytes for piece in group),
            label=partition.path.name,
            pieces=tuple(group),
            file=part_path(layout, key, f"{name}.{extension}"),
        )


def _pieces(
    found: FoundPartition, key: TopicPartition, records: RecordRange
) -> Iterator[SourceSplit]:
    for piece in record_splits(found, records, PART_BYTES):
        path = str(piece.path.as_absolute())
        log_dir = str(found.partition.path.as_absolute().parent)
        origin = RecordOrigin(_text(key.topic), key.partition, _text(path), _text(log_dir))
        yield replace(piece, origin=origin)


def _text(name: str) -> str:
    """A name without the bytes that are not UTF-8, which Arrow's text cannot have."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
