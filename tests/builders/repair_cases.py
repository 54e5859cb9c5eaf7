"""Log directories with something to repair: one for every kind of operation of a repair."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

from builders.batches import batch, batches, record
from builders.log_directories import offset_checkpoint, write_log_directory, write_partition
from builders.recover_for_differ import recover
from builders.recovery import joined, log_name, positions
from kdump.apply.plan import TargetDirectory, TargetPartition
from kdump.apply.segment_names import SEGMENT_SUFFIXES, is_temporary
from kdump.broker.loader.checkpoints import is_loaded, recovered_root
from kdump.broker.loader.load_context import load_context
from kdump.broker.loader.loader import recover_partition
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats import names
from kdump.formats.record_batch import CRC_START
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.storage.local_disk import local
from kdump.target.target_file import CopiedFrom, Gone, JoinedFrom, NewBytes, RenamedFrom, TargetFile

PARTITION: Final = "orders-0"
BASES: Final = (0, 60, 120, 180)
MODIFIED_NS: Final = 1_700_000_000_123_456_789
FAR: Final = 2**31 + 500


def recovery_target(log_dir: Path) -> TargetDirectory:
    """Return the target state of a starting broker."""
    directory = read_log_directory(local(log_dir), DirectoryKind.LOG_DIRECTORY)
    outcomes = {}
    changes = []
    for partition in directory.partitions:
        if is_loaded(partition) and partition.topic_partition is not None:
            context = load_context(directory, partition.topic_partition)
            outcome = recover_partition(partition, context)
            outcomes[partition.topic_partition] = outcome
            if isinstance(outcome, Recovered):
                changes.append(TargetPartition(partition.path.local_path, outcome.files))
    return TargetDirectory(log_dir, tuple(changes), recovered_root(directory, outcomes))


def clean_directory(path: Path) -> Path:
    """Write a clean directory of two partitions, one of them with four segments."""
    logs = {base: joined(batches(20, base_offset=base)) for base in BASES}
    write_log_directory(path)
    write_partition(path / PARTITION, logs)
    write_partition(path / "other-0", {0: joined(batches(3))})
    (path / names.CLEAN_SHUTDOWN_MARKER).unlink()
    recover(path)
    return path


def crashed(path: Path, *, recovery_point: int = 0, log_start: int | None = None) -> Path:
    """Write such a directory after a crash: no marker, padded indexes, no snapshot at the end."""
    (path / names.CLEAN_SHUTDOWN_MARKER).unlink()
    (path / names.LOCK_FILE).touch()
    points = {("orders", 0): recovery_point, ("other", 0): 9}
    (path / names.RECOVERY_POINT_CHECKPOINT).write_bytes(offset_checkpoint(points))
    starts = {} if log_start is None else {("orders", 0): log_start}
    (path / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(offset_checkpoint(starts))
    for partition in (path / PARTITION, path / "other-0"):
        last = max(each.name[:20] for each in partition.glob("*.log"))
        for suffix, size_bytes in ((".index", 8 * 4096), (".timeindex", 12 * 4096)):
            with (partition / (last + suffix)).open("ab") as file:
                file.truncate(size_bytes)
        for snapshot in partition.glob("*.snapshot"):
            if not (partition / snapshot.with_suffix(".log").name).exists():
                snapshot.unlink()
    return path


def with_damage(log: Path, batch_number: int) -> None:
    """Give one batch of a log a wrong checksum."""
    data = bytearray(log.read_bytes())
    data[positions(_batches_of(data))[batch_number] + CRC_START] ^= 1
    log.write_bytes(data)


def _batches_of(data: bytes | bytearray) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        found.append(bytes(data[at:end]))
        at = end
    return found


def renamed(partition: Path, base: int, suffix: str, *, keep: bool = False) -> None:
    """Append a suffix to the names of a segment's files, or of copies of them."""
    for file in list(partition.glob(f"{base:020d}.*")):
        if file.suffix in (".log", ".index", ".timeindex"):
            target = file.with_name(file.name + suffix)
            if keep:
                target.write_bytes(file.read_bytes())
            else:
                file.rename(target)


# ---- Cases: each writes the directory and returns its target state ----

Case = Callable[[Path], TargetDirectory]


def torn_tail(path: Path) -> TargetDirectory:
    log = crashed(clean_directory(path)) / PARTITION / log_name(180)
    log.write_bytes(log.read_bytes()[:-7])
    return recovery_target(path)


def bad_batch_in_the_middle(path: Path) -> TargetDirectory:
    crashed(clean_directory(path))
    with_damage(path / PARTITION / log_name(60), 5)
    return recovery_target(path)


def log_end_before_its_start(path: Path) -> TargetDirectory:
    crashed(clean_directory(path), log_start=1000)
    return recovery_target(path)


def compaction_interrupted(path: Path) -> TargetDirectory:
    """A swap for two segments is complete; one of the old segments still exists."""
    partition = crashed(clean_directory(path), recovery_point=240) / PARTITION
    both = (partition / log_name(0)).read_bytes() + (partition / log_name(60)).read_bytes()
    renamed(partition, 0, ".swap")
    (partition / f"{log_name(0)}.swap").write_bytes(both)
    (partition / f"{log_name(60)}.deleted").write_bytes(b"old")
    (partition / log_name(0)).write_bytes(both[: len(both) // 2])
    return recovery_target(path)


def swap_with_a_bad_batch(path: Path) -> TargetDirectory:
    partition = crashed(clean_directory(path)) / PARTITION
    renamed(partition, 60, ".swap", keep=True)
    with_damage(partition / f"{log_name(60)}.swap", 4)
    return recovery_target(path)


def compaction_aborted(path: Path) -> TargetDirectory:
    """Only some files are ``.swap``, so the swap is not completed."""
    partition = crashed(clean_directory(path), recovery_point=240) / PARTITION
    renamed(partition, 120, ".swap", keep=True)
    (partition / f"{log_name(120)}.swap").write_bytes(b"")
    renamed(partition, 60, ".cleaned", keep=True)
    (partition / f"{log_name(60)}.cleaned").write_bytes(b"garbage")
    renamed(partition, 0, ".swap", keep=True)
    (partition / "00000000000000000060.txnindex.deleted").write_bytes(b"old")
    return recovery_target(path)


def _overflowing() -> bytes:
    near = joined(batches(4))
    far = joined(batch([record(FAR + 3 * at + step) for step in range(3)]) for at in range(4))
    return near + far


def offsets_overflow(path: Path) -> TargetDirectory:
    write_log_directory(path, clean=False)
    write_partition(path / PARTITION, {0: _overflowing()})
    return recovery_target(path)


def offsets_overflow_in_a_swap(path: Path) -> TargetDirectory:
    write_log_directory(path, clean=False)
    partition = write_partition(path / PARTITION, {0: joined(batches(2))})
    (partition / f"{log_name(0)}.swap").write_bytes(_overflowing())
    return recovery_target(path)


def indexes_missing_after_a_clean_shutdown(path: Path) -> TargetDirectory:
    partition = clean_directory(path) / PARTITION
    (partition / "00000000000000000060.index").unlink()
    (partition / "00000000000000000120.timeindex").unlink()
    with_damage(partition / log_name(120), 3)
    (partition / "00000000000000000120.index").unlink()
    (partition / "00000000000000000007.index").write_bytes(b"orphan")
    return recovery_target(path)


def small_files_damaged(path: Path) -> TargetDirectory:
    partition = crashed(clean_directory(path)) / PARTITION
    (partition / names.LEADER_EPOCH_CHECKPOINT).write_bytes(b"")
    (partition / "00000000000000000077.snapshot").write_bytes(b"garbage")
    (partition / "00000000000000000120.txnindex").write_bytes(b"garbage")
    (path / names.RECOVERY_POINT_CHECKPOINT).unlink()
    (path / (names.RECOVERY_POINT_CHECKPOINT + ".tmp")).write_bytes(b"half")
    return recovery_target(path)


def salvage(path: Path) -> TargetDirectory:
    """A batch in the middle of each of two segments is removed and quarantined."""
    partition = crashed(clean_directory(path), recovery_point=240) / PARTITION
    (partition / "00000000000000000060.txnindex").write_bytes(b"")
    files: dict[str, TargetFile] = {}
    for base in (60, 180):
        name = log_name(base)
        with_damage(partition / name, 5)
        starts = positions(_batches_of((partition / name).read_bytes()))
        start, end = starts[5], starts[6]
        size_bytes = (partition / name).stat().st_size
        files[name] = JoinedFrom((CopiedFrom(name, 0, start), CopiedFrom(name, end, size_bytes)))
        files[f"damaged-{base:020d}.log-{start}-{end}"] = CopiedFrom(name, start, end)
        files[f"{base:020d}.index"] = NewBytes(b"")
    checkpoint = NewBytes(offset_checkpoint({("orders", 0): 240, ("other", 0): 9}))
    root: dict[str, TargetFile] = {
        names.RECOVERY_POINT_CHECKPOINT: checkpoint,
        names.CLEAN_SHUTDOWN_MARKER: NewBytes(b'{"version":0,"brokerEpoch":-1}'),
    }
    return TargetDirectory(path, (TargetPartition(partition, files),), root)


def leftover_set_aside(path: Path) -> TargetDirectory:
    """Files that a broker would delete, or never wrote, keep their content under other names."""
    partition = crashed(clean_directory(path), recovery_point=240) / PARTITION
    renamed(partition, 60, ".cleaned", keep=True)
    renamed(partition, 120, ".swap", keep=True)
    (partition / "notes").write_bytes(b"whose?")
    leftovers = [each.name for each in partition.iterdir() if is_temporary(each.name)]
    files: dict[str, TargetFile] = dict.fromkeys(leftovers, Gone())
    for name in (f"{log_name(60)}.cleaned", f"{log_name(120)}.swap", "notes"):
        size_bytes = (partition / name).stat().st_size
        files[name] = Gone()
        files[f"damaged-{name}-0-{size_bytes}"] = RenamedFrom(name, size_bytes)
    return TargetDirectory(path, (TargetPartition(partition, files),), {})


def leftover_set_aside_of_a_new_segment(path: Path) -> TargetDirectory:
    """The segments that the leftovers belong to are replaced as well."""
    target = leftover_set_aside(path)
    (change,) = target.partitions
    files = dict(change.files)
    for base in (60, 120):
        name = log_name(base)
        with_damage(change.path / name, 5)
        content = (change.path / name).read_bytes()
        start, end = positions(_batches_of(content))[5:7]
        files[name] = JoinedFrom((CopiedFrom(name, 0, start), CopiedFrom(name, end, len(content))))
        files[f"{base:020d}.index"] = NewBytes(b"")
    return TargetDirectory(path, (TargetPartition(change.path, files),), {})


def _without_first(
    path: Path, bases: tuple[int, ...], files: dict[str, TargetFile], start: int, end: int | None
) -> TargetDirectory:
    """Write a clean directory whose first segments are deleted; it stays clean throughout.

    Args:
        path: location of the directory.
        bases: base offsets of the deleted segments.
        files: other target files of the partition.
        start: log start offset in the checkpoint from the beginning of the run.
        end: log start offset in the checkpoint at the end, if it has a line.
    """
    partition = clean_directory(path) / PARTITION
    # A broker does not check data after a clean shutdown, so the damage must not truncate it.
    with_damage(partition / log_name(180), 4)
    with_damage(path / "other-0" / log_name(0), 1)
    for base in bases:
        for suffix in SEGMENT_SUFFIXES:
            if (partition / f"{base:020d}{suffix}").exists():
                files[f"{base:020d}{suffix}"] = Gone()
    snapshot = f"{bases[-1]:020d}.snapshot"
    if (partition / snapshot).exists():
        files[snapshot] = Gone()
    name = names.LOG_START_OFFSET_CHECKPOINT
    (path / name).write_bytes(offset_checkpoint({("other", 0): 1}))
    first = {("other", 0): 1, ("orders", 0): start}
    root: dict[str, TargetFile] = {}
    if end is not None:
        root[name] = NewBytes(offset_checkpoint({("other", 0): 1, ("orders", 0): end}))
    change = TargetPartition(partition, files)
    return TargetDirectory(path, (change,), root, {name: NewBytes(offset_checkpoint(first))})


def retention(path: Path) -> TargetDirectory:
    """The first segments are deleted."""
    return _without_first(path, (0, 60), {}, 120, None)


def records_deleted(path: Path) -> TargetDirectory:
    """The log starts inside a segment, and the segments before it are deleted."""
    return _without_first(path, (0, 60), {}, 130, 130)


def retention_of_all(path: Path) -> TargetDirectory:
    """An empty segment replaces all segments."""
    new = [f"{240:020d}{suffix}" for suffix in SEGMENT_SUFFIXES[:3]]
    files: dict[str, TargetFile] = dict.fromkeys(new, NewBytes(b""))
    return _without_first(path, BASES, files, 240, None)


def compaction(path: Path) -> TargetDirectory:
    """A new segment replaces the first two."""
    partition = clean_directory(path) / PARTITION
    old = joined((partition / log_name(base)).read_bytes() for base in (0, 60))
    new = joined(_batches_of(old)[::2])
    staged = log_name(0) + ".cleaned"
    (partition / staged).write_bytes(new)
    files: dict[str, TargetFile] = {
        log_name(0): RenamedFrom(staged, len(new)),
        staged: Gone(),
        f"{0:020d}.index": NewBytes(b""),
        f"{0:020d}.timeindex": NewBytes(b"12 of a time"),
        **{f"{60:020d}{suffix}": Gone() for suffix in SEGMENT_SUFFIXES[:3]},
    }
    checkpoint = NewBytes(offset_checkpoint({("orders", 0): 180}))
    change = TargetPartition(partition, files)
    return TargetDirectory(path, (change,), {names.CLEANER_OFFSET_CHECKPOINT: checkpoint})


RETENTION_CASES: Final[dict[Case, int]] = {
    retention: 120,
    records_deleted: 130,
    retention_of_all: 240,
}
"""Cases that delete what a broker would keep, and the new log start offset."""

CASES: Final[tuple[Case, ...]] = (
    torn_tail,
    bad_batch_in_the_middle,
    log_end_before_its_start,
    compaction_interrupted,
    swap_with_a_bad_batch,
    compaction_aborted,
    offsets_overflow,
    offsets_overflow_in_a_swap,
    indexes_missing_after_a_clean_shutdown,
    small_files_damaged,
    salvage,
    leftover_set_aside,
    leftover_set_aside_of_a_new_segment,
    *RETENTION_CASES,
    compaction,
)


def aged(path: Path, seed: int = 1) -> None:
    """Give every file a different old modification time, and some another mode."""
    rng = random.Random(seed)
    for file in sorted(path.rglob("*")):
        if file.is_file() and not file.is_symlink():
            file.chmod(rng.choice([0o644, 0o640, 0o600]))
            moment = MODIFIED_NS + rng.randrange(10**15)
            os.utime(file, ns=(moment, moment))
