"""The data source reads every kind of place in Spark as this process reads the directory itself.

Every table is read at every place, and the records of a tiered cluster at every place and level,
once: on one machine or on a cluster. Each table, each place and each level is read on both. The
records of a directory, which most people read, are read at every place on both.
"""

from __future__ import annotations

import itertools
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from builders.object_server import ObjectServer, object_server
from builders.spark_commands import MASTER, LoadFailedError, SparkProcess, spark_process
from builders.tiered_fixture import TieredFixture
from kdump.jobs.table_rows.all_tables import RECORDS, TABLES
from kdump.jobs.table_rows.table_reader import open_table
from kdump.tables.kafka_log.pushed_filters import PushedFilters

pytestmark = pytest.mark.soak

LEVELS: Final = ("read_uncommitted", "read_committed")
MASTERS: Final = ("local[2]", MASTER)
PROPERTIES: Final = {
    "local[2]": {"spark.python.daemon.module": "kdump.pipeline.worker_daemon"},
    MASTER: {},
}
"""On one machine workers are forked as those of ``kdump query`` are."""


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running


@pytest.fixture(scope="module", params=MASTERS)
def process(
    request: pytest.FixtureRequest,
    server: ObjectServer,
    cache: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SparkProcess]:
    """Return a Spark that knows the server."""
    folder = tmp_path_factory.mktemp("temporary")
    with spark_process(folder, request.param, PROPERTIES[request.param]) as running:
        yield running


@pytest.fixture(scope="module")
def places(
    server: ObjectServer, fixtures: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ...]:
    """Return a directory, and the same in a bucket and in an archive."""
    clean = fixtures / "out" / "clean" / "d1"
    archive = tmp_path_factory.mktemp("packed") / "clean.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(clean, "d1")
    return str(clean), server.upload(clean, "clean"), f"{archive}!/d1"


def is_turn(process: SparkProcess, number: int) -> bool:
    """Whether a Spark takes the combination of this number."""
    return MASTERS[number % len(MASTERS)] == process.master


def read_here(options: Mapping[str, str]) -> pa.Table:
    """What the data source's reader finds in this process."""
    reader = open_table(options)
    found = [
        batch
        for split in reader.splits(PushedFilters())
        for batch in reader.read(split, PushedFilters())
    ]
    return pa.Table.from_batches(found)


def rows_of(table: pa.Table, path: str) -> list[str]:
    """The rows, in one order, without the name of the place."""
    return sorted(repr(row).replace(path, "PATH") for row in table.to_pylist())


def options_of(table: str) -> dict[str, str]:
    options = {"table": table}
    if "mode" in TABLES[table].options:
        options["mode"] = "DROPMALFORMED"
    if "now" in TABLES[table].options:
        options["now"] = "1800000000000"
    return options


@pytest.mark.parametrize("table", TABLES)
def test_a_table_of_each_place_has_the_rows_of_the_directory(
    process: SparkProcess, places: tuple[str, ...], table: str
) -> None:
    options = options_of(table)
    expected = rows_of(read_here({"path": places[0], **options}), places[0])
    assert expected or table not in ("topics", "transactions", "group_offsets", "records")
    assert len(expected) > 1000 or table != RECORDS.name
    for number, path in enumerate(places, list(TABLES).index(table)):
        if table == RECORDS.name or is_turn(process, number):
            assert rows_of(process.load(path=path, **options), path) == expected


@pytest.fixture(scope="module")
def tiered_places(server: ObjectServer, fixtures: Path) -> list[dict[str, str]]:
    """Return a log directory and its remote segments, and the same in buckets."""
    tiered = TieredFixture(fixtures / "tiered")
    stored = fixtures / "aiven"
    uri = server.upload(tiered.folder, "tiered")
    objects = server.upload(stored, "aiven")
    key = {"privateKey": str(stored / "private.pem")}
    return [
        {"path": str(tiered.leader), "remote": str(tiered.remote)},
        {"path": f"{uri}/b2", "remote": f"{uri}/remote"},
        {"path": str(tiered.leader), "remote": f"{objects}/plain/kafka"},
        {"path": f"{uri}/b2", "remote": f"{objects}/both/kafka", **key},
    ]


def test_the_records_of_each_tiered_place_are_those_of_a_consumer(
    process: SparkProcess, tiered_places: list[dict[str, str]], fixtures: Path
) -> None:
    tiered = TieredFixture(fixtures / "tiered")
    only = {"subscribe": "orders,tx", "columns": "topic,partition,offset,key,value,timestamp"}
    of_levels = {level: {"kafka.isolation.level": level, **only} for level in LEVELS}
    expected = {
        level: rows_of(read_here(tiered_places[0] | options), tiered_places[0]["path"])
        for level, options in of_levels.items()
    }
    assert expected[LEVELS[0]] != expected[LEVELS[1]]
    for (at, place), level in itertools.product(enumerate(tiered_places), LEVELS):
        if is_turn(process, at + LEVELS.index(level)):
            found = process.load(**place, **of_levels[level])
            assert offsets_of(found) == consumed_at(tiered, level)
            assert rows_of(found, place["path"]) == expected[level]


def offsets_of(records: pa.Table) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in records.to_pylist():
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
    return {name: sorted(offsets) for name, offsets in found.items()}


def consumed_at(tiered: TieredFixture, level: str) -> dict[str, list[int]]:
    """What the consumer read of the two topics at an isolation level."""
    return {
        name: sorted(record[0] for record in records)
        for name, records in tiered.consumed(level).items()
        if name.rpartition("-")[0] in ("orders", "tx")
    }


def test_executors_take_endpoint_and_credentials_from_the_uri_or_their_own_environment(
    server: ObjectServer, fixtures: Path, tmp_path: Path
) -> None:
    clean = fixtures / "out" / "clean" / "d1"
    uri = server.upload(clean, "own")
    place = f"?endpoint_override=127.0.0.1:{server.port}&scheme=http&region=us-east-1"
    whole = uri.replace("s3://", "s3://AKIDX:Ab%2Fsecret@") + place
    nothing = {
        "spark.executorEnv.AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "spark.executorEnv.AWS_ACCESS_KEY_ID": "",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY": "",
    }
    only = {"subscribe": "grown", "mode": "DROPMALFORMED"}
    with spark_process(tmp_path, "local-cluster[1,1,1024]", nothing) as process:
        with pytest.raises(LoadFailedError) as failure:
            process.load(path=uri, **only)
        assert uri in str(failure.value)
        assert "secret" not in str(failure.value)
        assert process.load(path=whole, **only).num_rows
