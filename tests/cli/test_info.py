"""``kdump info`` shows the kind of a directory and its totals."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from builders.batches import batch, batches, record
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.lock_holder import held_elsewhere
from builders.log_directories import TOPIC_ID_TEXT, write_log_directory, write_partition
from builders.memory_storage import MemoryStorage
from kdump.cli.commands.info import info_rows
from kdump.cli.output.diagnostics import Diagnostics
from kdump.formats import names
from kdump.formats.compression import Codec
from kdump.log.selection import PartitionSelection

LOG = b"".join(batches(2))
QUORUM_STATE = (
    b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,'
    b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)


def info(*args: str | Path) -> Outcome:
    return run_kdump(["info", "--output", "jsonl", *map(str, args)], Path.cwd())


def only_row(*args: str | Path) -> dict[str, Any]:
    outcome = info(*args)
    assert (outcome.stderr, outcome.exit_status) == (b"", 0)
    (row,) = objects(outcome.stdout)
    return row


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a log directory with partitions in every state, left by a crash."""
    path = write_log_directory(tmp_path / "logs", clean=False)
    write_partition(path / "orders-0", {0: LOG, 6: b""})
    write_partition(path / "orders-1", {0: LOG}, others={"00000000000000000009.index": b""})
    write_partition(path / "payments-0.ab-future", {0: LOG})
    write_partition(path / "gone-0.cd-delete", {0: LOG})
    write_partition(path / "lost-0.ef-stray", {0: LOG})
    return path


def test_a_log_directory_has_totals(log_dir: Path) -> None:
    (log_dir / "notes.txt").write_bytes(b"")
    total = sum(file.stat().st_size for file in log_dir.glob("*/*"))
    assert only_row(log_dir) == {
        "type": "directory",
        "path": str(log_dir),
        "kind": "log directory",
        "cluster_id": "a-cluster",
        "node_id": 7,
        "directory_id": "V1dW8O41RR6_pKmks-3sKg",
        "is_clean": False,
        "in_use_by": None,
        "has_lock_file": True,
        "broker_generation": "3.7 or later",
        "topics": 4,
        "partitions": 5,
        "future_partitions": 1,
        "delete_partitions": 1,
        "stray_partitions": 1,
        "segments": 6,
        "generations": {"0.11 or later": 5},
        "log_bytes": 5 * len(LOG),
        "total_bytes": total,
        "largest_topics": sizes_of_topics(log_dir),
        "leftovers": {"orphan": 1},
        "refused": [],
        "unreadable": [],
        "foreign": ["notes.txt"],
    }


def sizes_of_topics(log_dir: Path) -> dict[str, int]:
    """The bytes of the files of each topic, in all its directories."""
    sizes = Counter[str]()
    for file in log_dir.glob("*/*"):
        name = file.parent.name.partition(".")[0]
        sizes[name.rpartition("-")[0]] += file.stat().st_size
    return dict(sizes)


def test_the_largest_topics_come_first(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "logs")
    for number in range(7):
        for partition in range(2):
            folder = root / f"t{number}-{partition}"
            folder.mkdir()
            (folder / "00000000000000000000.log").write_bytes(bytes(number * 1024))
    assert only_row(root)["largest_topics"] == {f"t{n}": n * 2048 for n in (6, 5, 4, 3, 2)}
    text = run_kdump(["info", str(root)], tmp_path).stdout.decode()
    assert "Largest topics:         t6: 12.0 KiB, t5: 10.0 KiB," in text


def test_a_clean_directory_has_the_brokers_epoch(tmp_path: Path) -> None:
    row = only_row(write_log_directory(tmp_path / "logs"))
    assert (row["is_clean"], row["broker_epoch"], row["has_lock_file"]) == (True, 301, False)


def test_people_see_a_line_for_each_field(log_dir: Path) -> None:
    text = run_kdump(["info", str(log_dir)], log_dir).stdout.decode()
    assert "Kind:                   log directory\n" in text
    assert "Clean shutdown:         no\n" in text
    assert "Batches" not in text


def test_a_metadata_directory_has_its_quorum(tmp_path: Path) -> None:
    write_partition(
        tmp_path / "meta" / "__cluster_metadata-0",
        {0: LOG},
        others={
            names.QUORUM_STATE: QUORUM_STATE,
            "00000000000000000298-0000000001.checkpoint": b"",
        },
    )
    row = only_row(tmp_path / "meta")
    assert row["kind"] == "metadata log directory"
    assert (row["quorum_leader_id"], row["quorum_leader_epoch"]) == (1, 2)
    assert row["metadata_snapshot"] == "00000000000000000298-0000000001.checkpoint"
    assert "is_clean" not in row


def test_a_partition_is_described_by_itself(log_dir: Path) -> None:
    row = only_row(log_dir / "orders-1")
    assert row["kind"] == "partition"
    assert (row["topic"], row["partition"], row["topic_id"]) == ("orders", 1, TOPIC_ID_TEXT)
    assert (row["log_start_offset"], row["log_end_offset"], row["leader_epoch"]) == (0, 6, 0)


def test_kafka_0_7_is_known(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "logs" / "topic_0", others={"00000000000.kafka": b""})
    assert only_row(path.parent)["kind"] == "log directory of Kafka 0.7"
    assert only_row(path)["kind"] == "partition of Kafka 0.7"


def test_a_directory_that_is_not_kafkas_is_described(log_dir: Path) -> None:
    row = only_row(log_dir.parent)
    assert row["kind"] == "not a directory of Kafka's"
    assert row["log_directories"] == [str(log_dir)]


def test_several_directories_have_a_row_each(log_dir: Path, tmp_path: Path) -> None:
    outcome = run_kdump(["info", "--output", "json", str(log_dir), str(tmp_path)], tmp_path)
    assert [row["path"] for row in objects(outcome.stdout)] == [str(log_dir), str(tmp_path)]


class TestDeep:
    def test_batches_are_counted_over_all_partitions(self, tmp_path: Path) -> None:
        path = write_log_directory(tmp_path / "logs")
        write_partition(path / "a-0", {0: batch([record(0), record(1)], codec=Codec.LZ4)})
        write_partition(
            path / "b-0",
            {0: batch([record(0)], attributes=0x10, producer_id=7)},
        )
        row = only_row("--deep", path)
        assert {key: row[key] for key in list(row)[list(row).index("batches") :]} == {
            "batches": 2,
            "records": 3,
            "formats": {"magic 2": 2},
            "codecs": {"lz4": 1, "none": 1},
            "producers": 1,
            "transactional_batches": 1,
            "control_batches": 0,
        }

    def test_a_torn_batch_is_damage(self, tmp_path: Path) -> None:
        path = write_log_directory(tmp_path / "logs")
        write_partition(path / "a-0", {0: LOG[:-1]})
        outcome = info("--deep", path)
        assert outcome.exit_status == 4
        assert b"a-0/00000000000000000000.log: batch reaches past the end" in outcome.stderr
        assert objects(outcome.stdout)[0]["batches"] == 1

    def test_without_deep_damage_in_a_log_is_not_found(self, tmp_path: Path) -> None:
        path = write_log_directory(tmp_path / "logs")
        write_partition(path / "a-0", {0: b"garbage" * 9})
        only_row(path)


def test_malformed_files_are_damage(log_dir: Path) -> None:
    (log_dir / names.META_PROPERTIES).write_bytes(b"version=9\n")
    outcome = info(log_dir)
    assert outcome.exit_status == 4
    assert b"meta.properties: meta.properties has an unknown version" in outcome.stderr
    assert objects(outcome.stdout)[0]["cluster_id"] is None


def test_a_missing_directory_cannot_be_read(tmp_path: Path) -> None:
    outcome = info(tmp_path / "gone")
    assert (objects(outcome.stdout), outcome.exit_status) == ([], 8)
    assert outcome.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name", ["clean/d1", "clean-mv39/logs", "clean-mv39/meta", "legacy/logs"])
def test_directories_of_real_brokers_are_valid_with_deep(fixtures: Path, name: str) -> None:
    row = only_row("--deep", fixtures / "out" / name)
    assert row["batches"] > 0
    assert row["refused"] == row["foreign"] == []


def test_a_directory_in_another_storage_has_no_lock(tmp_path: Path) -> None:
    log_dir = write_log_directory(tmp_path / "logs", clean=False)
    (log_dir / names.LOCK_FILE).touch()
    everything = PartitionSelection()
    (row,) = info_rows([MemoryStorage.copied(log_dir)], None, everything, Diagnostics())
    assert (row["in_use_by"], row["has_lock_file"]) == (None, True)


def test_the_process_that_holds_a_directory_is_named(tmp_path: Path) -> None:
    log_dir = write_log_directory(tmp_path / "logs", clean=False)
    free = only_row(log_dir)
    with held_elsewhere(log_dir) as process_id:
        held = only_row(log_dir)
    assert free["in_use_by"] is None
    assert held["in_use_by"].startswith(f"process {process_id} (")
    assert (log_dir / names.LOCK_FILE).exists()
