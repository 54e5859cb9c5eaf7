"""Records of Kafka 0.7: offsets are byte positions, and nothing has a time."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from builders import log_directories
from builders.batches import BASE_TIMESTAMP_MS, batches
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.message_sets import message_07
from builders.source_tables import offsets_of, rows_of, table_of
from kdump.tables.kafka_log.damage import DamagedLogError

GZIP = 1
SET = message_07(gzip.compress(b"".join(map(message_07, [b"b", b"c"]))), attributes=GZIP)
ENTRIES = (message_07(b"a", magic=0), SET, message_07(b"\xff d"))
LOG = b"".join(ENTRIES)
AT = (0, len(ENTRIES[0]), len(ENTRIES[0]) + len(SET))
BASE = 1000


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Write a partition of two segments, the second one with offsets above the first."""
    path = tmp_path / "logs" / "orders-0"
    path.mkdir(parents=True)
    (path / f"{BASE:020d}.kafka").write_bytes(LOG)
    (path / f"{BASE + len(LOG):020d}.kafka").write_bytes(message_07(b"e"))
    return path


def first_log(partition: Path) -> Path:
    return partition / f"{BASE:020d}.kafka"


def values(path: Path, **options: str) -> list[bytes]:
    found: list[bytes] = table_of(path, columns="value", **options)["value"].to_pylist()
    return found


def test_the_messages_of_a_set_have_its_offset(partition: Path) -> None:
    rows = rows_of(partition, columns="offset,value,batchPosition,codec")
    assert [(row["offset"] - BASE, row["value"]) for row in rows] == [
        (AT[0], b"a"),
        (AT[1], b"b"),
        (AT[1], b"c"),
        (AT[2], b"\xff d"),
        (len(LOG), b"e"),
    ]
    assert [row["batchPosition"] for row in rows] == [0, AT[1], AT[1], AT[2], 0]
    assert [row["codec"] for row in rows] == ["none", "gzip", "gzip", "none", "none"]


def test_offsets_and_values_are_those_of_dump_segment(partition: Path) -> None:
    outcome = run_kdump(
        ["dump-segment", str(first_log(partition)), "--print-data-log", "--output", "jsonl"],
        Path.cwd(),
    )
    theirs = [row for row in objects(outcome.stdout) if row["type"] == "record"]
    ours = rows_of(first_log(partition), columns="offset,batchPosition,codec")
    assert [row["offset"] for row in ours] == [row["offset"] for row in theirs]
    assert [row["batchPosition"] for row in ours] == [row["batch_position"] for row in theirs]


def test_what_0_7_does_not_have_is_null_or_none(partition: Path) -> None:
    row: dict[str, Any] = rows_of(first_log(partition))[0]
    for name in ("key", "leaderEpoch", "producerId", "sequence", "transactionState", "controlType"):
        assert row[name] is None, name
    assert row["timestampType"] == -1
    assert row["timestamp"].timestamp() == -0.001
    assert (row["topic"], row["partition"], row["magic"]) == ("orders", 0, 0)


def test_text_columns_have_what_is_utf_8(partition: Path) -> None:
    rows = rows_of(first_log(partition), columns="key_text,value_text")
    assert [row["value_text"] for row in rows] == ["a", "b", "c", None]
    assert [row["key_text"] for row in rows] == [None] * 4


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        (BASE, BASE + AT[1], [b"a"]),
        (BASE + 1, BASE + AT[2], [b"b", b"c"]),
        (BASE + AT[2], BASE + len(LOG) + 1, [b"\xff d", b"e"]),
        (BASE + len(LOG) + 1, BASE + 2 * len(LOG), []),
    ],
)
def test_offsets_bound_what_is_read(
    start: int, end: int, wanted: list[bytes], partition: Path
) -> None:
    bounds = {
        "startingOffsets": json.dumps({"orders": {"0": start}}),
        "endingOffsets": json.dumps({"orders": {"0": end}}),
        "failOnDataLoss": "false",
    }
    assert values(partition, **bounds) == wanted


def test_conditions_on_offsets_and_times_bound_what_is_read(partition: Path) -> None:
    log = first_log(partition)
    assert offsets_of(log, [("GreaterThan", "offset", BASE + AT[1])]) == [BASE + AT[2]]
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert len(offsets_of(log, [("LessThan", "timestamp", epoch)])) == 4
    assert offsets_of(log, [("GreaterThanOrEqual", "timestamp", epoch)]) == []


def test_records_are_older_than_any_time(partition: Path) -> None:
    assert values(partition, startingTimestamp="0") == []
    assert len(values(partition, endingTimestamp="0")) == 5
    assert len(values(partition, startingTimestamp="-1")) == 5


def test_everything_is_committed(partition: Path) -> None:
    level = {"kafka.isolation.level": "read_committed"}
    assert values(partition, **level) == values(partition)


def test_tasks_of_a_small_log_are_not_cut(partition: Path) -> None:
    assert values(partition, minPartitions="20") == values(partition)


def test_damage_is_handled_by_the_mode(partition: Path) -> None:
    log = bytearray(LOG)
    log[AT[1] - 1] ^= 1
    first_log(partition).write_bytes(log)
    with pytest.raises(DamagedLogError, match="checksum"):
        values(partition)
    assert values(partition, mode="DROPMALFORMED") == [b"b", b"c", b"\xff d", b"e"]
    (row, *_) = rows_of(partition, mode="PERMISSIVE")
    assert (row["topic"], row["batchPosition"], row["value"]) == ("orders", 0, None)
    assert "checksum" in row["_corrupt_record"]


def test_a_damaged_set_has_no_records(partition: Path) -> None:
    inner = bytearray(b"".join(map(message_07, [b"b", b"c"])))
    inner[-1] ^= 1
    log = ENTRIES[0] + message_07(gzip.compress(bytes(inner)), attributes=GZIP) + ENTRIES[2]
    first_log(partition).write_bytes(log)
    assert values(first_log(partition), mode="DROPMALFORMED") == [b"a", b"\xff d"]
    with pytest.raises(DamagedLogError):
        values(partition)


def test_zeroes_are_padding_only_at_the_end_of_the_last_segment(partition: Path) -> None:
    last = partition / f"{BASE + len(LOG):020d}.kafka"
    last.write_bytes(message_07(b"e") + bytes(500))
    assert values(partition)[-1] == b"e"
    first_log(partition).write_bytes(LOG + bytes(500))
    with pytest.raises(DamagedLogError, match="zeroes"):
        values(partition)


def test_a_directory_may_have_logs_of_several_versions(partition: Path) -> None:
    log_dir = log_directories.write_log_directory(partition.parent)
    log_directories.write_partition(log_dir / "payments-0", {0: b"".join(batches(2))})
    rows = rows_of(log_dir, columns="topic,value,timestamp")
    assert [row["value"] for row in rows if row["topic"] == "orders"] == values(partition)
    newer = rows_of(log_dir, columns="topic", startingTimestamp=str(BASE_TIMESTAMP_MS))
    assert {row["topic"] for row in newer} == {"payments"}
