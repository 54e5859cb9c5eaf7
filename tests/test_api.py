"""The public Python interface: its manual page, and agreement with the command line."""

from __future__ import annotations

import dataclasses
import doctest
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kdump
from builders import log_directories
from builders.batches import batch, record
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.packed import pack
from builders.trees import contents_of

NOW_MS = 1_795_300_000_000

USER_PROGRAM = """
from pathlib import Path
import kdump

def codes(path: Path) -> list[str]:
    report: kdump.VerifyReport = kdump.verify(path, level="quick")
    return [finding.code for finding in report.findings]

def end_offsets(path: str) -> dict[str | None, int | None]:
    partitions = kdump.open_log_dir(path).partitions
    return {each.topic: each.bounds().log_end_offset for each in partitions}

def lost(path: str) -> int:
    return sum(plan.lost_bytes for plan in kdump.plan_recovery(path, policy="salvage"))
"""


@pytest.fixture
def damaged(tmp_path: Path) -> kdump.LogDir:
    """Return a log directory with one partition, whose second batch of three is damaged."""
    path = log_directories.write_log_directory(tmp_path / "kafka")
    batches = [batch([record(offset)]) for offset in range(3)]
    log = bytearray(b"".join(batches))
    log[len(batches[0]) + 40] ^= 1
    log_directories.write_partition(path / "orders-0", {0: bytes(log)})
    return kdump.open_log_dir(path)


def test_the_examples_of_the_page_print_what_it_shows(
    fixtures: Path, repository_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fixtures / "out")
    page = repository_root / "docs" / "python.md"
    failures, examples = doctest.testfile(str(page), module_relative=False)
    assert examples > 10
    assert failures == 0


def test_every_public_name_and_column_is_on_the_page(
    repository_root: Path, damaged: kdump.LogDir
) -> None:
    text = (repository_root / "docs" / "python.md").read_text(encoding="utf-8")
    columns = damaged.partitions[0].batches().schema.names
    functions = ("open_log_dir", "verify", "plan_recovery")
    methods = [
        name
        for each in (kdump.LogDir, kdump.LogPartition, kdump.LogSegment)
        for name, member in vars(each).items()
        if callable(member) and not name.startswith("_")
    ]
    assert [name for name in (*columns, *functions) if name not in text] == []
    assert [name for name in methods if f"{name}(" not in text] == []


@pytest.mark.slow
def test_a_type_checker_accepts_a_program_that_uses_the_interface(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(USER_PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = "import kdump, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"numpy", "pyarrow", "click", "kdump.api"} & set(done.stdout.split())


def test_verify_has_the_same_result_as_the_command_line(fixtures: Path, tmp_path: Path) -> None:
    path = fixtures / "out" / "crashed" / "d1"
    shown = run_kdump(["verify", "--output", "jsonl", f"--now={NOW_MS}", str(path)], tmp_path)
    rows = objects(shown.stdout)

    report = kdump.verify(path, now_ms=NOW_MS)

    assert [
        (each.code, each.severity.label, each.place.path, each.what) for each in report.findings
    ] == [
        (row["code"], row["severity"], row["path"], row["what"])
        for row in rows
        if row["type"] == "finding"
    ]
    names = {each.name for each in dataclasses.fields(kdump.PartitionVerdict)} - {"worst"}
    assert [{name: getattr(each, name) for name in names} for each in report.partitions] == [
        {name: row[name] for name in names} for row in rows if row["type"] == "partition"
    ]


@pytest.mark.parametrize("policy", ["broker", "salvage"])
def test_a_recovery_plan_has_the_same_result_as_a_dry_run(
    damaged: kdump.LogDir, policy: str, tmp_path: Path
) -> None:
    arguments = ["recover", "--dry-run", "--output", "jsonl", f"--now={NOW_MS}"]
    shown = run_kdump([*arguments, f"--policy={policy}", str(damaged.path)], tmp_path)
    rows = objects(shown.stdout)
    before = contents_of(Path(damaged.path))

    (plan,) = kdump.plan_recovery(
        damaged.path, policy="broker" if policy == "broker" else "salvage", now_ms=NOW_MS
    )

    (directory,) = (row for row in rows if row["type"] == "directory")
    (partition,) = (row for row in rows if row["type"] == "partition")
    assert (plan.lost_bytes, plan.becomes_clean) == (
        directory["lost_bytes"],
        directory["becomes_clean"],
    )
    assert plan.partitions[0].verdict == partition["verdict"]
    assert sorted((each.action, each.file) for each in plan.operations) == sorted(
        (each["action"], each["file"])
        for each in (*directory["operations"], *partition["operations"])
    )
    assert contents_of(Path(damaged.path)) == before


def test_damage_raises_an_error_unless_it_is_skipped(damaged: kdump.LogDir) -> None:
    partition = damaged.partition("orders", 0)
    for reader in (partition.records(), partition.batches()):
        with pytest.raises(kdump.DamagedLogError):
            reader.read_all()
    records = partition.records(columns=["offset"], on_damage="skip").read_all()
    assert records["offset"].to_pylist() == [0, 2]
    assert partition.batches(on_damage="skip").read_all()["base_offset"].to_pylist() == [0, 2]


def test_a_segment_returns_only_its_own_records_and_batches(tmp_path: Path) -> None:
    path = log_directories.write_log_directory(tmp_path / "kafka")
    logs = {0: batch([record(0), record(1)]), 2: batch([record(2)])}
    log_directories.write_partition(path / "orders-0", logs)
    _, second = kdump.open_log_dir(path).partition("orders", 0).segments
    assert second.records(columns=["offset"]).read_all()["offset"].to_pylist() == [2]
    assert second.batches().read_all()["last_offset"].to_pylist() == [2]


def test_an_archive_is_opened_as_its_directory(tmp_path: Path) -> None:
    path = log_directories.write_log_directory(tmp_path / "kafka")
    log_directories.write_partition(path / "orders-0", {0: batch([record(0), record(1)])})
    log_dir, packed = (kdump.open_log_dir(each) for each in (path, pack(path, tmp_path / "a.tar")))
    assert str(packed.path) == f"{tmp_path}/a.tar!/"
    (segment,) = packed.partition("orders", 0).segments
    assert segment.path == f"{packed.path}orders-0/{0:020d}.log"
    assert segment.batches().read_all().num_rows == 1
    for one, other in zip(packed.partitions, log_dir.partitions, strict=True):
        assert one.bounds() == other.bounds()
        columns = ["offset", "key", "value"]
        assert one.records(columns=columns).read_all() == other.records(columns=columns).read_all()
        assert one.batches().read_all()["base_offset"] == other.batches().read_all()["base_offset"]
    columns = ["topic", "log_bytes"]
    rows = [each.table("segments", columns=columns).read_all() for each in (packed, log_dir)]
    assert rows[0] == rows[1]
    assert not kdump.verify(str(packed.path)).is_damaged


def test_a_missing_directory_or_topic_is_a_usage_problem(
    damaged: kdump.LogDir, tmp_path: Path
) -> None:
    with pytest.raises(kdump.UsageProblem, match="no partition orders-1"):
        damaged.partition("orders", 1)
    with pytest.raises(kdump.UsageProblem, match=r"is not a log directory$"):
        kdump.open_log_dir(tmp_path)
    with pytest.raises(kdump.UsageProblem, match=r"is not a log directory, but a partition$"):
        kdump.open_log_dir(damaged.partition("orders", 0).path)
    with pytest.raises(kdump.UsageProblem, match="no column"):
        damaged.partition("orders", 0).records(columns=["colour"])


def test_the_wheel_is_marked_as_typed(repository_root: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    # Without a compiler it is made sooner; what it is marked with is the same.
    without = os.environ | {"CC": "false"}
    subprocess.run(build, cwd=repository_root, env=without, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert "kdump/py.typed" in archive.namelist()


@pytest.mark.parametrize(
    "arguments",
    [
        {"level": "fast"},
        {"topics": "orders"},
        {"partitions": "orders-0"},
        {"topics": ["nothing"]},
        {"partitions": ["orders-7"]},
        {"processes": 0},
    ],
    ids=str,
)
def test_a_verification_with_impossible_arguments_is_refused(
    damaged: kdump.LogDir, arguments: dict[str, Any]
) -> None:
    with pytest.raises(kdump.UsageProblem):
        kdump.verify(damaged.path, **arguments)


@pytest.mark.parametrize("ask", [kdump.verify, kdump.plan_recovery])
def test_at_least_one_log_directory_is_required(ask: Callable[[], object]) -> None:
    with pytest.raises(kdump.UsageProblem, match="at least one log directory"):
        ask()


@pytest.mark.parametrize(
    "arguments", [{"policy": "keep"}, {"topics": "orders"}, {"partitions": ["orders-7"]}], ids=str
)
def test_a_plan_with_an_unknown_policy_or_selection_is_refused(
    damaged: kdump.LogDir, arguments: dict[str, Any]
) -> None:
    with pytest.raises(kdump.UsageProblem):
        kdump.plan_recovery(damaged.path, **arguments)


@pytest.mark.parametrize("name", ["batches", "records"])
def test_an_unknown_way_to_handle_damage_is_refused(damaged: kdump.LogDir, name: str) -> None:
    with pytest.raises(kdump.UsageProblem, match="not one of raise, skip"):
        getattr(damaged.partition("orders", 0), name)(on_damage="ignore")


@pytest.mark.parametrize("name", ["batches", "records"])
def test_an_empty_range_of_offsets_has_no_records(damaged: kdump.LogDir, name: str) -> None:
    read = getattr(damaged.partition("orders", 0), name)
    assert read(0, 0, on_damage="skip").read_all().num_rows == 0
