"""A killed retention run is finished by the next run, or a broker can be started."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builders.batches import BASE_TIMESTAMP_MS
from builders.freeing import (
    ALL_IS_OLD,
    EVERY_TOPIC,
    FIRST_IS_OLD,
    lines_of,
    logs_of,
    run,
    second_partition,
)
from builders.killed_process import KillableKdump
from builders.loading import Clock, LoaderServer
from builders.log_dir_trees import seen_by_broker
from builders.verified import END_OFFSET, LogModel
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names

SAMPLES = 4
ORDERS = "orders-0"
DELETED = "--config=cleanup.policy=delete"
NOW = f"--now={BASE_TIMESTAMP_MS + 9_000}"
commands = pytest.mark.parametrize(
    ("command", "args", "start"),
    [
        ("retain", (*EVERY_TOPIC, *FIRST_IS_OLD), 12),
        ("retain", (*EVERY_TOPIC, *ALL_IS_OLD), END_OFFSET),
        (
            "delete-records",
            ("--partition", "orders-0", "--before", "14", DELETED, NOW),
            14,
        ),
    ],
    ids=["some segments", "all segments", "delete-records"],
)


@pytest.fixture
def original(quick_path: Path) -> Path:
    """Return a clean log directory of two partitions."""
    root = LogModel().write(quick_path / "original").parent
    second_partition(root, "payments-0", {names.REPLICATION_OFFSET_CHECKPOINT: END_OFFSET})
    return root


@commands
def test_the_next_run_has_the_same_result(
    original: Path, killable: KillableKdump, command: str, args: tuple[str, ...], start: int
) -> None:
    whole = original.with_name("whole")
    shutil.copytree(original, whole)
    run(command, whole, *args)
    assert seen_by_broker(whole) != seen_by_broker(original)

    for log_dir in killable.killed_at(original, command, args, SAMPLES):
        assert run(command, log_dir, *args).exit_status == 0
        assert seen_by_broker(log_dir) == seen_by_broker(whole)
        assert not list(log_dir.glob(f"{names.KDUMP_PREFIX}*"))


def log_start(root: Path) -> int:
    """Return the log start offset of a stopped broker."""
    lines = lines_of(root, names.LOG_START_OFFSET_CHECKPOINT)
    return lines.get(ORDERS, logs_of(root / ORDERS)[0])


@pytest.mark.differential
@commands
def test_a_broker_never_serves_deleted_records_and_has_all_others(
    loader_server: LoaderServer,
    original: Path,
    killable: KillableKdump,
    command: str,
    args: tuple[str, ...],
    start: int,
) -> None:
    seen = set()
    for log_dir in killable.killed_at(original, command, args, SAMPLES):
        before = {path.name: path.read_bytes() for path in (log_dir / ORDERS).glob("*.log")}
        is_shorter = f"{0:020d}.log" not in before

        assert loader_server.load(log_dir, IndexSettings(), Clock(), whole=True) == {}

        assert log_start(log_dir) in ((start,) if is_shorter else (0, start))
        for name, content in before.items():
            path = log_dir / ORDERS / name
            if int(path.stem) >= start or not is_shorter:
                assert path.read_bytes() == content, name
        seen.add(is_shorter)
    assert seen == {False, True}
