"""A partition whose directory cannot be listed is named by every command that would work on it."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from builders.in_process import Outcome, run_kdump
from builders.two_disks import live_in, write_two_disks
from kdump.log import directory
from kdump.log.partition import Partition, read_partition
from kdump.storage.location import Location

FROM_D1 = ("--from", "d1", "--to", "d2")
DELETED = ("--config=cleanup.policy=delete", "--config=retention.ms=1")
COMMANDS: list[tuple[str, ...]] = [
    ("ls", "d1"),
    ("info", "d1"),
    ("verify", "d1"),
    ("verify", "d1", "--topic=*"),
    ("verify", "d1", "--topic=users"),
    ("verify", "d1", "--partition=users-0"),
    ("recover", "d1", "--dry-run"),
    ("recover", "d1"),
    ("resolve", "d1"),
    ("rebuild-index", "d1"),
    ("rebuild-index", "d1", "--topic=*"),
    ("snapshot", "rebuild", "d1"),
    ("checkpoint", "rebuild", "d1"),
    ("compact", "d1", "--topic=*"),
    ("compact", "d1", "--topic=*", "--dry-run"),
    ("compact", "d1", "--dry-run", "--explain", "--config=cleanup.policy=compact"),
    ("retain", "d1", "--topic=*", *DELETED),
    ("retain", "d1", "--topic=*", *DELETED, "--dry-run"),
    ("recover", "d1", "--partition=users-0"),
    ("compact", "d1", "--partition=users-0"),
    ("retain", "d1", "--partition=users-0", *DELETED),
    ("delete-records", "d1", "--partition=users-0", "--before=5"),
    ("move", "--drain", "d1", "--to", "d2"),
    ("move", "--drain", "d1", "--to", "d2", "--dry-run"),
    ("move", *FROM_D1, "--topic=*"),
    ("move", *FROM_D1, "--topic=users"),
    ("move", *FROM_D1, "--partition=users-0"),
    ("move", "--balance", "d1", "d2"),
    ("groups", "d1"),
    ("txns", "d1"),
    ("lookup", "d1", "--offset=5"),
    ("grep", "value", "d1"),
    ("grep", "value", "d1", "--topic=*"),
    ("diff", "d1", "d2"),
    ("export", "d1", "--out", "exported"),
    ("report", "d1", "--out", "report.html"),
]


@pytest.fixture
def node(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory around two log directories; ``users-0`` in ``d1`` cannot be listed."""
    write_two_disks(quick_path / "node")
    shutil.rmtree(quick_path / "node/model")

    def failing(path: Location, *args: Any, **options: Any) -> Partition:
        if str(path).endswith("d1/users-0"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return read_partition(path, *args, **options)

    monkeypatch.setattr(directory, "read_partition", failing)
    return quick_path / "node"


def said_by(outcome: Outcome) -> str:
    return (outcome.stdout + outcome.stderr).decode()


@pytest.mark.usefixtures("no_starting_broker")
@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_a_partition_that_cannot_be_listed_is_an_error(node: Path, args: tuple[str, ...]) -> None:
    outcome = run_kdump(args, node)

    assert outcome.exit_status & 8, said_by(outcome)
    if args[0] != "report":  # its page says it
        assert "d1/users-0" in said_by(outcome)


def test_a_drained_directory_keeps_only_what_cannot_be_listed(node: Path) -> None:
    outcome = run_kdump(("move", "--drain", "d1", "--to", "d2"), node)

    assert (node / "d1/users-0").exists()
    assert {"orders-0", "users-1"} <= set(live_in(node / "d2"))
    assert b"d1/users-0 is left: no partition, or unreadable" in outcome.stdout
