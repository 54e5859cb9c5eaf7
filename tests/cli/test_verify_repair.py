"""``kdump verify --repair`` applies the minimal repair, and reports remaining findings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_directories import offset_checkpoint
from builders.metadata_log import topic_record, write_metadata_log
from builders.trees import contents_of, tree_of
from builders.verified import END_OFFSET, NOW_MS, LogModel, file
from kdump.formats import names
from kdump.formats.names import FileKind

DENSE = ("--config", "index.interval.bytes=0")
"""Gives small segments index entries."""

Breaking = Callable[[Path], None]


def verify(*args: str | Path) -> Outcome:
    return run_kdump(["verify", "--now", str(NOW_MS), *map(str, args)], Path.cwd())


def repair(*args: str | Path) -> Outcome:
    return verify("--repair", *DENSE, *args)


def said(*args: str | Path) -> list[dict[str, Any]]:
    outcome = repair("--output", "jsonl", *args)
    assert outcome.stderr == b""
    return objects(outcome.stdout)


def flip(path: Path, position: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """Return a clean log directory, with indexes as Kafka writes them."""
    root = LogModel().write(tmp_path / "logs").parent
    for path in (root / "orders-0").glob("*index"):
        path.unlink()
    run_kdump(["rebuild-index", "--no-undo", *DENSE, str(root)], Path.cwd())
    return root


def partition(root: Path) -> Path:
    return root / "orders-0"


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def beyond_end(path: Path) -> None:
    """Set a checkpoint past the end of the log."""
    path.write_bytes(offset_checkpoint({("orders", 0): END_OFFSET + 9}))


DERIVED: dict[str, Breaking] = {
    "offset index": lambda root: flip(file(partition(root), 0, FileKind.OFFSET_INDEX), 7),
    "time index": lambda root: flip(file(partition(root), 0, FileKind.TIME_INDEX), 3),
    "no offset index": lambda root: file(partition(root), 0, FileKind.OFFSET_INDEX).unlink(),
    "no time index": lambda root: file(partition(root), 0, FileKind.TIME_INDEX).unlink(),
    "transaction index": lambda root: flip(
        file(partition(root), 0, FileKind.TRANSACTION_INDEX), 20
    ),
    "no transaction index": lambda root: file(
        partition(root), 0, FileKind.TRANSACTION_INDEX
    ).unlink(),
    "snapshot": lambda root: flip(file(partition(root), 12, FileKind.PRODUCER_SNAPSHOT), 30),
    "no snapshot": lambda root: file(
        partition(root), END_OFFSET, FileKind.PRODUCER_SNAPSHOT
    ).unlink(),
    "leader epochs": lambda root: write(
        partition(root) / names.LEADER_EPOCH_CHECKPOINT, b"0\n1\n0 0\n"
    ),
    "no leader epochs": lambda root: (partition(root) / names.LEADER_EPOCH_CHECKPOINT).unlink(),
    "recovery points": lambda root: write(root / names.RECOVERY_POINT_CHECKPOINT, b"rubbish"),
    "recovery point": lambda root: beyond_end(root / names.RECOVERY_POINT_CHECKPOINT),
    "log start offset": lambda root: beyond_end(root / names.LOG_START_OFFSET_CHECKPOINT),
}
"""Derived files, each with damage."""


@pytest.mark.slow
@pytest.mark.parametrize("what", DERIVED)
def test_derived_files_are_rebuilt_as_before(clean: Path, what: str) -> None:
    valid = contents_of(clean)
    DERIVED[what](clean)
    broken = contents_of(clean)
    assert broken != valid

    outcome = repair("--no-undo", clean)

    assert (outcome.exit_status, outcome.stderr) == (1, b"")
    assert contents_of(clean) == valid


def test_a_valid_directory_is_unchanged(clean: Path) -> None:
    before = tree_of(clean)

    assert repair(clean).exit_status == 0

    after = tree_of(clean)
    del before["."], after["."]  # The lock file was created and deleted.
    assert after == before


def test_a_dry_run_previews_the_changes_and_writes_nothing(clean: Path) -> None:
    DERIVED["offset index"](clean)
    before = tree_of(clean)

    rows = said("--dry-run", clean)

    (planned,) = [row for row in rows if row["type"] == "repair"]
    assert [each["file"] for each in planned["operations"]] == ["00000000000000000000.index"]
    assert planned["is_applied"] is False
    assert repair("--dry-run", clean).exit_status == 1
    assert tree_of(clean) == before


def test_only_the_file_of_a_finding_is_changed(clean: Path) -> None:
    DERIVED["time index"](clean)
    before = contents_of(clean)

    repair("--no-undo", clean)

    after = contents_of(clean)
    assert {name for name in before if before[name] != after[name]} == {
        "orders-0/00000000000000000000.timeindex"
    }


def with_bad_batch(tmp_path: Path, *, is_clean: bool, base_offset: int = 0) -> Path:
    """Write a log directory with a damaged batch in one of its two segments."""
    model = LogModel(is_clean=is_clean)
    content = bytearray(model.segments[base_offset][1])
    content[-2] ^= 1
    model.segments[base_offset][1] = bytes(content)
    root = model.write(tmp_path / "logs").parent
    (root / names.RECOVERY_POINT_CHECKPOINT).write_bytes(
        offset_checkpoint({("orders", 0): END_OFFSET if is_clean else 12})
    )
    return root


@pytest.mark.slow
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "flushed"])
def test_damaged_data_that_no_broker_checks_is_reported_and_unchanged(
    tmp_path: Path, is_clean: bool
) -> None:
    root = with_bad_batch(tmp_path, is_clean=is_clean)
    logs = {path: path.read_bytes() for path in partition(root).glob("*.log")}

    outcome = repair(root)

    assert outcome.exit_status & 4
    assert b"batch-checksum" in outcome.stdout
    assert {path: path.read_bytes() for path in logs} == logs


def test_damaged_data_that_a_broker_would_truncate_is_truncated(tmp_path: Path) -> None:
    root = with_bad_batch(tmp_path, is_clean=False, base_offset=12)

    assert repair(root).exit_status == 1

    assert verify(root).exit_status == 0
    assert (root / names.RECOVERY_POINT_CHECKPOINT).read_bytes() == offset_checkpoint(
        {("orders", 0): 15}
    )


@pytest.mark.parametrize("policy", ["salvage", "truncate"])
def test_flushed_data_is_repaired_only_with_a_policy_and_the_directory_stays_clean(
    tmp_path: Path, policy: str
) -> None:
    root = with_bad_batch(tmp_path, is_clean=True)
    before = contents_of(root)

    outcome = repair("--policy", policy, root)

    assert (outcome.exit_status, outcome.stderr) == (1, b"")
    assert verify(root).exit_status == 0
    assert (root / names.CLEAN_SHUTDOWN_MARKER).exists()
    set_aside = [path.name for path in partition(root).glob("damaged-*")]
    assert len(set_aside) == (1 if policy == "salvage" else 0)
    while run_kdump(["undo", str(root)], Path.cwd()).exit_status == 0:
        pass
    assert contents_of(root) == before


def test_leftover_files_are_resolved_before_other_damage_is_repaired(clean: Path) -> None:
    valid = contents_of(clean)
    (partition(clean) / "00000000000000000000.log.cleaned").write_bytes(b"half")
    DERIVED["offset index"](clean)

    assert repair("--no-undo", clean).exit_status == 1

    assert contents_of(clean) == valid


def test_options_that_require_repair_are_refused_without_it(clean: Path) -> None:
    for option in (["--dry-run"], ["--no-undo"], ["--policy", "salvage"]):
        assert verify(*option, clean).exit_status == 16
    assert repair("--output", "junit", clean).exit_status == 16


def test_a_preview_counts_an_unknown_topic_id_as_remaining(clean: Path) -> None:
    write_metadata_log(clean, [topic_record("orders", 4711)])
    DERIVED["offset index"](clean)

    assert repair("--dry-run", clean).exit_status == 4
    assert repair(clean).exit_status == 1 | 4


def test_a_dry_run_reports_that_more_repairs_may_follow(clean: Path) -> None:
    flip(file(partition(clean), 0, FileKind.OFFSET_INDEX), 7)

    assert said("--dry-run", clean)[-1] == {"type": "dry_run", "rounds": 1}
    assert "first round" in repair("--dry-run", clean).stdout.decode().splitlines()[-1]
    assert "first round" not in repair(clean).stdout.decode()
