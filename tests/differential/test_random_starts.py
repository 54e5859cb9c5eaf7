"""kdump's predictions of a broker's start match a real broker, whatever happened to its disks.

A case makes a few random changes to a copy of a broker's two directories, after a clean shutdown or
a crash. kdump predicts the result of a start, and a broker is started on the same files.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from builders.broker import PATIENT_FOR_10_S, BrokerHost, RequestFailed
from builders.broker_damage import BrokerDamage
from builders.freeing import of_type
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.memory import in_memory

pytestmark = [pytest.mark.differential, pytest.mark.slow, pytest.mark.soak]

SEEDS: Final = range(8)
KAFKAS: Final = {"4.3.1": "java_classpath", "4.4.0": "newest_classpath"}
_IS_OFFLINE: Final = re.compile("without this directory|directory offline")
_FAILS: Final = re.compile(f"does not start|refuse to start|{_IS_OFFLINE.pattern}")
_FUTURE: Final = re.compile(r"\.[^.]+-future$")

Bounds = tuple[int, int]
"""The log start offset and the log end offset of a log."""


@dataclass(frozen=True, slots=True)
class Start:
    """The result of a start; paths are relative to the parent of the log directories.

    Attributes:
        starts: whether the broker starts; None if only one is known that takes directories offline.
        offline: the log directories that it takes offline.
        stray: the directories that it renames to ``-stray``, without what a move adds to the name.
        logs: the logs that it has, and where they start and end.
    """

    starts: bool | None
    offline: AbstractSet[str] = frozenset()
    stray: AbstractSet[str] = frozenset()
    logs: Mapping[str, Bounds] = field(default_factory=dict)


def predicted(said: list[dict[str, Any]], folder: Path) -> Start:
    failures = [
        (Path(row["path"]), row["what"])
        for row in of_type(said, "finding")
        if row["severity"] == "severe" and _FAILS.search(row["what"])
    ]
    if any(not _IS_OFFLINE.search(what) for _, what in failures):
        return Start(starts=False)
    if failures:
        return Start(None, {path.relative_to(folder).parts[0] for path, _ in failures})
    partitions = {
        _name(folder, Path(row["log_dir"]) / row["directory"]): row
        for row in of_type(said, "partition")
    }
    return Start(
        starts=True,
        stray={
            name
            for name, row in partitions.items()
            if row["becomes_stray"] and not row["directory"].endswith("-stray")
        },
        logs={
            name: (row["log_start_offset"], row["log_end_offset"])
            for name, row in partitions.items()
            if row["log_end_offset"] is not None and not row["becomes_stray"]
        },
    )


def _name(folder: Path, partition: Path) -> str:
    return _FUTURE.sub("", str(partition.relative_to(folder)))


def happened(host: BrokerHost, log_dirs: Sequence[Path], expected: Start) -> Start:
    """Start a broker, and return its behaviour."""
    folder = log_dirs[0].parent
    before = {path for each in log_dirs for path in each.glob("*-stray")}
    try:
        patience = [PATIENT_FOR_10_S] if expected.starts is False else []
        with host.broker(log_dirs, "log.cleaner.enable=false", *patience):
            if expected.starts is False:
                host.wait_until_ended()
            for name in expected.offline:
                host.wait_until_offline(folder / name)
            served = host.served_directories()
            logs = host.logs()
    except RequestFailed:
        return Start(starts=False)
    new = {path for each in log_dirs for path in each.glob("*-stray")} - before
    return Start(
        starts=True,
        offline={Path(path).name for path, found in served.items() if not found},
        stray={str(path.relative_to(folder)).rpartition(".")[0] for path in new},
        # Copies that are being moved go on growing.
        logs={
            _name(folder, Path(path)): bounds
            for path, bounds in logs.items()
            if not path.endswith("-future")
        },
    )


@pytest.fixture(scope="module", params=KAFKAS)
def kafka(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture(scope="module")
def host(
    kafka: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerHost]:
    classpath = request.getfixturevalue(KAFKAS[kafka])
    log = tmp_path_factory.mktemp("brokers") / "log"
    with BrokerHost(classpath, log, patience_s=20) as host:
        yield host


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_starts_as_predicted_on_changed_disks(
    seed: int, kafka: str, host: BrokerHost, fixtures: Path, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    with in_memory(tmp_path) as folder:
        state = fixtures / "out" / rng.choice(("clean", "crashed"))
        log_dirs = [folder / name for name in ("d1", "d2")]
        for each in log_dirs:
            shutil.copytree(state / each.name, each)
        damage = BrokerDamage(rng, log_dirs)
        for _ in range(rng.choice((1, 1, 2, 3, 5))):
            damage.change()
        words = ["recover", "--dry-run", "--output", "jsonl", "--kafka-version", kafka]
        words += map(str, log_dirs)
        said = objects(run_kdump(words, folder).stdout)
        expected = predicted(said, folder)
        found = happened(host, log_dirs, expected)
    if expected.starts is None:
        assert not found.starts or found.offline == expected.offline, damage.done
        return
    assert found.starts == expected.starts, damage.done
    assert found.offline == expected.offline, damage.done
    assert found.stray == expected.stray, damage.done
    assert {name: expected.logs.get(name, (0, 0)) for name in found.logs} == found.logs, damage.done
