"""Log directories of several clusters are never read as replicas of each other."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from builders.batches import batch, record
from builders.group_records import offset_key, offset_value
from builders.in_process import Outcome, run_kdump
from builders.log_directories import META_PROPERTIES, write_log_directory, write_partition
from builders.read_tables import table_rows
from builders.transaction_states import key_of, value_of
from kdump.errors import UsageProblem
from kdump.formats import names
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata

_MESSAGE = (
    b"kdump: the log directories belong to several clusters (%s to cluster-a, %s to cluster-b):"
    b" name those of one cluster\n"
)


@pytest.fixture(params=["one id", "two ids", "no ids"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Give log directories ``a`` and ``b``, each with orders-0 and topics of coordinators."""
    for number, name in enumerate(("a", "b")):
        topic_id = uuid.UUID(int=5 + number * (request.param == "two ids"))
        write_cluster(tmp_path / name, number, None if request.param == "no ids" else topic_id)
    return tmp_path


def write_cluster(path: Path, number: int, topic_id: uuid.UUID | None) -> None:
    """Write the directory of one cluster; the second has more records."""
    write_log_directory(path)
    properties = META_PROPERTIES.replace(b"a-cluster", b"cluster-" + path.name.encode())
    (path / names.META_PROPERTIES).write_bytes(properties.replace(b"=7", b"=%d" % (7 + number)))
    count = 3 + number
    for directory, rows in {
        "orders-0": [(b"k", path.name.encode())] * count,
        "__consumer_offsets-0": [(offset_key(b"g"), offset_value(number))] * count,
        "__transaction_state-0": [(key_of("t"), value_of(producer_id=number))] * count,
    }.items():
        records = [record(at, key, value) for at, (key, value) in enumerate(rows)]
        partition = write_partition(path / directory, {0: batch(records)})
        metadata = partition / names.PARTITION_METADATA
        metadata.unlink()
        if topic_id is not None:
            metadata.write_bytes(encode_partition_metadata(PartitionMetadata(0, topic_id)))


def run(both: Path, *words: str) -> Outcome:
    return run_kdump(words, both)


@pytest.mark.parametrize(
    "words",
    [
        ("diff", "a", "b"),
        ("groups", "a", "b"),
        ("txns", "a", "b"),
        ("lookup", "--topic", "orders", "--offset", "0", "a", "b"),
        ("grep", "k", "a", "b"),
        ("grep", "k", "a/orders-0", "b/orders-0"),
        ("export", "--topic", "orders", "--out", "out", "a", "b"),
        ("serve", "a", "b"),
    ],
)
def test_directories_of_two_clusters_are_refused(both: Path, words: tuple[str, ...]) -> None:
    outcome = run(both, *words)
    assert (outcome.exit_status, outcome.stdout) == (16, b"")
    assert outcome.stderr == _MESSAGE % (b"a", b"b")
    assert not (both / "out").exists()


@pytest.mark.parametrize(
    "table", ["records", "batches", "group_offsets", "transactions", "topics", "configs"]
)
def test_tables_of_two_clusters_are_refused(both: Path, table: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        table_rows(table, [both / "a", both / "b"])
    assert (
        f"kdump: {caught.value}\n" == (_MESSAGE % (bytes(both / "a"), bytes(both / "b"))).decode()
    )


def test_what_is_about_each_directory_is_answered(both: Path) -> None:
    assert run(both, "ls", "a", "b").exit_status == 0
    assert run(both, "grep", "--all-replicas", "--count", "k", "a", "b").stdout.endswith(
        b"b/orders-0/00000000000000000000.log:4\n"
    )
    rows = table_rows("records", [both / "a", both / "b"], replicas="all", columns="topic,value")
    assert [row["value"] for row in rows if row["topic"] == "orders"] == [b"a"] * 3 + [b"b"] * 4
    assert b"several clusters" not in run(both, "diff", "a/orders-0", "b/orders-0").stderr


def test_the_report_names_the_clusters_and_counts_no_lag(both: Path) -> None:
    outcome = run(both, "report", "--out", "page.html", "a", "b")
    assert outcome.stderr.startswith(b"kdump: consumer groups cannot be read: the log directories")
    assert b"belong to several clusters" in (both / "page.html").read_bytes()
