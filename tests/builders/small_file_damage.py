"""Random damage to the small files of a log directory: everything but the logs."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from builders import damage
from builders.log_directories import offset_checkpoint
from kdump.formats import names
from kdump.formats.names import TopicPartition
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.storage.local_disk import local

ROOT_FILES: Final = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
    names.REPLICATION_OFFSET_CHECKPOINT,
)
_ENTRY_BYTES: Final = {".index": 8, ".timeindex": 12, ".txnindex": 34}

SmallDamage = Callable[[random.Random, Path], None]
"""A function that damages small files of the partition directory that it is given."""


def bytes_damaged(rng: random.Random, folder: Path) -> None:
    """Damage the content of one file as a disk would."""
    path = rng.choice(_small_files(folder))
    path.write_bytes(bytes(rng.choice(damage.ANY_FILE)(rng, bytearray(path.read_bytes()))))


def last_entry_damaged(rng: random.Random, folder: Path) -> None:
    """Flip a bit, or change a byte, in the last entry of an index."""
    path = _index(rng, folder)
    data = bytearray(path.read_bytes())
    size = _ENTRY_BYTES[path.suffix]
    if len(data) >= size:
        at = len(data) - 1 - rng.randrange(size)
        data[at] = rng.choice([data[at] ^ (1 << rng.randrange(8)), 0, 0xFF])
        path.write_bytes(data)


def entry_repeated(rng: random.Random, folder: Path) -> None:
    """Write an entry of an index over another one, or after the last."""
    path = _index(rng, folder)
    data = bytearray(path.read_bytes())
    size = _ENTRY_BYTES[path.suffix]
    count = len(data) // size
    if count:
        source, target = rng.randrange(count), rng.randrange(count + 1)
        data[target * size : (target + 1) * size] = data[source * size : (source + 1) * size]
        path.write_bytes(data)


def entry_elsewhere(rng: random.Random, folder: Path) -> None:
    """Let the last entry of an offset index have any offset and position near the real ones."""
    path = rng.choice(sorted(folder.glob("*.index")))
    size_bytes = path.with_suffix(".log").stat().st_size
    entry = rng.randrange(1000).to_bytes(4) + rng.randrange(size_bytes + 100).to_bytes(4)
    path.write_bytes(path.read_bytes()[:-8] + entry)


def file_deleted(rng: random.Random, folder: Path) -> None:
    """Delete one or all of a kind."""
    path = rng.choice(_small_files(folder))
    for each in (
        [path] if rng.random() < 0.6 else sorted(folder.glob(f"*{path.suffix or path.name}"))
    ):
        each.unlink()


def files_swapped(rng: random.Random, folder: Path) -> None:
    """Exchange two files of one kind."""
    first = rng.choice(_small_files(folder))
    second = rng.choice(sorted(folder.glob(f"*{first.suffix or first.name}")))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def from_another_partition(rng: random.Random, folder: Path) -> None:
    """Overwrite a file by one of the same kind of another partition."""
    path = rng.choice(_small_files(folder))
    others = sorted(folder.parent.glob(f"*/*{path.suffix or path.name}"))
    shutil.copyfile(source, path) if (source := rng.choice(others)) != path else None


def snapshot_renamed(rng: random.Random, folder: Path) -> None:
    """Let a snapshot be at another offset."""
    snapshots = sorted(folder.glob("*.snapshot"))
    if snapshots:
        path = rng.choice(snapshots)
        known = [int(each.name[:20]) for each in snapshots]
        offset = max(0, rng.choice(known) + rng.choice([0, 0, -1, 1, 50]))
        path.rename(folder / f"{offset:020d}.snapshot")


def epochs_changed(rng: random.Random, folder: Path) -> None:
    """Write other, well-formed leader epochs."""
    lines = [f"{epoch} {rng.randrange(600)}" for epoch in range(rng.randrange(5))]
    text = "\n".join(["0", str(len(lines)), *lines]) + "\n"
    (folder / names.LEADER_EPOCH_CHECKPOINT).write_text(text)


def stray_segment(rng: random.Random, folder: Path) -> None:
    """Add an empty log, or the copy of one, under another name."""
    logs = sorted(folder.glob("*.log"))
    base = int(rng.choice(logs).name[:20]) + rng.choice([1, 5, 20, 100])
    source = rng.choice(logs)
    target = folder / f"{base:020d}.log"
    if not target.exists():
        target.write_bytes(b"" if rng.random() < 0.5 else source.read_bytes())
        if rng.random() < 0.5:
            target.with_suffix(".index").write_bytes(b"")


def segment_renamed(rng: random.Random, folder: Path) -> None:
    """Give all files of a segment another base offset."""
    base = rng.choice(sorted(folder.glob("*.log"))).name[:20]
    other = f"{max(0, int(base) + rng.choice([-7, -1, 1, 3, 10, 40])):020d}"
    if not any(folder.glob(f"{other}.*")):
        for path in sorted(folder.glob(f"{base}.*")):
            path.rename(folder / f"{other}{path.suffix}")


def checkpoint_line(rng: random.Random, folder: Path) -> None:
    """Change the partition's line in a checkpoint of the directory."""
    name = rng.choice(ROOT_FILES)
    directory = read_log_directory(local(folder.parent), DirectoryKind.LOG_DIRECTORY)
    lines = dict(directory.checkpoints.by_file_name()[name] or {})
    key = names.parse_partition_directory_name(folder.name).topic_partition
    assert key is not None
    end = (directory.checkpoints.recovery_points or {}).get(key, 100)
    offset = rng.choice([None, 0, 1, rng.randrange(end + 1), end, end + 1, end + 1000, 2**62])
    if offset is None:
        lines.pop(key, None)
    else:
        lines[TopicPartition(*key)] = offset
    (folder.parent / name).write_bytes(
        offset_checkpoint({(each.topic, each.partition): at for each, at in lines.items()})
    )


DAMAGES: Final[tuple[SmallDamage, ...]] = (
    bytes_damaged,
    bytes_damaged,
    bytes_damaged,
    last_entry_damaged,
    last_entry_damaged,
    entry_repeated,
    entry_elsewhere,
    file_deleted,
    files_swapped,
    from_another_partition,
    snapshot_renamed,
    epochs_changed,
    stray_segment,
    segment_renamed,
    checkpoint_line,
    checkpoint_line,
)


def damage_small_files(rng: random.Random, folder: Path) -> list[str]:
    """Damage the small files of a partition once or twice; return the names of the damages."""
    happened = []
    for each in rng.sample(DAMAGES, rng.choice([1, 1, 1, 2])):
        try:
            each(rng, folder)
        except (IndexError, FileNotFoundError):
            continue  # an earlier damage has removed what this one needs
        happened.append(each.__name__)
    return happened


def _small_files(folder: Path) -> Sequence[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix != ".log")


def _index(rng: random.Random, folder: Path) -> Path:
    return rng.choice(sorted(path for path in folder.iterdir() if path.suffix in _ENTRY_BYTES))
