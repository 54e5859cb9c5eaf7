"""No journal, even a forged one, changes anything outside its log directory."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.forged_journals import (
    FOREIGN,
    LOG,
    PLAIN,
    SET_ID,
    before_of,
    forge,
    log_dir_with_a_run,
    paths_of,
    rewritten,
    with_right_head,
    with_steps,
)
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_dir_trees import original_of
from builders.samples import examples
from builders.trees import tree_of
from builders.written_files import PARTITION, plan_of
from kdump.apply.apply import apply_plan
from kdump.apply.interrupted_runs import finish_interrupted
from kdump.apply.journal import Journal, RunState
from kdump.apply.journal_file import read_journal
from kdump.apply.journal_preview import Restored
from kdump.apply.journal_record import JournalRecord, RecordKind
from kdump.apply.undo import preview_undo, undo
from kdump.errors import KdumpError
from kdump.target.target_file import CopiedFrom, Gone, JoinedFrom, KeptUpTo

NOBODY = 65534
BIG = "00000000000000000009.log"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def log_dir(quick_path: Path) -> Path:
    return log_dir_with_a_run(quick_path)


def kdump(*args: str | Path) -> Outcome:
    return run_kdump([*map(str, args)], Path.cwd())


def seen(log_dir: Path) -> dict[str, Any]:
    """Return everything in the directory except the lock."""
    tree = tree_of(log_dir.parent)
    return {name: each for name, each in tree.items() if not name.endswith((".lock", "logs", "."))}


def require_refused(log_dir: Path, journal: Path, *commands: tuple[str, ...]) -> str:
    """Check that every command names the journal and changes nothing; return the last error."""
    before = seen(log_dir)
    said = ""
    for command in commands:
        outcome = kdump(*command, log_dir)
        said = outcome.stderr.decode()
        assert outcome.exit_status == 8, command
        assert said.count("\n") == 1, said
        assert str(journal) in said
        assert seen(log_dir) == before, command
    return said


UNDO = (("undo", "--dry-run"), ("undo",))
WRITERS = (
    ("recover", "--dry-run"),
    ("recover",),
    ("verify", "--repair"),
    ("resolve",),
    ("rebuild-index",),
    ("checkpoint", "rebuild"),
    ("snapshot", "rebuild"),
    ("retain", "--topic", "*"),
    ("compact", "--topic", "*"),
    *UNDO,
)

OUTSIDE = [
    "/etc/passwd",
    f"../{FOREIGN}",
    f"{PARTITION}/../../{FOREIGN}",
    f"../logs/{PARTITION}/b",
    f"other-0/{LOG}",
    f"{PARTITION}/b/c",
    f"{PARTITION}/..",
    f"{PARTITION}/",
    f"/{FOREIGN}",
    f"./{FOREIGN}",
    "..",
    ".lock",
    ".kdump-2-old-0",
    ".kdump-1.applied",
    "a\0b",
    "a" * 256,
    "\ud800",
]


@pytest.mark.slow
@pytest.mark.parametrize("place", paths_of(""))
@pytest.mark.parametrize("foreign", OUTSIDE, ids=lambda name: ascii(name)[:30])
def test_a_journal_may_not_name_files_outside_of_the_log_directory(
    log_dir: Path, foreign: str, place: str
) -> None:
    journal = forge(log_dir, paths_of(foreign)[place])
    for use in (preview_undo, undo):
        before = seen(log_dir)
        with pytest.raises(KdumpError, match=re.escape(str(journal))):
            use(log_dir)
        assert seen(log_dir) == before


@pytest.mark.parametrize("directory", ["..", "/etc", f"../{FOREIGN}", "a/b", "", "a\0"])
def test_a_journal_may_list_only_partitions_and_the_log_directory(
    log_dir: Path, directory: str
) -> None:
    journal = forge(
        log_dir, lambda each: replace(each, directories=each.directories | {directory: PLAIN})
    )
    require_refused(log_dir, journal, *UNDO)


@pytest.mark.parametrize("state", [RunState.APPLYING, RunState.UNDOING])
def test_no_command_executes_a_journal_that_names_other_files(
    log_dir: Path, state: RunState
) -> None:
    journal = forge(log_dir, paths_of(f"../{FOREIGN}")["remove"], state)
    said = require_refused(log_dir, journal, *WRITERS)
    assert f"names '../{FOREIGN}', which a journal of this log directory must not name" in said


def test_redo_records_may_not_name_other_files_either(log_dir: Path) -> None:
    step = JournalRecord(RecordKind.REMOVE, f"../{FOREIGN}")
    journal = forge(log_dir, lambda each: replace(each, redo_records=(step,)), RunState.APPLYING)
    require_refused(log_dir, journal, *WRITERS)


def test_one_refused_journal_keeps_all_others_from_being_finished(log_dir: Path) -> None:
    forge(log_dir, lambda each: each, RunState.UNDOING)
    (log_dir / ".kdump-2.applying").write_bytes(b"junk")
    require_refused(log_dir, log_dir / ".kdump-2.applying", ("recover",), ("undo",))


def test_no_file_gets_set_id_bits(log_dir: Path) -> None:
    journal = forge(log_dir, before_of(f"{PARTITION}/c", SET_ID), RunState.APPLYING)
    assert "set-id" in require_refused(log_dir, journal, *WRITERS)


def test_the_number_in_a_journal_must_be_that_of_its_file_name(log_dir: Path) -> None:
    (log_dir / ".kdump-1.applied").rename(log_dir / ".kdump-7.applied")
    assert "run 1" in require_refused(log_dir, log_dir / ".kdump-7.applied", *UNDO)


# ---- Owners of journals ----


def exit_status_as(user: int, work: Callable[[], object]) -> int:
    """Run a function in a child process with only the rights of ``user``."""
    child = os.fork()
    if not child:
        status = 1
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@as_root
def test_a_journal_of_an_unrelated_user_is_refused(log_dir: Path) -> None:
    journal = log_dir / ".kdump-1.applied"
    os.chown(journal, NOBODY, NOBODY)
    assert f"belongs to user {NOBODY}" in require_refused(log_dir, journal, *UNDO)


@pytest.mark.parametrize("bits", [stat.S_IWGRP, stat.S_IWOTH])
def test_a_journal_that_others_can_write_is_refused(log_dir: Path, bits: int) -> None:
    journal = log_dir / ".kdump-1.applied"
    journal.rename(journal := log_dir / ".kdump-1.applying")
    journal.chmod(0o600 | bits)
    assert "writable by users" in require_refused(log_dir, journal, *WRITERS)


@as_root
def test_the_owner_of_the_directory_can_undo_a_run_of_root(log_dir: Path) -> None:
    owner = 4711
    undo(log_dir)
    os.chown(log_dir, owner, owner)
    for path in log_dir.rglob("*"):
        os.chown(path, owner, owner)
    log_dir.parent.chmod(0o755)
    before = original_of(log_dir)
    assert kdump("recover", log_dir).exit_status & 8 == 0
    kept = list(log_dir.glob(".kdump-*"))
    assert len(kept) > 2
    assert {(path.stat().st_uid, path.stat().st_gid) for path in kept} == {(owner, owner)}
    assert not any(path.stat().st_mode & 0o077 for path in log_dir.glob(".kdump-*.applied"))
    assert exit_status_as(owner, lambda: undo(log_dir)) == 0
    assert original_of(log_dir) == before


@as_root
def test_root_can_undo_a_run_of_the_owner_of_the_directory(log_dir: Path) -> None:
    owner, size_bytes = 4711, 2 << 20
    undo(log_dir)
    (log_dir / PARTITION / BIG).write_bytes(os.urandom(size_bytes))
    for path in (log_dir, *log_dir.rglob("*")):
        os.chown(path, owner, owner)
    log_dir.parent.chmod(0o755)
    before = original_of(log_dir)
    pieces = JoinedFrom((CopiedFrom(BIG, 0, 1000), CopiedFrom(BIG, 3000, size_bytes)))
    plan = plan_of(log_dir, {BIG: pieces, LOG: KeptUpTo(3), "b": Gone()})
    work = partial(apply_plan, plan, keep_undo=True, command="kdump recover")
    assert exit_status_as(owner, work) == 0
    assert original_of(log_dir) != before
    undo(log_dir)
    assert original_of(log_dir) == before


@as_root
def test_a_journal_of_the_owner_of_a_directory_creates_no_file_of_root(log_dir: Path) -> None:
    owner = 4711
    os.chown(log_dir, owner, owner)
    for path in log_dir.rglob("*"):
        os.chown(path, owner, owner)
    cut = f"{PARTITION}/{LOG}"

    def of_root(journal: Any) -> Any:
        before = replace(journal.before_images[cut], metadata=PLAIN)
        return replace(journal, before_images=journal.before_images | {cut: before})

    journal = forge(log_dir, of_root)
    os.chown(journal, owner, owner)
    before = seen(log_dir)
    for command in UNDO:
        outcome = kdump(*command, log_dir)
        assert outcome.exit_status == 8
        assert b"would be given to user 0" in outcome.stderr
        assert seen(log_dir) == before


# ---- Other files in place of a journal ----


@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize("kind", ["fifo", "socket", "link", "dangling", "device"])
def test_only_a_regular_file_is_a_journal(log_dir: Path, kind: str, state: RunState) -> None:
    real = log_dir / ".kdump-1.applied"
    real.rename(elsewhere := log_dir.parent / "journal")
    journal = log_dir / f".kdump-1{state.value}"
    if kind == "fifo":
        os.mkfifo(journal)
    elif kind == "socket":
        with contextlib.chdir(log_dir), socket.socket(socket.AF_UNIX) as bound:
            bound.bind(journal.name)
    elif kind == "device":
        if os.geteuid() != 0:
            pytest.skip("only root can make devices")
        os.mknod(journal, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    else:
        journal.symlink_to(elsewhere if kind == "link" else "nowhere")
    require_refused(log_dir, journal, *(UNDO if state is RunState.APPLIED else WRITERS))
    assert kdump("undo", "--discard", log_dir, "1").exit_status == 0
    assert not os.path.lexists(journal)
    assert elsewhere.exists()


def test_a_directory_with_the_name_of_a_journal_is_ignored(log_dir: Path) -> None:
    (log_dir / ".kdump-1.applied").unlink()
    for name in (".kdump-3.applying", ".kdump-4-old-0"):
        (log_dir / name).mkdir()
    finish_interrupted(log_dir)
    assert {path.name for path in log_dir.glob(".kdump-*")} == {
        ".kdump-3.applying",
        ".kdump-4-old-0",
    }


# ---- Other files in place of its files ----


def replaced_by_link(log_dir: Path) -> Path:
    """Let the partition be a link to a directory elsewhere that looks the same."""
    elsewhere = log_dir.parent / "elsewhere"
    (log_dir / PARTITION).rename(elsewhere)
    (log_dir / PARTITION).symlink_to(elsewhere)
    return elsewhere


@pytest.mark.parametrize("state", RunState)
def test_a_symbolic_link_that_replaces_a_partition_is_not_followed(
    log_dir: Path, state: RunState
) -> None:
    forge(log_dir, lambda journal: journal, state)
    replaced_by_link(log_dir)
    before = seen(log_dir)
    for command in UNDO if state is RunState.APPLIED else WRITERS:
        outcome = kdump(*command, log_dir)
        assert outcome.exit_status == 8
        assert f"{PARTITION} is a symbolic link".encode() in outcome.stderr
        assert seen(log_dir) == before


def test_a_symbolic_link_that_appears_meanwhile_is_not_followed(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = log_dir.parent / "elsewhere"
    shutil.copytree(log_dir / PARTITION, elsewhere)
    before = tree_of(elsewhere)
    real = monkeypatch.setattr

    def swapped(*_: object) -> None:
        (log_dir / PARTITION).rename(log_dir.parent / "moved")
        (log_dir / PARTITION).symlink_to(elsewhere)

    real("kdump.apply.undo.write_journal", swapped)
    with pytest.raises(KdumpError, match=rf"{PARTITION}/.*: Not a directory"):
        undo(log_dir)
    assert tree_of(elsewhere) == before


def link_foreign_file_as_log(log_dir: Path) -> None:
    """Put a file from elsewhere, like the log in content and time, in the log's place."""
    log, foreign = log_dir / PARTITION / LOG, log_dir.parent / FOREIGN
    foreign.write_bytes(log.read_bytes())
    status = log.stat()
    os.utime(foreign, ns=(status.st_atime_ns, status.st_mtime_ns))
    log.unlink()
    log.hardlink_to(foreign)


@pytest.mark.parametrize("state", [RunState.APPLYING, RunState.UNDOING])
def test_a_foreign_file_is_not_written_through_a_hard_link(log_dir: Path, state: RunState) -> None:
    forge(log_dir, lambda journal: journal, state)
    link_foreign_file_as_log(log_dir)
    before = seen(log_dir)
    with pytest.raises(KdumpError, match=f"{PARTITION}/{LOG} has another hard link"):
        undo(log_dir)
    assert seen(log_dir) == before


def test_a_foreign_file_that_is_hard_linked_as_the_lock_keeps_its_owner(tmp_path: Path) -> None:
    log_dir = log_dir_with_a_run(tmp_path)
    lock = replace(PLAIN, uid=4711)
    forge(log_dir, lambda journal: replace(journal, lock=lock))
    (log_dir / ".lock").hardlink_to(tmp_path / FOREIGN)
    before = seen(log_dir)
    with pytest.raises(KdumpError, match=r"\.lock has another hard link"):
        undo(log_dir)
    assert seen(log_dir) == before


@as_root
def test_a_file_is_not_copied_for_users_who_may_not_read_it(log_dir: Path) -> None:
    owner = 4711
    os.chown(log_dir, owner, owner)
    for path in log_dir.rglob("*"):
        os.chown(path, owner, owner)
    link_foreign_file_as_log(log_dir)
    before = seen(log_dir)
    with pytest.raises(KdumpError, match=f"{PARTITION}/{LOG} belongs to another user"):
        undo(log_dir)
    assert seen(log_dir) == before


def test_contradicting_records_change_only_the_directory_and_are_all_previewed(
    log_dir: Path,
) -> None:
    checkpoint = "recovery-point-offset-checkpoint"
    forge(
        log_dir,
        with_steps(
            JournalRecord(RecordKind.MOVE, f"{PARTITION}/c", checkpoint),
            JournalRecord(RecordKind.MOVE, checkpoint, f"{PARTITION}/c"),
            JournalRecord(RecordKind.REMOVE, checkpoint),
        ),
    )
    _, restored = preview_undo(log_dir)
    assert (checkpoint, True) in {(each.path, each.is_removed) for each in restored}


def test_a_file_that_gets_a_new_name_is_previewed(log_dir: Path) -> None:
    forge(
        log_dir,
        with_steps(
            JournalRecord(RecordKind.MOVE, "first", "recovery-point-offset-checkpoint"),
            JournalRecord(RecordKind.MOVE, "second", "first"),
            JournalRecord(RecordKind.PUT, f"{PARTITION}/third", f"{PARTITION}/b"),
        ),
    )
    _, restored = preview_undo(log_dir)
    shown = {each.path: (each.is_removed, each.size_bytes) for each in restored}
    assert "first" not in shown
    assert shown["recovery-point-offset-checkpoint"] == (True, 0)
    assert (shown["second"], shown[f"{PARTITION}/third"]) == ((False, 4), (False, 1))


def test_everything_that_another_command_would_finish_is_previewed(log_dir: Path) -> None:
    redo_records = (
        JournalRecord(RecordKind.REMOVE, "recovery-point-offset-checkpoint"),
        JournalRecord(RecordKind.MOVE, f"{PARTITION}/moved", f"{PARTITION}/c"),
    )

    def forged(journal: Journal) -> Journal:
        fingerprints = {
            path: replace(mark, checksum=None) for path, mark in journal.fingerprints.items()
        }
        return replace(journal, redo_records=redo_records, fingerprints=fingerprints)

    forge(log_dir, forged, RunState.APPLYING)
    said = kdump("recover", "--dry-run", log_dir).stdout.decode().splitlines()
    assert "  remove recovery-point-offset-checkpoint" in said
    assert f"  remove {PARTITION}/c" in said
    assert f"  write {PARTITION}/moved: 1 B" in said


# ---- Random journals ----


def leaves(said: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(said, dict):
        for key, value in said.items():
            yield from leaves(value, (*path, key))
    elif isinstance(said, list):
        for at, value in enumerate(said):
            yield from leaves(value, (*path, at))


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**31, 2**63 - 1, 2**63, -1, 2**62, 10**30]),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([*OUTSIDE, f"{PARTITION}/c", f"{PARTITION}/{LOG}", ".", "", ".kdump-1-old-0"]),
    st.lists(st.integers(), max_size=6),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.just([["remove", f"../{FOREIGN}", "", 0, []]]),
    st.just([["move", "x", f"{PARTITION}/c", 0, []]]),
)

Change = Callable[[dict[str, Any]], None]


def value_at(said: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        said = said[key]
    return said


def alike(said: dict[str, Any], path: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    """Return values of the same type from other places in the journal."""
    kind = type(value_at(said, path))
    return st.sampled_from(
        [value for other in leaves(said) if type(value := value_at(said, other)) is kind]
    )


@st.composite
def changes(draw: st.DrawFn, said: dict[str, Any]) -> Change:
    paths = [path for path in leaves(said) if path]
    chosen = draw(st.lists(st.sampled_from(paths), min_size=1, max_size=3))
    values = [draw(anything | alike(said, path)) for path in chosen]
    is_gone = draw(st.booleans())

    def change(journal: dict[str, Any]) -> None:
        for path, value in zip(chosen, values, strict=True):
            at: Any = journal
            try:
                for key in path[:-1]:
                    at = at[key]
                if is_gone:
                    del at[path[-1]]
                else:
                    at[path[-1]] = value
            except (KeyError, IndexError, TypeError):
                continue

    return change


@pytest.mark.slow
@pytest.mark.parametrize("state", RunState)
@given(data=st.data())
@settings(
    max_examples=examples(1.2),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_journal_changes_anything_outside_or_crashes_kdump(
    quick_path: Path, state: RunState, data: st.DataObject
) -> None:
    root = quick_path / "original"
    if not root.exists():
        root.mkdir()
        forge(log_dir_with_a_run(root), lambda journal: journal, state)
    work = quick_path / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(root, work, symlinks=True)
    log_dir = work / "logs"
    journal = log_dir / f".kdump-1{state.value}"
    said = json.loads(journal.read_bytes().partition(b"\n")[2])
    rewritten(journal, data.draw(changes(said)))
    outside = (work / FOREIGN).read_bytes(), (work / FOREIGN).stat()

    predicted: list[Restored] | None = None
    with suppress(KdumpError):
        _, predicted = preview_undo(log_dir)
    before = {name: each for name, each in tree_of(log_dir).items() if name != "."}
    with suppress(KdumpError):
        undo(log_dir)
        assert predicted is not None
    after = {name: each for name, each in tree_of(log_dir).items() if name != "."}
    changed = {
        name
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name) and not name.startswith(".kdump-1")
    }
    assert changed <= {*(each.path for each in predicted or ()), PARTITION}
    status = (work / FOREIGN).stat()
    assert ((work / FOREIGN).read_bytes(), status.st_mode) == (outside[0], outside[1].st_mode)
    assert status.st_uid == outside[1].st_uid


@pytest.mark.slow
@given(data=st.data())
@settings(
    max_examples=examples(3),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_damaged_bytes_are_a_journal_or_an_error(quick_path: Path, data: st.DataObject) -> None:
    if not (quick_path / "logs").exists():
        log_dir_with_a_run(quick_path)
    good = (quick_path / "logs" / ".kdump-1.applied").read_bytes()
    other = quick_path / "other"
    other.mkdir(exist_ok=True)
    journal = other / ".kdump-1.applied"
    body = good.partition(b"\n")[2]
    kind = data.draw(st.sampled_from(["cut", "flip", "flip inside", "noise", "deep"]))
    at = data.draw(st.integers(0, len(good) - 1))
    if kind == "cut":
        journal.write_bytes(good[:at])
    elif kind == "flip":
        journal.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
    elif kind == "flip inside":
        at %= len(body)
        with_right_head(journal, body[:at] + bytes([body[at] ^ 1 << at % 8]) + body[at + 1 :])
    elif kind == "deep":
        with_right_head(journal, b"[" * 200_000)
    else:
        with_right_head(journal, data.draw(st.binary(max_size=200)), data.draw(anything))
    with suppress(KdumpError):
        read_journal(journal)


def test_every_truncated_journal_is_an_error(log_dir: Path) -> None:
    journal = log_dir / ".kdump-1.applied"
    good = journal.read_bytes()
    for end in range(0, len(good), 7):
        journal.write_bytes(good[:end])
        with pytest.raises(KdumpError, match="is damaged"):
            read_journal(journal)


# ---- Advice ----


def advised(said: str) -> list[str]:
    """Return the command that a message advises."""
    (command,) = re.findall(r"'(kdump undo --discard .*?)' (?:removes|discards)", said)
    return shlex.split(command)[1:]


@pytest.mark.slow
@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize("damage", [b"", b"junk", b'{"kdump":2}'])
@pytest.mark.parametrize("name", ["logs", "my logs", "it's"])
def test_the_advice_about_a_damaged_journal_works(
    log_dir: Path, state: RunState, damage: bytes, name: str
) -> None:
    log_dir = log_dir.rename(log_dir.with_name(name))
    journal = forge(log_dir, lambda each: each, state)
    journal.write_bytes(damage)
    outcome = kdump("undo" if state is RunState.APPLIED else "recover", log_dir)
    assert outcome.exit_status == 8
    said = outcome.stderr.decode()
    assert f"{journal}: is damaged" in said

    assert kdump(*advised(said)).exit_status == 0
    assert not list(log_dir.glob(".kdump-*"))
    assert kdump("recover", log_dir).exit_status & 8 == 0


def test_discarding_all_does_not_silently_skip_interrupted_runs(log_dir: Path) -> None:
    forge(log_dir, lambda each: each, RunState.APPLYING).write_bytes(b"junk")
    outcome = kdump("undo", "--discard", log_dir)
    assert outcome.exit_status == 8
    (command,) = re.findall(r"'kdump (undo --discard .*?)'", outcome.stderr.decode())
    assert kdump(*shlex.split(command)).exit_status == 0
    assert not list(log_dir.glob(".kdump-*"))


def test_a_journal_of_another_version_is_refused_with_a_way_out(log_dir: Path) -> None:
    journal = forge(log_dir, lambda each: each, RunState.APPLYING)
    with_right_head(journal, journal.read_bytes().partition(b"\n")[2], 1)
    said = require_refused(log_dir, journal, *WRITERS)
    assert "another version of kdump" in said
    assert kdump(*advised(said)).exit_status == 0
    assert kdump("recover", log_dir).exit_status & 8 == 0


def test_a_journal_that_cannot_be_used_is_listed(log_dir: Path) -> None:
    (log_dir / ".kdump-1.applied").write_bytes(b"junk")
    outcome = kdump("undo", "--list", "--output", "json", log_dir)
    assert outcome.exit_status == 0
    (row,) = objects(outcome.stdout)
    assert (row["undo"], row["state"], row["command"]) == ("1", "unusable", None)
