"""Log directories in HDFS: a real name node and data node on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.hdfs_server import HdfsServer, hdfs_server
from builders.in_process import run_kdump
from builders.kafka_jars import ReferenceUnavailable
from builders.object_server import name_as_long
from builders.source_tables import table_of
from builders.spark_commands import SparkProcess, spark_process
from cli.test_object_stores import ALL_LINES, LINES, answer, linked
from kdump.errors import ExitStatus
from kdump.storage import store_connection
from kdump.storage.places import forget_places, parse_location


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    try:
        with hdfs_server(tmp_path_factory.mktemp("hdfs")) as running:
            yield running
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_connection, "ATTEMPTS", 1)
    forget_places()


@pytest.fixture(scope="module")
def clean(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linked(fixtures / "out" / "clean", tmp_path_factory.mktemp("linked"))


@pytest.fixture(scope="module")
def uploaded(server: HdfsServer, clean: Path) -> str:
    return server.upload(clean, name_as_long(clean, server.uri))


@pytest.mark.soak
@pytest.mark.parametrize("line", [*LINES, *ALL_LINES])
def test_hdfs_gives_what_the_directory_gives(
    clean: Path, uploaded: str, tmp_path: Path, line: str
) -> None:
    expected = answer(line, str(clean), tmp_path / "1")
    assert answer(line, uploaded, tmp_path / "2") == expected
    assert expected[1]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcess]:
    """Return a cluster of Spark."""
    with spark_process(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.mark.soak
@pytest.mark.parametrize("command", ["export", "groups", "lookup", "report", "verify"])
def test_executors_of_spark_open_the_files_of_hdfs(
    cluster: SparkProcess, clean: Path, uploaded: str, tmp_path: Path, command: str
) -> None:
    (line,) = (line for line in LINES if line.startswith(f"{command} "))
    expected = answer(line, str(clean), tmp_path / "1")
    assert answer(line, uploaded, tmp_path / "2", cluster.run) == expected


@pytest.mark.soak
def test_the_data_source_reads_hdfs_here_and_on_a_spark_cluster(
    cluster: SparkProcess, clean: Path, uploaded: str
) -> None:
    options = {"mode": "DROPMALFORMED", "columns": "topic,partition,offset,key,value,timestamp"}
    local, stored = (
        table_of(base, **options)  # type: ignore[arg-type]
        for base in (clean / "d1", f"{uploaded}/d1")
    )
    assert stored == local
    assert local.num_rows > 1000
    found = cluster.load(path=f"{uploaded}/d1", **options)
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, local.to_pylist()))


@pytest.mark.soak
def test_a_file_that_is_replaced_while_it_is_read_is_named(server: HdfsServer, clean: Path) -> None:
    from hdfs_native import Client, WriteOptions

    data = (clean / "d1" / "meta.properties").read_bytes()
    path = "/replaced/meta.properties"
    uri = server.upload(clean / "d1" / "__consumer_offsets-0", "replaced/__consumer_offsets-0")
    with Client(server.uri).create(path) as file:
        file.write(data)
    location = parse_location(f"{server.uri}{path}")
    assert location.parent.entries()
    with Client(server.uri).create(path, WriteOptions(overwrite=True)) as file:
        file.write(data + data)
    with pytest.raises(OSError, match="changed"):
        location.read()
    assert uri


@pytest.mark.parametrize(
    ("uri", "what"),
    [
        ("hdfs://127.0.0.1:1/x", "refused"),
        ("hdfs://someone@127.0.0.1:1/x", "HADOOP_USER_NAME"),
    ],
)
def test_a_cluster_that_does_not_answer_is_one_line(tmp_path: Path, uri: str, what: str) -> None:
    outcome = run_kdump(["ls", uri], tmp_path)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert what in outcome.stderr.decode()
    assert "Errno" not in outcome.stderr.decode()
    assert outcome.stderr.count(b"\n") == 1


def test_without_a_client_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    outcome = run_kdump(["ls", "hdfs://127.0.0.1:1/x"], tmp_path)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert b"pip install 'kafka-kdump[hdfs]'" in outcome.stderr
