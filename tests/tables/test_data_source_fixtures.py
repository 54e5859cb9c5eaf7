"""The data source over directories of real brokers, compared with the official consumer."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from builders.source_tables import table_of

pytestmark = pytest.mark.slow

COLUMNS = "offset,timestamp,timestampType,leaderEpoch,key,value,headers,magic"
TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def consumed(collection: Path, isolation: str) -> Iterator[tuple[Path, Path]]:
    """Yield each file of consumed records with the partition directory it was consumed from."""
    for path in sorted(collection.glob(f"out/expected*/*.{isolation}.jsonl")):
        name = path.parent.name.removeprefix("expected").removeprefix(".") or "clean"
        partition = path.name.removesuffix(f".{isolation}.jsonl")
        (directory,) = (collection / "out" / name).glob(f"*/{partition}")
        yield path, directory


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
def test_the_records_equal_those_of_the_official_consumer(fixtures: Path, isolation: str) -> None:
    pairs = list(consumed(fixtures, isolation))
    assert pairs
    for path, partition in pairs:
        options = {"kafka.isolation.level": f"read_{isolation}"}
        ours = table_of(partition, columns=COLUMNS, **options)
        theirs = [json.loads(line) for line in path.read_text().splitlines()]
        # The official consumer's rows have other names and no time zone: convert ours.
        assert as_consumed(ours, theirs) == theirs, path


def as_consumed(table: pa.Table, theirs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    milliseconds = table["timestamp"].cast(pa.int64()).to_pylist()
    names = {number: name for name, number in TIMESTAMP_TYPES.items()}
    found = []
    for at, row in enumerate(table.to_pylist()):
        record = {
            "offset": row["offset"],
            "timestamp": milliseconds[at] // 1000,
            "timestampType": names[row["timestampType"]],
            "leaderEpoch": row["leaderEpoch"],
            "key": in_base64(row["key"]),
            "value": in_base64(row["value"]),
            "headers": [[each["key"], in_base64(each["value"])] for each in row["headers"] or []],
            "magic": row["magic"],
        }
        wanted = theirs[at] if at < len(theirs) else record
        found.append({name: record[name] for name in wanted})
    return found


def in_base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
