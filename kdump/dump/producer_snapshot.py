"""A ``.snapshot`` file as the official tool's text, and as rows.

Follows ``DumpLogSegments.dumpProducerIdSnapshot``: for a snapshot that Kafka refuses, only the
reason is printed, on standard error.
"""

from __future__ import annotations

from collections.abc import Iterator

from kdump.dump.dumped_file import DumpedFile
from kdump.dump.report import DumpReport
from kdump.formats import producer_snapshot
from kdump.formats.errors import FormatError
from kdump.formats.producer_snapshot import ProducerEntry


def dump(file: DumpedFile, report: DumpReport) -> Iterator[str]:
    """Print a producer snapshot.

    Yields:
        Text for standard output, in pieces.

    Raises:
        OSError: when the file cannot be read.
    """
    try:
        snapshot = producer_snapshot.read(file.path.read())
    except FormatError as damage:
        report.remark(damage.what, damage=True)
        return
    for entry in snapshot.entries:
        yield _line(entry)


def _line(entry: ProducerEntry) -> str:
    is_open = entry.current_txn_first_offset >= 0
    first_offset = f"[{entry.current_txn_first_offset}]" if is_open else ".empty"
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.epoch}"
        f" coordinatorEpoch: {entry.coordinator_epoch}"
        f" currentTxnFirstOffset: OptionalLong{first_offset}"
        f" lastTimestamp: {entry.timestamp}"
    )
    if entry.last_offset >= 0:
        line += (
            f" firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence}"
            f" lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta}"
            f" timestamp: {entry.timestamp}"
        )
    return line + "\n"


def rows(file: DumpedFile, report: DumpReport) -> Iterator[dict[str, object]]:
    """Give a row for the header, then one for each entry, whether or not the checksum is right.

    Raises:
        OSError: when the file cannot be read.
    """
    data = file.path.read()
    try:
        snapshot = producer_snapshot.decode(data)
    except FormatError as damage:
        report.remark(damage.what, damage=True)
        return
    damaged = producer_snapshot.crc_problem(data, snapshot)
    yield {
        "type": "producer_snapshot",
        "version": snapshot.version,
        "crc": snapshot.crc,
        "is_valid": damaged is None,
        "entries": len(snapshot.entries),
    }
    for entry in snapshot.entries:
        yield {
            "type": "producer_snapshot_entry",
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "first_sequence": entry.first_sequence,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "offset_delta": entry.offset_delta,
            "timestamp_ms": entry.timestamp,
            "current_txn_first_offset": entry.current_txn_first_offset,
        }
    if damaged is not None:
        report.remark(damaged.what, damage=True)
