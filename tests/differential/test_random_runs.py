"""Any commands one after the other leave a sound directory, and each can be undone.

No finding is new, a broker has nothing to repair, and Kafka loads the records that are there.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from builders.freeing import of_type
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.loading import Clock, LoaderServer
from builders.read_records import ReadRecord, all_records
from builders.samples import seeds
from builders.trees import Seen, tree_of
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names
from kdump.formats.names import KDUMP_PREFIX

pytestmark = [pytest.mark.differential, pytest.mark.slow]

BASES: Final[Mapping[str, tuple[str, ...]]] = {
    "out/clean": ("d1", "d2"),
    "out/recovered": ("d1", "d2"),
    "states/clean": ("b2-d1", "b2-d2"),
    "old/4.4.0": ("clean",),
    "old/2.0.1": ("clean",),
    "old/0.10.2.2": ("clean",),
}
STEPS: Final = 5
NOW_MS: Final = 1_800_000_000_000


@dataclass(frozen=True, slots=True)
class Disks:
    """The log directories of a stopped broker, by their names in ``folder``."""

    folder: Path
    log_dirs: tuple[str, ...]

    def kdump(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        outcome = run_kdump([*words, "--output=jsonl"], self.folder)
        return outcome.exit_status, objects(outcome.stdout)

    def partitions(self) -> list[Path]:
        found = [path for each in self.log_dirs for path in (self.folder / each).iterdir()]
        return sorted(path for path in found if path.is_dir() and path.name[-1].isdigit())

    def records(self) -> dict[Path, list[ReadRecord]]:
        return {path: all_records(path) for path in self.partitions()}

    def warnings(self) -> Counter[str]:
        """The codes of findings that are no notes, but for partitions that a broker deletes."""
        _, said = self.kdump("verify", *self.log_dirs)
        return Counter(
            row["code"]
            for row in of_type(said, "finding")
            if row["severity"] != "info" and "-delete" not in row["path"]
        )

    def broken(self) -> set[str]:
        """The partitions that a starting broker repairs, or does not load."""
        _, said = self.kdump("recover", "--dry-run", *self.log_dirs)
        return {
            row["directory"]
            for row in of_type(said, "partition")
            if row["verdict_kind"] not in ("valid", "stray", "deleted")
        }

    def visible(self) -> dict[str, Seen]:
        """Everything but what kdump keeps to undo its runs, and when directories changed."""
        return {
            name: each if each.content is not None else each._replace(modified_ns=0)
            for name, each in tree_of(self.folder).items()
            if KDUMP_PREFIX not in name and not name.endswith(names.LOCK_FILE)
        }

    def undo_once(self) -> bool:
        """Undo the newest runs; those of a move first where the partitions came from."""
        done = [self.kdump("undo", each)[0] == 0 for each in self.log_dirs]
        return any(done)


def compact(rng: random.Random, disks: Disks) -> list[str]:
    return ["compact", "--all-compacted", "--undo", f"--now={NOW_MS}", *disks.log_dirs]


def retain(rng: random.Random, disks: Disks) -> list[str]:
    how = rng.choice(["--free=100KiB", "--config=retention.ms=1000000"])
    return ["retain", "--topic=*", "--high-watermark=end", how, "--undo", *disks.log_dirs]


def delete_records(rng: random.Random, disks: Disks) -> list[str]:
    partition = rng.choice(disks.partitions())
    before = rng.choice([-1, rng.randrange(400)])
    words = ["delete-records", f"--partition={partition.name}", f"--before={before}", "--undo"]
    return [*words, "--high-watermark=end", partition.parent.name]


def erase(rng: random.Random, disks: Disks) -> list[str]:
    partition = rng.choice(disks.partitions())
    present = [each.key.hex() for each in all_records(partition) if each.key] or ["00"]
    keys = [f"--key={rng.choice(present)}" for _ in range(3)]
    mask = rng.choice([[], ["--mask"]])
    words = ["erase", f"--topic={topic_of(partition)}", "--yes", "--key-format=hex"]
    return [*words, *keys, *mask, *disks.log_dirs]


def rewind(rng: random.Random, disks: Disks) -> list[str]:
    sampled = rng.sample(disks.partitions(), 4)
    times = [each.timestamp_ms for path in sampled for each in all_records(path)]
    moment = rng.choice([each for each in times if each > 0] or [NOW_MS])
    return ["rewind", f"--to={moment}", *disks.log_dirs]


def move(rng: random.Random, disks: Disks) -> list[str]:
    source, target = rng.sample([*disks.log_dirs, *disks.log_dirs], 2)
    topic = topic_of(rng.choice(disks.partitions()))
    return ["move", f"--from={source}", f"--to={target}", f"--topic={topic}", "--undo"]


def repair(rng: random.Random, disks: Disks) -> list[str]:
    words = rng.choice(
        [
            ["recover"],
            ["recover", "--policy=salvage"],
            ["verify", "--repair"],
            ["rebuild-index"],
            ["snapshot", "rebuild"],
            ["checkpoint", "rebuild"],
            ["resolve"],
        ]
    )
    return [*words, *disks.log_dirs]


def topic_of(partition: Path) -> str:
    return partition.name.rpartition("-")[0]


RUNS: Final[Sequence[Callable[[random.Random, Disks], list[str]]]] = (
    compact,
    retain,
    delete_records,
    erase,
    rewind,
    move,
    repair,
)


@pytest.mark.parametrize("seed", seeds(0, count=24, in_main=2))
def test_any_runs_leave_a_sound_directory_and_can_be_undone(
    seed: int, fixtures: Path, quick_path: Path, loader_server: LoaderServer
) -> None:
    rng = random.Random(seed)
    base = rng.choice(sorted(BASES))
    disks = Disks(quick_path, BASES[base])
    for each in disks.log_dirs:
        shutil.copytree(fixtures / base / each, quick_path / each, symlinks=True)
    # Leftover files of the cleaner and of deletions are no part of this.
    disks.kdump("resolve", "--no-undo", *disks.log_dirs)
    warnings, broken = disks.warnings(), disks.broken()
    before = disks.visible()
    words: list[list[str]] = []
    for _ in range(STEPS):
        words.append(rng.choice(RUNS)(rng, disks))
        disks.kdump(*words[-1])
        assert disks.warnings() - warnings == Counter(), words
        assert disks.broken() <= broken, words

    loaded = quick_path / "loaded"
    for each in disks.log_dirs:
        shutil.copytree(quick_path / each, loaded / each, symlinks=True)
    at_kafka = Disks(loaded, disks.log_dirs)
    records = at_kafka.records()
    for each in disks.log_dirs:
        refused = loader_server.load(loaded / each, IndexSettings(), Clock(NOW_MS), whole=True)
        assert refused == {}, words
    assert at_kafka.records() == records, words
    assert at_kafka.warnings() - warnings == Counter(), words
    shutil.rmtree(loaded)

    while disks.undo_once():
        pass
    assert disks.visible() == before, words
