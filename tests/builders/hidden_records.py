"""What Kafka's loader has of logs whose small files were damaged, and what kdump says of them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from builders import random_partitions
from builders.apply_target import apply_target
from builders.loading import Arena, Clock, LoaderServer, files_of
from builders.log_directories import offset_checkpoint
from builders.small_file_damage import damage_small_files
from kdump.broker.loader.load_context import IndexSettings, LoadContext, load_context
from kdump.broker.loader.recovered_partition import Recovered
from kdump.check.part import Level
from kdump.formats import names
from kdump.formats.checkpoints import (
    OffsetEntry,
    decode_offset_checkpoint,
    encode_offset_checkpoint,
)
from kdump.jobs.verify.verify import VerifyRequest, VerifyTarget, verify
from kdump.jobs.verify.verify_partition import PartitionReport
from kdump.log.directory import DirectoryKind, LogDirectory, read_log_directory
from kdump.log.partition import Partition
from kdump.repair.partition_repair import repair_partition
from kdump.repair.policies import Policy
from kdump.repair.verdict.outcome_verdict import verdict
from kdump.repair.verdict.verdict import VerdictKind
from kdump.state.metadata.settings import read_settings
from kdump.storage.local_disk import local
from kdump.target.refusal import Refusal

_SETTINGS = IndexSettings(interval_bytes=300)
_CLOCK = Clock()
_ALARM = "false alarm"
_DECEIVING = frozenset(
    {
        "epochs_changed",
        "files_swapped",
        "from_another_partition",
        "segment_renamed",
        "snapshot_renamed",
        "stray_segment",
    }
)
"""Damages after which the files contradict each other even if Kafka has all records for now."""
LOSING = frozenset({VerdictKind.LOSS.value, VerdictKind.REFUSED.value})


class Bounds(NamedTuple):
    """What Kafka has of a log: the last stable offset is that of a log that is all replicated."""

    start: int
    end: int
    stable: int
    readable: int
    aborted: frozenset[str]

    @classmethod
    def parse(cls, said: str) -> Self | None:
        if said.startswith("refused"):
            return None
        *numbers, aborted = said.split(" ")
        start, end, stable, readable = map(int, numbers)
        return cls(start, end, stable, readable, frozenset(aborted.split(",")))

    def is_less_than(self, before: Bounds) -> bool:
        """Whether a log that had records has fewer of them, or another last stable offset."""
        return before.start < before.end and (
            self.start > before.start
            or self.end < before.end
            or (self.start == before.start and self.stable < before.stable)
            or (before.start < before.stable < before.end and self.stable > before.stable)
        )

    def has_all_of(self, before: Bounds) -> bool:
        """Whether no record is hidden, though records of open transactions may be shown."""
        return (
            self.start <= before.start and self.end >= before.end and self.stable >= before.stable
        )


@dataclass(frozen=True, slots=True)
class Case:
    """A damaged partition.

    Attributes:
        name: of its directory.
        happened: how it was damaged.
        before: what Kafka had of it before.
        after: what Kafka has of it after that; None if it refuses it.
        salvaged: what Kafka has of it after salvage; None if it refuses it, or salvage did.
        problems: where kdump and Kafka differ, or a verdict is wrong.
    """

    name: str
    happened: tuple[str, ...]
    before: Bounds
    after: Bounds | None
    salvaged: Bounds | None
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.name} after {', '.join(self.happened)}: {'; '.join(self.problems)}"
            f" [{self.before} -> {self.after} -> {self.salvaged}]"
        )


def cases(
    server: LoaderServer, path: Path, seed: int, count: int, *, clean: bool
) -> Iterator[Case]:
    """Generate partitions, damage their small files, and yield what Kafka and kdump make of them.

    Args:
        server: Kafka's loader.
        path: a folder for the directories.
        seed: of all random choices.
        count: how many partitions.
        clean: whether the broker was stopped cleanly.
    """
    rng = random.Random(seed)
    arena = Arena(server, path, _SETTINGS, _CLOCK)
    arena.generate(rng, count, clean=True, damage=False)
    base = arena.base
    server.load(base, _SETTINGS, _CLOCK)  # so that epochs begin at the log start offsets
    if not clean:
        _crash(rng, base)
    yield from judged(server, path, base, rng)


def _crash(rng: random.Random, base: Path) -> None:
    """Change a directory to what a killed broker leaves."""
    (base / names.CLEAN_SHUTDOWN_MARKER).unlink(missing_ok=True)
    path = base / names.RECOVERY_POINT_CHECKPOINT
    lines = decode_offset_checkpoint(path.read_bytes())
    path.write_bytes(
        encode_offset_checkpoint(OffsetEntry(key, rng.randrange(end + 1)) for key, end in lines)
    )
    for folder in sorted(each for each in base.iterdir() if each.is_dir()):
        files = files_of(folder)
        after = random_partitions.as_after_crash(files)
        for name in files.keys() - after.keys():
            (folder / name).unlink()
        for name, content in after.items():
            (folder / name).write_bytes(content)


def judged(server: LoaderServer, path: Path, base: Path, rng: random.Random) -> Iterator[Case]:
    """Damage the partitions of a valid log directory, and yield the outcome of each."""
    before = _bounds(server, base, path / "valid")
    folders = sorted(each for each in base.iterdir() if each.name in before)
    happened = {each.name: tuple(damage_small_files(rng, each)) for each in folders}
    after = _bounds(server, base, path / "damaged")
    directory = read_log_directory(local(base), DirectoryKind.LOG_DIRECTORY)
    salvaged = path / "salvaged"
    shutil.copytree(base, salvaged)
    (salvaged / names.CLEAN_SHUTDOWN_MARKER).unlink(missing_ok=True)
    (salvaged / names.RECOVERY_POINT_CHECKPOINT).unlink(missing_ok=True)
    log_starts: dict[tuple[str, int], int] = {}
    kinds = {report.partition.path.name: report.verdict_kind for report in _verified(directory)}
    found = {}
    for partition in directory.partitions:
        name = partition.path.name
        if name in before:
            found[name] = _problems(
                partition,
                directory,
                Bounds.parse(before[name]),
                Bounds.parse(after[name]),
                kinds,
                happened[name],
            )
            if not _DECEIVING.isdisjoint(happened[name]):
                found[name] = [each for each in found[name] if not each.startswith(_ALARM)]
            outcome = repair_partition(partition, _context(directory, partition), Policy.SALVAGE)
            if isinstance(outcome, Recovered):
                apply_target(salvaged / name, outcome.files)
                key = partition.topic_partition
                if outcome.checkpointed_log_start_offset is not None and key is not None:
                    log_starts[key] = outcome.checkpointed_log_start_offset
    (salvaged / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(offset_checkpoint(log_starts))
    whole = _bounds(server, salvaged, path / "loaded")
    for name, problems in found.items():
        first = Bounds.parse(before[name])
        assert first is not None
        last = Bounds.parse(whole[name])
        yield Case(name, happened[name], first, Bounds.parse(after[name]), last, tuple(problems))


def _context(directory: LogDirectory, partition: Partition) -> LoadContext:
    assert partition.topic_partition is not None
    return load_context(
        directory,
        partition.topic_partition,
        _SETTINGS,
        now_ms=_CLOCK.now_ms,
        producer_id_expiration_ms=_CLOCK.expiration_ms,
    )


def _problems(
    partition: Partition,
    directory: LogDirectory,
    before: Bounds | None,
    after: Bounds | None,
    kinds: Mapping[str, str],
    happened: Collection[str],
) -> list[str]:
    assert before is not None
    found: list[str] = []
    outcome = repair_partition(partition, _context(directory, partition))
    kind = verdict(outcome).kind.value
    said = kinds.get(partition.path.name)
    if isinstance(outcome, Refusal) or after is None:
        if isinstance(outcome, Recovered) or after is not None:
            found.append(f"kdump: {outcome}, Kafka: {after}")
        return found
    assert isinstance(outcome, Recovered)
    if (outcome.log_start_offset, outcome.log_end_offset) != (after.start, after.end):
        found.append(f"bounds {outcome.log_start_offset} {outcome.log_end_offset}")
    is_less = after.is_less_than(before)
    if {"epochs_changed", "checkpoint_line"} <= {*happened} and after.start > before.start:
        return found  # the two agree, as after records were deleted on purpose
    # After a crash the flushed part is not read: a transaction that a snapshot lacks is damage.
    is_forgotten = not directory.is_clean and after.has_all_of(before)
    accepted = LOSING | {"damaged"} if is_forgotten else LOSING
    # A clean start reads no log whose small files agree: it takes a verification to find that a
    # segment has another name.
    is_read = not (directory.is_clean and "segment_renamed" in happened)
    if is_less and kind not in LOSING and is_read and not is_forgotten:
        found.append(f"recover says {kind}")
    if is_less and said not in accepted:
        found.append(f"verify says {said}")
    is_comparable = after.start >= before.start
    if after.aborted != before.aborted and is_comparable and said not in LOSING | {"damaged"}:
        found.append(f"verify says {said} of other aborted transactions")
    is_hidden = is_less or after.readable != before.readable
    if outcome.report.hides_data and not is_hidden:
        found.append(f"{_ALARM}: {verdict(outcome).sentence}")
    return found


def _bounds(server: LoaderServer, directory: Path, copy: Path) -> dict[str, str]:
    shutil.copytree(directory, copy)
    properties = {
        "index.interval.bytes": _SETTINGS.interval_bytes,
        "segment.index.bytes": _SETTINGS.max_bytes,
    }
    return server.ask("bounds", copy, _CLOCK, properties)


def _verified(directory: LogDirectory) -> Iterator[PartitionReport]:
    targets = [VerifyTarget(partition, directory) for partition in directory.partitions]
    settings = read_settings([directory])
    request = VerifyRequest(targets, [directory], Level.DEFAULT, _CLOCK.now_ms, settings)
    for event in verify(request):
        if isinstance(event, PartitionReport):
            yield event
