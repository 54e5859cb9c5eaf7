"""``kdump retain`` deletes what a real broker with the same configuration deletes.

kdump previews retention on the directories of a broker. A broker is started on them with the same
configuration, and applies retention.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from builders.broker import PROPERTIES, BrokerHost
from builders.freeing import of_type, rows_of
from builders.memory import in_memory

pytestmark = [pytest.mark.differential, pytest.mark.slow]

CUTOFF_MS: Final = 1_780_272_000_000
"""2026-06-01: months after the oldest records of the directories, and before the others."""
COMPACTED_BY_DEFAULT: Final = {"log.cleanup.policy": "compact", "log.retention.bytes": "0"}
STATIC: Final = "static"
DYNAMIC: Final = "dynamic"
COMPACTED: Final = "compacted by default"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Return the number of deleted segments by partition."""

    broker: Mapping[str, int]
    with_file: Mapping[str, int]
    without_file: Mapping[str, int]


def old_ms() -> str:
    """Return the retention that deletes records before the cutoff."""
    return str(max(1, time.time_ns() // 1_000_000 - CUTOFF_MS))


@pytest.fixture(scope="module")
def outcomes(
    broker_host: BrokerHost, fixtures: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    """Preview retention, and let brokers of several configurations apply it."""
    found = {}
    with in_memory(tmp_path_factory.mktemp("retention")) as folder:
        for name, static, dynamic in (
            (STATIC, {"log.retention.minutes": "0", "log.retention.ms": old_ms()}, {}),
            (
                DYNAMIC,
                {"log.retention.ms": "1", "log.retention.bytes": "0"},
                {"": {"log.retention.bytes": "20000"}, "1": {"log.retention.ms": old_ms()}},
            ),
            (COMPACTED, COMPACTED_BY_DEFAULT, {}),
        ):
            shutil.copytree(fixtures / "out" / "clean", folder / name)
            found[name] = outcome_of(broker_host, folder / name, static, dynamic)
    return found


def outcome_of(
    host: BrokerHost,
    root: Path,
    static: Mapping[str, str],
    dynamic: Mapping[str, Mapping[str, str]],
) -> Outcome:
    log_dirs = [root / "d1", root / "d2"]
    if dynamic:
        with host.broker(log_dirs):
            for node, properties in dynamic.items():
                host.configure_broker(node, *words_of(properties))
    file = root / "server.properties"
    file.write_text("".join(f"{word}\n" for word in words_of({**PROPERTIES, **static})))
    with_file = previewed(*log_dirs, "--server-properties", file)
    without_file = previewed(*log_dirs)
    # Without this, the cleaner applies retention to some of the logs too early.
    with host.broker(log_dirs, *words_of(static), "log.cleaner.enable=false"):
        return Outcome(host.retain(), with_file, without_file)


def words_of(properties: Mapping[str, str]) -> Iterator[str]:
    return (f"{name}={value}" for name, value in properties.items())


def previewed(*args: str | Path) -> dict[str, int]:
    said = rows_of("retain", "--dry-run", "--topic=*", *args)
    return {
        f"{row['topic']}-{row['partition']}": row["deleted_segments"]
        for row in of_type(said, "partition")
        if not row["topic"].startswith("__")
    }


@pytest.mark.parametrize("name", [STATIC, DYNAMIC, COMPACTED])
def test_with_the_brokers_file_the_same_segments_are_deleted(
    outcomes: dict[str, Outcome], name: str
) -> None:
    outcome = outcomes[name]
    assert sum(outcome.with_file.values()) > 0
    assert outcome.with_file == {each: outcome.broker[each] for each in outcome.with_file}


@pytest.mark.parametrize("name", [STATIC, DYNAMIC, COMPACTED])
def test_without_the_brokers_file_no_segment_is_deleted_that_the_broker_keeps(
    outcomes: dict[str, Outcome], name: str
) -> None:
    outcome = outcomes[name]
    assert all(count in (0, outcome.broker[each]) for each, count in outcome.without_file.items())
