"""A transplant that is killed is finished by the next run, and undone."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from builders.batches import batch, record
from builders.in_process import run_kdump
from builders.killed_process import KillableKdump, changes_of
from builders.log_dir_trees import original_of, seen_by_broker
from builders.log_directories import TOPIC_ID_TEXT, write_log_directory, write_partition
from builders.samples import at_some_or_all, moments_of
from builders.trees import contents_of
from kdump.formats import names

pytestmark = pytest.mark.slow


def kdump(*args: str | Path) -> int:
    return run_kdump([*map(str, args)], Path.cwd()).exit_status


@at_some_or_all
@pytest.mark.parametrize("is_replaced", [False, True], ids=["new", "replaced"])
def test_a_killed_transplant_is_finished_by_the_next_and_undone(
    quick_path: Path, killable: KillableKdump, is_replaced: bool, is_all: bool
) -> None:
    old = write_log_directory(quick_path / "old", recovery_points={("orders", 0): 3})
    log = b"".join(batch([record(at)], partition_leader_epoch=4) for at in range(3))
    source = write_partition(old / "orders-0", {0: log})
    original, target = write_log_directory(quick_path / "original"), quick_path / "new"
    write_partition(original / "users-0", {0: log})
    if is_replaced:
        write_partition(original / "orders-0", {0: b""})
    before = original_of(original)
    words = ["transplant", str(source), "--into", str(target)]
    words += ["--topic-id", TOPIC_ID_TEXT, "--leader-epoch", "1"]

    def again() -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(original, target)

    again()
    count = changes_of(lambda: kdump(*words))
    done = seen_by_broker(target)
    complete = contents_of(target / "orders-0")
    for at in moments_of(range(count), is_all=is_all):
        again()
        assert killable.run_and_kill(words, at) == -signal.SIGKILL, at
        if (target / "orders-0").exists():
            found = contents_of(target / "orders-0")
            # A broker finds it complete, or as it was.
            assert found == complete or (
                is_replaced and found == contents_of(original / "orders-0")
            ), at
        # The next run finishes the killed one, or begins again.
        assert kdump(*words) in (0, 1), at
        assert seen_by_broker(target) == done, at
        for _ in range(1 + is_replaced):
            assert kdump("undo", target) == 0, at
        kdump("undo", "--discard", target)
        after = original_of(target)
        after.pop(names.LOCK_FILE, None)
        assert after == before, at
