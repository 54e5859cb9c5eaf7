"""Kafka's cleaner and kdump's rules over copies of the same log directory.

As a script it prints the differences over generated partitions:
``PYTHONPATH=.:tests python -m builders.compacting CLASSPATH [--seed N] [--count N]``.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from builders.batches import BASE_TIMESTAMP_MS
from builders.compact_for_differ import compact
from builders.compactable_logs import NOW_MS, compactable_logs, random_properties
from builders.java_server import JavaServer
from builders.loading import Clock, LoaderServer, files_of
from kdump.broker.cleaner.compaction_round import Compacted
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names
from kdump.formats.checkpoints import OffsetEntry, encode_offset_checkpoint
from kdump.formats.clean_shutdown import encode_clean_shutdown
from kdump.formats.names import PartitionState, TopicPartition
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, walk_segment
from kdump.storage.local_disk import local
from kdump.target.refusal import Refusal

TOPIC: Final = "case"
_RECODED: Final = (".log", ".index", ".timeindex")
"""Files that may differ if a codec's library is of another version than Kafka's."""


class CleanerServer(JavaServer):
    """The server ``tests/java/src/CleanerServer.java``."""

    def __init__(self, classpath: str) -> None:
        super().__init__(classpath, "CleanerServer", "-Xmx1g")

    def compact(
        self, directory: Path, properties: Mapping[str, str], now_ms: int
    ) -> dict[str, str]:
        """Compact; return the error of each partition that the cleaner failed on, by directory."""
        return self.ask_words(
            [str(directory), str(now_ms), *(f"{k}={v}" for k, v in properties.items())]
        )


class CleaningArena:
    """A log directory of generated partitions in ``path``, and copies of it for both sides."""

    def __init__(self, loader: LoaderServer, cleaner: CleanerServer, path: Path) -> None:
        self._loader = loader
        self._cleaner = cleaner
        self.base, self.theirs, self.ours = (path / n for n in ("base", "theirs", "ours"))
        self.failures = 0
        """The number of exceptions of Kafka's cleaner."""

    def generate(self, rng: random.Random, count: int, *, ends_old: bool = False) -> None:
        """Generate ``count`` partitions, and let Kafka write their indexes and snapshots."""
        self.base.mkdir(parents=True)
        for number in range(count):
            partition = self.base / f"{TOPIC}-{number}"
            partition.mkdir()
            for name, content in compactable_logs(rng, ends_old=ends_old).items():
                (partition / name).write_bytes(content)
        refused = self._loader.load(self.base, IndexSettings(), Clock())
        assert not refused, refused
        (self.base / names.CLEAN_SHUTDOWN_MARKER).write_bytes(encode_clean_shutdown(7))
        for log in sorted(self.base.glob("*/*.log")):
            modified_ns = rng.randrange(BASE_TIMESTAMP_MS, NOW_MS) * 10**6 + 345_678
            os.utime(log, ns=(modified_ns, modified_ns))

    def adopt(self, directory: Path) -> None:
        """Copy a clean log directory of a broker; all of it is dirty.

        Partitions that no cleaner cleans are omitted: the cluster's metadata, and partitions that
        are being moved or deleted.
        """
        shutil.copytree(directory, self.base)
        for partition in read_log_directory(
            local(self.base), DirectoryKind.LOG_DIRECTORY
        ).partitions:
            if partition.state is not PartitionState.LIVE or partition.is_cluster_metadata:
                shutil.rmtree(partition.path.local_path)
        (self.base / names.CLEANER_OFFSET_CHECKPOINT).unlink(missing_ok=True)

    def set_checkpoints(self, rng: random.Random) -> None:
        """Write the checkpoints that determine the cleanable range."""
        ends = self._ends()
        lines: dict[str, dict[TopicPartition, int]] = {
            names.REPLICATION_OFFSET_CHECKPOINT: {},
            names.LOG_START_OFFSET_CHECKPOINT: {},
            names.CLEANER_OFFSET_CHECKPOINT: {},
        }
        for partition, end in ends.items():
            if rng.random() < 0.95:
                mark = end if rng.random() < 0.8 else rng.randrange(end + 1)
                lines[names.REPLICATION_OFFSET_CHECKPOINT][partition] = mark
            if rng.random() < 0.2:
                lines[names.LOG_START_OFFSET_CHECKPOINT][partition] = rng.randrange(end + 1)
            if rng.random() < 0.4:
                lines[names.CLEANER_OFFSET_CHECKPOINT][partition] = rng.randrange(end + 9)
        for checkpoint, offsets in lines.items():
            entries = (OffsetEntry(*line) for line in offsets.items())
            (self.base / checkpoint).write_bytes(encode_offset_checkpoint(entries))

    def compare(self, properties: Mapping[str, str], now_ms: int) -> list[str]:
        """Compact with Kafka and kdump; return the differences."""
        for copy in (self.theirs, self.ours):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(self.base, copy)
        failed = self._cleaner.compact(self.theirs, properties, now_ms)
        outcomes = compact(self.ours, properties, now_ms=now_ms)
        found = []
        for partition, outcome in outcomes.items():
            stopped_by = outcome.stopped_by if isinstance(outcome, Compacted) else outcome
            why = failed.get(str(partition))
            if (why is None) != (stopped_by is None):
                found.append(f"{partition}: Kafka {why or 'compacts it'}, kdump {stopped_by}")
                continue
            self.failures += why is not None
            if not isinstance(outcome, Refusal):
                found.extend(f"{partition}: {what}" for what in self._differences(str(partition)))
        kafka, kdump = (
            read_log_directory(local(path), DirectoryKind.LOG_DIRECTORY).checkpoints
            for path in (self.theirs, self.ours)
        )
        for name in ("recovery_points", "log_start_offsets", "cleaner_offsets"):
            expected, lines = (
                {partition: (getattr(each, name) or {}).get(partition) for partition in outcomes}
                for each in (kafka, kdump)
            )
            if lines != expected:
                found.append(f"{name} differ: {lines}, not {expected}")
        return found

    def go_on(self) -> None:
        """Use Kafka's result for the next round."""
        shutil.rmtree(self.base)
        shutil.copytree(self.theirs, self.base)
        for pattern in ("*/*.deleted", "*/*.cleaned"):
            for path in self.base.glob(pattern):
                path.unlink()

    def _ends(self) -> dict[TopicPartition, int]:
        checkpoints = read_log_directory(local(self.base), DirectoryKind.LOG_DIRECTORY).checkpoints
        return dict(checkpoints.recovery_points or {})

    def _differences(self, name: str) -> Iterator[str]:
        theirs, ours = (_compared(path / name) for path in (self.theirs, self.ours))
        for file in sorted(theirs.keys() | ours.keys()):
            if file not in theirs or file not in ours:
                yield f"{file} is {'missing' if file in theirs else 'too many'}"
            elif theirs[file] != ours[file] and not self._is_recoded(name, file):
                yield f"{file} differs"
            elif file.endswith(".log") and self._modified_ms(name, file):
                yield f"{file} was modified at another time"

    def _is_recoded(self, name: str, file: str) -> bool:
        """Tell whether two files differ only in their compressed bytes."""
        if not file.endswith(_RECODED):
            return False
        log = file.partition(".")[0] + ".log"
        logs = [path / name / log for path in (self.theirs, self.ours)]
        sizes_differ = logs[0].read_bytes() != logs[1].read_bytes()
        return sizes_differ and list(_content(logs[0])) == list(_content(logs[1]))

    def _modified_ms(self, name: str, file: str) -> bool:
        theirs, ours = (
            (path / name / file).stat().st_mtime_ns // 10**6 for path in (self.theirs, self.ours)
        )
        return theirs != ours


def _compared(directory: Path) -> dict[str, bytes]:
    return {
        name: content
        for name, content in files_of(directory).items()
        if not name.endswith(".cleaned")
    }


def _content(log: Path) -> Iterator[object]:
    """Yield batches and records, independently of their compressed bytes."""
    with local(log).open_file() as source:
        for step in walk_segment(source, with_records=True):
            if isinstance(step, MessageSet):
                yield step.messages
            elif isinstance(step, RecordColumns):
                yield from _batches_and_records(step)


def _batches_and_records(columns: RecordColumns) -> Iterator[object]:
    uncompared = ("position", "size_bytes", "crc")
    for name, column in columns.batches.columns().items():
        if name not in uncompared:
            yield name, column.tolist()
    for row in range(columns.count):
        yield (
            int(columns.offset[row]),
            int(columns.timestamp[row]),
            columns.key(row),
            columns.value(row),
            columns.headers(row),
        )


def main() -> int:
    """Print the differences; return 1 if there are any."""
    parser = argparse.ArgumentParser()
    parser.add_argument("classpath")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    different = 0
    with (
        tempfile.TemporaryDirectory() as scratch,
        LoaderServer(options.classpath) as loader,
        CleanerServer(options.classpath) as cleaner,
    ):
        rng = random.Random(options.seed)
        arena = CleaningArena(loader, cleaner, options.keep or Path(scratch) / "arena")
        arena.generate(rng, options.count)
        now_ms = NOW_MS
        for number in range(options.rounds):
            properties = random_properties(rng)
            arena.set_checkpoints(rng)
            found = arena.compare(properties, now_ms)
            print(f"round {number}, {properties}: {len(found)} differences")
            for difference in found:
                print(" ", difference)
            different += len(found)
            if options.keep and found:
                break
            arena.go_on()
            now_ms += rng.choice([0, 86_400_000])
        print(f"{different} differences; {arena.failures} times the cleaner itself failed")
    return min(different, 1)


if __name__ == "__main__":
    sys.exit(main())
