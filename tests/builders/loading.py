"""Kafka's loader and kdump's rules over copies of the same log directory.

As a script it prints the differences over generated partitions:
``PYTHONPATH=.:tests python -m builders.loading CLASSPATH [--seed N] [--count N] [--clean]``.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from builders import random_partitions
from builders.batches import BASE_TIMESTAMP_MS
from builders.java_server import JavaServer
from builders.random_partitions import Files
from builders.recover_for_differ import recover
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names
from kdump.formats.checkpoints import OffsetEntry, encode_offset_checkpoint
from kdump.formats.clean_shutdown import encode_clean_shutdown
from kdump.formats.names import TopicPartition
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.storage.local_disk import local
from kdump.target.refusal import Refusal

TOPIC: Final = "case"
MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Clock:
    """The time at which the broker starts, and its expiration time of producers."""

    now_ms: int = BASE_TIMESTAMP_MS
    expiration_ms: int = 2**31 - 1


EXPIRING: Final = Clock(BASE_TIMESTAMP_MS + 10 * MINUTE_MS, 3 * MINUTE_MS)
"""With this clock, some of the producers of a generated partition expire."""


class LoaderServer(JavaServer):
    """The server ``tests/java/src/LoaderServer.java``."""

    def __init__(self, classpath: str) -> None:
        super().__init__(classpath, "LoaderServer", "-Xmx1g")

    def load(
        self, directory: Path, settings: IndexSettings, clock: Clock, *, whole: bool = False
    ) -> dict[str, str]:
        """Load and stop; return the error of each refused partition, by directory name."""
        properties = {
            "index.interval.bytes": settings.interval_bytes,
            "segment.index.bytes": settings.max_bytes,
        }
        return self.ask("whole" if whole else "each", directory, clock, properties)

    def ask(
        self, what: str, directory: Path, clock: Clock, properties: Mapping[str, object]
    ) -> dict[str, str]:
        """Send the request ``what``, and read its answer."""
        request = [what, str(directory), str(clock.now_ms), str(clock.expiration_ms)]
        request += [f"{name}={value}" for name, value in properties.items()]
        return self.ask_words(request)


@dataclass(frozen=True, slots=True)
class Difference:
    """A partition for which the two results differ."""

    name: str
    happened: tuple[str, ...]
    differences: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} after {', '.join(self.happened) or 'nothing'}: " + "; ".join(
            self.differences
        )


class Recovering(Protocol):
    """A function that recovers a log directory in place and returns each partition's result."""

    def __call__(
        self,
        path: Path,
        settings: IndexSettings,
        *,
        now_ms: int,
        producer_id_expiration_ms: int | None,
    ) -> Mapping[TopicPartition, object]:
        """Return a refusal for each partition that was left unchanged, else anything."""
        ...


class Arena:
    """A log directory of generated partitions in ``path``, and copies of it for both sides."""

    def __init__(
        self,
        server: LoaderServer,
        path: Path,
        settings: IndexSettings,
        clock: Clock = Clock(),
        recovering: Recovering = recover,
    ) -> None:
        self._server = server
        self._clock = clock
        self._recovering = recovering
        self.settings = settings
        self.base, self.theirs, self.ours = (path / n for n in ("base", "theirs", "ours"))
        self.happened: dict[str, list[str]] = {}

    def generate(self, rng: random.Random, count: int, *, clean: bool, damage: bool = True) -> None:
        """Generate ``count`` partitions, let Kafka load and stop them, and damage them."""
        self.base.mkdir(parents=True)
        for number in range(count):
            _write(self.base / f"{TOPIC}-{number}", random_partitions.random_logs(rng))
        self._server.load(self.base, self.settings, Clock())
        (self.base / names.CLEAN_SHUTDOWN_MARKER).unlink(missing_ok=True)
        ends = read_log_directory(local(self.base), DirectoryKind.LOG_DIRECTORY).checkpoints
        offsets: dict[str, dict[TopicPartition, int]] = {
            names.RECOVERY_POINT_CHECKPOINT: {},
            names.LOG_START_OFFSET_CHECKPOINT: {},
            names.REPLICATION_OFFSET_CHECKPOINT: {},
        }
        for number in range(count):
            partition = TopicPartition(TOPIC, number)
            end_offset = (ends.recovery_points or {}).get(partition, 0)
            said = dict(random_partitions.checkpointed_offsets(rng, end_offset))
            if clean:
                said[names.RECOVERY_POINT_CHECKPOINT] = end_offset
            for checkpoint, offset in said.items():
                offsets[checkpoint][partition] = offset
            path = self.base / str(partition)
            files = files_of(path)
            if not clean and rng.random() < 0.7:
                files = random_partitions.as_after_crash(files)
            happened: list[str] = []
            if damage:
                happened, files = random_partitions.after_happenings(rng, files)
            self.happened[path.name] = happened
            shutil.rmtree(path)
            _write(path, files)
        for checkpoint, lines in offsets.items():
            entries = (OffsetEntry(*line) for line in lines.items())
            (self.base / checkpoint).write_bytes(encode_offset_checkpoint(entries))
        if clean:
            (self.base / names.CLEAN_SHUTDOWN_MARKER).write_bytes(encode_clean_shutdown(7))

    def compare(self, *, whole: bool = False) -> list[Difference]:
        """Load with Kafka and kdump; return the partitions and files of the root that differ."""
        for copy in (self.theirs, self.ours):
            shutil.copytree(self.base, copy)
        refused = self._server.load(self.theirs, self.settings, self._clock, whole=whole)
        outcomes = self._recovering(
            self.ours,
            self.settings,
            now_ms=self._clock.now_ms,
            producer_id_expiration_ms=self._clock.expiration_ms,
        )
        found = []
        for partition, outcome in outcomes.items():
            name = str(partition)
            refusal = outcome if isinstance(outcome, Refusal) else None
            differences = self._compare_partition(name, refused.get(name), refusal)
            if differences:
                happened = tuple(self.happened.get(name, ()))
                found.append(Difference(name, happened, tuple(differences)))
        differences = self._compare_root({name for name in refused if name.startswith(TOPIC)})
        if differences:
            found.append(Difference("the directory itself", (), tuple(differences)))
        return found

    def _compare_partition(
        self, name: str, refused: str | None, refusal: Refusal | None
    ) -> list[str]:
        ours = files_of(self.ours / name)
        if (refused is None) != (refusal is None):
            return [f"Kafka {refused or 'loads it'}, kdump {refusal or 'recovers it'}"]
        if refusal is not None:
            return [] if ours == files_of(self.base / name) else ["a refused partition has changed"]
        theirs = files_of(self.theirs / name)
        return [
            f"{file} {_described(ours.get(file))}, not {_described(theirs.get(file))}"
            for file in sorted(ours.keys() | theirs.keys())
            if ours.get(file) != theirs.get(file)
        ]

    def _compare_root(self, refused: set[str]) -> list[str]:
        kafka, kdump = (
            read_log_directory(local(path), DirectoryKind.LOG_DIRECTORY).checkpoints
            for path in (self.theirs, self.ours)
        )
        before = read_log_directory(local(self.base), DirectoryKind.LOG_DIRECTORY).checkpoints
        found = []
        for checkpoint in ("recovery_points", "log_start_offsets", "high_watermarks"):
            expected = dict(getattr(kafka, checkpoint) or {})
            lines = (getattr(before, checkpoint) or {}).items()
            expected.update(line for line in lines if str(line[0]) in refused)
            if (getattr(kdump, checkpoint) or {}) != expected:
                found.append(f"{checkpoint} differ")
        has_marker = (self.ours / names.CLEAN_SHUTDOWN_MARKER).exists()
        if has_marker == bool(refused):
            found.append("the clean shutdown marker is wrongly present or missing")
        return found


def files_of(directory: Path) -> Files:
    """Read the files of a partition, except those that Kafka is about to delete."""
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if not path.name.endswith(".deleted") or ".checkpoint" in path.name
    }


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)


def _described(content: bytes | None) -> str:
    return "is missing" if content is None else f"{len(content)} bytes ({hash(content) & 0xFFFF:x})"


def main() -> int:
    """Print the differences; return 1 if there are any."""
    parser = argparse.ArgumentParser()
    parser.add_argument("classpath")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--interval", type=int, default=4096)
    parser.add_argument("--index-bytes", type=int, default=IndexSettings().max_bytes)
    parser.add_argument("--expiring", action="store_true", help="some producers expire")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    begin = time.monotonic()
    settings = IndexSettings(options.interval, options.index_bytes)
    with tempfile.TemporaryDirectory() as scratch, LoaderServer(options.classpath) as server:
        if options.keep:
            shutil.rmtree(options.keep, ignore_errors=True)
        clock = EXPIRING if options.expiring else Clock()
        arena = Arena(server, options.keep or Path(scratch), settings, clock)
        rng = random.Random(options.seed)
        arena.generate(rng, options.count, clean=options.clean, damage=not options.whole)
        found = arena.compare(whole=options.whole)
    for difference in found:
        print(difference)
    print(f"{len(found)} of {options.count} differ, {time.monotonic() - begin:.1f} s")
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main())
