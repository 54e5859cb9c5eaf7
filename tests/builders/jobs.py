"""Jobs for the engines' tests; importable by name, as workers have to import them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kdump.engine.job import Split
from kdump.scan.batches import read_windows
from kdump.storage.local_disk import local
from kdump.storage.location import Location


@dataclass(frozen=True, slots=True)
class Count:
    """What was counted in a split."""

    batches: int
    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CountBatches:
    """Counts the valid batches of a split, and the records and bytes in them."""

    def run(self, split: Split) -> Count:
        batches = records = size_bytes = 0
        with split.path.open_file() as source:
            for window in read_windows(source, split.start, split.end):
                sound = window.batches.rows(window.batches.is_valid)
                batches += sound.count
                records += int(sound.records_count.sum())
                size_bytes += int(sound.size_bytes.sum())
        return Count(batches, records, size_bytes)


@dataclass(frozen=True, slots=True)
class DealBatches:
    """Counts, and deals out the positions of batches; collects them with the splits they are of."""

    counting: CountBatches = field(default_factory=CountBatches)

    def map(self, split: Split, buckets: int) -> tuple[Count, dict[int, tuple[Split, list[int]]]]:
        dealt: dict[int, tuple[Split, list[int]]] = {}
        with split.path.open_file() as source:
            for window in read_windows(source, split.start, split.end):
                for position in window.batches.position.tolist():
                    _, own = dealt.setdefault(position % buckets, (split, []))
                    own.append(position)
        return self.counting.run(split), dealt

    def reduce(self, pieces: Sequence[tuple[Split, list[int]]]) -> list[tuple[Split, int]]:
        return [(split, position) for split, positions in pieces for position in positions]


@dataclass(frozen=True, slots=True)
class FailOn:
    """Gives the size of each split, but raises on one path what a bug would raise."""

    path: Location

    def run(self, split: Split) -> int:
        if split.path == self.path:
            raise ZeroDivisionError("no bytes a second")
        return split.size_bytes


@dataclass(frozen=True, slots=True)
class KillWorker:
    """Counts, but the first process that reaches one path dies.

    The file ``scar`` tells later processes that it has happened; without one, every process dies.
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
    """Gives the id of the process that a split is worked on in."""

    def run(self, split: Split) -> int:
        return os.getpid()


@dataclass(frozen=True, slots=True)
class KillJava:
    """Ends the JVM that a worker on this machine works for."""

    def run(self, split: Split) -> None:
        os.kill(parent_of(os.getppid()), signal.SIGKILL)
        signal.pause()


@dataclass(frozen=True, slots=True)
class WaitForEver:
    """Writes to a named pipe which process works on a split, and never ends."""

    pipe: str

    def run(self, split: Split) -> None:
        with Path(self.pipe).open("wb", buffering=0) as pipe:
            pipe.write(f"{os.getpid()}\n".encode())
            while True:
                signal.pause()


@dataclass(frozen=True, slots=True)
class CountWhereMounted:
    """Counts in a file that each node of a cluster has below a directory of its own."""

    mounts: str
    counting: CountBatches = field(default_factory=CountBatches)

    def run(self, split: Split) -> Count:
        path = Path(self.mounts, node(), str(split.path))
        return self.counting.run(replace(split, path=local(path)))


@dataclass(frozen=True, slots=True)
class TellExecutable:
    """Gives the Python that a split is worked on with."""

    def run(self, split: Split) -> str:
        return sys.executable


@dataclass(frozen=True, slots=True)
class TellKdump:
    """Gives the process, where it has kdump from, and its node."""

    def run(self, split: Split) -> tuple[int, str, str]:
        import kdump

        return os.getpid(), str(kdump.__file__), node()


@dataclass(frozen=True, slots=True)
class TellParents:
    """Gives the process that started the one that a split is worked on in, and the one above."""

    def run(self, split: Split) -> tuple[int, int]:
        parent = os.getppid()
        return parent, parent_of(parent)


def node() -> str:
    """The executor's number, in Spark's ``local-cluster``: it is in a directory of that name."""
    return Path(f"/proc/{os.getppid()}/cwd").readlink().name


def parent_of(process: int) -> int:
    """The process that started another."""
    status = Path(f"/proc/{process}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])
