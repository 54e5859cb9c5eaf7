"""Every command that reads a log directory says that a running process has locked it."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from builders.in_process import Outcome, run_kdump
from builders.lock_holder import held_elsewhere
from builders.trees import tree_of
from builders.two_disks import write_two_disks
from kdump.apply.lock import LockedError, hold_locks
from kdump.cli.shared import verification
from kdump.formats import names
from kdump.jobs.collect import collect
from kdump.jobs.collect.topic_claims import ClaimsFound, read_claims
from kdump.jobs.verify import verify
from kdump.jobs.verify.verify import read_as
from kdump.log.directory import read_log_directory
from kdump.log.lock_holders import ReadAs, forget_holders, in_use_by
from kdump.storage.local_disk import local

DELETED = ("--config=cleanup.policy=delete", "--config=retention.ms=1")
LOG = "users-0/00000000000000000000.log"
COMMANDS: list[tuple[str, ...]] = [
    ("ls", "d1"),
    ("verify", "d1"),
    ("verify", "d1", "--topic=users"),
    ("verify", "d1/users-0"),
    ("verify", f"d1/{LOG}"),
    ("ls", "d1/users-0"),
    ("grep", "value", "d1/users-0"),
    ("grep", "value", f"d1/{LOG}"),
    ("dump-segment", f"d1/{LOG}"),
    ("dump-segment", f"d1/{LOG.replace('.log', '.index')}", "--output", "jsonl"),
    ("dump-segment", f"d1/{names.RECOVERY_POINT_CHECKPOINT}", f"d1/{LOG}"),
    ("groups", "d1"),
    ("txns", "d1"),
    ("lookup", "d1", "--offset=5"),
    ("grep", "value", "d1"),
    ("diff", "d1", "d2"),
    ("export", "d1", "--out", "exported"),
    ("query", "SELECT count(*) FROM partitions", "d1"),
    ("report", "d1", "--out", "report.html"),
    ("compact", "d1", "--dry-run", "--explain"),
]
PREVIEWS: list[tuple[str, ...]] = [
    ("checkpoint", "rebuild", "d1"),
    ("compact", "d1", "--topic=*"),
    ("delete-records", "d1", "--partition=users-0", "--before=3"),
    ("erase", "d1", "--topic=users", "--key=a"),
    ("identity", "d1", "--repair"),
    ("move", "--drain", "d1", "--to", "d2"),
    ("rebuild-index", "d1"),
    ("recover", "d1"),
    ("recover", "d1", "--policy=salvage"),
    ("resolve", "d1"),
    ("retain", "d1", "--topic=*", *DELETED),
    ("rewind", "d1", "--to=2026-01-01T00:00:00Z"),
    ("snapshot", "rebuild", "d1"),
    ("undelete", "d1"),
    ("undo", "d1"),
    ("undo", "d1", "--discard"),
    ("verify", "d1", "--repair"),
]


@pytest.fixture
def node(quick_path: Path) -> Path:
    """Return the directory around two log directories; ``d1`` is as a broker has it."""
    write_two_disks(quick_path / "node")
    shutil.rmtree(quick_path / "node/model")
    (quick_path / "node/d1" / names.CLEAN_SHUTDOWN_MARKER).unlink()
    return quick_path / "node"


def said_by(outcome: Outcome) -> str:
    return (outcome.stdout + outcome.stderr).decode()


@pytest.mark.slow
@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_a_running_process_is_named_once_and_nothing_is_repaired(
    node: Path, args: tuple[str, ...]
) -> None:
    without = run_kdump(args, node).exit_status
    for each in ("exported", "report.html"):
        shutil.rmtree(node / each, ignore_errors=True)
        (node / each).unlink(missing_ok=True)
    with held_elsewhere(node / "d1") as process_id:
        before = tree_of(node / "d1")
        outcome = run_kdump(args, node)
        assert tree_of(node / "d1") == before

    lines = [each for each in outcome.stderr.decode().splitlines() if "in use by process" in each]
    is_living = args[0] in ("verify", "report") and not args[1].endswith(".log")
    what = "are not judged" if is_living else "findings may be about files that change"
    (line,) = [each for each in lines if what in each]
    # SQL has absolute paths, because other processes may run it.
    path = node / "d1" if args[0] == "query" else Path("d1")
    assert line.startswith(f"kdump: {path}: in use by process {process_id} (")
    assert "kdump recover" not in said_by(outcome)
    assert outcome.exit_status == without


@pytest.mark.parametrize(
    "args",
    [
        *((*each, "--dry-run") for each in PREVIEWS),
        *PREVIEWS,
        ("transplant", "d1/users-0", "--into", "d2"),
        ("metadata", "collect", "d1", "--out", "collected.json"),
    ],
    ids=" ".join,
)
def test_what_only_a_stopped_broker_leaves_is_not_guessed(
    node: Path, args: tuple[str, ...]
) -> None:
    with held_elsewhere(node / "d1") as process_id:
        before = tree_of(node)
        outcome = run_kdump(args, node)
        assert tree_of(node) == before

    assert outcome.exit_status == 8
    assert outcome.stderr.startswith(b"kdump: d1: locked by process %d (" % process_id)
    assert b"stop the broker first" in outcome.stderr
    assert outcome.stdout == b""


def test_a_broker_that_starts_while_a_disk_is_collected_is_noticed(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as broker:

        def starting(*args: object) -> list[ClaimsFound]:
            broker.enter_context(held_elsewhere(node / "d1"))
            return read_claims(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(collect, "read_claims", starting)
        outcome = run_kdump(("metadata", "collect", "d1", "--out", "collected.json"), node)

    assert outcome.exit_status == 8
    assert b"locked by process" in outcome.stderr
    assert not (node / "collected.json").exists()


@pytest.mark.parametrize("options", [(), ("--read-data-subset", "1/1")])
def test_what_a_broker_does_that_starts_while_a_directory_is_verified_is_no_finding(
    node: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    (node / "d1/.kafka_cleanshutdown").touch()
    assert run_kdump(("verify", "d1", *options), node).exit_status == 0
    with contextlib.ExitStack() as broker:

        def starting(request: verify.VerifyRequest, reading: ReadAs) -> verify.VerifyRequest:
            broker.enter_context(held_elsewhere(node / "d1"))
            for path in (node / "d1/users-0").glob("00000000000000000000.*"):
                path.unlink()
            return read_as(request, reading)

        monkeypatch.setattr(verification, "read_as", starting)
        outcome = run_kdump(("verify", "d1", *options), node)

    assert outcome.exit_status == 0, outcome.stdout
    (line,) = outcome.stderr.decode().splitlines()
    assert "d1: in use by process" in line
    assert "are not judged" in line


def flip(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[80] ^= 1
    log.write_bytes(content)


def test_damage_is_found_beside_a_running_broker_and_its_end_is_not(node: Path) -> None:
    flip(node / "d1" / LOG)
    last = max((node / "d1/users-0").glob("*.log"))
    last.write_bytes(last.read_bytes() + bytes(range(1, 40)))
    with held_elsewhere(node / "d1"):
        outcome = run_kdump(("verify", "d1", "--output", "jsonl"), node)
    assert outcome.exit_status == 4
    rows = [json.loads(each) for each in outcome.stdout.splitlines()]
    found = [(each["code"], each["path"]) for each in rows if each["type"] == "finding"]
    assert ("batch-checksum", f"d1/{LOG}") in found
    assert not any(code == "torn-tail" or path.startswith(str(last)) for code, path in found)
    assert {each["verdict_kind"] for each in rows if each["type"] == "partition"} == {"not-judged"}


def test_stopped_reports_everything_of_a_directory_in_use(node: Path) -> None:
    args = ("verify", "d1", "--output", "jsonl", "--stopped")
    without = run_kdump(args[:-1], node)
    with held_elsewhere(node / "d1"):
        outcome = run_kdump(args, node)
    assert without_seconds(outcome) == without_seconds(without)
    assert b"findings may be about files that change" in outcome.stderr


def without_seconds(outcome: Outcome) -> list[dict[str, object]]:
    rows = [json.loads(each) for each in outcome.stdout.splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_live_needs_no_lock_and_says_what_it_does_not_judge(node: Path) -> None:
    outcome = run_kdump(("verify", "d1", "--live"), node)
    assert b"d1: read as in use (--live): the end of each log" in outcome.stderr
    assert b"are not judged; no process of this machine has locked it" in outcome.stderr


@pytest.mark.parametrize(
    "args", [("d1", "--live", "--stopped"), ("d1", "--live", "--repair"), (f"d1/{LOG}", "--live")]
)
def test_what_cannot_be_read_as_in_use_is_refused(node: Path, args: tuple[str, ...]) -> None:
    outcome = run_kdump(("verify", *args), node)
    assert outcome.exit_status == 16
    assert b"--live" in outcome.stderr


def test_the_report_does_not_call_a_running_broker_not_clean(node: Path) -> None:
    with held_elsewhere(node / "d1"):
        run_kdump(("report", "d1", "--out", "report.html"), node)
    page = (node / "report.html").read_text()
    assert "stop the broker first" in page
    assert "not clean" not in page.split("<script", 1)[0]


def test_a_lock_of_a_crashed_broker_is_no_running_one(node: Path) -> None:
    (node / "d1" / names.LOCK_FILE).touch()
    assert "in use by" not in said_by(run_kdump(("ls", "d1"), node))


def test_a_lock_of_this_process_is_neither_reported_nor_lost(node: Path) -> None:
    forget_holders()
    with hold_locks([node / "d1"]):
        read_log_directory(local(node / "d1"))
        assert in_use_by(local(node / "d1")) is None
        with pytest.raises(AssertionError), held_elsewhere(node / "d1"):
            pass
    with held_elsewhere(node / "d1"), pytest.raises(LockedError), hold_locks([node / "d1"]):
        pass
