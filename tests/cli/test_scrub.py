"""``kdump verify`` of a part of the data: what it prints, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from builders.batches import batch
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.json_schemas import problem_of_document
from builders.verified import NOW_MS, LogModel, file, records
from kdump.check import batches
from kdump.cli.output.value_text import format_timestamp
from kdump.cli.output.verify_output import EventPrinter
from kdump.formats.names import FileKind
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from kdump.storage import local_disk
from kdump.storage.gentle_disk import Bandwidth, GentleDisk
from kdump.storage.local_disk import LocalFile
from kdump.storage.location import Location

DAY_MS: Final = 24 * 60 * 60 * 1000


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a directory with a partition of two segments, which are in different parts of two."""
    return LogModel().write(tmp_path / "logs").parent


def verify(*args: str | Path) -> Outcome:
    return run_kdump(["verify", "--now", str(NOW_MS), *map(str, args)], Path.cwd())


def in_part(number: int, log_dir: Path, *args: str) -> Outcome:
    return verify("--read-data-subset", f"{number}/2", *args, log_dir)


def flip(log_dir: Path, base_offset: int) -> None:
    log = file(log_dir / "orders-0", base_offset, FileKind.LOG)
    content = bytearray(log.read_bytes())
    content[80] ^= 1
    log.write_bytes(content)


def test_the_totals_say_what_was_read(log_dir: Path) -> None:
    outcome = in_part(1, log_dir)
    assert (outcome.exit_status, outcome.stderr) == (0, b"")
    lines = outcome.stdout.decode().splitlines()
    assert lines[0] == "1 partition, 1 segment, 5 batches, 12 records"
    size = file(log_dir / "orders-0", 0, FileKind.LOG).stat().st_size
    assert lines[1].startswith(f"read 1 of 2 segments (subset 1/2): {size} B of ")


def test_programs_are_told_too(log_dir: Path) -> None:
    *_, partition, summary = objects(in_part(1, log_dir, "--output", "json").stdout)
    assert partition["verdict_kind"] == "partly-read"
    assert partition["segments_left_out"] == 1
    assert partition["log_end_offset"] is None
    sizes = [file(log_dir / "orders-0", base, FileKind.LOG).stat().st_size for base in (0, 12)]
    assert summary["coverage"] == {
        "subset": "1/2",
        "segments": 2,
        "segments_chosen": 1,
        "segments_read": 1,
        "segment_bytes": sum(sizes),
        "chosen_bytes": sizes[0],
        "read_bytes": sizes[0],
        "is_time_over": False,
        "segments_never_checked": None,
        "oldest_check_ms": None,
    }


def test_the_exit_status_is_about_what_was_read(log_dir: Path) -> None:
    flip(log_dir, 0)
    assert [in_part(number, log_dir).exit_status for number in (1, 2)] == [4, 0]


def test_an_unread_part_says_nothing(log_dir: Path) -> None:
    outcome = verify("--read-data-subset", "1/100", log_dir)
    assert outcome.exit_status == 0
    assert outcome.stdout.decode().startswith("0 partitions, 0 segments, 0 batches, 0 records\n")


@pytest.mark.parametrize("subset", ["1/1", "2/3", "5%", "0.5%", "100%", "10G", "1 MiB", "7"])
def test_forms_of_a_subset(log_dir: Path, subset: str) -> None:
    assert f"(subset {subset})" in verify("--read-data-subset", subset, log_dir).stdout.decode()


@pytest.mark.parametrize(
    "subset", ["0/3", "4/3", "1/0", "-1/3", "1/", "/3", "0%", "101%", "-5%", "0", "0G", "half", ""]
)
def test_anything_else_is_refused(log_dir: Path, subset: str) -> None:
    outcome = verify("--read-data-subset", subset, log_dir)
    assert outcome.exit_status == 16
    assert "is not a part such as 1/30, a share such as 5%, or a size" in outcome.stderr.decode()


@pytest.mark.parametrize("other", [("--repair",), ("--remote", "/remote")])
def test_what_needs_all_data_is_refused(log_dir: Path, other: tuple[str, ...]) -> None:
    outcome = verify("--read-data-subset", "1/2", *other, log_dir)
    assert outcome.exit_status == 16
    assert f"--read-data-subset and {other[0]} are mutually exclusive" in outcome.stderr.decode()


# ---- A state, and a time limit ----


def scrub(log_dir: Path, state: Path, *args: str, day: int = 0) -> list[dict[str, Any]]:
    words = ["verify", "--output", "json", "--state", str(state), *args, str(log_dir)]
    outcome = run_kdump([*words, "--now", str(NOW_MS + day * DAY_MS)], Path.cwd())
    assert outcome.stderr == b""
    return objects(outcome.stdout)


def coverage(log_dir: Path, state: Path, *args: str, day: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = scrub(log_dir, state, *args, day=day)[-1]["coverage"]
    return found


def test_what_was_checked_longest_ago_is_read_first(log_dir: Path, tmp_path: Path) -> None:
    """Each run reads one of two segments: the amount is too small for both."""
    state = tmp_path / "state"
    partitions = [scrub(log_dir, state, "--read-data-subset", "1", day=day)[-2] for day in range(4)]
    assert [each["log_end_offset"] for each in partitions] == [None, 18, None, 18]


def test_the_totals_say_since_when_all_is_checked(log_dir: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    found = [coverage(log_dir, state, "--read-data-subset", "1", day=day) for day in range(3)]
    assert [each["segments_never_checked"] for each in found] == [1, 0, 0]
    assert [(each["oldest_check_ms"] - NOW_MS) // DAY_MS for each in found] == [0, 0, 1]


def test_people_are_told_too(log_dir: Path, tmp_path: Path) -> None:
    part, whole = (
        verify("--state", tmp_path / "state", *words, log_dir).stdout.decode().splitlines()[2]
        for words in (("--read-data-subset", "1"), ())
    )
    since = format_timestamp(NOW_MS)
    assert part == f"1 segment never checked, all others since {since}"
    assert whole == f"all segments checked since {since}"


def test_the_state_is_what_the_schema_says(log_dir: Path, tmp_path: Path) -> None:
    scrub(log_dir, tmp_path / "state")
    document = json.loads((tmp_path / "state").read_text())
    assert problem_of_document("verify-state", document) is None
    (partition,) = document["partitions"]
    assert partition["path"] == str(log_dir / "orders-0")
    sizes = [file(log_dir / "orders-0", base, FileKind.LOG).stat().st_size for base in (0, 12)]
    assert partition["segments"] == [[0, sizes[0], NOW_MS], [12, sizes[1], NOW_MS]]


def test_with_a_state_alone_everything_is_read(log_dir: Path, tmp_path: Path) -> None:
    *_, partition, summary = scrub(log_dir, tmp_path / "state")
    assert partition["verdict_kind"] == "valid"
    assert summary["coverage"]["segments_read"] == 2


def test_a_damaged_segment_is_checked(log_dir: Path, tmp_path: Path) -> None:
    flip(log_dir, 0)
    assert coverage(log_dir, tmp_path / "state")["segments_never_checked"] == 0


def test_an_unreadable_segment_is_not_checked(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = str(file(log_dir / "orders-0", 0, FileKind.LOG))
    openly = local_disk._open_listed

    def fail(path: str) -> tuple[int, int]:
        if path == log:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return openly(path)

    monkeypatch.setattr(local_disk, "_open_listed", fail)
    outcome = verify("--state", tmp_path / "state", log_dir)
    assert outcome.exit_status & 8
    assert "1 segment not read: gone, unreadable, or changed meanwhile" in outcome.stdout.decode()
    (partition,) = json.loads((tmp_path / "state").read_text())["partitions"]
    assert [base for base, _, _ in partition["segments"]] == [12]


def test_a_segment_that_was_replaced_was_never_checked(log_dir: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    scrub(log_dir, state)
    log = file(log_dir / "orders-0", 0, FileKind.LOG)
    log.write_bytes(log.read_bytes()[:-1])
    found = coverage(log_dir, state, "--read-data-subset", "1", day=1)
    assert (found["segments_never_checked"], found["segments_read"]) == (0, 1)
    (partition,) = json.loads(state.read_text())["partitions"]
    assert [checked - NOW_MS for _, _, checked in partition["segments"]] == [DAY_MS, 0]


def test_the_last_segment_may_grow(log_dir: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    scrub(log_dir, state)
    with file(log_dir / "orders-0", 12, FileKind.LOG).open("ab") as log:
        log.write(batch(records(18, 2), partition_leader_epoch=1))
    found = coverage(log_dir, state, "--max-duration", "1s", "--read-data-subset", "1/1000")
    assert (found["segments_read"], found["segments_never_checked"]) == (0, 0)


def test_a_topic_that_was_created_again_was_never_checked(log_dir: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    scrub(log_dir, state)
    (log_dir / "orders-0" / "partition.metadata").write_bytes(
        encode_partition_metadata(PartitionMetadata(0, uuid.UUID(int=77)))
    )
    found = coverage(log_dir, state, "--read-data-subset", "1/1000")
    assert found["segments_never_checked"] == 2


def test_partitions_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    root = LogModel(others=("a", "b")).write(tmp_path / "logs").parent
    state = tmp_path / "state"
    scrub(root, state)
    shutil.rmtree(root / "a-0")
    scrub(root, state, "--topic", "orders")
    assert len(json.loads(state.read_text())["partitions"]) == 3
    scrub(root, state)
    paths = [each["path"] for each in json.loads(state.read_text())["partitions"]]
    assert paths == [str(root / "b-0"), str(root / "orders-0")]


def test_after_the_time_nothing_is_begun(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", Clock(0, 3600).now)
    flip(log_dir, 0)
    outcome = verify("--max-duration", "1h", "--state", tmp_path / "state", log_dir)
    assert outcome.exit_status == 0
    lines = outcome.stdout.decode().splitlines()
    assert lines[0] == "0 partitions, 0 segments, 0 batches, 0 records"
    assert lines[1].startswith("read 0 of 2 segments: 0 B of ")
    assert lines[2:4] == [
        "2 segments not read: the time of --max-duration was over",
        "2 segments never checked",
    ]


def test_a_run_goes_on_where_the_time_of_another_was_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it is over, each of a few runs reads what those before it did not."""
    root = LogModel(others=("a", "b")).write(tmp_path / "logs").parent
    state = tmp_path / "state"
    monkeypatch.setattr(batches, "LARGEST_SMALL_LOG_BYTES", -1)  # one after the other
    flip(root, 12)
    never, damaged = [], 0
    for day in range(12):
        monkeypatch.setattr(time, "monotonic", Clock(0, 3600, begins=10).now)
        *_, summary = scrub(root, state, "--max-duration", "1h", day=day)
        never.append(summary["coverage"]["segments_never_checked"])
        damaged += summary["findings"]["error"] > 0
        if not never[-1]:
            break
    assert never == sorted(never, reverse=True)
    assert never[0] > 0
    assert never[-1] == 0
    assert damaged == 1


class Clock:
    """A clock that goes on by so much after it was read a few times."""

    def __init__(self, first: float, later: float, begins: int = 1) -> None:
        self._first, self._later, self._left = first, later, begins

    def now(self) -> float:
        self._left -= 1
        return self._first if self._left >= 0 else self._later


WITH_A_FLAG: Final = (
    b'{"format":"kdump-verify-state","version":1,"partitions":'
    b'[{"path":"a","topic_id":null,"segments":[[0,true,1]]}]}'
)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"{}", "no 'kdump-verify-state' in it"),
        (b'{"format":"kdump-verify-state","version":2}', "written by another version of kdump"),
        (b'{"format":"kdump-verify-state","version":1}', "malformed"),
        (WITH_A_FLAG, "malformed"),
    ],
)
def test_another_file_is_not_replaced(
    log_dir: Path, tmp_path: Path, content: bytes, why: str
) -> None:
    state = tmp_path / "state"
    state.write_bytes(content)
    outcome = verify("--state", state, log_dir)
    assert outcome.exit_status == 8
    assert f"is not the state of earlier runs ({why})" in outcome.stderr.decode()
    assert state.read_bytes() == content


@pytest.mark.parametrize("where", ["state", "orders-0/state"])
def test_a_state_in_a_log_directory_is_refused(log_dir: Path, where: str) -> None:
    outcome = verify("--state", log_dir / where, log_dir)
    assert outcome.exit_status == 16
    assert "is inside the" in outcome.stderr.decode()
    assert not (log_dir / where).exists()


def test_a_run_that_breaks_keeps_what_it_checked(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, summary: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(EventPrinter, "summary", fail)
    verify("--state", tmp_path / "state", log_dir)
    (partition,) = json.loads((tmp_path / "state").read_text())["partitions"]
    assert len(partition["segments"]) == 2


@pytest.mark.parametrize("duration", ["1s", "90m", "1h30m", "2d", "1d2h3m4s"])
def test_forms_of_a_duration(log_dir: Path, duration: str) -> None:
    assert verify("--max-duration", duration, log_dir).exit_status == 0


@pytest.mark.parametrize("duration", ["", "0s", "90", "-1h", "1.5h", "1m1h", "h", "1w"])
def test_no_other_duration(log_dir: Path, duration: str) -> None:
    outcome = verify("--max-duration", duration, log_dir)
    assert outcome.exit_status == 16
    assert "is not a duration such as 2h, 1h30m or 90s" in outcome.stderr.decode()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--state", "s", "--quick"), "--quick and --state are mutually exclusive"),
        (("--state", "s", "--repair"), "--state and --repair are mutually exclusive"),
        (("--max-duration", "1h", "--repair"), "--max-duration and --repair are mutually"),
        (("--max-duration", "1h", "--engine", "spark"), "--max-duration and --engine spark are"),
        (("--max-duration", "1h", "--master", "local"), "--max-duration and --master are"),
        (("--bandwidth", "1M", "--engine", "spark"), "--bandwidth and --engine spark are"),
        (("--bandwidth", "1M", "--repair"), "--bandwidth and --repair are mutually exclusive"),
        (("--bandwidth", "0"), "'0' is not a size such as 50M"),
    ],
)
def test_what_does_not_go_together(log_dir: Path, words: tuple[str, ...], message: str) -> None:
    outcome = verify(*words, log_dir)
    assert outcome.exit_status == 16
    assert message in outcome.stderr.decode()


# ---- Beside a broker ----


def test_a_limit_changes_nothing_of_the_report(log_dir: Path) -> None:
    flip(log_dir, 0)
    plain, limited = (
        objects(verify("--output", "json", *words, log_dir).stdout)
        for words in ((), ("--bandwidth", "1G"))
    )
    assert plain[-1].pop("seconds") >= 0
    assert limited[-1].pop("seconds") >= 0
    assert limited == plain


def test_all_of_a_segment_is_read_at_the_speed_of_the_limit(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(Bandwidth, "wait_for", lambda _, size: waited.append(size))
    verify("--bandwidth", "1G", log_dir)
    read = sum(path.stat().st_size for path in (log_dir / "orders-0").glob("*.*log"))
    assert sum(waited) >= read


def test_only_local_disks_have_a_limit(log_dir: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "logs"), "tar", log_dir)
    outcome = verify("--bandwidth", "1G", f"{archive}!/")
    assert outcome.exit_status == 16
    assert "--bandwidth limits reads of local disks only" in outcome.stderr.decode()


def test_a_living_directory_is_read_gently(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    openly = GentleDisk.open_file

    def note(disk: GentleDisk, location: Location) -> LocalFile:
        opened.append(location.name)
        return openly(disk, location)

    monkeypatch.setattr(GentleDisk, "open_file", note)
    assert verify("--stopped", log_dir).exit_status == 0
    assert not opened
    assert verify("--live", log_dir).exit_status == 0
    logs = {path.name for path in (log_dir / "orders-0").glob("*.log")}
    assert logs <= set(opened)


# ---- Metrics ----


def metrics(text: str) -> dict[str, float]:
    """Return the values of metrics, by name and labels, as Prometheus reads them."""
    return {
        " ".join([each.name.removeprefix("kdump_verify_"), *each.labels.values()]): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def test_metrics_of_a_damaged_directory(log_dir: Path) -> None:
    flip(log_dir, 0)
    outcome = verify("--output", "prometheus", log_dir)
    assert (outcome.exit_status, outcome.stderr) == (4, b"")
    found = metrics(outcome.stdout.decode())
    assert found["findings batch-checksum error"] == 1
    assert found["exit_status"] == 4
    assert found["segments_checked"] == 2
    assert found["last_run_timestamp_seconds"] == NOW_MS / 1000
    assert found["damaged_bytes"] > 0
    assert found["duration_seconds"] > 0
    assert "segments" not in found


def test_metrics_of_a_part_say_how_old_the_oldest_check_is(log_dir: Path, tmp_path: Path) -> None:
    state, out = tmp_path / "state", tmp_path / "kdump.prom"
    scrub(log_dir, state)
    words = ["verify", "--state", str(state), "--read-data-subset", "1", "--output", "prometheus"]
    words += ["--out", str(out), "--now", str(NOW_MS + DAY_MS), str(log_dir)]
    outcome = run_kdump(words, Path.cwd())
    assert (outcome.exit_status, outcome.stderr) == (0, b"")
    assert b"all segments checked since" in outcome.stdout
    found = metrics(out.read_text())
    assert (found["segments"], found["segments_checked"]) == (2, 1)
    assert found["segments_never_checked"] == found["time_over"] == 0
    assert found["oldest_check_age_seconds"] == DAY_MS / 1000
    assert found["oldest_check_timestamp_seconds"] == NOW_MS / 1000


def test_the_file_of_metrics_can_be_read_by_all_and_is_replaced(
    log_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "kdump.prom"
    before = os.umask(0o077)
    try:
        for status in (0, 4):
            outcome = verify("--output", "prometheus", "--out", out, log_dir)
            assert outcome.exit_status == metrics(out.read_text())["exit_status"] == status
            assert stat.S_IMODE(out.stat().st_mode) == 0o644
            flip(log_dir, 12)
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir() if path != log_dir] == ["kdump.prom"]


def test_a_run_that_breaks_leaves_the_metrics(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, summary: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "kdump.prom"
    out.write_text("old")
    monkeypatch.setattr(EventPrinter, "summary", fail)
    verify("--output", "prometheus", "--out", out, log_dir)
    assert out.read_text() == "old"


def test_metrics_without_the_package_are_refused(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    outcome = verify("--output", "prometheus", log_dir)
    assert outcome.exit_status == 8
    assert b"pip install 'kafka-kdump[prometheus]'" in outcome.stderr


def test_only_metrics_have_a_file(log_dir: Path, tmp_path: Path) -> None:
    outcome = verify("--out", tmp_path / "file", log_dir)
    assert outcome.exit_status == 16
    assert b"--out requires --output prometheus" in outcome.stderr
    inside = verify("--output", "prometheus", "--out", log_dir / "file", log_dir)
    assert inside.exit_status == 16
    assert b"is inside the log directory" in inside.stderr
