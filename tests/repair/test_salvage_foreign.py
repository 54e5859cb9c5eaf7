"""Salvage keeps a partition's own records, and removes segments that were copied in."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from builders.apply_target import apply_target
from builders.batches import batch, record
from builders.log_directories import write_log_directory
from builders.recovery import joined, log_name
from builders.samples import seeds
from builders.valid_batches import valid_batches_of
from builders.verified import findings_in
from kdump.broker.loader.load_context import IndexSettings, LoadContext
from kdump.broker.loader.load_report import Cause
from kdump.broker.loader.recovered_partition import Recovered
from kdump.check.findings import Severity
from kdump.check.part import Level
from kdump.formats.names import leading_offset
from kdump.log.directory import read_lone_partition
from kdump.repair.partition_repair import repair_partition
from kdump.repair.policies import Policy
from kdump.repair.verdict.outcome_verdict import verdict
from kdump.repair.verdict.verdict import VerdictKind
from kdump.storage.local_disk import local

SETTINGS: Final = IndexSettings(interval_bytes=200)
CONTEXT: Final = LoadContext(settings=SETTINGS)
Files = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the batches of a partition; ``producer_id`` is -1 for none."""

    producer_id: int
    leader_epoch: int
    value: bytes

    def batch(self, offset: int, count: int) -> bytes:
        rows = [
            record(offset + step, key=b"k%d" % (offset + step), value=self.value)
            for step in range(count)
        ]
        if self.producer_id < 0:
            return batch(rows, partition_leader_epoch=self.leader_epoch)
        return batch(
            rows,
            partition_leader_epoch=self.leader_epoch,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=offset,
        )


def whole(path: Path, writer: Writer, sizes: list[list[int]]) -> Files:
    """The files of a partition after a clean stop: batches by segment, their records by number."""
    path.mkdir(parents=True)
    offset = 0
    for segment in sizes:
        log, base_offset = [], offset
        for count in segment:
            log.append(writer.batch(offset, count))
            offset += count
        (path / log_name(base_offset)).write_bytes(joined(log))
    outcome = repair_partition(read_lone_partition(local(path), path.name), CONTEXT)
    assert isinstance(outcome, Recovered), outcome
    apply_target(path, outcome.files)
    files = {file.name: file.read_bytes() for file in path.iterdir()}
    shutil.rmtree(path)
    return files


def random_sizes(rng: random.Random) -> list[list[int]]:
    return [
        [rng.randrange(1, 6) for _ in range(rng.randrange(3, 25))]
        for _ in range(rng.randrange(2, 6))
    ]


def logs(files: Files) -> list[str]:
    return sorted(name for name in files if name.endswith(".log"))


def copied_in(rng: random.Random, own: Files, foreign: Files) -> None:
    """A segment of another partition under its own name, mostly with its indexes."""
    base = rng.choice(logs(foreign))[:20]
    for name, content in foreign.items():
        is_index = name.endswith(("index",)) and rng.random() < 0.7
        if name.startswith(base) and (name.endswith(".log") or is_index):
            own[name] = content


def copied_over(rng: random.Random, own: Files, foreign: Files) -> None:
    """The log of another partition's segment over one of its own."""
    own[rng.choice(logs(own))] = foreign[rng.choice(logs(foreign))]


def copied_after(rng: random.Random, own: Files, foreign: Files) -> None:
    """The same as a new last segment."""
    last = leading_offset(logs(own)[-1])
    assert last is not None
    own[log_name(last + rng.randrange(1, 80))] = foreign[rng.choice(logs(foreign))]


def copied_twice(rng: random.Random, own: Files, foreign: Files) -> None:
    """A segment of its own, under another name as well."""
    own[log_name(rng.randrange(1, 300))] = own[rng.choice(logs(own))]


def appended(rng: random.Random, own: Files, foreign: Files) -> None:
    """Another segment, its own or not, appended to one of its own."""
    name = rng.choice(logs(own))
    source = rng.choice([own, foreign])
    own[name] += source[rng.choice(logs(source))]


DAMAGES: Final = (copied_in, copied_over, copied_after, copied_twice, appended)


def salvaged(path: Path, *, is_clean: bool = False) -> Recovered:
    partition = read_lone_partition(local(path), path.name)
    outcome = repair_partition(partition, replace(CONTEXT, is_clean=is_clean), Policy.SALVAGE)
    assert isinstance(outcome, Recovered), outcome
    return outcome


def written(path: Path, files: Files) -> Path:
    write_log_directory(path.parent, clean=False)
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


def require_clean(path: Path) -> None:
    """Assert that verify finds no damage, and that a broker cuts nothing."""
    damage = findings_in(path.parent, level=Level.DEFAULT, at_least=Severity.ERROR)
    assert [each for each in damage if each.code != "partition-metadata-missing"] == []
    again = repair_partition(read_lone_partition(local(path), path.name), CONTEXT)
    assert isinstance(again, Recovered), again
    assert not again.report.loses_data


@pytest.mark.slow
@pytest.mark.parametrize("producers", ["none", "other", "same"])
@pytest.mark.parametrize("seed", seeds(0, count=25, in_main=5))
def test_no_record_of_its_own_is_lost(tmp_path: Path, seed: int, producers: str) -> None:
    rng = random.Random(f"{seed} {producers}")
    own_id, foreign_id = {"none": (-1, -1), "other": (7, 8), "same": (7, 7)}[producers]
    sizes = random_sizes(rng)
    own = whole(tmp_path / "own-0", Writer(own_id, 0, b"own"), sizes)
    foreign_sizes = sizes if rng.random() < 0.2 else random_sizes(rng)
    foreign = whole(tmp_path / "foreign-0", Writer(foreign_id, 0, b"foreign"), foreign_sizes)
    before = dict(own)
    happening = rng.choice(DAMAGES)
    happening(rng, own, foreign)
    path = written(tmp_path / "logs" / "orders-0", own)
    intact = [name for name in logs(before) if own[name].startswith(before[name])]

    outcome = salvaged(path)
    apply_target(path, outcome.files)

    kept = set(valid_batches_of({file.name: file.read_bytes() for file in path.glob("*.log")}))
    mine = valid_batches_of({name: before[name] for name in intact})
    assert [each for each in mine if each not in kept] == [], happening.__name__
    require_clean(path)


def tiny_sizes(rng: random.Random) -> list[list[int]]:
    """Of segments that hardly anything is known of: a batch or two, and no index entry."""
    return [
        [rng.randrange(1, 4) for _ in range(rng.randrange(1, 3))]
        for _ in range(rng.randrange(2, 7))
    ]


@pytest.mark.parametrize("seed", range(8))
def test_tiny_logs_are_valid_after_salvage_whatever_was_copied(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    own, foreign = (
        whole(tmp_path / f"{name}-0", Writer(7, 0, name.encode()), tiny_sizes(rng))
        for name in ("own", "foreign")
    )
    for happening in rng.sample(DAMAGES, 2):
        happening(rng, own, foreign)
    path = written(tmp_path / "logs" / "orders-0", own)

    apply_target(path, salvaged(path).files)

    require_clean(path)


def test_an_undecided_range_is_reported(
    tmp_path: Path,
) -> None:
    own, foreign = (Writer(-1, 0, value) for value in (b"own", b"foreign"))
    files = {log_name(offset): own.batch(offset, 3) for offset in (0, 3, 6)}
    files[log_name(4)] = foreign.batch(4, 3)
    path = written(tmp_path / "logs" / "orders-0", files)

    outcome = salvaged(path)

    undecided = [each for each in outcome.report.quarantined if each.cause is Cause.UNDECIDED]
    assert undecided
    found = verdict(outcome, Policy.SALVAGE)
    assert found.kind is VerdictKind.LOSS
    assert "too little shows which belong to the partition (perhaps lost: offsets" in found.sentence


def test_a_segment_of_another_partition_over_its_own_is_removed(tmp_path: Path) -> None:
    own = whole(tmp_path / "own-0", Writer(7, 0, b"own"), [[3] * 40] * 3)
    foreign = whole(tmp_path / "foreign-0", Writer(8, 0, b"foreign"), [[3] * 40, [3] * 44])
    own[log_name(120)] = foreign[log_name(120)]
    path = written(tmp_path / "logs" / "orders-0", own)

    outcome = salvaged(path)

    (aside,) = outcome.report.quarantined
    assert (aside.cause, aside.first_offset, aside.last_offset) == (
        Cause.FOREIGN,
        120,
        239,
    )
    assert "lost: offsets 120–239, at most 120 records" in str(  # noqa: RUF001 - a range
        verdict(outcome, Policy.SALVAGE).sentence
    )


def test_a_batch_whose_offset_names_the_log_is_kept(tmp_path: Path) -> None:
    own = whole(tmp_path / "own-0", Writer(7, 0, b"own"), [[1]] * 6)
    own[log_name(4)] += own[log_name(0)]
    path = written(tmp_path / "logs" / "orders-0", own)

    (aside,) = salvaged(path).report.quarantined

    assert (aside.cause, aside.name, aside.start > 0) == (
        Cause.DUPLICATE,
        log_name(4),
        True,
    )


def test_the_batches_of_another_partition_are_one_range_in_the_report(tmp_path: Path) -> None:
    sizes = [[3] * 40] * 3
    own = whole(tmp_path / "own-0", Writer(7, 0, b"own"), sizes)
    foreign = whole(tmp_path / "foreign-0", Writer(8, 0, b"foreign"), [[2] * 100] * 2)
    own[log_name(250)] = foreign[log_name(200)]
    path = written(tmp_path / "logs" / "orders-0", own)

    outcome = salvaged(path)

    (aside,) = outcome.report.quarantined
    assert (aside.cause, aside.name) == (Cause.FOREIGN, log_name(250))
    assert aside.size_bytes == len(foreign[log_name(200)])
    assert len(verdict(outcome, Policy.SALVAGE).sentence) < 400


def copied_with_index(own: Files, foreign: Files, base_offset: int) -> None:
    """A segment of another partition over one of its own, with its indexes."""
    for name, content in foreign.items():
        if name.startswith(log_name(base_offset)[:20]) and not name.endswith(".snapshot"):
            own[name] = content


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("base_offset", [0, 120, 240])
def test_a_segment_that_fits_is_kept_and_named_if_its_index_has_other_batches(
    tmp_path: Path, base_offset: int, *, is_clean: bool
) -> None:
    own = whole(tmp_path / "own-0", Writer(-1, 0, b"own"), [[3] * 40] * 3)
    foreign = whole(tmp_path / "foreign-0", Writer(-1, 0, b"foreign"), [[2] * 60] * 3)
    own[log_name(base_offset)] = foreign[log_name(base_offset)]
    path = written(tmp_path / "logs" / "orders-0", own)

    outcome = salvaged(path, is_clean=is_clean)

    (doubtful,) = outcome.report.doubtful
    assert (doubtful.name, doubtful.against) == (log_name(base_offset), ("offset index",))
    assert not outcome.report.quarantined
    found = verdict(outcome, Policy.SALVAGE)
    assert found.kind is VerdictKind.REBUILT
    assert "which may be that of another partition: its offset index has" in found.sentence


def test_a_segment_that_fits_is_named_if_a_snapshot_has_other_producers(tmp_path: Path) -> None:
    own = whole(tmp_path / "own-0", Writer(7, 0, b"own"), [[3] * 40] * 3)
    foreign = whole(tmp_path / "foreign-0", Writer(8, 0, b"foreign"), [[2] * 60] * 3)
    copied_with_index(own, foreign, 120)

    outcome = salvaged(written(tmp_path / "logs" / "orders-0", own))

    (doubtful,) = outcome.report.doubtful
    assert (doubtful.name, doubtful.against) == (log_name(120), ("producer snapshot",))


def test_a_segment_that_fits_is_named_if_the_checkpoint_has_its_epoch_elsewhere(
    tmp_path: Path,
) -> None:
    own = whole(tmp_path / "own-0", Writer(-1, 4, b"own"), [[3] * 40] * 3)
    foreign = whole(tmp_path / "foreign-0", Writer(-1, 3, b"foreign"), [[2] * 60] * 3)
    own["leader-epoch-checkpoint"] = b"0\n2\n3 0\n4 60\n"
    own[log_name(0)] = foreign[log_name(0)]
    copied_with_index(own, foreign, 240)

    outcome = salvaged(written(tmp_path / "logs" / "orders-0", own))

    found = {each.name: each.against for each in outcome.report.doubtful}
    assert found[log_name(240)] == ("leader-epoch-checkpoint",)


def test_nothing_tells_a_segment_with_its_index_and_without_producers(tmp_path: Path) -> None:
    own = whole(tmp_path / "own-0", Writer(-1, 0, b"own"), [[3] * 40] * 3)
    foreign = whole(tmp_path / "foreign-0", Writer(-1, 0, b"foreign"), [[2] * 60] * 3)
    copied_with_index(own, foreign, 120)

    assert not salvaged(written(tmp_path / "logs" / "orders-0", own)).report.doubtful
