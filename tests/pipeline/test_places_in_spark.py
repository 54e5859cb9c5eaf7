"""The data source reads every kind of place in Spark as it reads the directory itself."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders.object_server import ObjectServer, object_server
from builders.tiered_fixture import TieredFixture

pytestmark = pytest.mark.soak

LEVELS: Final = ("read_uncommitted", "read_committed")
PROGRAM: Final = """
import hashlib, json, sys
from kdump.engine.spark_session import SparkSession
from kdump.pipeline.data_source import sql_session

asked = json.load(sys.stdin)
spark = SparkSession(asked["master"], asked["properties"])
sql = sql_session(spark.context)
for options in asked["loads"]:
    frame = sql.read.format("kafka-log").options(**options).load()
    columns = ["topic", "partition", "offset", "key", "value", "timestamp"]
    try:
        rows = frame.select(*columns).orderBy(*columns[:3], "value").collect()
        found = {}
        for row in rows:
            found.setdefault(f"{row.topic}-{row.partition}", []).append(row.offset)
        digest = hashlib.sha256(repr(rows).encode()).hexdigest()
        print(json.dumps({"digest": digest, "offsets": found}))
    except Exception as failure:
        print(json.dumps({"failure": str(failure)}))
spark.close()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running


def loaded(
    master: str, *loads: dict[str, str], properties: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """What Spark reads with each of some options, in a process of its own."""
    asked = {"master": master, "loads": loads, "properties": properties or {}}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_all_places_give_the_records_of_the_directory(
    server: ObjectServer, fixtures: Path, tmp_path: Path, master: str
) -> None:
    clean = fixtures / "out" / "clean" / "d1"
    tiered = TieredFixture(fixtures / "tiered")
    archive = tmp_path / "clean.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(clean, "d1")
    skip = {"mode": "DROPMALFORMED"}
    remote, stored = str(tiered.remote), fixtures / "aiven"
    topics = {"subscribe": "orders,tx"}
    uri = server.upload(tiered.folder, "tiered")
    objects = server.upload(stored, "aiven")
    key = {"privateKey": str(stored / "private.pem")}
    of_clean = [
        {"path": str(clean), **skip},
        {"path": server.upload(clean, "clean"), **skip},
        {"path": f"{archive}!/d1", **skip},
    ]
    of_tiered = {
        level: [
            {"kafka.isolation.level": level, **topics, **options}
            for options in (
                {"path": str(tiered.leader), "remote": remote},
                {"path": f"{uri}/b2", "remote": f"{uri}/remote"},
                {"path": str(tiered.leader), "remote": f"{objects}/plain/kafka"},
                {"path": f"{uri}/b2", "remote": f"{objects}/both/kafka", **key},
            )
        ]
        for level in LEVELS
    }
    answers = iter(loaded(master, *of_clean, *itertools.chain(*of_tiered.values())))
    found = list(itertools.islice(answers, len(of_clean)))
    assert sum(map(len, found[0]["offsets"].values())) > 1000
    assert found == [found[0]] * len(of_clean)
    for level, loads in of_tiered.items():
        consumed = tiered.consumed(level)
        wanted = {
            name: [record[0] for record in records]
            for name, records in consumed.items()
            if name.rpartition("-")[0] in ("orders", "tx")
        }
        found = list(itertools.islice(answers, len(loads)))
        assert found[0]["offsets"] == wanted
        assert found == [found[0]] * len(loads)


def test_executors_take_endpoint_and_credentials_from_the_uri_or_their_own_environment(
    server: ObjectServer, fixtures: Path
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
    by_environment, by_uri = loaded(
        "local-cluster[2,1,1024]",
        {"path": uri, **only},
        {"path": whole, **only},
        properties=nothing,
    )
    assert uri in by_environment["failure"]
    assert "secret" not in str(by_environment)
    assert by_uri["offsets"]


TABLES: Final = """
import json, sys
from kdump.engine.spark_session import SparkSession
from kdump.pipeline.data_source import sql_session
from kdump.jobs.table_rows.all_tables import TABLES

asked = json.load(sys.stdin)
spark = SparkSession(asked["master"], {})
sql = sql_session(spark.context)
for path in asked["paths"]:
    found = {}
    for name in TABLES:
        options = {"path": path, "table": name, "now": "1800000000000"}
        if "mode" in TABLES[name].options:
            options["mode"] = "DROPMALFORMED"
        if "now" not in TABLES[name].options:
            del options["now"]
        rows = sql.read.format("kafka-log").options(**options).load().collect()
        found[name] = sorted(repr(row).replace(path, "PATH") for row in rows)
    print(json.dumps(found))
spark.close()
"""


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_all_tables_of_all_places_have_the_rows_of_the_directory(
    server: ObjectServer, fixtures: Path, tmp_path: Path, master: str
) -> None:
    clean = fixtures / "out" / "clean" / "d1"
    with tarfile.open(tmp_path / "clean.tar", "w") as tar:
        tar.add(clean, "d1")
    paths = [str(clean), server.upload(clean, "clean-tables"), f"{tmp_path}/clean.tar!/d1"]
    done = subprocess.run(
        [sys.executable, "-c", TABLES],
        input=json.dumps({"master": master, "paths": paths}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    local, stored, packed = map(json.loads, done.stdout.splitlines())
    assert all(local[name] for name in ("topics", "transactions", "group_offsets", "records"))
    assert stored == local
    assert packed == local
