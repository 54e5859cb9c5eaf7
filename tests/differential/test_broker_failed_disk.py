"""After a crash one of two disks fails: kdump's output about both matches a real broker.

The steps of the runbook run on the ``crashed`` directories. A checkpoint of the second one is
damaged so that a broker takes it offline; a broker is started on the recovered directories.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from builders.broker import BrokerHost, Consumed
from builders.freeing import of_type, rows_of, run
from builders.in_process import Outcome
from kdump.formats import names

pytestmark = [pytest.mark.differential, pytest.mark.slow]

READ: Final = ("crash-none", "crash-compact", "crash-empty")
"""Topics without transactions, whose first partition is in the first directory."""


@dataclass(frozen=True, slots=True)
class Story:
    """Observations, in the order in which they were made."""

    log_dirs: tuple[Path, Path]
    previewed: dict[str, dict[str, Any]]
    recovered: Outcome
    verified: dict[str, dict[str, Any]]
    severe: list[dict[str, Any]]
    consumed: dict[str, Consumed]
    served: dict[str, list[str]]


@pytest.fixture(scope="module")
def story(
    broker_host: BrokerHost, fixtures: Path, tmp_path_factory: pytest.TempPathFactory
) -> Story:
    """Run the scenario."""
    folder = tmp_path_factory.mktemp("broker")
    shutil.copytree(fixtures / "out" / "crashed", folder / "crashed")
    d1, d2 = folder / "crashed" / "d1", folder / "crashed" / "d2"
    (d2 / names.REPLICATION_OFFSET_CHECKPOINT).write_text("rubbish\n")
    preview = of_type(rows_of("recover", "--dry-run", d1, d2), "partition")
    recovered = run("recover", d1, d2)
    said = rows_of("verify", d1, d2)
    with broker_host.broker([d1, d2], "log.cleaner.enable=false"):
        broker_host.wait_until_offline(d2)
        consumed = {topic: broker_host.read(topic) for topic in READ}
        found = broker_host.served_directories()
    served = {Path(path).name: what for path, what in found.items()}
    return Story(
        (d1, d2),
        {row["directory"]: row for row in preview},
        recovered,
        {row["directory"]: row for row in of_type(said, "partition")},
        [row for row in of_type(said, "finding") if row["severity"] == "severe"],
        consumed,
        served,
    )


def test_only_the_failed_directory_is_reported(story: Story) -> None:
    _, d2 = story.log_dirs

    (finding,) = story.severe

    assert Path(finding["path"]) == d2 / names.REPLICATION_OFFSET_CHECKPOINT
    assert "directory offline" in finding["what"]
    assert story.recovered.exit_status == 5


def test_a_broker_serves_only_the_other_directory(story: Story) -> None:
    d1, d2 = ({path.name for path in each.glob("[a-z]*-[0-9]")} for each in story.log_dirs)

    assert d1 <= set(story.served["d1"])
    assert d2.isdisjoint(story.served["d1"])
    assert story.served["d2"] == []


@pytest.mark.parametrize("topic", READ)
def test_a_consumer_gets_the_predicted_number_of_records(story: Story, topic: str) -> None:
    name, consumed = f"{topic}-0", story.consumed[topic]

    assert story.previewed[name]["verdict_kind"] in ("valid", "unclean", "rebuilt")
    assert len(consumed.records) == story.verified[name]["records"]
    assert consumed.end_offset == story.verified[name]["log_end_offset"]
    assert consumed.end_offset == story.previewed[name]["log_end_offset"]
