"""A copy with ``--remote`` has local segments instead of remote ones, and the same records."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.tiered_fixture import TieredFixture, records_by_partition

TOPICS = ("cut", "kept", "moved", "orders", "plain", "tx")


@pytest.fixture
def copied(tiered: TieredFixture, tmp_path: Path) -> Path:
    args = ["copy", "--remote", str(tiered.remote), str(tiered.leader), "new"]
    outcome = run_kdump(args, tmp_path)
    assert outcome.exit_status == 0, outcome.stderr
    return tmp_path / "new"


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_copy_has_the_records_that_a_consumer_read(
    tiered: TieredFixture, copied: Path, level: str
) -> None:
    found = records_by_partition(TOPICS, copied, **{"kafka.isolation.level": level})
    assert found == tiered.consumed(level)


def test_a_copy_is_verified_without_findings(copied: Path) -> None:
    outcome = run_kdump(["verify", "--strict", str(copied)], copied.parent)
    assert outcome.exit_status == 0, outcome.stdout


def test_a_broker_loads_it_without_recovering_a_segment(copied: Path) -> None:
    args = ["recover", "--dry-run", str(copied), "--config", "remote.storage.enable=false"]
    found = objects(run_kdump([*args, "--output", "jsonl"], copied.parent).stdout)
    assert found[-1]["verdicts"] == {"valid": 12}
    changed = {each["file"] for row in found for each in row.get("operations", ())}
    assert not {name for name in changed if name.endswith((".log", "index"))}
