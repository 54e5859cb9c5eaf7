"""kdump's output for directories of real brokers, compared with the official tools' output."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders.golden import differences, recorded_runs
from builders.in_process import run_kdump
from builders.json_answers import objects

pytestmark = pytest.mark.slow

Row = dict[str, Any]

NAMES = (
    "clean",
    "clean-mv39",
    "crashed",
    "leftover-1-cleaned-partial",
    "leftover-1-cleaned-partial-recovered",
    "leftover-2-cleaned-complete",
    "leftover-2-cleaned-complete-recovered",
    "leftover-3-swap-log-only",
    "leftover-3-swap-log-only-recovered",
    "leftover-4-swap-complete",
    "leftover-4-swap-complete-recovered",
    "legacy",
    "recovered",
)
"""The directories of ``fixtures/`` with recorded runs."""
MORE: Final = "more"
"""The collection with the partitions that some directories of ``fixtures/`` lack."""
COLLECTIONS: Final = {"": NAMES, MORE: ("clean", "crashed", "legacy", "recovered")}


@pytest.mark.parametrize(
    ("collection", "name"), [(key, name) for key, names in COLLECTIONS.items() for name in names]
)
def test_every_file_is_printed_as_the_official_tool_printed_it(
    fixtures: Path, collection: str, name: str
) -> None:
    count, failures = 0, []
    for recorded in recorded_runs(fixtures / collection, name):
        count += 1
        ours = run_kdump(["dump-segment", *recorded.args], recorded.cwd)
        if found := differences(recorded, ours):
            failures.append(
                f"kdump dump-segment {' '.join(recorded.args)}\n  " + "\n  ".join(found)
            )
    assert count
    if failures:
        shown = "\n".join(failures[:3])
        pytest.fail(f"{len(failures)} of {count} runs differ, such as\n{shown}", pytrace=False)


# ---- Records of the official consumer ----


def consumed_files(collection: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each file of consumed records with the partition directory it was consumed from."""
    for path in sorted(collection.glob("out/expected*/*.jsonl")):
        name = path.parent.name.removeprefix("expected").removeprefix(".") or "clean"
        partition = path.name.split(".")[:-2]
        (directory,) = (collection / "out" / name).glob(f"*/{'.'.join(partition)}")
        yield path, directory


@pytest.mark.parametrize("collection", COLLECTIONS)
@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
def test_every_record_of_the_official_consumer_is_dumped(
    fixtures: Path, isolation: str, collection: str
) -> None:
    found = consumed_files(fixtures / collection)
    pairs = [pair for pair in found if f".{isolation}." in pair[0].name]
    assert pairs
    for path, partition in pairs:
        rows = dumped_rows(partition)
        visible = data_records(rows, log_start_offset(partition))
        if isolation == "committed":
            visible = committed_only(visible, rows)
        expected = [json.loads(line) for line in path.read_text().splitlines()]
        assert len(visible) == len(expected), path
        for ours, theirs in zip(visible, expected, strict=True):
            assert as_consumed(ours, theirs) == theirs, path


def dumped_rows(partition: Path) -> list[Row]:
    """Dump a partition's segments as JSON lines; join each record with its batch."""
    segments = sorted(path.name for path in partition.glob("*.log"))
    if not segments:
        return []
    outcome = run_kdump(
        ["dump-segment", "--output", "jsonl", "--deep-iteration", *segments], partition
    )
    assert outcome.exit_status == 0, outcome.stderr.decode()
    rows = objects(outcome.stdout)
    batch: Row = {}
    for row in rows:
        if row["type"] == "batch":
            batch = row
        elif row["type"] == "record":
            row["batch"] = batch
    return rows


def data_records(rows: list[Row], log_start: int) -> list[Row]:
    return [
        row
        for row in rows
        if row["type"] == "record"
        and not row["batch"].get("is_control")
        and row["offset"] >= log_start
    ]


def committed_only(records: list[Row], rows: list[Row]) -> list[Row]:
    """Remove aborted records, and everything from the first open transaction on."""
    begun: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for row in rows:
        if row["type"] != "record" or not row["batch"].get("is_transactional"):
            continue
        producer_id = row["batch"]["producer_id"]
        if not row["batch"]["is_control"]:
            begun.setdefault(producer_id, row["batch"]["base_offset"])
            continue
        first_offset = begun.pop(producer_id, None)
        if first_offset is not None and row["control"]["type"] == "ABORT":
            aborted.append((producer_id, first_offset, row["offset"]))
    last_stable_offset = min(begun.values(), default=None)
    return [
        row
        for row in records
        if (last_stable_offset is None or row["offset"] < last_stable_offset)
        and not (
            row["batch"].get("is_transactional")
            and any(
                row["batch"]["producer_id"] == producer_id and first <= row["offset"] <= last
                for producer_id, first, last in aborted
            )
        )
    ]


def log_start_offset(partition: Path) -> int:
    """Read the partition's line in its directory's checkpoint; 0 without one."""
    topic, _, number = partition.name.rpartition("-")
    checkpoint = partition.parent / "log-start-offset-checkpoint"
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    for line in lines[2:]:
        if line.startswith(f"{topic} {number} "):
            return int(line.split()[2])
    return 0


def as_consumed(row: Row, theirs: Row) -> Row:
    """Convert a record's row to the consumer's form, with the fields that ``theirs`` has."""
    record = {
        "offset": row["offset"],
        "timestamp": row["timestamp_ms"],
        "timestampType": row["timestamp_type"],
        "leaderEpoch": row["batch"].get("partition_leader_epoch"),
        "key": in_base64(row, "key"),
        "value": in_base64(row, "value"),
        "headers": [[header["key"], in_base64(header, "value")] for header in row["headers"]],
        "magic": row["batch"]["magic"],
    }
    if theirs["leaderEpoch"] is None:
        record["leaderEpoch"] = None
    return {name: record[name] for name in theirs}


def in_base64(row: Row, name: str) -> str | None:
    content: str | None = row[name]
    if content is None or row[f"{name}_encoding"] == "base64":
        return content
    return base64.b64encode(content.encode()).decode()
