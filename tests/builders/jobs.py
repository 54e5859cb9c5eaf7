"""Jobs for the tests of engines, which worker processes import by name."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from kdump.engine.job import Split
from kdump.scan.batches import read_windows
from kdump.storage.local_disk import local
from kdump.storage.location import Location


@dataclass(frozen=True, slots=True)
class Count:
    """Counts of one split."""

    batches: int
    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CountBatches:
    """Count the valid batches of a split, and their records and bytes."""

    def run(self, split: Split) -> Count:
        batches = records = size_bytes = 0
        with split.path.open_file() as source:
            for window in read_windows(source, split.start, split.end):
                valid = window.batches.rows(window.batches.is_valid)
                batches += valid.count
                records += int(valid.records_count.sum())
                size_bytes += int(valid.size_bytes.sum())
        return Count(batches, records, size_bytes)


@dataclass(frozen=True, slots=True)
class ShuffleBatches:
    """Count, and shuffle the positions of batches; the reducer collects them by split."""

    counting: CountBatches = field(default_factory=CountBatches)

    def map(self, split: Split, buckets: int) -> tuple[Count, dict[int, tuple[Split, list[int]]]]:
        shuffled: dict[int, tuple[Split, list[int]]] = {}
        with split.path.open_file() as source:
            for window in read_windows(source, split.start, split.end):
                for position in window.batches.position.tolist():
                    _, own = shuffled.setdefault(position % buckets, (split, []))
                    own.append(position)
        return self.counting.run(split), shuffled

    def reduce(self, pieces: Sequence[tuple[Split, list[int]]]) -> list[tuple[Split, int]]:
        return [(split, position) for split, positions in pieces for position in positions]


@dataclass(frozen=True, slots=True)
class FailOn:
    """Return the size of each split, but raise an unexpected exception on one path."""

    path: Location

    def run(self, split: Split) -> int:
        if split.path == self.path:
            raise ZeroDivisionError("no bytes a second")
        return split.size_bytes


@dataclass(frozen=True, slots=True)
class KillWorker:
    """Count, but kill the first process that reaches one path.

    The file ``scar`` marks that this has happened; without one, every process is killed.
    """

    path: Location
    scar: str = ""
    counting: CountBatches = field(default_factory=CountBatches)

    def run(self, split: Split) -> Count:
        if split.path == self.path and not (self.scar and Path(self.scar).exists()):
            if self.scar:
                Path(self.scar).touch()
            os._exit(7) if self.scar else os.kill(os.getpid(), signal.SIGKILL)
        return self.counting.run(split)


@dataclass(frozen=True, slots=True)
class TellProcess:
    """Return the id of the process that runs a split."""

    def run(self, split: Split) -> int:
        return os.getpid()


@dataclass(frozen=True, slots=True)
class KillJava:
    """Kill the JVM that a worker on this machine works for."""

    def run(self, split: Split) -> None:
        os.kill(parent_of(os.getppid()), signal.SIGKILL)
        signal.pause()


@dataclass(frozen=True, slots=True)
class WaitForEver:
    """Write the id of the process to a named pipe, and never return."""

    pipe: str

    def run(self, split: Split) -> None:
        with Path(self.pipe).open("wb", buffering=0) as pipe:
            pipe.write(f"{os.getpid()}\n".encode())
            while True:
                signal.pause()


@dataclass(frozen=True, slots=True)
class CountWhereMounted:
    """Count in a file that each node of a cluster has below a directory of its own."""

    mounts: str
    counting: CountBatches = field(default_factory=CountBatches)

    def run(self, split: Split) -> Count:
        path = Path(self.mounts, node(), str(split.path))
        return self.counting.run(replace(split, path=local(path)))


@dataclass(frozen=True, slots=True)
class TellExecutable:
    """Return the Python executable that runs a split."""

    def run(self, split: Split) -> str:
        return sys.executable


@dataclass(frozen=True, slots=True)
class TellKdump:
    """Return the process id, the path of the kdump package, and the node."""

    def run(self, split: Split) -> tuple[int, str, str]:
        import kdump

        return os.getpid(), str(kdump.__file__), node()


@dataclass(frozen=True, slots=True)
class TellParents:
    """Return the parent and the grandparent of the process that runs a split."""

    def run(self, split: Split) -> tuple[int, int]:
        parent = os.getppid()
        return parent, parent_of(parent)


def node() -> str:
    """Return the executor's number in Spark's ``local-cluster``, from its working directory."""
    return Path(f"/proc/{os.getppid()}/cwd").readlink().name


def parent_of(process: int) -> int:
    """Return the parent process."""
    status = Path(f"/proc/{process}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])
