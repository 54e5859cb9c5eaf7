"""Verify finds all damage that makes Kafka truncate, delete or refuse data, and nothing else.

Partitions are generated, loaded once by Kafka, damaged, and loaded by Kafka again.
"""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from builders import random_partitions
from builders.loading import MINUTE_MS, Clock, LoaderServer, files_of
from builders.memory import in_memory
from builders.samples import seeds
from builders.valid_batches import valid_batches
from builders.verified import said_of
from kdump.broker.loader.load_context import IndexSettings
from kdump.check.findings import Finding, Severity
from kdump.check.part import Level
from kdump.formats import names
from kdump.formats.checkpoints import encode_offset_checkpoint
from kdump.formats.kafka_versions import KAFKA_4_3_1
from kdump.jobs.verify.verify_partition import PartitionReport
from kdump.storage.local_disk import local

pytestmark = [pytest.mark.differential, pytest.mark.slow]

CASES = 100
SETTINGS = IndexSettings(kafka_version=KAFKA_4_3_1)
CLOCK = Clock()
LATER_MS = CLOCK.now_ms + 24 * 60 * MINUTE_MS
"""After all timestamps of the generated records."""
LEFTOVER_CODES = {
    "swap_interrupted": {"leftover-swap"},
    "cleaning_interrupted": {"leftover-cleaned"},
    "deletion_interrupted": {"leftover-deleted"},
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
        """The partitions that Kafka refuses, or in which it loses more than zeroes.

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


@pytest.fixture(scope="module", params=seeds(1, count=3, in_main=1))
def trial(
    request: pytest.FixtureRequest,
    loader_server: LoaderServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Trial]:
    """Return partitions of one seed."""
    with in_memory(tmp_path_factory.mktemp("trial")) as root:
        yield make_trial(root, random.Random(request.param), loader_server)


def make_trial(root: Path, rng: random.Random, server: LoaderServer) -> Trial:
    sound, damaged, loaded = root / "sound", root / "damaged", root / "loaded"
    names_of_all = [f"case-{number}" for number in range(CASES)]
    for name in names_of_all:
        write_files(sound / name, random_partitions.random_logs(rng, may_overflow=False))
    server.load(sound, SETTINGS, CLOCK)
    (sound / names.CLEAN_SHUTDOWN_MARKER).unlink(missing_ok=True)
    damages = {}
    for name in names_of_all:
        files = files_of(sound / name)
        if rng.random() < 0.7:
            files = random_partitions.as_after_crash(files)
            shutil.rmtree(sound / name)
            write_files(sound / name, files)
        damages[name], files = random_partitions.after_happenings(rng, files)
        write_files(damaged / name, files)
    for name in (
        names.RECOVERY_POINT_CHECKPOINT,
        names.LOG_START_OFFSET_CHECKPOINT,
        names.REPLICATION_OFFSET_CHECKPOINT,
        names.CLEANER_OFFSET_CHECKPOINT,
    ):
        for log_dir in (sound, damaged):
            (log_dir / name).write_bytes(encode_offset_checkpoint([]))
    shutil.copytree(damaged, loaded)
    refused = frozenset(server.load(loaded, SETTINGS, CLOCK))
    return Trial(sound, damaged, loaded, damages, refused)


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    directory.mkdir(parents=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)


def found(log_dir: Path, level: Level) -> tuple[dict[str, list[Finding]], dict[str, str]]:
    """Return the findings of each partition, and the verdict on it."""
    findings: dict[str, list[Finding]] = defaultdict(list)
    verdicts = {}
    pending: list[Finding] = []
    # Their writers skip offsets now and then, as compaction does.
    given = {"cleanup.policy": "compact"}
    for said in said_of(log_dir, level=level, now_ms=LATER_MS, given=given):
        if isinstance(said, Finding):
            pending.append(said)
        elif isinstance(said, PartitionReport):
            path, name = said.partition.path, said.partition.path.name
            findings[name] = [
                each
                for each in pending
                if path in (local(each.place.path), local(each.place.path).parent)
            ]
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
    assert set(verdicts.values()) <= {"valid", "unclean"}


@pytest.mark.parametrize("level", [Level.DEFAULT, Level.DEEP])
def test_damage_that_makes_kafka_lose_or_refuse_data_is_found(trial: Trial, level: Level) -> None:
    findings, _ = found(trial.damaged, level)
    hit = list(trial.hit)
    assert len(hit) > CASES // 10
    missed = {
        name: trial.damages[name]
        for name in hit
        if not any(each.severity > Severity.INFO for each in findings[name])
    }
    assert not missed


def test_the_verdict_predicts_what_kafka_does(trial: Trial) -> None:
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


@pytest.mark.parametrize("level", Level)
def test_a_verdict_of_loss_is_not_called_valid(trial: Trial, level: Level) -> None:
    findings, verdicts = found(trial.damaged, level)
    quiet = {
        name: trial.damages[name]
        for name, kind in verdicts.items()
        if kind in ("loss", "refused")
        and not any(each.severity.is_damage for each in findings[name])
    }
    assert not quiet


def test_leftover_files_have_their_codes(trial: Trial) -> None:
    findings, _ = found(trial.damaged, Level.QUICK)
    unnamed = {
        name: damages
        for name, damages in trial.damages.items()
        for damage in damages[-1:]
        if damage in LEFTOVER_CODES
        and not LEFTOVER_CODES[damage] & {each.code for each in findings[name]}
    }
    assert not unnamed
