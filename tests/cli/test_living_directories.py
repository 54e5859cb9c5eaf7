"""Commands that read a log directory find nothing wrong with what its broker does meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from builders.in_process import run_kdump
from builders.lock_holder import complaints
from builders.samples import seeds
from builders.simulated_broker import SimulatedBroker, SteppedDisk
from kdump.storage import places
from kdump.storage.local_disk import LOCAL_DISK
from kdump.storage.location import Location

COMMANDS: Final = {
    ("ls",): 0,
    ("info",): 0,
    ("info", "--deep"): 0,
    ("verify",): 0,
    ("groups",): 0,
    ("txns",): 0,
    ("lookup", "--timestamp", "latest"): 0,
    ("lookup", "--timestamp", "max-timestamp"): 0,
    ("lookup", "--timestamp", "1500000000000"): 0,
    ("lookup", "--offset", "9"): 0,
    ("grep", "no record has this"): 1,
    ("grep", "no record has this", "--isolation-level", "read_committed"): 1,
    ("export", "--out", "exported"): 0,
    ("export", "--out", "exported", "--isolation-level", "read_committed"): 0,
    ("report", "--out", "report.html"): 0,
}
"""Commands over a log directory, with the status that they have where nothing is wrong."""


@pytest.mark.parametrize("seed", seeds(0, count=60, in_main=4))
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_broker_that_goes_on_damages_nothing(
    words: tuple[str, ...],
    seed: int,
    locked_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = SimulatedBroker(locked_dir, seed)
    broker.steps(150 + 40 * (seed % 7))
    disk = SteppedDisk(lambda: broker.steps(1 + seed % 4))

    def parse(text: str) -> Location:
        location = places.parse_location(text)
        is_local = location.storage == LOCAL_DISK
        return Location(disk, location.path) if is_local else location

    parameters = "kdump.cli.options.parameters"
    monkeypatch.setattr(f"{parameters}.parse_location", parse)
    monkeypatch.setattr(f"{parameters}.parse_locations", lambda texts: list(map(parse, texts)))
    for module in ("living_windows", "settled_listing"):
        monkeypatch.setattr(f"kdump.log.{module}.wait", lambda _: broker.steps(60))
    # A worker would have a broker of its own.
    monkeypatch.setattr("kdump.engine.local.usable_cpus", lambda: 1)

    outcome = run_kdump([*words, str(locked_dir)], tmp_path)

    assert complaints(outcome) == []
    assert outcome.exit_status == COMMANDS[words], outcome.stdout
