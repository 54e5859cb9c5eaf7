"""Whatever makes Kafka cut, drop or refuse something is found; what is sound is left in peace.

Partitions are made by Kafka's own classes, damaged, and loaded by Kafka. The programs for that lie
beside the repository, in ``../shared/oracle``; without them these tests are skipped.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from builders.memory import in_memory
from builders.once import made_once
from builders.valid_batches import valid_batches
from builders.verified import said_of
from kdump.check.findings import Finding, Severity
from kdump.check.part import Level
from kdump.formats import names
from kdump.formats.checkpoints import encode_offset_checkpoint
from kdump.jobs.verify.verify_partition import PartitionReport

pytestmark = [pytest.mark.differential, pytest.mark.slow]

CASES = 100
NOW_MS = 1_800_000_000_000
LEFTOVER_CODES = {
    "swap": {"leftover-swap"},
    "cleaned": {"leftover-cleaned"},
    "deleted": {"leftover-deleted"},
    "orphan_index": {"index-orphan"},
}


@dataclass(frozen=True)
class Trial:
    """Partitions before and after damage, and after Kafka loaded the damaged ones.

    Attributes:
        sound: log directory as Kafka made it, its partitions partly as a killed broker leaves them.
        damaged: the same with damage.
        loaded: the same as Kafka left it.
        damages: what was done to each partition, by name.
        refused: names of the partitions that Kafka does not load.
    """

    sound: Path
    damaged: Path
    loaded: Path
    damages: Mapping[str, list[str]]
    refused: frozenset[str]

    @property
    def hit(self) -> Iterator[str]:
        """The partitions that Kafka refuses, or of which it loses more than zeroes.

        It cuts or drops it, or deletes an unfinished log that alone has it.
        """
        for name in self.damages:
            if name in self.refused:
                yield name
                continue
            after = log_sizes(self.loaded / name)
            if any(
                path.name not in after or path.read_bytes()[after[path.name] :].strip(b"\0")
                for path in (self.damaged / name).glob("*.log")
            ) or self._loses_unfinished(name):
                yield name

    def _loses_unfinished(self, name: str) -> bool:
        logs = b"".join(path.read_bytes() for path in (self.loaded / name).glob("*.log"))
        return any(
            batch not in logs
            for suffix in ("swap", "cleaned")
            for path in (self.damaged / name).glob(f"*.log.{suffix}")
            for batch in valid_batches(path.read_bytes())
        )


def log_sizes(partition: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in partition.glob("*.log")}


@pytest.fixture(scope="module", params=[1, 2, 3])
def trial(
    request: pytest.FixtureRequest,
    repository_root: Path,
    kafka_classpath: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Trial]:
    """Give partitions of one seed."""
    oracle = repository_root.parent / "shared" / "oracle"
    if not oracle.is_dir():
        pytest.skip("the programs that drive Kafka's loader are not here (../shared/oracle)")

    def build(folder: Path) -> None:
        set_up(oracle, folder)

    home = made_once(repository_root / "build/oracle", (oracle / "Oracle.java").read_text(), build)
    with in_memory(tmp_path_factory.mktemp("trial")) as root:
        yield make_trial(root, request.param, oracle, set_up(oracle, home))


def set_up(oracle: Path, home: Path) -> str:
    """Have the programs built in ``home``; gives their class path. Cheap once that is done."""
    done = subprocess.run(
        [oracle / "setup.sh"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "ORACLE_HOME": str(home)},
    )
    return done.stdout.strip()


def ask(classpath: str, *orders: str) -> list[Any]:
    """Give orders to the program that drives Kafka's classes; gives its answers."""
    answers = subprocess.run(
        [
            "java",
            "-Xmx1g",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "-cp",
            classpath,
            "Oracle",
        ],
        input="".join(f"{order}\n" for order in orders),
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in answers.stdout.splitlines()]


DAMAGE_ALL = """
import json, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
import damage
seed, count = int(sys.argv[3]), int(sys.argv[4])
names = [f"case-{index}" for index in range(count)]
print(json.dumps({
    name: damage.damage(seed * 7919 + index, f"{sys.argv[2]}/{name}")
    for index, name in enumerate(names)
}))
"""


def make_trial(root: Path, seed: int, oracle: Path, classpath: str) -> Trial:
    rng = random.Random(seed)
    sound, damaged, loaded = root / "sound", root / "damaged", root / "loaded"
    sound.mkdir()
    orders = [
        "\t".join(
            [
                "generate",
                str(sound / f"case-{index}"),
                f"seed={seed * 100003 + index}",
                f"now={NOW_MS}",
                f"batches={rng.choice([3, 20, 60, 120])}",
                f"internal.segment.bytes={rng.choice([3000, 12000, 40000])}",
                f"index.interval.bytes={rng.choice([1, 300, 4096])}",
                f"txn={rng.choice(['true', 'true', 'false'])}",
                *(["crash"] if rng.random() < 0.7 else []),
                *(["hanging"] if rng.random() < 0.5 else []),
            ]
        )
        for index in range(CASES)
    ]
    assert all(answer["ok"] for answer in ask(classpath, *orders))
    for name in (
        names.RECOVERY_POINT_CHECKPOINT,
        names.LOG_START_OFFSET_CHECKPOINT,
        names.REPLICATION_OFFSET_CHECKPOINT,
        names.CLEANER_OFFSET_CHECKPOINT,
    ):
        (sound / name).write_bytes(encode_offset_checkpoint([]))
    shutil.copytree(sound, damaged)
    done = subprocess.run(
        [sys.executable, "-c", DAMAGE_ALL, oracle, damaged, str(seed), str(CASES)],
        capture_output=True,
        text=True,
        check=True,
    )
    damages = json.loads(done.stdout)
    shutil.copytree(damaged, loaded)
    (answer,) = ask(classpath, f"recover-each\t{loaded}\tnow={NOW_MS}")
    assert answer["ok"]
    logs = answer["logs"]
    refused = frozenset(name for name in damages if "refused" in logs.get(name, {"refused": ""}))
    return Trial(sound, damaged, loaded, damages, refused)


def found(log_dir: Path, level: Level) -> tuple[dict[str, list[Finding]], dict[str, str]]:
    """Give the findings of each partition, and the verdict on it."""
    findings: dict[str, list[Finding]] = defaultdict(list)
    verdicts = {}
    pending: list[Finding] = []
    # Their writers skip offsets now and then, as compaction does.
    given = {"cleanup.policy": "compact"}
    for said in said_of(log_dir, level=level, now_ms=NOW_MS, given=given):
        if isinstance(said, Finding):
            pending.append(said)
        elif isinstance(said, PartitionReport):
            own = f"{said.partition.path}/"
            name = said.partition.path.name
            findings[name] = [each for each in pending if each.place.path.startswith(own)]
            verdicts[name] = said.verdict_kind
            pending = []
    return findings, verdicts


@pytest.mark.parametrize("level", Level)
def test_nothing_is_reported_on_undamaged_partitions(trial: Trial, level: Level) -> None:
    findings, verdicts = found(trial.sound, level)
    loud = {
        name: each
        for name, all_of_it in findings.items()
        if (each := [one for one in all_of_it if one.severity > Severity.INFO])
    }
    assert not loud
    assert set(verdicts.values()) <= {"sound", "unclean"}


@pytest.mark.parametrize("level", [Level.DEFAULT, Level.DEEP])
def test_what_makes_kafka_lose_or_refuse_something_is_found(trial: Trial, level: Level) -> None:
    findings, _ = found(trial.damaged, level)
    hit = list(trial.hit)
    assert len(hit) > CASES // 10
    missed = {
        name: trial.damages[name]
        for name in hit
        if not any(each.severity > Severity.INFO for each in findings[name])
    }
    assert not missed


def test_the_verdict_says_what_kafka_does(trial: Trial) -> None:
    _, verdicts = found(trial.damaged, Level.QUICK)
    wrong = {}
    hit = set(trial.hit)
    for name, kind in verdicts.items():
        expected = {"refused"} if name in trial.refused else {"loss", "rebuilt"}
        if name in hit and kind not in expected:
            wrong[name] = (kind, trial.damages[name])
        if name not in hit and kind in ("refused", "loss"):
            wrong[name] = (kind, trial.damages[name])
    assert not wrong


def test_leftovers_are_named_as_leftovers(trial: Trial) -> None:
    findings, _ = found(trial.damaged, Level.QUICK)
    unnamed = {
        name: damages
        for name, damages in trial.damages.items()
        for damage in damages[-1:]
        if damage in LEFTOVER_CODES
        and not LEFTOVER_CODES[damage] & {each.code for each in findings[name]}
    }
    assert not unnamed
