"""``kdump export``: files that other programs read, complete or not there."""

from __future__ import annotations

import base64
import csv
import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders.batches import batch, record
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.json_schemas import problem_of_document
from builders.log_directories import file_name, write_log_directory, write_partition
from builders.message_sets import message_07, wrapper_07
from builders.mounts import mounted
from builders.recovery import marker, of_producer
from builders.trees import contents_of
from kdump.formats import names
from kdump.formats.compression import Codec
from kdump.formats.names import FileKind
from kdump.jobs.export.export_directory import ExportDirectory
from kdump.storage.local_disk import LocalFile
from kdump.tables.kafka_log.columns import default_columns
from kdump.tables.table import arrow_schema

LOG = file_name(0, FileKind.LOG)


def export(out: Path, *args: str | Path) -> Outcome:
    return run_kdump(["export", "--out", str(out), *map(str, args)], out.parent)


def manifest_of(out: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((out / "_manifest.json").read_text())
    assert problem_of_document("export-manifest", document) is None
    return document


def files_of(out: Path) -> list[str]:
    found = (path for path in out.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(out)) for path in found)


def rows_of(out: Path) -> list[dict[str, Any]]:
    """The rows of all Parquet files, in the order of their names."""
    tables = [pq.ParquetFile(path).read() for path in sorted(out.rglob("*.parquet"))]
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    return rows


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a log directory: orders-0 with two segments, orders-1 with odd records, empty-0."""
    root = write_log_directory(tmp_path / "logs")
    first = batch([record(0, b"a", b"1"), record(1, b"b", b"2", [(b"h", b"x"), (b"h", None)])])
    second = batch([record(5, b"c", b"3")], codec=Codec.ZSTD)
    write_partition(root / "orders-0", {0: first, 5: second})
    odd = [
        record(0, b"\xff\x00", b'=cmd("x")\n'),
        record(1, None, None),
        record(2, b"", "\u2028é\x07\\".encode()),
    ]
    write_partition(root / "orders-1", {0: batch(odd)})
    write_partition(root / "empty-0", {0: b""})
    return root


def damage(log_dir: Path) -> None:
    log = log_dir / "orders-0" / LOG
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)


def test_files_are_in_directories_by_topic_and_partition(log_dir: Path, tmp_path: Path) -> None:
    done = export(tmp_path / "out", log_dir)
    assert (done.exit_status, done.stderr) == (0, b"")
    assert files_of(tmp_path / "out") == [
        "_SUCCESS",
        "_manifest.json",
        "topic=orders/partition=0/00000000000000000000-0000000000.parquet",
        "topic=orders/partition=1/00000000000000000000-0000000000.parquet",
    ]
    rows = rows_of(tmp_path / "out")
    assert [(row["offset"], row["key"]) for row in rows[:3]] == [(0, b"a"), (1, b"b"), (5, b"c")]
    assert not {"topic", "partition", "headers"} & set(rows[0])


def test_rows_have_the_path_as_it_was_named_and_the_manifest_has_it_absolute(
    log_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    args = ("--output", "jsonl", log_dir.relative_to(tmp_path))
    expected = ["logs/empty-0", "logs/orders-0", "logs/orders-1"]
    for _ in range(2):
        *rows, _ = objects(export(out, *args).stdout)
        assert [row["path"] for row in rows] == expected
    sources = [each["source"]["path"] for each in manifest_of(out)["partitions"]]
    assert sources == [str(tmp_path / path) for path in expected]


def test_the_flat_layout_has_topic_and_partition_as_columns(log_dir: Path, tmp_path: Path) -> None:
    write_partition(log_dir / "__hidden-0", {0: batch([record(0)])})
    export(tmp_path / "out", log_dir, "--layout", "flat", "--include-headers")
    name = "00000000000000000000-0000000000.parquet"
    parquet = [f"%5F_hidden-0-{name}", f"orders-0-{name}", f"orders-1-{name}"]
    assert files_of(tmp_path / "out") == [parquet[0], "_SUCCESS", "_manifest.json", *parquet[1:]]
    rows = rows_of(tmp_path / "out")
    assert {(row["topic"], row["partition"]) for row in rows} == {
        ("__hidden", 0),
        ("orders", 0),
        ("orders", 1),
    }
    assert [row["headers"] for row in rows if row["key"] == b"b"] == [
        [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]
    ]


def test_parquet_columns_have_the_types_of_the_table_records(log_dir: Path, tmp_path: Path) -> None:
    """In one row group, texts of several segments and codecs: readers see no dictionaries."""
    export(tmp_path / "out", log_dir, "--layout", "flat", "--include-headers")
    (path,) = (tmp_path / "out").glob("orders-0-*")
    found = pq.ParquetFile(path).read()
    assert found.schema == arrow_schema(default_columns(with_headers=True))
    assert found["codec"].to_pylist() == ["none", "none", "zstd"]
    assert [Path(each).name for each in found["segment"].to_pylist()] == [
        LOG,
        LOG,
        file_name(5, FileKind.LOG),
    ]


def test_the_flat_layout_refuses_topics_that_are_too_long(tmp_path: Path) -> None:
    log_dir = write_log_directory(tmp_path / "logs")
    write_partition(log_dir / f"{'t' * 240}-0", {0: batch([record(0)])})
    done = export(tmp_path / "out", log_dir, "--layout", "flat")
    assert (done.exit_status, b"use --layout hive" in done.stderr) == (16, True)
    assert files_of(tmp_path / "out") == []
    assert export(tmp_path / "out", log_dir).exit_status == 0


def test_chosen_columns_ranges_and_partitions(log_dir: Path, tmp_path: Path) -> None:
    asked = ("--columns", "value,key", "--from-offset", "1", "--to-offset", "5")
    export(tmp_path / "out", log_dir, "--partition", "orders-0", *asked)
    assert rows_of(tmp_path / "out") == [{"value": b"2", "key": b"b"}]
    (partition,) = manifest_of(tmp_path / "out")["partitions"]
    (part,) = partition["parts"]
    assert (part["first_offset"], part["last_offset"], part["records"]) == (1, 1, 1)


@pytest.mark.parametrize("extension", ["csv", "jsonl"])
def test_text_formats_have_the_fields_of_dump_segment(
    extension: str, log_dir: Path, tmp_path: Path
) -> None:
    log = log_dir / "orders-1" / LOG
    dumped = run_kdump(
        ["dump-segment", "--output", "jsonl", "--deep-iteration", str(log)], tmp_path
    )
    theirs = [row for row in objects(dumped.stdout) if row["type"] == "record"]

    export(tmp_path / "out", log_dir, "--format", extension, "--include-headers")

    (path,) = tmp_path.glob(f"out/topic=orders/partition=1/*.{extension}")
    if extension == "jsonl":
        # Every program has its own idea of what ends a line.
        assert len(path.read_text().splitlines()) == len(theirs)
        ours = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        with path.open(newline="") as file:
            ours = list(csv.DictReader(file))
        theirs = [
            {name: "" if value is None else str(value) for name, value in row.items()}
            for row in theirs
        ]
    common = ours[0].keys() & theirs[0].keys()
    wanted = {"key", "key_encoding", "value", "value_encoding", "offset", "timestamp_ms", "headers"}
    assert wanted <= common
    for name in common - {"sequence"}:  # null for none, as in the data source
        assert [row[name] for row in ours] == [row[name] for row in theirs], name


def test_null_and_empty_differ_in_csv(log_dir: Path, tmp_path: Path) -> None:
    export(tmp_path / "out", log_dir, "--format", "csv", "--columns", "key,offset")
    (path,) = tmp_path.glob("out/topic=orders/partition=1/*.csv")
    binary = base64.b64encode(b"\xff\x00").decode()
    assert path.read_text() == (
        f'"key","key_encoding","offset"\n"{binary}","base64",0\n,,1\n"","utf8",2\n'
    )


@pytest.mark.parametrize("extension", ["csv", "jsonl"])
def test_text_formats_have_every_time_of_a_log(extension: str, tmp_path: Path) -> None:
    times = [2**63 - 1, 2**53 + 1, 2**63 // 1000 + 1, -1]
    log = b"".join(batch([record(at, timestamp=time)]) for at, time in enumerate(times))
    partition = write_partition(tmp_path / "logs" / "orders-0", {0: log})
    export(tmp_path / "out", partition, "--format", extension, "--columns", "timestamp,offset")
    (path,) = tmp_path.glob(f"out/*/*/*.{extension}")
    if extension == "csv":
        rows: list[dict[str, Any]] = list(csv.DictReader(path.read_text().splitlines()))
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [int(row["timestamp_ms"]) for row in rows] == times


@pytest.mark.parametrize("args", [(), ("--isolation-level", "read_committed")])
def test_logs_of_kafka_0_7_are_exported(args: tuple[str, ...], tmp_path: Path) -> None:
    log = [message_07(b"a"), wrapper_07([message_07(b"b"), message_07(b"c")]), message_07(b"d")]
    starts = [100, 100 + len(log[0]), 100 + len(log[0] + log[1])]
    end = 100 + len(b"".join(log))
    paths = tmp_path / "short" / "old-0", tmp_path / "long" / "old-0"
    for path, logs in zip(paths, (log[:1], log), strict=True):
        path.mkdir(parents=True)
        (path / f"{100:020d}.kafka").write_bytes(b"".join(logs))
    (paths[1] / f"{end:020d}.kafka").write_bytes(message_07(b"e"))

    done = export(tmp_path / "out", *args, "--to-offset", str(end + 1), "--output", "jsonl", *paths)

    assert done.exit_status == 0
    at = [starts[0], starts[1], starts[1], starts[2], end]
    rows = rows_of(tmp_path / "out")
    assert [(row["offset"], row["value"]) for row in rows] == list(
        zip(at, [b"a", b"b", b"c", b"d", b"e"], strict=True)
    )
    row, _ = objects(done.stdout)
    assert (row["log_start_offset"], row["log_end_offset"]) == (100, end + len(message_07(b"e")))

    export(tmp_path / "late", "--from-time", "0", *paths)
    assert manifest_of(tmp_path / "late")["totals"]["records"] == 0


def test_damage_is_skipped_and_named(log_dir: Path, tmp_path: Path) -> None:
    damage(log_dir)
    for written in (1, 0):
        done = export(tmp_path / "out", log_dir, "--partition", "orders-0", "--output", "jsonl")
        assert done.exit_status == 4
        assert f"{LOG}: bytes 0 to".encode() in done.stderr
        partition, summary = objects(done.stdout)
        assert (partition["records"], partition["problems"]) == (1, 1)
        assert (summary["is_complete"], summary["written"]) == (True, written)
    (partition,) = manifest_of(tmp_path / "out")["partitions"]
    (problem,) = partition["parts"][0]["problems"]
    assert (problem["start"], problem["is_damage"]) == (0, True)
    assert "_SUCCESS" in files_of(tmp_path / "out")


def test_what_transactions_hide_is_counted(tmp_path: Path) -> None:
    log = [
        of_producer(0, 7, transactional=True),
        marker(1, 7, commit=False),
        of_producer(2, 8, transactional=True),
        marker(3, 8, commit=True),
        of_producer(4, 9, transactional=True),
        batch([record(5)]),
    ]
    partition = write_partition(tmp_path / "logs" / "orders-0", {0: b"".join(log)})
    levels = ("--isolation-level", "read_committed", "--output", "jsonl")
    row, _ = objects(export(tmp_path / "out", partition, *levels).stdout)
    assert [each["offset"] for each in rows_of(tmp_path / "out")] == [2]
    assert (row["aborted_records"], row["open_transactions"]) == (1, 1)
    assert row["last_stable_offset"] == 4

    with_markers = ("--include-control-records", "--columns", "offset,controlType")
    export(tmp_path / "all", partition, *with_markers)
    kinds = [each["controlType"] for each in rows_of(tmp_path / "all")]
    assert kinds == [None, "ABORT", None, "COMMIT", None, None]


@pytest.mark.parametrize(
    ("options", "left_out"),
    [
        ([], 3),
        (["--to-offset", "6"], 2),
        (["--from-offset", "5"], 2),
        (["--to-offset", "4"], 0),
        (["--isolation-level", "read_uncommitted"], None),
    ],
)
def test_what_open_transactions_hold_back_is_counted(
    options: list[str], left_out: int | None, tmp_path: Path
) -> None:
    log = [
        of_producer(0, 7, transactional=True),
        marker(1, 7, commit=True),
        batch([record(2), record(3)]),
        of_producer(4, 9, transactional=True),
        batch([record(5)]),
        of_producer(6, 7, transactional=True),
        marker(7, 7, commit=True),
    ]
    partition = write_partition(tmp_path / "logs" / "orders-0", {0: b"".join(log)})
    words = ("--isolation-level", "read_committed", "--output", "jsonl", *options)
    row, summary = objects(export(tmp_path / "out", partition, *words).stdout)
    assert (row["unstable_records"], summary["unstable_records"]) == (left_out, left_out or 0)
    (document,) = manifest_of(tmp_path / "out")["partitions"]
    open_one = {"producer_id": 9, "producer_epoch": 0, "first_offset": 4, "last_offset": 4}
    assert document["unstable_records"] == left_out
    assert document["transactions"] == ([] if left_out is None else [open_one])


def test_of_much_damage_a_hundred_ranges_are_listed_and_all_counted_once(tmp_path: Path) -> None:
    """The states of transactions are looked up ahead: both readings find the damage."""
    log_dir = write_log_directory(tmp_path / "logs")
    log = bytearray(of_producer(0, 7, transactional=True))
    for offset in range(1, 261, 2):
        damaged = bytearray(of_producer(offset, 7, transactional=True))
        damaged[-1] ^= 1
        log += damaged + of_producer(offset + 1, 7, transactional=True)
    write_partition(log_dir / "orders-0", {0: bytes(log)})
    for level in ("read_uncommitted", "read_committed"):
        out = tmp_path / level
        done = export(out, log_dir, "--isolation-level", level)
        assert (done.exit_status, b"110 more problems like these" in done.stderr) == (4, True)
        assert manifest_of(out)["totals"]["problems"] == 130
        (partition,) = manifest_of(out)["partitions"]
        (part,) = partition["parts"]
        for each in [part] + [partition] * (level == "read_committed"):
            assert (len(each["problems"]), each["more_problems"]) == (100, 30)


def test_run_again_an_export_writes_only_what_is_missing(log_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, log_dir)
    whole = contents_of(out)
    next(out.glob("topic=orders/partition=1/*")).unlink()
    (out / "_SUCCESS").unlink()

    *_, summary = objects(export(out, log_dir, "--output", "jsonl").stdout)

    assert summary["written"] == 1
    assert contents_of(out) == whole


def test_a_partition_that_changed_is_exported_again(log_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, log_dir)
    (log_dir / "orders-0" / file_name(5, FileKind.LOG)).unlink()
    (log_dir / "orders-0" / file_name(9, FileKind.LOG)).write_bytes(batch([record(9, b"new")]))

    done = export(out, log_dir)

    assert (done.exit_status, b"1 earlier file replaced and 0 removed" in done.stdout) == (0, True)
    assert [row["key"] for row in rows_of(out)][:3] == [b"a", b"b", b"new"]
    assert {partition["topic"] for partition in manifest_of(out)["partitions"]} == {
        "empty",
        "orders",
    }


def test_a_log_that_was_replaced_with_its_size_and_time_is_exported_again(
    log_dir: Path, tmp_path: Path
) -> None:
    # Masking a record whose key has as many bytes as its hash does that to a segment.
    out, log = tmp_path / "out", log_dir / "orders-0" / file_name(5, FileKind.LOG)
    log.write_bytes(batch([record(5, b"secret")]))
    export(out, log_dir)
    status, new = log.stat(), log.with_suffix(".log.cleaned")
    new.write_bytes(batch([record(5, b"masked")]))
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.rename(log)
    assert log.stat().st_size == status.st_size

    done = export(out, log_dir)

    assert (done.exit_status, b"1 earlier file replaced" in done.stdout) == (0, True)
    assert rows_of(out)[2]["key"] == b"masked"


def test_files_of_a_log_that_is_empty_now_are_removed_and_counted(
    log_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export(out, log_dir)
    (log_dir / "orders-1" / LOG).write_bytes(b"")

    *_, summary = objects(export(out, log_dir, "--output", "jsonl").stdout)

    assert (summary["is_complete"], summary["written"]) == (True, 0)
    assert (summary["replaced"], summary["removed"]) == (0, 1)
    assert not (out / "topic=orders/partition=1").exists()


def test_files_of_a_partition_that_is_gone_stay(log_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, log_dir)
    before = rows_of(out)
    away = tmp_path / "away"
    away.mkdir()
    (log_dir / "orders-1").rename(away / "orders-1")
    for _ in range(2):
        done = export(out, log_dir)
        assert done.exit_status == 8
        assert b"orders-1: is not found now; the files that were exported earlier" in done.stderr
        assert rows_of(out) == before
        assert manifest_of(out)["totals"]["files"] == 2
        assert "_SUCCESS" not in files_of(out)

    (away / "orders-1").rename(log_dir / "orders-1")
    *_, summary = objects(export(out, log_dir, "--output", "jsonl").stdout)
    assert (summary["is_complete"], summary["written"]) == (True, 0)


def test_files_of_a_partition_whose_disk_fails_now_stay(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    export(out, log_dir)
    before = rows_of(out)
    real = LocalFile.read_into

    def failing(self: LocalFile, buffer: memoryview, position: int) -> int:
        if "orders-1" in str(self.location):
            raise OSError(errno.EIO, "Input/output error", str(self.location))
        return real(self, buffer, position)

    monkeypatch.setattr(LocalFile, "read_into", failing)
    assert export(out, log_dir).exit_status == 8
    assert rows_of(out) == before
    assert "_SUCCESS" not in files_of(out)


@pytest.mark.parametrize("is_other_there", [True, False])
def test_a_directory_that_cannot_be_listed_leaves_no_success(
    is_other_there: bool, log_dir: Path, tmp_path: Path
) -> None:
    out, other = tmp_path / "out", write_log_directory(tmp_path / "other")
    paths = [log_dir, other] if is_other_there else [log_dir]
    export(out, *paths)
    assert "_SUCCESS" in files_of(out)
    (other if is_other_there else log_dir).rename(tmp_path / "away")

    done = export(out, *paths)

    assert (done.exit_status, b": complete" in done.stdout) == (8, False)
    assert (len(rows_of(out)), manifest_of(out)["state"]) == (6, "incomplete")
    assert "_SUCCESS" not in files_of(out)


@pytest.mark.parametrize("end", ["0", "3"], ids=["no records", "some"])
def test_an_export_is_complete_when_nothing_is_left_to_write(
    end: str, log_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first, again = [export(out, "--to-offset", end, log_dir).stdout for _ in range(2)]
    ending = f"{out}: complete: no records had to be written\n".encode()
    assert (first.endswith(ending), again.endswith(ending)) == (end == "0", True)


def test_other_directories_are_refused(log_dir: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", write_log_directory(tmp_path / "other")
    write_partition(other / "payments-0", {0: batch([record(0)])})
    export(out, log_dir)
    before = contents_of(out)
    for paths in ([other], [log_dir, other]):
        done = export(out, *paths)
        assert done.exit_status == 16
        assert f"'kdump export --out {out} {log_dir}'".encode() in done.stderr
        assert contents_of(out) == before


def test_other_options_are_refused(log_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, log_dir)
    before = contents_of(out)
    done = export(out, log_dir, "--format", "csv")
    assert done.exit_status == 16
    assert b"format was 'parquet', not 'csv'" in done.stderr
    assert contents_of(out) == before


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"options": {', '"option": {', "options: missing"),
        ('"sources": [', '"paths": [', "options.sources: missing"),
        ('"size_bytes": ', '"size": ', "size_bytes: missing"),
        ('"problems": [', '"problems": ["x"', "not an object"),
        ('"fingerprint": "', '"fingerprint": 1, "x": "', "fingerprint: not a string"),
        ('"version": 2', '"version": 3', "this kdump reads version 2"),
    ],
)
def test_a_manifest_that_was_edited_is_refused(
    old: str, new: str, problem: str, log_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export(out, log_dir)
    manifest = out / "_manifest.json"
    manifest.write_text(manifest.read_text().replace(old, new))
    before = contents_of(out)
    done = export(out, log_dir)
    assert (done.exit_status, b"name a new directory" in done.stderr) == (16, True)
    assert problem.encode() in done.stderr
    assert contents_of(out) == before


def test_a_directory_with_something_else_is_refused(log_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name, content in (("notes.txt", ""), ("_manifest.json", "{}"), ("_progress.jsonl", "")):
        out.mkdir()
        (out / name).write_text(content)
        done = export(out, log_dir)
        assert (done.exit_status, b"name a new directory" in done.stderr) == (16, True)
        assert files_of(out) == [name]
        shutil.rmtree(out)


@pytest.mark.parametrize("inside", ["logs/out", "logs/orders-0/out", "link/out"])
def test_a_directory_inside_a_log_directory_is_refused(
    inside: str, log_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(log_dir)
    before = contents_of(log_dir)
    done = export(tmp_path / inside, log_dir)
    assert (done.exit_status, b"is inside the" in done.stderr) == (16, True)
    assert contents_of(log_dir) == before


def test_of_several_replicas_the_most_advanced_is_exported(log_dir: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer"
    shutil.copytree(log_dir, longer)
    log = longer / "orders-0" / file_name(5, FileKind.LOG)
    log.write_bytes(log.read_bytes() + batch([record(6, b"d")]))

    done = export(tmp_path / "out", log_dir, longer)

    assert b"not exported: 3 other replicas" in done.stderr
    assert [row["key"] for row in rows_of(tmp_path / "out")][:4] == [b"a", b"b", b"c", b"d"]
    assert len(manifest_of(tmp_path / "out")["not_exported"]) == 3


def test_copies_that_are_deleted_or_moving_are_exported_only_by_their_own_path(
    log_dir: Path, tmp_path: Path
) -> None:
    moving = f"orders-7.{'0' * 32}-future"
    write_partition(log_dir / moving, {0: batch([record(0, b"moving")])})
    export(tmp_path / "out", log_dir)
    assert not (tmp_path / "out/topic=orders/partition=7").exists()
    export(tmp_path / "own", log_dir / moving)
    assert (tmp_path / "own/topic=orders/partition=7").exists()


def test_records_below_the_log_start_offset_are_left_out(log_dir: Path, tmp_path: Path) -> None:
    (log_dir / names.LOG_START_OFFSET_CHECKPOINT).write_text("0\n1\norders 0 1\n")
    export(tmp_path / "out", log_dir, "--partition", "orders-0", "--from-offset", "0")
    assert [row["offset"] for row in rows_of(tmp_path / "out")] == [1, 5]


@pytest.mark.parametrize("reads", [0, 1])
def test_a_log_that_cannot_be_read_is_tried_again(
    reads: int, log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails when files are planned, or when they are written."""
    left = reads
    real = LocalFile.read_into

    def failing(self: LocalFile, buffer: memoryview, position: int) -> int:
        nonlocal left
        if "orders-1" in str(self.location):
            left -= 1
            if left < 0:
                raise OSError(errno.EIO, "Input/output error", str(self.location))
        return real(self, buffer, position)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFile, "read_into", failing)
        done = export(tmp_path / "out", log_dir)
    assert done.exit_status == 8
    assert f"orders-1/{LOG}: Input/output error".encode() in done.stderr
    assert manifest_of(tmp_path / "out")["state"] == "incomplete"
    assert "_SUCCESS" not in files_of(tmp_path / "out")

    assert export(tmp_path / "out", log_dir).exit_status == 0
    assert manifest_of(tmp_path / "out")["state"] == "complete"
    assert "_SUCCESS" in files_of(tmp_path / "out")


def test_a_full_disk_leaves_complete_files_and_can_be_continued(
    log_dir: Path, tmp_path: Path
) -> None:
    values = [os.urandom(1000) for _ in range(700)]
    large = batch([record(at, b"k", value) for at, value in enumerate(values)])
    write_partition(log_dir / "zlarge-0", {0: large})
    (tmp_path / "small").mkdir()
    out = tmp_path / "small" / "out"
    with mounted("-t", "tmpfs", "-o", "size=512k", "tmpfs", at=tmp_path / "small"):
        done = export(out, log_dir)
        assert done.exit_status == 8
        assert b"No space left on device; the files that are complete stay" in done.stderr
        left = files_of(out)
        assert "_SUCCESS" not in left
        assert not [name for name in left if ".tmp" in name or "zlarge" in name]
        shutil.copytree(out, tmp_path / "out")
    *_, summary = objects(export(tmp_path / "out", log_dir, "--output", "jsonl").stdout)
    assert (summary["is_complete"], summary["written"]) == (True, 1)


def test_an_interrupted_export_leaves_complete_files_only(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(tmp_path / "whole", log_dir)
    out, real = tmp_path / "out", ExportDirectory.add

    def stopped(self: ExportDirectory, *args: Any) -> None:
        if any(name.endswith(".parquet") for name in files_of(out)):
            raise KeyboardInterrupt
        real(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(ExportDirectory, "add", stopped)
        assert export(out, log_dir).exit_status == 130
    names_left = files_of(out)
    assert names_left[0] == "_progress.jsonl"
    assert [name.rpartition(".")[2] for name in names_left[1:]] == ["parquet"]

    assert export(out, log_dir).exit_status == 0
    assert contents_of(out) == contents_of(tmp_path / "whole")


def test_files_have_the_modes_of_any_file(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mask is of the whole process: a thread that changes it changes it for all."""
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            patch.delattr(os, "umask")
            assert export(tmp_path / "out", log_dir, "--engine", "local").exit_status == 0
    finally:
        os.umask(before)
    modes = {
        (tmp_path / "out" / name).stat().st_mode & 0o777 for name in files_of(tmp_path / "out")
    }
    assert modes == {0o640}


def test_two_exports_to_one_directory_are_refused(log_dir: Path, tmp_path: Path) -> None:
    with ExportDirectory(str(tmp_path / "out")):
        done = export(tmp_path / "out", log_dir)
    assert (done.exit_status, b"another kdump exports" in done.stderr) == (8, True)
