"""Over the disks of several brokers each record is read once, from the most advanced replica."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow.parquet as pq
import pytest

import kdump
from builders.batches import batch, record
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_directories import file_name, write_log_directory, write_partition
from builders.read_tables import table_rows
from kdump.engine.spark import SparkEngine
from kdump.errors import ExitStatus, UsageProblem
from kdump.formats.names import PARTITION_METADATA, FileKind
from kdump.jobs.table_rows.table_reader import open_table
from kdump.pipeline.data_source import sql_session
from kdump.storage.local_disk import LocalDisk, LocalFile
from kdump.storage.location import Location
from kdump.tables.kafka_log.pushed_filters import PushedFilters

DISKS: Final = ("b1-d1", "b2-d1", "b2-d2", "b3-d1")
COUNTS: Final = {"read_uncommitted": 8637, "read_committed": 8543}
"""The records of all partitions of the cluster, counted by hand."""
LEVELS: Final = tuple(COUNTS)
WRITTEN_LATER: Final = ("div-", "lag-prefix", "live-")
"""Topics with records that the manifest does not have yet."""
COLUMNS: Final = "topic,partition,offset,key,value,timestamp"

Row = Mapping[str, Any]


@pytest.fixture(scope="module")
def cluster(fixtures: Path) -> list[Path]:
    """The disks of three brokers."""
    return [fixtures / "states" / "clean" / name for name in DISKS]


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    """The disks of two brokers: the second one's replica of ``orders-0`` is longer."""
    found = []
    for name, count in (("one", 2), ("two", 3)):
        root = write_log_directory(tmp_path / name)
        records = b"".join(batch([record(at, b"k%d" % at)]) for at in range(count))
        write_partition(root / "orders-0", {0: records})
        found.append(root)
    return found


def digest_of(rows: Iterable[Row]) -> str:
    """The digest of records as the manifest has it."""
    lines = (
        f"{row['offset']}\t{_encoded(row['key'])}\t{_encoded(row['value'])}"
        f"\t{round(row['timestamp'].timestamp() * 1000)}\n"
        for row in sorted(rows, key=lambda row: int(row["offset"]))
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _encoded(data: bytes | None) -> str:
    return "-" if data is None else base64.b64encode(data).decode()


@pytest.mark.parametrize("level", LEVELS)
def test_the_records_of_a_cluster_are_those_of_the_manifest(
    level: str, cluster: list[Path]
) -> None:
    manifest = json.loads((cluster[0].parent / "manifest.json").read_text())["topics"]
    wanted = {
        (topic, int(number)): each[level]["sha256"]
        for topic, described in manifest.items()
        for number, each in described["partitions"].items()
        if not topic.startswith(WRITTEN_LATER) and "sha256" in each.get(level, {})
    }
    assert len(wanted) > 100
    found = defaultdict[tuple[str, int], list[Row]](list)
    options = {"kafka.isolation.level": level, "columns": COLUMNS}
    for row in table_rows("records", cluster, **options):
        found[row["topic"], row["partition"]].append(row)
    assert sum(map(len, found.values())) == COUNTS[level]
    assert {key: digest_of(found[key]) for key in wanted} == wanted


def exported(out: Path, *args: str | Path) -> int:
    done = run_kdump(["export", "--out", str(out), *map(str, args)], out.parent)
    assert done.exit_status == 0
    return sum(pq.read_metadata(path).num_rows for path in out.rglob("*.parquet"))


@pytest.mark.parametrize("level", LEVELS)
def test_an_export_of_a_cluster_has_as_many_records(
    level: str, cluster: list[Path], tmp_path: Path
) -> None:
    assert exported(tmp_path / "out", f"--isolation-level={level}", *cluster) == COUNTS[level]


def queried(*args: str | Path) -> list[dict[str, Any]]:
    outcome: Outcome = run_kdump(["query", "--output=jsonl", *map(str, args)], Path.cwd())
    assert (outcome.exit_status, outcome.stderr) == (0, b"")
    return [each["row"] for each in objects(outcome.stdout) if each["type"] == "row"]


@pytest.mark.slow
@pytest.mark.usefixtures("running_spark")
@pytest.mark.parametrize("level", LEVELS)
def test_sql_over_a_cluster_counts_as_many_records(level: str, cluster: list[Path]) -> None:
    counting = "SELECT count(*) AS records FROM records"
    found = queried(f"--isolation-level={level}", counting, *cluster)
    assert found == [{"records": COUNTS[level]}]


@pytest.mark.slow
@pytest.mark.usefixtures("running_spark")
def test_sql_reads_every_replica_where_that_is_asked_for(disks: list[Path]) -> None:
    counting = "SELECT log_dir, count(*) AS records FROM records GROUP BY log_dir ORDER BY records"
    assert queried(counting, *disks) == [{"log_dir": str(disks[1]), "records": 3}]
    assert queried("--all-replicas", counting, *disks) == [
        {"log_dir": str(disks[0]), "records": 2},
        {"log_dir": str(disks[1]), "records": 3},
    ]


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_the_data_source_counts_as_many_records(
    level: str, cluster: list[Path], spark: SparkEngine
) -> None:
    session = sql_session(spark._session.context)
    reader = session.read.format("kafka-log").option("kafka.isolation.level", level)
    loaded = reader.option("columns", "offset").load(list(map(str, cluster)))
    assert loaded.count() == COUNTS[level]


@pytest.mark.parametrize("table", ["records", "batches"])
def test_rows_are_of_the_most_advanced_replica_or_of_all(table: str, disks: list[Path]) -> None:
    def log_dirs(**options: str) -> list[str]:
        return [each["log_dir"] for each in table_rows(table, disks, columns="log_dir", **options)]

    first, second = map(str, disks)
    assert log_dirs() == log_dirs(replicas="one") == [second] * 3
    assert log_dirs(replicas="all") == [first] * 2 + [second] * 3


def test_topics_of_one_name_with_different_ids_are_different_topics(disks: list[Path]) -> None:
    """The topic was deleted and created again while a disk was away."""
    for disk, topic_id in zip(
        disks, ("AAAAAAAAAAAAAAAAAAAAKg", "AAAAAAAAAAAAAAAAAAAAKw"), strict=True
    ):
        metadata = f"version: 0\ntopic_id: {topic_id}\n"
        (disk / "orders-0" / PARTITION_METADATA).write_text(metadata)
    assert len(table_rows("records", disks, columns="offset")) == 2 + 3
    rows = table_rows("partitions", disks, columns="is_most_advanced")
    assert [row["is_most_advanced"] for row in rows] == [True, True]


def test_a_replica_without_an_id_is_one_of_the_topic(disks: list[Path]) -> None:
    (disks[0] / "orders-0" / PARTITION_METADATA).unlink()
    assert len(table_rows("records", disks, columns="offset")) == 3


def test_a_partition_below_two_paths_is_read_once(disks: list[Path]) -> None:
    paths = [disks[1], disks[1] / "orders-0"]
    assert [each["offset"] for each in table_rows("records", paths)] == [0, 1, 2]


def test_segments_and_copies_that_are_named_themselves_are_read_whatever_else_is(
    disks: list[Path],
) -> None:
    stray = disks[0] / f"orders-0.{'0' * 32}-stray"
    (disks[0] / "orders-0").rename(stray)
    segment = next((disks[1] / "orders-0").glob("*.log"))
    assert len(table_rows("records", [disks[1], stray, segment], columns="offset")) == 3 + 2 + 3


def test_a_replica_whose_end_cannot_be_read_fails_the_reading_or_is_left_out(
    disks: list[Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be the better one, so that is said."""
    real = LocalDisk.open_file

    def failing(self: LocalDisk, location: Location) -> LocalFile:
        if str(disks[1]) in str(location):
            raise OSError(errno.EIO, "Input/output error", str(location))
        return real(self, location)

    monkeypatch.setattr(LocalDisk, "open_file", failing)
    with pytest.raises(OSError, match="Input/output error"):
        table_rows("records", disks, columns="offset")
    named = {"table": "records", "paths": json.dumps(list(map(str, disks)))}
    reader = open_table(named, ["offset"], skips_unreadable=True)
    splits = reader.splits(PushedFilters())
    rows = [batch.num_rows for split in splits for batch in reader.read(split, PushedFilters())]
    assert sum(rows) == 2
    assert [str(disks[1]) in message for message in caplog.messages] == [True]


def test_another_word_for_replicas_is_refused(disks: list[Path]) -> None:
    with pytest.raises(UsageProblem, match="option replicas of kafka-log is 'two', not one or all"):
        table_rows("records", disks, replicas="two")


# ---- Which replica that is, in the table partitions


def test_one_replica_of_each_partition_is_the_most_advanced(cluster: list[Path]) -> None:
    rows = table_rows("partitions", cluster)
    live = {(row["topic"], row["partition"]) for row in rows if row["state"] == "live"}
    chosen = [(row["topic"], row["partition"]) for row in rows if row["is_most_advanced"]]
    assert sorted(chosen) == sorted(live)
    read = table_rows("records", cluster, columns="log_dir,topic,partition")
    assert {tuple(row.values()) for row in read} <= {
        (row["log_dir"], row["topic"], row["partition"]) for row in rows if row["is_most_advanced"]
    }


def test_deleted_copies_are_not_the_most_advanced(disks: list[Path]) -> None:
    (disks[1] / "orders-0").rename(disks[1] / f"orders-0.{'0' * 32}-delete")
    rows = table_rows("partitions", disks, columns="state,is_most_advanced")
    assert [tuple(row.values()) for row in rows] == [("live", True), ("delete", False)]


def test_a_copy_under_another_name_is_no_replica(disks: list[Path], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (disks[1] / "orders-0").rename(copy)
    rows = table_rows("partitions", [disks[0], copy], columns="directory,is_most_advanced")
    assert [tuple(row.values()) for row in rows] == [("orders-0", True), ("copy", False)]


def test_the_chosen_replica_is_that_of_the_paths_that_are_named(disks: list[Path]) -> None:
    paths = [disks[0], disks[1] / "orders-0"]
    rows = table_rows("partitions", paths, columns="is_most_advanced")
    assert [row["is_most_advanced"] for row in rows] == [False, True]
    (row,) = table_rows("partitions", disks[0], columns="is_most_advanced")
    assert row["is_most_advanced"]


@pytest.mark.slow
@pytest.mark.usefixtures("running_spark")
def test_a_join_of_commits_with_partitions_has_one_row_a_commit(cluster: list[Path]) -> None:
    joined = (
        "SELECT g.group, g.topic, g.partition, p.log_dir FROM group_offsets g"
        " JOIN partitions p USING (topic, partition) WHERE p.is_most_advanced"
    )
    rows = queried(joined, *cluster)
    commits = {(row["group"], row["topic"], row["partition"]) for row in rows}
    assert len(rows) == len(commits) == 50


# ---- The command grep


def grep(*args: str | Path) -> Outcome:
    return run_kdump(["grep", *map(str, args)], Path.cwd())


@pytest.mark.parametrize("level", LEVELS)
def test_grep_finds_each_record_of_a_cluster_once(level: str, cluster: list[Path]) -> None:
    """It also searches deleted copies, and what is before the start of a log."""
    found = grep("-vF", "in no record", f"--isolation-level={level}", "--output=jsonl", *cluster)
    of_logs = [
        (row["topic"], row["partition"], row["offset"])
        for row in objects(found.stdout)
        if row["type"] == "record"
        and Path(row["path"]).parent.name == f"{row['topic']}-{row['partition']}"
    ]
    options = {"kafka.isolation.level": level, "columns": "topic,partition,offset"}
    records = {tuple(row.values()) for row in table_rows("records", cluster, **options)}
    assert len(of_logs) == len(set(of_logs))
    assert records - set(of_logs) == set()
    assert {topic for topic, _, _ in set(of_logs) - records} == {"records-deleted"}


def test_grep_searches_every_replica_where_that_is_asked_for(disks: list[Path]) -> None:
    one = grep("-c", "k0", *disks)
    assert one.stdout.decode().count(":1\n") == 1
    said = f"kdump: not searched: 1 other replica (first: {disks[0]}/orders-0); --all-replicas"
    assert one.stderr.decode().startswith(said)
    every = grep("-c", "--all-replicas", "k0", *disks)
    assert (every.stdout.decode().count(":1\n"), every.stderr) == (2, b"")


# ---- Damage that another replica does not have


@pytest.fixture
def damaged_disks(disks: list[Path]) -> list[Path]:
    """Two replicas alike; that of the first disk has a wrong checksum."""
    log = disks[0] / "orders-0" / file_name(0, FileKind.LOG)
    content = (disks[1] / "orders-0" / log.name).read_bytes()
    log.write_bytes(content[:-2] + b"?" + content[-1:])
    return disks


@pytest.mark.parametrize(
    ("words", "done"),
    [
        (("grep", "k"), "searched"),
        (("query", "SELECT * FROM records"), "read"),
        (("export", "--out"), "exported"),
    ],
)
def test_where_records_are_damaged_the_other_replicas_are_pointed_to(
    words: tuple[str, ...], done: str, damaged_disks: list[Path], tmp_path: Path
) -> None:
    of_both, of_one = (["out"], ["other"]) if words[-1] == "--out" else ([], [])
    both = run_kdump([*words, *of_both, *map(str, damaged_disks)], tmp_path)
    alone = run_kdump([*words, *of_one, str(damaged_disks[0])], tmp_path)
    assert f"replicas that were not {done} may have the damaged records" in both.stderr.decode()
    assert both.exit_status == alone.exit_status == ExitStatus.DAMAGE_LEFT
    assert "may have" not in alone.stderr.decode()


# ---- Python


@pytest.mark.parametrize("level", LEVELS)
def test_python_reads_each_record_of_a_cluster_once(
    level: Literal["read_uncommitted", "read_committed"], cluster: list[Path]
) -> None:
    opened = kdump.open_log_dir(*cluster)
    names = {(each.topic, each.number) for each in opened.partitions if each.state == "live"}
    found = 0
    for topic, number in names:
        assert topic is not None
        assert number is not None
        partition = opened.partition(topic, number)
        reader = partition.records(columns=["offset"], isolation_level=level)
        found += sum(each.num_rows for each in reader)
    assert found == COUNTS[level]


def test_a_table_of_several_directories_has_each_record_once_or_of_each_replica(
    disks: list[Path],
) -> None:
    opened = kdump.open_log_dir(*disks)
    assert opened.table("records").read_all().num_rows == 3
    assert opened.table("records", replicas="one").read_all().num_rows == 3
    assert opened.table("records", replicas="all").read_all().num_rows == 5
    assert opened.table("partitions").read_all().num_rows == 2
    with pytest.raises(kdump.UsageProblem, match="table segments of kafka-log has no option"):
        opened.table("segments", replicas="all")


def test_several_directories_have_in_common_what_all_of_them_say(cluster: list[Path]) -> None:
    opened = kdump.open_log_dir(*cluster)
    assert opened.paths == tuple(cluster)
    assert (opened.path, opened.is_clean, opened.node_id) == (cluster[0], True, None)
    assert opened.cluster_id == kdump.open_log_dir(cluster[0]).cluster_id
    assert kdump.open_log_dir(*cluster[1:3]).node_id == 2
    with pytest.raises(kdump.UsageProblem, match="has no partition orders-99"):
        opened.partition("orders", 99)
