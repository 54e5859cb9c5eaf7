"""Every long operation is in a phase, which a terminal shows."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from builders.compactable_directories import NOW_MS, plain_directory
from builders.dead_clusters import disk, replica, write_collection
from builders.image_plans import write_small_plan
from builders.in_process import run_kdump
from builders.log_directories import TOPIC_ID_TEXT, write_log_directory
from builders.metadata_log import feature_record, topic_record, write_metadata_log
from builders.programs import PYTHON_PATH
from kdump import phases
from kdump.cli.command_group import command_names
from kdump.errors import ExitStatus
from kdump.formats import names

pytestmark = pytest.mark.slow

NOW: Final = ("--now", str(NOW_MS))
TOPIC: Final = ("--topic", "users")
CLEANED: Final = ("--config", "cleanup.policy=compact", *NOW)
DELETED: Final = (*TOPIC, "--config", "cleanup.policy=delete", *NOW)
SEGMENT: Final = f"users-0/{20:020d}.log"
TRANSPLANT: Final = (
    *("transplant", "users-0", "--into", "../target", "--leader-epoch", "0"),
    *("--topic-id", TOPIC_ID_TEXT),
)
LISTED: Final[tuple[tuple[str, ...], ...]] = (
    ("checkpoint", "show", "."),
    ("checkpoint", "set", ".", "cleaner-offset", "users-0=5"),
    ("checkpoint", "rebuild", "."),
    ("compact", *TOPIC, *CLEANED, "."),
    ("compact", "--dry-run", *TOPIC, *CLEANED, "."),
    ("compact", "--dry-run", "--explain", *CLEANED, "."),
    ("compact", "--recover", *TOPIC, *CLEANED, "."),
    ("delete-records", "--partition", "users-0", "--before", "30", "."),
    ("erase", *TOPIC, "--key-prefix", "k", "--yes", "."),
    ("diff", "--records", ".", "users-0"),
    ("dump-segment", "--print-data-log", SEGMENT),
    ("dump-segment", "--from-offset", "23", "--output", "jsonl", SEGMENT),
    ("dump-segment", "--key", "nobody", "--follow-bad", SEGMENT),
    ("dump-segment", SEGMENT.replace(".log", ".index")),
    ("export", "--out", "../out", "."),
    ("export", "--isolation-level", "read_committed", "--out", "../out", "users-0"),
    ("grep", "nobody", "."),
    ("grep", "", "--isolation-level", "read_committed", "--from-offset", "23", "users-0"),
    ("grep", "", "--from-time", "0", SEGMENT),
    ("info", "."),
    ("info", "--deep", "."),
    ("info", "users-0"),
    ("lookup", "--offset", "5", "."),
    ("ls", "."),
    ("ls", "users-0"),
    ("metadata", "show", "."),
    ("metadata", "history", "."),
    ("metadata", "diff", ".", "."),
    ("metadata", "collect", "--out", "../collection.json", "."),
    ("quorum", "show", "."),
    ("rewind", "--to", "2020-01-01", "--dry-run", "."),
    ("quorum", "reset", "--without-this-node", "--voter", "1@h:1", "."),
    ("metadata", "plan", "--controller", "4001@h:9093", "--out", "../plan.json", "../here.json"),
    ("metadata", "apply", "../small-plan.json", "../empty"),
    ("move", "--balance", "."),
    ("backup", "create", "../repository", "."),
    ("backup", "list", "../backup"),
    ("backup", "check", "../backup"),
    ("backup", "prune", "--keep-last", "1", "../backup"),
    ("backup", "restore", "--into", "../restored", "../backup"),
    ("copy", ".", "../copied"),
    ("copy", "--dry-run", ".", "../copied"),
    ("metadata", "rebuild", "--controller", "4001@h:9093", "--into", "../empty", "../node"),
    ("rebuild-index", "."),
    ("recover", "--dry-run", "."),
    ("recover", "."),
    ("recover", "--policy", "salvage", "."),
    ("resolve", "."),
    ("retain", *DELETED, "--config", "retention.ms=1", "."),
    ("retain", *DELETED, "--free", "100", "."),
    ("snapshot", "rebuild", "."),
    (*TRANSPLANT, "--dry-run"),
    TRANSPLANT,
    ("undo", "--list", "."),
    ("report", "--out", "../report.html", "."),
    ("undo", "--dry-run", "."),
    ("undo", "."),
    ("undo", "--discard", "."),
    ("verify", "--deep", "."),
    ("verify", "users-0"),
    ("verify", SEGMENT),
    ("verify", "--repair", "."),
)
COVERED: Final = {run[0] for run in LISTED} | {"completion", "explain", "query", "serve"}
RUNS: Final = (*LISTED, *((name, ".") for name in command_names() if name not in COVERED))
"""Every command runs but query, which starts Spark, and serve, which runs until it is stopped; one
that is not listed gets the log directory alone."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an unclean log directory without an index and with undo data."""
    root = plain_directory(tmp_path_factory.mktemp("template") / "logs")
    run_kdump(["checkpoint", "set", str(root), "cleaner-offset", "users-0=3"], root)
    next((root / "users-0").glob("*.index")).unlink()
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    """Return a copy of it."""
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / names.META_PROPERTIES).write_text("version=1\ncluster.id=c\nnode.id=2\n")
    write_collection(tmp_path / "here.json", disk(1, replica("users")))
    return shutil.copytree(template, tmp_path / "logs")


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the places that waited for the disk outside of a phase."""
    found: list[str] = []

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if phases.current() is None:
                ours = [each for each in traceback.extract_stack() if "/kdump/" in each.filename]
                # The modules of commands are listed from kdump itself, not from a log directory.
                if ours and not ours[-1].filename.endswith("/cli/command_group.py"):
                    found.append(" < ".join(each.name for each in reversed(ours[-4:])))
            return function(*args, **kwargs)

        return called

    for name in ("scandir", "open", "preadv", "fsync", "rename", "unlink"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    return found


@pytest.mark.parametrize("run", RUNS, ids=" ".join)
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
def test_every_wait_for_the_disk_is_in_a_phase(
    run: tuple[str, ...], is_clean: bool, root: Path, outside: list[str]
) -> None:
    if not is_clean:
        (root / names.CLEAN_SHUTDOWN_MARKER).unlink()
    write_log_directory(root.parent / "target")
    if run[0] in ("metadata", "quorum"):
        records = [feature_record("metadata.version", 30), topic_record("users", 1)]
        write_metadata_log(root, records)
        write_small_plan(root.parent / "small-plan.json")
        (root.parent / "empty").mkdir()
    if run[0] == "backup":
        run_kdump(["backup", "create", "../backup", "."], root)
    outside.clear()
    outcome = run_kdump(run, root)
    assert outcome.exit_status & ExitStatus.USAGE == 0
    assert outside == []


def test_making_the_logs_of_an_erasure_is_a_phase(tmp_path: Path, outside: list[str]) -> None:
    root = plain_directory(tmp_path / "logs")  # with all indexes: what lacks one stays unchanged
    outside.clear()
    outcome = run_kdump(["erase", "--yes", *TOPIC, "--key-prefix", "k", "."], root)
    assert b"of 61 records" in outcome.stdout
    assert outside == []


SLOW_DISK: Final = """
import os, sys
import kdump
from kdump.cli.main import main

function, waits_at = getattr(os, sys.argv[1]), int(sys.argv[2])
own = os.path.dirname(kdump.__file__)

def slow(*args, **kwargs):
    if not str(args[0]).startswith(own):
        os.read(waits_at, 1)  # nothing comes, until the test has seen what it waits for
    return function(*args, **kwargs)

setattr(os, sys.argv[1], slow)
del sys.argv[1:3]
main()
"""


@pytest.mark.parametrize(
    ("slow", "run", "expected"),
    [
        ("scandir", ("ls", "."), "listing partitions in ."),
        ("preadv", ("dump-segment", "--key", "nobody", SEGMENT), f"reading {SEGMENT}: 0 B of"),
        ("fsync", ("recover", "."), "writing new files"),
        ("fsync", ("undo", "."), "undoing"),
    ],
    ids=["listing", "scanning", "applying", "undoing"],
)
def test_a_terminal_shows_the_phase_on_a_slow_disk(
    slow: str, run: tuple[str, ...], expected: str, root: Path
) -> None:
    ours, theirs = pty.openpty()
    waits_at, released_by = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_DISK, slow, str(waits_at), *run],
        cwd=root,
        env={**os.environ, "PYTHONPATH": PYTHON_PATH, "COLUMNS": "120"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        pass_fds=[waits_at],
    ) as process:
        os.close(theirs)
        os.close(waits_at)
        try:
            seen = ""
            while expected not in seen:
                assert len(seen) < 3_000, seen
                assert select.select([ours], [], [], 60)[0], seen
                seen += os.read(ours, 1024).decode()
        except BaseException:
            process.kill()
            raise
        finally:
            os.close(released_by)
        assert process.wait(60) in (0, 1)
    rest = os.read(ours, 1024).decode()
    os.close(ours)
    assert (seen + rest).endswith("\x1b[2K")
