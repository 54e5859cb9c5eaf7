"""The rows of tables are those of the JSON output of the commands."""

from __future__ import annotations

import errno
import logging
import operator
import pickle
import shutil
from collections.abc import Iterable, Mapping
from itertools import combinations, product
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from builders import log_directories
from builders.batches import batch, record
from builders.group_records import offset_key, offset_value
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.read_tables import as_in_json, read_table, table_rows
from kdump.errors import ExitStatus, UsageProblem
from kdump.formats import names
from kdump.formats.record_batch import Record
from kdump.jobs.listing.listed_rows import REMOTE_FIELDS
from kdump.jobs.table_rows.all_tables import TABLES
from kdump.jobs.table_rows.table_reader import open_table
from kdump.storage.local_disk import LocalFile
from kdump.tables.kafka_log.damage import STATUS_FIELD, DamagedLogError
from kdump.tables.kafka_log.pushed_filters import PushedFilters

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def crashed(fixtures: Path) -> Path:
    return fixtures / "out" / "crashed" / "d1"


@pytest.fixture(scope="module")
def clean_dirs(fixtures: Path) -> list[Path]:
    return [fixtures / "out" / "clean" / name for name in ("d1", "d2")]


def json_rows(kind: str, *words: str | Path) -> Rows:
    """The objects of one type that a command writes, without their type."""
    outcome = run_kdump([*map(str, words), "--output", "jsonl"], Path.cwd())
    return [without_type(row) for row in objects(outcome.stdout) if row["type"] == kind]


def without_type(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "type"}


def by_directory(rows: Iterable[dict[str, Any]]) -> Rows:
    return sorted(rows, key=itemgetter("log_dir", "directory"))


def test_partitions_are_those_of_ls(clean_dirs: list[Path], crashed: Path) -> None:
    paths = [*clean_dirs, crashed]
    table = without_remote(read_table("partitions", paths))
    assert by_directory(table) == by_directory(json_rows("partition", "ls", *paths))


def test_a_partition_named_itself_is_listed_as_by_ls(crashed: Path) -> None:
    path = crashed / "crash-none-0"
    assert without_remote(read_table("partitions", path)) == json_rows("partition", "ls", path)


def without_remote(table: pa.Table) -> Rows:
    """The rows without the columns that ``ls`` has with ``--remote`` only; they are null."""
    shown = as_in_json(table.drop_columns(["is_most_advanced"]))
    assert all(row.pop(name) is None for row in shown for name in REMOTE_FIELDS)
    return shown


@pytest.mark.parametrize("names", [("b2",), ("b1", "b2"), ("remote",), ("b1", "remote")])
def test_tables_list_remote_segments_as_ls_does(fixtures: Path, names: tuple[str, ...]) -> None:
    tiered = fixtures / "tiered"
    paths = [tiered / name for name in names]
    listed = json_rows("partition", "ls", "--remote", tiered / "remote", *paths)
    options = {"remote": str(tiered / "remote")}
    read = read_table("partitions", paths, **options).drop_columns(["is_most_advanced"])
    table = as_in_json(read)
    assert by_directory(table) == by_directory(listed)
    segments = read_table("segments", paths, **options).to_pylist()
    for row in listed:
        own = [
            each
            for each in segments
            if (each["log_dir"], each["directory"]) == (row["log_dir"], row["directory"])
        ]
        remote = [each for each in own if each["is_remote"]]
        assert len(own) == row["segments"]
        assert len(remote) == (row["remote_segments"] or 0)
        assert sum(each["log_bytes"] for each in remote) == (row["remote_log_bytes"] or 0)
        assert all("kafka-tiered-storage" in each["path"] for each in remote)
    topics = read_table("topics", paths, **options).to_pylist()
    for topic in topics:
        wanted = [row["log_bytes"] for row in listed if row["topic"] == topic["topic"]]
        assert topic["log_bytes"] == sum(wanted)


NOW_MS = 1795300000000


def test_offsets_are_those_of_groups(clean_dirs: list[Path]) -> None:
    ours = as_in_json(read_table("group_offsets", clean_dirs, now=str(NOW_MS)))
    assert ours == json_rows("offset", "groups", *clean_dirs, "--now", str(NOW_MS))
    assert ours


def test_transactions_are_those_of_txns(clean_dirs: list[Path]) -> None:
    outcome = run_kdump(
        ["txns", *map(str, clean_dirs), "--now", str(NOW_MS), "--output", "jsonl"], Path.cwd()
    )
    theirs = [row for row in objects(outcome.stdout) if "transaction" in row["type"]]
    ours = as_in_json(read_table("transactions", clean_dirs, now=str(NOW_MS)))
    assert {row["type"] for row in theirs} == {"transaction", "open_transaction"}
    assert [
        {name: row[name] for name in wanted} for row, wanted in zip(ours, theirs, strict=True)
    ] == theirs


def test_findings_are_those_of_verify(crashed: Path, clean_dirs: list[Path]) -> None:
    paths = [crashed, *clean_dirs]
    rows = as_in_json(read_table("findings", paths, now=str(NOW_MS)))
    ours = [{name: row[name] for name in row if name not in OF_THE_TABLE} for row in rows]
    theirs = json_rows("finding", "verify", *paths, "--now", str(NOW_MS), "--verbose")
    assert sorted(map(str, ours)) == sorted(map(str, theirs))
    assert {row["directory"] for row in rows} > {None, "crash-none-0"}
    assert {row["log_dir"] for row in rows} <= set(map(str, paths))


def test_directories_of_several_brokers_are_not_held_against_each_other(tmp_path: Path) -> None:
    paths = [log_directories.write_log_directory(tmp_path / name) for name in ("a", "b")]
    properties = paths[1] / names.META_PROPERTIES
    properties.write_bytes(properties.read_bytes().replace(b"node.id=7", b"node.id=8"))

    found = table_rows("findings", paths)

    assert not [each for each in found if each["code"] == "meta-properties-mismatch"]


OF_THE_TABLE = {"log_dir", "directory", "topic", "partition"}


def test_a_level_of_findings_is_that_of_verify(crashed: Path) -> None:
    quick = read_table("findings", crashed, level="quick", now=str(NOW_MS))
    assert quick.num_rows == len(json_rows("finding", "verify", crashed, "--quick", "--verbose"))
    with pytest.raises(UsageProblem, match=r"level .* not quick, default, deep"):
        open_table({"table": "findings", "path": ".", "level": "most"})


def test_configurations_are_those_of_metadata_show(clean_dirs: list[Path]) -> None:
    (metadata,) = json_rows("metadata", "metadata", "show", *clean_dirs)
    found: dict[str, dict[str, str]] = {}
    for row in table_rows("configs", clean_dirs):
        found.setdefault(row["resource"], {})[row["property"]] = row["value"]
        assert row["topic"] == (row["resource"].partition("topic:")[2] or None)
    assert found == metadata["configs"]


def test_topics_are_those_of_the_metadata_and_of_the_listing(clean_dirs: list[Path]) -> None:
    (metadata,) = json_rows("metadata", "metadata", "show", *clean_dirs)
    topics = {row["topic"]: row for row in table_rows("topics", clean_dirs)}
    for each in metadata["topics"]:
        row = topics[each["name"]]
        assert (row["topic_id"], row["partitions"]) == (each["id"], len(each["partitions"]))
    listed = json_rows("partition", "ls", *clean_dirs)
    for name, row in topics.items():
        own = [each for each in listed if each["topic"] == name and each["state"] == "live"]
        assert row["log_bytes"] == sum(each["log_bytes"] for each in own)
        assert row["replicas_here"] == len(own)


def test_batches_are_those_of_dump_segment(crashed: Path) -> None:
    log = crashed / "crash-txn-0" / "00000000000000000000.log"
    theirs = json_rows("batch", "dump-segment", log)
    ours = as_in_json(read_table("batches", log))
    assert len(ours) == len(theirs) > 0
    for name in ("position", "size_bytes", "base_offset", "last_offset", "magic", "codec"):
        assert [row[name] for row in ours] == [row[name] for row in theirs], name


def test_batches_reach_into_the_offsets_of_a_condition(crashed: Path) -> None:
    path = crashed / "crash-none-0"
    everything = table_rows("batches", path)
    found = table_rows(
        "batches",
        path,
        [("GreaterThanOrEqual", "last_offset", 100), ("LessThan", "base_offset", 110)],
    )
    assert found == [
        row for row in everything if row["last_offset"] >= 100 and row["base_offset"] < 110
    ]
    assert 0 < len(found) < len(everything)


COMPARISONS = {
    "EqualTo": operator.eq,
    "GreaterThanOrEqual": operator.ge,
    "LessThanOrEqual": operator.le,
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"startingOffsets": '{"a":{"0":3}}'},
        {"endingOffsets": '{"a":{"0":4}}'},
        {"startingOffsets": '{"a":{"0":4}}', "endingOffsets": '{"a":{"0":2}}'},
    ],
)
def test_no_batch_that_meets_two_conditions_is_left_out(
    options: dict[str, str], tmp_path: Path
) -> None:
    logs = {0: batch(records_at(0, 5)), 5: batch(records_at(5, 2)) + batch(records_at(7, 3))}
    log_dir = log_directories.write_log_directory(tmp_path / "logs")
    log_directories.write_partition(log_dir / "a-0", logs)
    everything = table_rows("batches", log_dir, **options)
    conditions = list(product(COMPARISONS, ("base_offset", "last_offset"), (0, 1, 4, 5, 6, 9)))
    for pair in combinations(conditions, 2):
        wanted = [row for row in everything if meets(row, pair)]
        found = table_rows("batches", log_dir, pair, **options)
        assert [row for row in found if meets(row, pair)] == wanted, pair
        assert all(row in everything for row in found), pair


def test_no_batch_that_meets_a_condition_on_its_time_is_left_out(fixtures: Path) -> None:
    """Of real brokers: append times, none (-1), control batches, and times out of order."""
    roots = [*(fixtures / "out" / "clean").iterdir(), *(fixtures / "out" / "legacy").iterdir()]
    everything = table_rows("batches", roots)
    times = sorted({row["max_timestamp"] for row in everything if row["max_timestamp"]})
    left_out = 0
    for time in (times[0], times[len(times) // 2], times[-9], times[-1]):
        for kind in ("GreaterThanOrEqual", "EqualTo"):
            condition = COMPARISONS[kind]
            found = table_rows("batches", roots, [(kind, "max_timestamp", time)])
            wanted = [
                row
                for row in everything
                if row["max_timestamp"] and condition(row["max_timestamp"], time)
            ]
            assert [row for row in found if row in wanted] == wanted
            left_out += len(everything) - len(found)
    assert left_out > 0


def records_at(first: int, count: int) -> list[Record]:
    return [record(at) for at in range(first, first + count)]


def meets(row: Mapping[str, Any], conditions: Iterable[tuple[str, str, int]]) -> bool:
    return all(COMPARISONS[kind](row[column], value) for kind, column, value in conditions)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Write a log directory with a partition of two batches; the first has a flipped bit."""
    first = bytearray(batch(records_at(0, 2)))
    first[70] ^= 1
    log_dir = log_directories.write_log_directory(tmp_path / "damaged")
    log_directories.write_partition(log_dir / "a-0", {0: bytes(first) + batch(records_at(2, 1))})
    return log_dir


def test_damage_between_batches_is_skipped_and_counted(
    damaged: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kdump"):
        rows = table_rows("batches", damaged, mode="DROPMALFORMED")
    assert [row["base_offset"] for row in rows] == [2]
    (message,) = caplog.messages
    skipped = len(batch(records_at(0, 2)))
    assert message.endswith(f"{0:020d}.log: skipped {skipped} bytes in 1 damaged range")


@pytest.fixture
def damaged_groups(tmp_path: Path) -> Path:
    """Write a log directory with a group: its coordinator's log and the end of orders-0 are bad."""
    root = log_directories.write_log_directory(tmp_path / "groups")
    sound = batch([record(0, offset_key(b"g"), offset_value(1))])
    damaged = bytearray(batch(records_at(1, 2)))
    damaged[70] ^= 1
    log_directories.write_partition(
        root / "__consumer_offsets-0", {0: sound + bytes(damaged) + batch(records_at(3, 1))}
    )
    log_directories.write_partition(
        root / "orders-0", {0: batch(records_at(0, 1)) + bytes(damaged)}
    )
    return root


def test_damage_of_group_offsets_is_reported_as_the_command_does(
    damaged_groups: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kdump"):
        table_rows("group_offsets", damaged_groups)
    done = run_kdump(["groups", str(damaged_groups)], Path.cwd())
    reported = [line.removeprefix("kdump: ") for line in done.stderr.decode().splitlines()]
    assert caplog.messages == reported
    assert [LOG_OF in message for message in reported for LOG_OF in ("__consumer", "orders")] == [
        True,
        False,
        False,
        True,
    ]
    statuses = {getattr(each, STATUS_FIELD) for each in caplog.records}
    assert (statuses, done.exit_status) == ({ExitStatus.DAMAGE_LEFT}, ExitStatus.DAMAGE_LEFT)


def test_a_coordinator_that_cannot_be_read_is_reported_as_the_command_does(
    damaged_groups: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LocalFile.read_into

    def failing(self: LocalFile, buffer: memoryview, position: int) -> int:
        if "__consumer_offsets-0" in str(self.location):
            raise OSError(errno.EIO, "Input/output error", str(self.location))
        return real(self, buffer, position)

    monkeypatch.setattr(LocalFile, "read_into", failing)
    with caplog.at_level(logging.WARNING, "kdump"):
        table_rows("group_offsets", damaged_groups)
    done = run_kdump(["groups", str(damaged_groups)], Path.cwd())
    reported = [line.removeprefix("kdump: ") for line in done.stderr.decode().splitlines()]
    assert caplog.messages == reported
    assert done.exit_status & ExitStatus.OPERATIONAL_ERROR


def test_damage_between_batches_fails_the_reading(damaged: Path) -> None:
    with pytest.raises(DamagedLogError, match="bytes 0 to"):
        table_rows("batches", damaged)


def test_producers_are_those_of_the_snapshot_that_a_broker_leaves(
    crashed: Path, tmp_path: Path
) -> None:
    ours = table_rows("producers", crashed, assign='{"crash-txn":[0]}')
    copy = shutil.copytree(crashed, tmp_path / "d1")
    run_kdump(["recover", str(copy), "--no-undo", "--topic", "crash-txn"], Path.cwd())
    snapshot = max((copy / "crash-txn-0").glob("*.snapshot"))
    theirs = json_rows("producer_snapshot_entry", "dump-segment", snapshot)
    theirs.sort(key=itemgetter("producer_id"))
    assert [row["producer_id"] for row in ours] == [row["producer_id"] for row in theirs]
    for name in ("producer_epoch", "last_sequence", "last_offset", "current_txn_first_offset"):
        wanted = [None if row[name] < 0 else row[name] for row in theirs]
        assert [row[name] for row in ours] == wanted, name


def test_segments_add_up_to_their_partition(crashed: Path) -> None:
    segments = table_rows("segments", crashed, assign='{"crash-none":[0]}')
    (partition,) = table_rows("partitions", crashed, assign='{"crash-none":[0]}')
    assert [(each["base_offset"], each["log_bytes"]) for each in segments] == [
        (0, 25997),
        (100, 129754),
        (702, 28593),
    ]
    assert [each["end_offset"] for each in segments] == [100, 702, 834]
    assert partition["log_end_offset"] == 834
    assert max(each["latest_timestamp"] for each in segments) == partition["latest_timestamp"]
    assert [each["is_active"] for each in segments] == [False, False, True]


def test_a_directory_of_log_directories_has_the_partitions_of_all(clean_dirs: list[Path]) -> None:
    of_each = [row for path in clean_dirs for row in table_rows("partitions", path)]
    assert table_rows("partitions", clean_dirs[0].parent) == of_each


OF_PARTITIONS = ["partitions", "segments", "batches", "producers", "findings"]
"""Tables whose rows are about one directory of a partition each."""


@pytest.mark.parametrize("name", OF_PARTITIONS)
def test_conditions_on_topic_and_partition_reach_the_splits(name: str, crashed: Path) -> None:
    everything = table_rows(name, crashed)
    found = table_rows(
        name, crashed, [("EqualTo", "topic", "crash-txn"), ("EqualTo", "partition", 0)]
    )
    assert found == [each for each in everything if each["topic"] == "crash-txn"]
    assert found
    assert not table_rows(name, crashed, [("GreaterThan", "partition", 10**6)])


def test_a_condition_on_the_base_offset_leaves_segments_unread(crashed: Path) -> None:
    found = table_rows(
        "segments",
        crashed,
        [("EqualTo", "topic", "crash-none"), ("GreaterThanOrEqual", "base_offset", 101)],
    )
    assert [each["base_offset"] for each in found] == [702]


@pytest.mark.parametrize("name", [name for name in TABLES if name != "records"])
def test_an_unknown_option_is_refused_with_the_list(name: str) -> None:
    with pytest.raises(UsageProblem, match=rf"table {name} .* no option 'bogus'; it has .*path"):
        open_table({"table": name, "path": ".", "bogus": "1"})


def test_an_unknown_table_is_refused_with_the_list() -> None:
    with pytest.raises(UsageProblem, match=r"no table 'record'; it has records, .*segments"):
        open_table({"table": "record", "path": "."})


@pytest.mark.parametrize("name", TABLES)
def test_columns_are_chosen_regardless_of_case(name: str, crashed: Path) -> None:
    first, second = TABLES[name].columns[:2]
    reader = open_table({"table": name, "path": ".", "columns": f"{second.name.upper()}"})
    assert [column.name for column in reader.columns] == [second.name]
    with pytest.raises(UsageProblem, match=f"no column 'bogus'; it has {first.name}, "):
        open_table({"table": name, "path": ".", "columns": "bogus"})


@pytest.mark.parametrize("name", TABLES)
def test_readers_and_splits_can_be_pickled(name: str, crashed: Path) -> None:
    nothing = PushedFilters()
    reader = pickle.loads(pickle.dumps(open_table({"table": name, "path": str(crashed)})))
    for split in pickle.loads(pickle.dumps(reader.splits(nothing))):
        for read in reader.read(split, nothing):
            assert read.schema.names == [column.name for column in reader.columns]


@pytest.mark.parametrize("name", ["records", *OF_PARTITIONS])
def test_a_topic_that_is_not_there_is_refused(name: str, crashed: Path) -> None:
    reader = open_table({"table": name, "path": str(crashed), "subscribe": "no-such"})
    with pytest.raises(UsageProblem, match="finds no no-such"):
        reader.splits(PushedFilters())


@pytest.mark.parametrize("name", ["topics", "configs", "group_offsets", "transactions"])
def test_conditions_and_options_select_topics_alike(name: str, clean_dirs: list[Path]) -> None:
    clock = {"now": "0"} if name in CLOCKED else {}
    everything = table_rows(name, clean_dirs, **clock)
    topics = sorted({row["topic"] for row in everything} - {None})
    wanted = [row for row in everything if row["topic"] == topics[0]]
    assert wanted
    by_condition = table_rows(name, clean_dirs, [("EqualTo", "topic", topics[0])], **clock)
    assert [row for row in by_condition if row["topic"] == topics[0]] == wanted
    by_option = table_rows(name, clean_dirs, subscribe=topics[0], **clock)
    assert [row for row in by_option if row["topic"] is not None] == wanted


CLOCKED = ("group_offsets", "transactions")


@pytest.mark.parametrize("name", ["topics", "configs", "group_offsets", "transactions"])
def test_a_partition_alone_is_refused_with_its_log_directory(name: str, crashed: Path) -> None:
    reader = open_table({"table": name, "path": str(crashed / "crash-none-0")})
    with pytest.raises(UsageProblem, match=f"is a partition: .* name its log directory, {crashed}"):
        reader.splits(PushedFilters())


def test_a_file_name_that_is_not_utf_8_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "00000000000000000000.log").touch()
    (tmp_path / "orders-0" / b"\xff.txt".decode("utf-8", "surrogateescape")).touch()
    (row,) = table_rows("partitions", tmp_path)
    assert row["foreign"] == ["\\udcff.txt"]
