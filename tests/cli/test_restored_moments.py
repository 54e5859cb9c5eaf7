"""``kdump backup restore --to``: as a restore and a rewind, and never half of it."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.json_schemas import problems_of_objects
from builders.killed_process import KillableKdump, kinds_of_changes
from builders.log_dir_trees import seen_by_broker
from builders.rewindable_clusters import START_MS, TICK_MS, RandomCluster
from builders.samples import at_some_or_each_kind, moments_of_kinds, seeds
from builders.trees import tree_of
from kdump.apply.unfinished_copy import FOLDER, JOURNAL
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.formats.names import LOCK_FILE
from kdump.jobs.backup import restored_moment
from kdump.jobs.backup.restore import RestoreRequest, end_restore
from kdump.jobs.rewind.rewind import Rewind, RewindRequest, rewind

END_MS = START_MS + 1000 * TICK_MS
MIDDLE_MS = START_MS + 18 * TICK_MS


@pytest.fixture
def folder(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory around ``b1``, ``b2`` and ``repo``, which has snapshots of both."""
    write_cluster(quick_path, 2)
    set_time(monkeypatch, END_MS + 1)
    return quick_path


def write_cluster(folder: Path, seed: int) -> None:
    """Write the disks of two brokers, and back them up before and after everything."""
    for each in RandomCluster(seed, ticks=30).write(folder, brokers=2):
        run_kdump(["recover", "--no-undo", str(each)], folder)
    for time_ms in (START_MS - TICK_MS, END_MS):
        back_up(folder, time_ms)


def set_time(patch: pytest.MonkeyPatch, time_ms: int) -> None:
    patch.setattr("kdump.cli.commands.backup.current_time_ms", lambda: time_ms)


def back_up(folder: Path, time_ms: int, *log_dirs: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        set_time(patch, time_ms)
        words = ["backup", "create", "--output=jsonl", "repo", *(log_dirs or ("b1", "b2"))]
        made = run_kdump(words, folder)
    name: str = objects(made.stdout)[-1]["snapshot"]
    assert name is not None, made.stderr
    return name


def restore(folder: Path, time_ms: int | None, *words: str) -> Outcome:
    to = [] if time_ms is None else [f"--to={time_ms}"]
    intos = [] if "--into" in words else ["--into", "n1", "--into", "n2"]
    return run_kdump(["backup", "restore", *to, *intos, *words, "repo"], folder)


def names_of(folder: Path) -> list[str]:
    return sorted(each.stem for each in (folder / "repo/snapshots").iterdir())


def begun_ms(name: str) -> int:
    """When the backup of a snapshot was begun."""
    begun = dt.datetime.strptime(name[:23], "%Y-%m-%dT%H-%M-%S.%f").replace(tzinfo=dt.UTC)
    return round(begun.timestamp() * 1000)


def seen(folder: Path) -> list[dict[str, bytes]]:
    found = [seen_by_broker(folder / each) for each in ("n1", "n2")]
    for each in found:
        each.pop(LOCK_FILE, None)
    return found


def expected_of(folder: Path, time_ms: int) -> list[dict[str, bytes]]:
    """What a restore of the last snapshot and a rewind leave."""
    shutil.rmtree(folder / "n1", ignore_errors=True)
    shutil.rmtree(folder / "n2", ignore_errors=True)
    assert restore(folder, None).exit_status == 0
    outcome = run_kdump(["rewind", "--no-undo", f"--to={time_ms}", "n1", "n2"], folder)
    assert outcome.exit_status in (0, 1), outcome.stderr
    found = seen(folder)
    shutil.rmtree(folder / "n1")
    shutil.rmtree(folder / "n2")
    return found


@pytest.mark.parametrize("seed", seeds(0, count=40, in_main=3))
def test_a_moment_is_a_restore_and_a_rewind(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    write_cluster(quick_path, seed)
    set_time(monkeypatch, END_MS + 1)
    time_ms = START_MS + random.Random(seed).randint(-1, 34) * TICK_MS
    expected = expected_of(quick_path, time_ms)
    outcome = restore(quick_path, time_ms, "--output=jsonl")
    assert outcome.exit_status == 0, outcome.stderr
    assert seen(quick_path) == expected
    cut = next(each for each in objects(outcome.stdout) if each["type"] == "cut")
    first = next(each for each in names_of(quick_path) if begun_ms(each) >= time_ms)
    assert (cut["snapshot"], cut["to_ms"]) == (first, time_ms)
    assert not [*quick_path.glob(f"n?/{JOURNAL}"), *quick_path.glob(f"n?/{FOLDER}")]
    verified = run_kdump(["verify", "n1"], quick_path)
    assert verified.exit_status == 0, verified.stdout


def test_the_time_of_a_snapshot_is_that_snapshot(folder: Path) -> None:
    outcome = restore(folder, START_MS - TICK_MS, "--output=jsonl")
    assert outcome.exit_status == 0, outcome.stderr
    cut = next(each for each in objects(outcome.stdout) if each["type"] == "cut")
    assert cut["snapshot"] == names_of(folder)[0]


def test_people_are_told_which_snapshot_is_cut(folder: Path) -> None:
    said = restore(folder, MIDDLE_MS).stdout.decode()
    assert f"snapshot {names_of(folder)[1]}, cut at " in said
    assert said.endswith(f"{folder}/n1: complete\n{folder}/n2: complete\n")


@pytest.mark.parametrize("time_ms", [START_MS - TICK_MS - 1, END_MS + 1])
def test_a_moment_outside_of_the_snapshots_is_refused(folder: Path, time_ms: int) -> None:
    outcome = restore(folder, time_ms)
    assert outcome.exit_status == ExitStatus.USAGE
    first, last = names_of(folder)
    assert f"has snapshots from {first} to {last}" in outcome.stderr.decode()
    assert not (folder / "n1").exists()


def test_the_first_snapshot_can_be_named_to_be_cut_at_an_earlier_moment(folder: Path) -> None:
    first, _ = names_of(folder)
    named = f"or --snapshot {first}, which can be cut at any time before it"
    assert named in restore(folder, START_MS - TICK_MS - 1).stderr.decode()
    assert restore(folder, START_MS - TICK_MS - 1, "--snapshot", first).exit_status == 0


def test_a_snapshot_can_be_named_and_is_not_cut_after_it(folder: Path) -> None:
    first, last = names_of(folder)
    outcome = restore(folder, MIDDLE_MS, "--snapshot", first)
    assert outcome.exit_status == ExitStatus.USAGE
    assert f"--to: is after {first}" in outcome.stderr.decode()
    assert restore(folder, MIDDLE_MS, "--snapshot", last).exit_status == 0


def test_snapshots_of_different_brokers_are_not_mixed_up(folder: Path) -> None:
    back_up(folder, MIDDLE_MS, "b1")
    outcome = restore(folder, MIDDLE_MS - 1)
    assert outcome.exit_status == ExitStatus.USAGE
    assert b"of different brokers: name the snapshot to cut with --snapshot" in outcome.stderr
    chosen = restore(folder, MIDDLE_MS - 1, "--log-dir", f"{folder}/b1", "--into", "n1")
    assert chosen.exit_status == 0, chosen.stderr


def test_a_snapshot_with_a_later_time_than_now_has_to_be_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    outcome = restore(folder, MIDDLE_MS)
    assert outcome.exit_status == ExitStatus.USAGE
    assert b"name the snapshot to cut with --snapshot" in outcome.stderr
    assert restore(folder, MIDDLE_MS, "--snapshot", names_of(folder)[1]).exit_status == 0


def test_a_directory_that_has_something_is_refused(folder: Path) -> None:
    (folder / "n2").mkdir()
    (folder / "n2/mine").touch()
    before = tree_of(folder)
    outcome = restore(folder, MIDDLE_MS)
    assert outcome.exit_status == ExitStatus.USAGE
    assert b"is not an unfinished copy: name a new directory" in outcome.stderr
    assert tree_of(folder) == before


@pytest.mark.parametrize("time_ms", [None, MIDDLE_MS])
def test_a_restore_that_is_asked_for_again_says_that_it_may_be_done(
    folder: Path, time_ms: int | None
) -> None:
    assert restore(folder, time_ms).exit_status == 0
    before = tree_of(folder)
    outcome = restore(folder, MIDDLE_MS)
    assert outcome.exit_status == ExitStatus.USAGE
    paths = f"{folder / 'n1'} {folder / 'n2'}"
    assert f"the restore is done: next: kdump verify {paths}" in outcome.stderr.decode()
    assert tree_of(folder) == before


def stop(*_: object, **__: object) -> Iterator[None]:
    raise KdumpError("stopped")


def test_what_cannot_be_cut_keeps_brokers_from_it_and_can_be_completed_without_a_cut(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(restored_moment, "rewind", stop)
        outcome = restore(folder, MIDDLE_MS)
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert (folder / "n1" / FOLDER).is_dir()
    assert (folder / "n2" / FOLDER).is_dir()
    last = names_of(folder)[1]
    assert restore(folder, None, "--snapshot", last).exit_status == 0
    assert tree_of(folder / "n1") == tree_of(folder / "b1")
    assert tree_of(folder / "n2") == tree_of(folder / "b2")


def test_a_moment_in_seconds_is_refused(tmp_path: Path) -> None:
    outcome = restore(tmp_path, MIDDLE_MS // 1000)
    assert outcome.exit_status == ExitStatus.USAGE
    assert "epoch milliseconds (not seconds)" in outcome.stderr.decode()


def test_what_is_being_cut_is_continued_at_the_same_moment_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = expected_of(folder, MIDDLE_MS)
    with monkeypatch.context() as patch:
        patch.setattr(restored_moment, "plan_and_apply", stop)
        assert restore(folder, MIDDLE_MS).exit_status == ExitStatus.OPERATIONAL_ERROR
    for time_ms in (None, MIDDLE_MS + 1):
        outcome = restore(folder, time_ms)
        assert outcome.exit_status == ExitStatus.USAGE
        assert f"continue that with --to {MIDDLE_MS}" in outcome.stderr.decode()
    assert restore(folder, MIDDLE_MS).exit_status == 0
    assert seen(folder) == expected


def stop_after_first(patch: pytest.MonkeyPatch) -> None:
    """End the restore of the first directory, and stop."""
    calls = itertools.count()

    def end_or_stop(request: RestoreRequest) -> None:
        if next(calls):
            raise UsageProblem("stopped")
        end_restore(request)

    patch.setattr(restored_moment, "end_restore", end_or_stop)


@pytest.mark.parametrize("of", ["b1", "b2"])
def test_a_directory_that_is_complete_already_is_not_mixed_up_with_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    expected = expected_of(folder, MIDDLE_MS)
    with monkeypatch.context() as patch:
        stop_after_first(patch)
        assert restore(folder, MIDDLE_MS).exit_status == ExitStatus.USAGE
    shutil.copytree(folder / of, folder / "other")  # b1 has the meta.properties of n1
    before = tree_of(folder)
    outcome = restore(folder, MIDDLE_MS, "--into", "other", "--into", "n2")
    assert outcome.exit_status == ExitStatus.USAGE
    assert b"other: has " in outcome.stderr
    assert b"is not an unfinished copy: name a new directory" in outcome.stderr
    assert tree_of(folder) == before
    assert restore(folder, MIDDLE_MS).exit_status == 0
    assert seen(folder) == expected


def test_a_restore_to_a_moment_goes_on_after_newer_snapshots(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = expected_of(folder, MIDDLE_MS)
    with monkeypatch.context() as patch:
        patch.setattr(restored_moment, "plan_and_apply", stop)
        assert restore(folder, MIDDLE_MS).exit_status == ExitStatus.OPERATIONAL_ERROR
    back_up(folder, END_MS + 1)
    assert restore(folder, MIDDLE_MS).exit_status == 0
    assert seen(folder) == expected


def test_brokers_whose_directories_are_not_in_the_snapshot_are_named(folder: Path) -> None:
    # These clusters have no metadata that says where replicas are.
    def with_absent(request: RewindRequest, options: EngineOptions) -> Rewind:
        return replace(rewind(request, options), absent={3: 1})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restored_moment, "rewind", with_absent)
        outcome = restore(folder, MIDDLE_MS)
    said = outcome.stderr.decode()
    assert outcome.exit_status == ExitStatus.OPERATIONAL_ERROR
    assert "are not in this snapshot: 3;" in said
    assert f"--snapshot {names_of(folder)[1]}" in said
    assert (folder / "n1" / FOLDER).is_dir()


def test_replicas_that_differ_are_named_with_what_to_do(folder: Path) -> None:
    for number in range(3):
        log = min((folder / f"b2/orders-{number}").glob("*.log"))
        content = bytearray(log.read_bytes())
        content[15] ^= 1  # the leader epoch of the first batch, which no checksum covers
        log.write_bytes(content)
    last = back_up(folder, END_MS + 1)
    outcome = restore(folder, MIDDLE_MS, "--snapshot", last)
    said = outcome.stderr.decode()
    assert outcome.exit_status & ExitStatus.DAMAGE_LEFT
    assert "would not be the same" in said
    assert f"without --to, with --snapshot {last}, and then use kdump rewind --to" in said
    assert (folder / "n1" / FOLDER).is_dir()
    assert restore(folder, None, "--snapshot", last).exit_status & ~ExitStatus.DAMAGE_LEFT == 0
    rewind = ["rewind", f"--to={MIDDLE_MS}", "n1", "n2"]
    assert run_kdump(rewind, folder).exit_status == ExitStatus.DAMAGE_LEFT
    excluded = [word for number in range(3) for word in ("--exclude", f"n2/orders-{number}")]
    outcome = run_kdump([*rewind, *excluded], folder)
    assert outcome.exit_status & ExitStatus.REPAIRED


@pytest.mark.slow
@at_some_or_each_kind
def test_a_restore_to_a_moment_that_was_killed_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_each_kind: bool
) -> None:
    """It is killed before the first and the last change of each kind (``kinds_of_changes``)."""
    monkeypatch.chdir(folder)
    expected = expected_of(folder, MIDDLE_MS)
    words = ["backup", "restore", f"--to={MIDDLE_MS}", "--snapshot", names_of(folder)[1]]
    words += ["--into", "n1", "--into", "n2", "repo"]
    kinds = kinds_of_changes(lambda: run_kdump(words, folder))
    assert seen(folder) == expected
    with KillableKdump() as killable:
        for at in moments_of_kinds(kinds, is_each_kind=is_each_kind):
            for each in ("n1", "n2"):
                shutil.rmtree(folder / each, ignore_errors=True)
            assert killable.run_and_kill(words, at) == -signal.SIGKILL
            for each in ("n1", "n2"):
                require_blocked_or_whole(folder / each, expected[int(each[1]) - 1])
            again = run_kdump(words, folder)
            assert again.exit_status == 0 or seen(folder) == expected, (at, again.stderr)
            assert seen(folder) == expected, at


def require_blocked_or_whole(path: Path, expected: dict[str, bytes]) -> None:
    """Nothing that is half done is taken for a whole log directory by a broker."""
    if path.exists() and any(path.iterdir()) and not (path / FOLDER).exists():
        there = seen_by_broker(path)
        there.pop(LOCK_FILE, None)
        assert not any("/" in each for each in there) or there == expected


def test_what_programs_read_is_declared(folder: Path) -> None:
    answer = json.loads(restore(folder, MIDDLE_MS, "--output=json").stdout)
    assert {"restored", "cut", "partition", "summary"} <= {each["type"] for each in answer}
    assert not [*problems_of_objects("backup restore", answer)]
