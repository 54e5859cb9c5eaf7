"""``kdump ls`` lists partitions."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from pathlib import Path
from typing import Any

import pytest

from builders.batches import BASE_TIMESTAMP_MS, batches
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_directories import (
    META_PROPERTIES,
    TOPIC_ID_TEXT,
    write_log_directory,
    write_partition,
)
from kdump.errors import AS_WHOM
from kdump.formats import names

LOG = b"".join(batches(2))


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a clean log directory with three partitions."""
    offsets = {("orders", 0): 6, ("orders", 10): 6, ("payments", 2): 6}
    path = write_log_directory(
        tmp_path / "logs",
        recovery_points=offsets,
        log_start_offsets={("payments", 2): 4},
        high_watermarks={("orders", 0): 5},
    )
    write_partition(path / "orders-0", {0: LOG})
    write_partition(path / "orders-10", {0: LOG * 1, 6: b""})
    write_partition(
        path / "payments-2", {0: LOG}, others={"00000000000000000000.log.deleted": bytes(9)}
    )
    return path


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    return objects(outcome.stdout)


def ls(*args: str | Path) -> Outcome:
    return run_kdump(["ls", "--output", "jsonl", *map(str, args)], Path.cwd())


def listed(outcome: Outcome) -> list[tuple[str, int]]:
    return [(row["topic"], row["partition"]) for row in rows(outcome)]


def test_a_row_has_the_fields_of_the_partition(log_dir: Path) -> None:
    outcome = ls(log_dir)
    assert (outcome.stderr, outcome.exit_status) == (b"", 0)
    row = rows(outcome)[2]
    total = sum(file.stat().st_size for file in (log_dir / "payments-2").iterdir())
    assert row == {
        "type": "partition",
        "log_dir": str(log_dir),
        "directory": "payments-2",
        "topic": "payments",
        "partition": 2,
        "state": "live",
        "segments": 1,
        "log_bytes": len(LOG),
        "total_bytes": total,
        "log_start_offset": 4,
        "log_end_offset": 6,
        "is_end_certain": True,
        "gaps": 0,
        "recovery_point": 6,
        "high_watermark": None,
        "earliest_timestamp_ms": BASE_TIMESTAMP_MS + 3,
        "latest_timestamp_ms": BASE_TIMESTAMP_MS + 5,
        "topic_id": TOPIC_ID_TEXT,
        "leftovers": {"deleted": 1},
        "foreign": [],
    }


def test_people_see_sizes_times_and_question_marks(log_dir: Path) -> None:
    outcome = run_kdump(["ls", str(log_dir)], log_dir)
    header, _, _, line = outcome.stdout.decode().splitlines()
    assert header.split() == [
        "TOPIC",
        "PARTITION",
        "STATE",
        "SEGMENTS",
        "SIZE",
        "START",
        "END",
        "GAPS",
        "RECOVERY",
        "HW",
        "EARLIEST",
        "LATEST",
        "TOPIC",
        "ID",
        "LEFTOVERS",
    ]
    assert (
        line.split()
        == (
            f"payments 2 live 1 {len(LOG)} B 4 6 0 6 ? 2026-01-01T00:00:00.003Z "
            f"2026-01-01T00:00:00.005Z {TOPIC_ID_TEXT} deleted: 1"
        ).split()
    )


def test_csv_has_a_header_and_all_columns(log_dir: Path) -> None:
    outcome = run_kdump(["ls", "--output", "csv", str(log_dir)], log_dir)
    header, *lines = csv.reader(io.StringIO(outcome.stdout.decode()))
    assert ["type", *header] == list(rows(ls(log_dir))[0])
    assert len(lines) == 3


def test_partitions_are_in_the_order_of_their_numbers(log_dir: Path) -> None:
    assert listed(ls(log_dir)) == [("orders", 0), ("orders", 10), ("payments", 2)]


@pytest.mark.parametrize(
    ("args", "order"),
    [
        (["--reverse"], [("payments", 2), ("orders", 10), ("orders", 0)]),
        (["--sort", "segments", "--reverse"], [("orders", 10), ("orders", 0), ("payments", 2)]),
        (["--sort", "start", "--reverse"], [("payments", 2), ("orders", 0), ("orders", 10)]),
        (["--sort", "leftovers", "--reverse"], [("payments", 2), ("orders", 0), ("orders", 10)]),
        (["--sort", "high-watermark"], [("orders", 0), ("orders", 10), ("payments", 2)]),
        (
            ["--sort", "high-watermark", "--reverse"],
            [("orders", 0), ("orders", 10), ("payments", 2)],
        ),
    ],
)
def test_rows_are_sorted_with_unknown_values_last(
    log_dir: Path, args: list[str], order: list[tuple[str, int]]
) -> None:
    assert listed(ls(*args, log_dir)) == order


def test_topics_are_selected_by_glob(log_dir: Path) -> None:
    assert listed(ls("--topic", "pay*", log_dir)) == [("payments", 2)]
    assert listed(ls("--topic", "pay*", "--topic", "order?", log_dir)) == listed(ls(log_dir))


def test_a_glob_without_a_match_is_a_usage_error(log_dir: Path) -> None:
    outcome = ls("--topic", "Orders", log_dir)
    assert (objects(outcome.stdout), outcome.exit_status) == ([], 16)
    assert outcome.stderr.count(b"\n") == 1
    assert b"matches --topic Orders" in outcome.stderr


def test_several_directories_of_one_broker_are_listed_together(
    log_dir: Path, tmp_path: Path
) -> None:
    other = write_log_directory(tmp_path / "other")
    write_partition(other / "orders-1", {0: LOG})
    outcome = ls(log_dir, other)
    assert listed(outcome) == [("orders", 0), ("orders", 1), ("orders", 10), ("payments", 2)]
    assert [row["log_dir"] for row in rows(outcome)[:2]] == [str(log_dir), str(other)]
    text = run_kdump(["ls", str(log_dir), str(other)], log_dir).stdout
    assert text.startswith(b"LOG DIR ")


def test_a_single_partition_has_the_checkpoints_of_the_directory_it_is_in(log_dir: Path) -> None:
    (row,) = rows(ls(log_dir / "payments-2"))
    assert (row["log_start_offset"], row["recovery_point"]) == (4, 6)
    within = run_kdump(["ls", "--output", "jsonl", "."], log_dir / "payments-2")
    assert rows(within)[0]["topic"] == "payments"


def test_a_copy_of_a_partition_is_listed_under_any_name(tmp_path: Path) -> None:
    write_partition(tmp_path / "copy", {0: LOG})
    (row,) = rows(ls(tmp_path / "copy"))
    assert (row["directory"], row["topic"], row["log_end_offset"]) == ("copy", None, 6)


def test_a_directory_without_partitions_is_empty_and_valid(tmp_path: Path) -> None:
    outcome = ls(write_log_directory(tmp_path / "logs"))
    assert (objects(outcome.stdout), outcome.exit_status) == ([], 0)


class TestDamage:
    def test_a_malformed_checkpoint_is_named_with_its_line(self, log_dir: Path) -> None:
        path = log_dir / names.REPLICATION_OFFSET_CHECKPOINT
        path.write_bytes(b"0\n1\norders zero 5\n")
        outcome = ls(log_dir)
        assert outcome.exit_status == 4
        assert outcome.stderr.decode() == (
            f"kdump: {path}: checkpoint is malformed in line 3 at byte 4, "
            "expected TOPIC PARTITION OFFSET, found 'orders zero 5'\n"
        )
        assert len(rows(outcome)) == 3
        assert rows(outcome)[0]["high_watermark"] is None

    def test_a_malformed_partition_metadata_leaves_the_topic_id_unknown(
        self, log_dir: Path
    ) -> None:
        path = log_dir / "orders-0" / names.PARTITION_METADATA
        path.write_bytes(b"version: 0\n")
        outcome = ls(log_dir)
        assert outcome.exit_status == 4
        assert f"{path}: partition.metadata is malformed in line 2" in outcome.stderr.decode()
        assert [row["topic_id"] for row in rows(outcome)] == [None, TOPIC_ID_TEXT, TOPIC_ID_TEXT]

    def test_a_name_that_a_broker_refuses_is_damage(self, log_dir: Path) -> None:
        (log_dir / "backup").mkdir()
        outcome = ls(log_dir)
        assert outcome.exit_status == 4
        assert b"backup: not a partition name" in outcome.stderr
        assert outcome.stderr.endswith(b"move the directory elsewhere\n")

    @pytest.mark.parametrize("name", ["lost+found", ".snapshot"])
    def test_a_directory_of_the_file_system_is_not_said_to_be_moved(
        self, name: str, log_dir: Path
    ) -> None:
        (log_dir / name).mkdir()
        outcome = ls(log_dir)
        assert outcome.exit_status == 4
        assert outcome.stderr.endswith(b"into a subdirectory, and name that in log.dirs\n")


class TestWhatCannotBeRead:
    def test_a_missing_directory(self, tmp_path: Path) -> None:
        outcome = ls(tmp_path / "gone")
        assert (objects(outcome.stdout), outcome.exit_status) == ([], 8)
        assert outcome.stderr.decode() == f"kdump: {tmp_path}/gone: No such file or directory\n"

    def test_a_file_is_a_usage_error(self, log_dir: Path) -> None:
        assert ls(log_dir / names.META_PROPERTIES).exit_status == 16

    def test_log_directories_in_another_directory_are_named(self, log_dir: Path) -> None:
        outcome = ls(log_dir.parent)
        assert outcome.exit_status == 8
        assert outcome.stderr.decode().endswith(f"contains log directories: {log_dir}\n")

    def test_the_other_directories_are_still_listed(self, log_dir: Path, tmp_path: Path) -> None:
        outcome = ls(tmp_path / "gone", log_dir)
        assert (len(rows(outcome)), outcome.exit_status) == (3, 8)

    def test_an_unreadable_partition_has_a_row_without_values(
        self, log_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scandir = os.scandir

        def refuse(path: Any) -> Any:
            if str(path).endswith("orders-10"):
                raise PermissionError(13, "Permission denied", str(path))
            return scandir(path)

        monkeypatch.setattr("os.scandir", refuse)
        outcome = ls(log_dir)
        assert outcome.exit_status == 8
        said = f"kdump: {log_dir}/orders-10: Permission denied; {AS_WHOM}\n"
        assert outcome.stderr.decode() == said
        row = next(row for row in rows(outcome) if row["directory"] == "orders-10")
        assert row["segments"] is None

    def test_a_log_that_is_a_dangling_link_is_foreign(self, log_dir: Path) -> None:
        log = log_dir / "orders-0" / "00000000000000000000.log"
        log.unlink()
        log.symlink_to("gone")
        outcome = ls(log_dir)
        assert outcome.exit_status == 0
        assert rows(outcome)[0]["foreign"] == [log.name]


def test_a_log_that_cannot_be_read_is_named_and_has_a_row(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_dir / "orders-10/00000000000000000006.log"
    real = os.open

    def refuse(path: Any, *args: Any, **options: Any) -> int:
        if str(path) == str(log):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **options)

    log.write_bytes(LOG)
    monkeypatch.setattr("os.open", refuse)
    outcome = ls("--topic", "orders", log_dir)
    assert outcome.exit_status == 8
    assert f"kdump: {log}: Permission denied; {AS_WHOM}\n" in outcome.stderr.decode()
    assert rows(outcome)[1]["log_end_offset"] is None


def test_names_that_no_partition_can_have_are_reported_and_not_listed(tmp_path: Path) -> None:
    path = write_log_directory(tmp_path / "logs")
    write_partition(path / os.fsdecode(b"t\xff\n-0"), {0: LOG})
    for output in ("text", "table", "csv", "json"):
        outcome = run_kdump(["ls", "--output", output, str(path)], path)
        assert b"no partition can have this name" in outcome.stderr
        assert outcome.exit_status == 4


def test_a_directory_of_0_7_is_listed(tmp_path: Path) -> None:
    write_partition(tmp_path / "logs" / "my_topic_0", others={"00000000000.kafka": bytes(100)})
    (row,) = rows(ls(tmp_path / "logs"))
    assert (row["topic"], row["partition"], row["log_end_offset"]) == ("my_topic", 0, 100)


def test_ls_changes_no_file(log_dir: Path) -> None:
    def state() -> str:
        digest = hashlib.sha256()
        for file in sorted(log_dir.rglob("*")):
            status = file.stat()
            digest.update(f"{file} {status.st_mode} {status.st_size} {status.st_mtime_ns}".encode())
            digest.update(file.read_bytes() if file.is_file() else b"")
        return digest.hexdigest()

    before = state()
    ls(log_dir)
    run_kdump(["info", "--deep", str(log_dir)], log_dir)
    assert state() == before
    assert (log_dir / names.META_PROPERTIES).read_bytes() == META_PROPERTIES


def test_an_empty_directory_may_be_where_a_disk_is_not_mounted(tmp_path: Path) -> None:
    (tmp_path / "d1").mkdir()
    outcome = run_kdump(["ls", "d1"], tmp_path)
    expected = (
        "kdump: d1: not a Kafka log directory or partition; it is empty: is its disk mounted?\n"
    )
    assert (outcome.stderr.decode(), outcome.exit_status) == (expected, 8)
