"""The disks of a real cluster's brokers in random states, and what a start makes of their logs."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from builders.damaged_replicas import (
    DISKS,
    MORE_DAMAGES,
    mark_as_deleted,
    mark_as_future,
    mark_as_stray,
)
from builders.freeing import write_line
from builders.two_disks import CHECKPOINTS, lines_of
from kdump.broker.loader.load_context import LoadContext, load_context
from kdump.broker.loader.loader import load_directory
from kdump.formats.checkpoints import EpochEntry
from kdump.formats.names import (
    CLUSTER_METADATA_TOPIC,
    PartitionDirectoryName,
    PartitionState,
    parse_partition_directory_name,
)
from kdump.log.directory import read_log_directory
from kdump.storage.local_disk import local
from kdump.target.refusal import Refusal
from kdump.target.virtual_directory import VirtualDirectory

PARTITIONS: Final = frozenset(
    (
        *("orders-0", "orders-1", "orders-2", "users-1", "users-2", "cache-0", "cache-1", "idem-0"),
        *("records-deleted-0", "records-deleted-1", "txn-a-2", "txn-hang-1", "payments-0"),
        *("jbod-pair-0", "jbod-pair-1", "jbod-single-0", "recreated-0", "recreated-1", "empty-0"),
        *("expanded-0", "late-clean-1", "codec-gzip-0"),
        *("__consumer_offsets-2", "__transaction_state-2"),
    )
)
"""Those of the cluster that are copied, with their ``-delete`` directories."""
SPOILING: Final = tuple(
    each for each in MORE_DAMAGES if each not in (mark_as_deleted, mark_as_stray, mark_as_future)
)
"""Damages after which a directory still has its name."""


class Loaded(NamedTuple):
    """What a starting broker makes of a log."""

    start: int
    end: int
    epochs: tuple[EpochEntry, ...]


def some_disks(cluster: Path, folder: Path) -> Path:
    """Copy the disks of all brokers, with some partitions."""
    for disk in DISKS:
        (folder / disk).mkdir(parents=True)
        for each in (cluster / disk).iterdir():
            if each.is_file():
                shutil.copy2(each, folder / disk)
            elif each.name.partition(".")[0] in PARTITIONS or is_metadata(each):
                shutil.copytree(each, folder / disk / each.name)
    return folder


def is_metadata(path: Path) -> bool:
    return path.name.startswith(CLUSTER_METADATA_TOPIC)


def directories_in(*log_dirs: Path) -> Iterator[tuple[Path, PartitionDirectoryName]]:
    """The directories of partitions with their names, in order."""
    for log_dir in log_dirs:
        for path in sorted(each for each in log_dir.iterdir() if each.is_dir()):
            if not is_metadata(path):
                yield path, parse_partition_directory_name(path.name)


def logs_in(*log_dirs: Path) -> list[Path]:
    """The directories that a broker uses."""
    return [path for path, name in directories_in(*log_dirs) if name.state is PartitionState.LIVE]


def loaded(path: Path, context: LoadContext | None = None) -> Loaded | None:
    """Load a log as its directory says, or in another context; None if no broker loads it."""
    directory = read_log_directory(local(path.parent))
    (partition,) = (each for each in directory.partitions if each.path.name == path.name)
    outcome = load_directory(
        VirtualDirectory(partition.path), context or load_context(directory, partition.key)
    )
    if isinstance(outcome, Refusal):
        return None
    return Loaded(outcome.log_start_offset, outcome.log_end_offset, tuple(outcome.leader_epochs))


def offsets_of(log_dir: Path, name: str) -> list[int | None]:
    """The lines of a partition in all four checkpoints."""
    return [lines.get(name) for lines in lines_of(log_dir).values()]


def random_name(path: Path, state: str, rng: random.Random) -> Path:
    """A name of the directory of a partition with a unique id, such as a ``-stray`` one."""
    return path.with_name(f"{path.name}.{rng.getrandbits(128):032x}-{state}")


def spoil(path: Path, rng: random.Random) -> None:
    """Damage the directory of a partition, which stays or vanishes."""
    if any(path.glob("*.log")):
        rng.choice(SPOILING)(path, rng)


def forget_lines(path: Path, rng: random.Random) -> None:
    """Remove the lines of a partition from two checkpoints."""
    topic, _, number = path.name.rpartition("-")
    for name in rng.sample(CHECKPOINTS, 2):
        if (path.parent / name).stat().st_size:
            write_line(path.parent, name, (topic, int(number)), None)
