from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from builders.index_files import Said, Segment
from kdump.dump import producer_snapshot
from kdump.formats.producer_snapshot import ProducerEntry, encode

ENTRY = ProducerEntry(
    producer_id=7,
    epoch=1,
    last_sequence=9,
    last_offset=40,
    offset_delta=4,
    timestamp=1_000,
    coordinator_epoch=3,
    current_txn_first_offset=-1,
)
STATE = (
    "producerId: 7 producerEpoch: 1 coordinatorEpoch: 3 "
    "currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 1000"
)
BATCH = " firstSequence: 5 lastSequence: 9 lastOffset: 40 offsetDelta: 4 timestamp: 1000"


def dump(directory: Path, content: bytes) -> tuple[str, Said]:
    said = Said()
    file = Segment(directory).write(".snapshot", content)
    return "".join(producer_snapshot.dump(file, said.report)), said


def test_each_producer_is_a_line_with_its_last_batch(tmp_path: Path) -> None:
    text, said = dump(tmp_path, encode([ENTRY]))
    assert text == f"{STATE}{BATCH}\n"
    assert not said.report.damaged


def test_a_producer_without_a_batch_has_a_shorter_line(tmp_path: Path) -> None:
    assert dump(tmp_path, encode([replace(ENTRY, last_offset=-1)]))[0] == f"{STATE}\n"


def test_an_open_transaction_has_its_first_offset(tmp_path: Path) -> None:
    text, _ = dump(tmp_path, encode([replace(ENTRY, current_txn_first_offset=36)]))
    assert "currentTxnFirstOffset: OptionalLong[36] " in text


def test_only_the_reason_is_printed_for_a_corrupt_snapshot(tmp_path: Path) -> None:
    text, said = dump(tmp_path, b"\0\2" + encode([ENTRY])[2:])
    assert text == ""
    assert said.lines == [
        "Snapshot failed schema validation: Snapshot contained an unknown file version 2"
    ]
    assert said.report.damaged


def test_rows_have_every_field(tmp_path: Path) -> None:
    said = Said()
    file = Segment(tmp_path).write(".snapshot", encode([ENTRY]))
    header, entry = producer_snapshot.rows(file, said.report)
    assert header["type"] == "producer_snapshot"
    assert (header["version"], header["is_valid"], header["entries"]) == (1, True, 1)
    assert entry == {
        "type": "producer_snapshot_entry",
        "producer_id": 7,
        "producer_epoch": 1,
        "last_sequence": 9,
        "last_offset": 40,
        "offset_delta": 4,
        "timestamp_ms": 1_000,
        "coordinator_epoch": 3,
        "current_txn_first_offset": -1,
        "first_sequence": 5,
    }


def test_rows_show_the_entries_of_a_snapshot_with_a_wrong_checksum(tmp_path: Path) -> None:
    said = Said()
    content = bytearray(encode([ENTRY]))
    content[-1] ^= 1
    file = Segment(tmp_path).write(".snapshot", bytes(content))
    header, entry = producer_snapshot.rows(file, said.report)
    assert (header["is_valid"], entry["producer_id"]) == (False, 7)
    assert said.report.damaged
    assert said.lines[0].startswith("Snapshot is corrupt")
