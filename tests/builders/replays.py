"""What Kafka's coordinators had in memory after each batch of a random log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kdump.log.valid_windows import Damage

State = set[tuple[str, ...]]


def log_of(replay: Path) -> Path:
    """The log."""
    return replay / f"{0:020d}.log"


def states_of(replay: Path) -> Iterator[tuple[int, State]]:
    """Yield the end of each batch, and what the coordinator had in memory after it."""
    end: int | None = None
    state: State = set()
    for line in (replay / "states").read_text().splitlines():
        words = tuple(line.split("\t"))
        if words[0] == "committed":
            continue
        if words[0] == "streams":
            words = ("streams", canonical(json.loads(words[1])))
        if words[0] != "after":
            state.add(words)
            continue
        if end is not None:
            yield end, state
        end, state = int(words[1]), set()
    assert end is not None
    yield end, state


def canonical(description: Mapping[str, Any]) -> str:
    """The description of a group as JSON that does not depend on the order of fields or members."""
    members = sorted(description["members"], key=lambda each: str(each["memberId"]))
    return json.dumps({**description, "members": members}, sort_keys=True)


def fail(damage: Damage) -> None:
    """Take damage where there must be none."""
    raise AssertionError(damage)
