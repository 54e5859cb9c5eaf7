"""What a broker does to a log directory, one file operation at a time, without a broker.

:class:`SimulatedBroker` does the operations of several partitions in an order that a seed decides:
batches that are written in two halves, indexes that grow in place and are trimmed, rolls,
retention, compaction, topics that come and go, replicas that move, checkpoints that are replaced.
:class:`SteppedDisk` is the local disk for a reader, which lets a broker go on before and while it
reads.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.index_files import offset_index_bytes, time_index_bytes
from builders.log_directories import offset_checkpoint, write_log_directory
from builders.verified import file, write_topic_id
from kdump.formats import names, producer_snapshot
from kdump.formats.checkpoints import EpochEntry, encode_leader_epoch_checkpoint
from kdump.formats.names import FileKind
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.storage.entries import Entry
from kdump.storage.local_disk import LocalDisk, LocalFile
from kdump.storage.location import Location

KINDS: Final = (
    FileKind.LOG,
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TRANSACTION_INDEX,
)
"""The files of a segment, in the order in which Kafka renames and deletes them."""
_INDEX_BYTES: Final = 960
_RECORDS: Final = 3
Steps = Iterator[None]


@dataclass(slots=True)
class _Segment:
    base_offset: int
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    """Base offsets and bytes."""

    def indexes(self) -> tuple[bytes, bytes]:
        by_offset, by_time, position = [], [], 0
        for offset, content in self.batches:
            last = offset + _RECORDS - 1
            if position:
                by_offset.append((last, position))
            by_time.append((BASE_TIMESTAMP_MS + last, last))
            position += len(content)
        return (
            offset_index_bytes(by_offset, self.base_offset),
            time_index_bytes(by_time, self.base_offset),
        )


class _Log:
    """The log of a partition, as its broker knows it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.segments: list[_Segment] = []
        self.end = self.sequence = 0

    def create(self) -> Steps:
        self.path.mkdir()
        yield
        yield from self._open_segment()
        yield from replaced(
            self.path / names.LEADER_EPOCH_CHECKPOINT,
            encode_leader_epoch_checkpoint([EpochEntry(0, 0)]),
        )
        write_topic_id(self.path)
        yield

    def _open_segment(self) -> Steps:
        for kind in KINDS[:3]:
            size = 0 if kind is FileKind.LOG else _INDEX_BYTES
            file(self.path, self.end, kind).write_bytes(bytes(size))
            yield
        self.segments.append(_Segment(self.end))

    def append(self) -> Steps:
        """Write a batch in two halves, then grow the indexes in place."""
        segment = self.segments[-1]
        content = batch(
            [record(self.end + step) for step in range(_RECORDS)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=self.sequence,
        )
        half = len(content) // 2
        for piece in (content[:20], content[20:half], content[half:]):
            with file(self.path, segment.base_offset, FileKind.LOG).open("ab") as log:
                log.write(piece)
            yield
        segment.batches.append((self.end, content))
        self.end += _RECORDS
        self.sequence += _RECORDS
        for kind, entries in zip(KINDS[1:3], segment.indexes(), strict=True):
            with file(self.path, segment.base_offset, kind).open("r+b") as index:
                index.write(entries)
            yield

    def roll(self) -> Steps:
        segment = self.segments[-1]
        for kind, entries in zip(KINDS[1:3], segment.indexes(), strict=True):
            os.truncate(file(self.path, segment.base_offset, kind), len(entries))
            yield
        yield from self._open_segment()
        snapshot = file(self.path, self.end, FileKind.PRODUCER_SNAPSHOT)
        snapshot.touch()
        yield
        last = BASE_TIMESTAMP_MS + self.end - 1
        entry = ProducerEntry(7, 0, self.sequence - 1, self.end - 1, _RECORDS - 1, last, -1, -1)
        snapshot.write_bytes(producer_snapshot.encode([entry]))
        yield

    def retain(self) -> Steps:
        """Delete the first segment."""
        if len(self.segments) < 3:
            return
        gone = self.segments.pop(0)
        yield from self._put_aside(gone.base_offset)
        yield from self._put_aside(gone.base_offset, [FileKind.PRODUCER_SNAPSHOT])
        yield from self._unlinked()

    def clean(self) -> Steps:
        """Compact all but the last segment into one, as the cleaner does."""
        *old, last = self.segments
        if len(old) < 2:
            return
        new = _Segment(old[0].base_offset)
        batches = [each for segment in old for each in segment.batches]
        new.batches = [*batches[:-1:2], batches[-1]]
        contents = (b"".join(content for _, content in new.batches), *new.indexes())
        for kind, content in zip(KINDS, contents, strict=False):
            path = self._named(new.base_offset, kind, ".cleaned")
            path.write_bytes(content[: len(content) // 2])
            yield
            path.write_bytes(content)
            yield
        yield from self._renamed(new.base_offset, ".cleaned", ".swap")
        for segment in old:
            yield from self._put_aside(segment.base_offset)
            if segment is not old[0]:
                yield from self._put_aside(segment.base_offset, [FileKind.PRODUCER_SNAPSHOT])
        yield from self._renamed(new.base_offset, ".swap", "")
        self.segments = [new, last]
        yield from self._unlinked()

    def delete(self) -> Steps:
        """Rename the directory, and delete what is in it."""
        aside = self.path.with_name(f"{self.path.name}.{'0' * 32}-delete")
        self.path.rename(aside)
        self.path = aside
        yield
        for segment in self.segments:
            for kind in KINDS:
                file(aside, segment.base_offset, kind).unlink(missing_ok=True)
                yield
        for path in sorted(aside.iterdir()):
            path.unlink()
            yield
        aside.rmdir()
        yield

    def _named(self, base_offset: int, kind: FileKind, suffix: str) -> Path:
        path = file(self.path, base_offset, kind)
        return path.with_name(path.name + suffix)

    def _renamed(self, base_offset: int, suffix: str, new_suffix: str) -> Steps:
        for kind in KINDS:
            path = self._named(base_offset, kind, suffix)
            if path.exists():
                path.rename(self._named(base_offset, kind, new_suffix))
                yield

    def _put_aside(self, base_offset: int, kinds: list[FileKind] | None = None) -> Steps:
        for kind in kinds or KINDS:
            path = file(self.path, base_offset, kind)
            if path.exists():
                path.rename(self._named(base_offset, kind, ".deleted"))
                yield

    def _unlinked(self) -> Steps:
        for path in sorted(self.path.glob("*.deleted")):
            path.unlink()
            yield


def replaced(path: Path, content: bytes) -> Steps:
    """Replace a file as Kafka replaces its checkpoints."""
    temporary = path.with_name(path.name + names.TEMPORARY_SUFFIX)
    temporary.write_bytes(content[: len(content) // 2])
    yield
    temporary.write_bytes(content)
    yield
    temporary.rename(path)
    yield


class SimulatedBroker:
    """A broker on a log directory, which goes on when :meth:`step` is called.

    Attributes:
        kept: the partition whose segments are never deleted.
    """

    def __init__(self, root: Path, seed: int) -> None:
        write_log_directory(root, clean=False)
        self._root = root
        self._rng = random.Random(seed)
        self._logs = {name: _Log(root / name) for name in ("kept-0", "retained-0", "cleaned-0")}
        self.kept = root / "kept-0"
        for log in self._logs.values():
            for _ in log.create():
                pass
        self._activities = [
            self._grow(self._logs["kept-0"]),
            self._grow(self._logs["retained-0"], _Log.retain),
            self._grow(self._logs["cleaned-0"], _Log.clean),
            self._come_and_go("passing-0"),
            self._move("moved-0"),
            self._checkpoint(),
        ]

    def step(self) -> None:
        """Do the next file operation of one of the partitions."""
        next(self._rng.choice(self._activities))

    def steps(self, count: int) -> None:
        """Do so many file operations."""
        for _ in range(count):
            self.step()

    def ends(self) -> dict[str, int]:
        """After the last whole batch of each partition that stays, by the name of its directory."""
        return {name: log.end for name, log in self._logs.items()}

    def _grow(self, log: _Log, after_roll: Callable[[_Log], Steps] | None = None) -> Steps:
        while True:
            for _ in range(self._rng.randint(1, 3)):
                yield from log.append()
            yield from log.roll()
            if after_roll is not None:
                yield from after_roll(log)

    def _come_and_go(self, name: str) -> Steps:
        while True:
            log = _Log(self._root / name)
            yield from log.create()
            yield from log.append()
            yield from log.roll()
            yield from log.append()
            yield from log.delete()

    def _move(self, name: str) -> Steps:
        log = _Log(self._root / name)
        yield from log.create()
        while True:
            future = _Log(self._root / f"{name}.{'1' * 32}-future")
            yield from future.create()
            yield from future.append()
            yield from future.roll()
            yield from log.append()
            aside = log.delete()
            next(aside)
            yield
            future.path = future.path.rename(self._root / name)
            yield
            yield from aside
            log = future

    def _checkpoint(self) -> Steps:
        while True:
            ends = {(name.removesuffix("-0"), 0): log.end for name, log in self._logs.items()}
            for name in (names.RECOVERY_POINT_CHECKPOINT, names.REPLICATION_OFFSET_CHECKPOINT):
                yield from replaced(self._root / name, offset_checkpoint(ends))


class SteppedDisk(LocalDisk, frozen=True):
    """The local disk, where something else happens before and during each thing that is read."""

    step: Callable[[], None]

    def entries(self, path: str) -> list[Entry]:
        """List as systems do: of what is renamed meanwhile, both names may be seen, or none."""
        self.step()
        before = sorted(LocalDisk.entries(self, path))
        self.step()
        first = before[: len(before) // 2]
        seen = {each.name for each in before}
        try:
            after = LocalDisk.entries(self, path)
        except FileNotFoundError:
            return first
        sees_new = len(first) % 2 == 0
        listed = {each.name for each in first}
        return first + [
            each for each in after if each.name not in listed and (sees_new or each.name in seen)
        ]

    def status(self, path: str) -> Entry:
        self.step()
        return LocalDisk.status(self, path)

    def open_file(self, location: Location) -> LocalFile:
        self.step()
        return _SteppedFile(location, self.step)

    def read(self, path: str) -> bytes:
        self.step()
        return LocalDisk.read(self, path)

    def read_listed(self, path: str) -> bytes:
        self.step()
        return LocalDisk.read_listed(self, path)


class _SteppedFile(LocalFile):
    def __init__(self, location: Location, step: Callable[[], None]) -> None:
        super().__init__(location)
        self._step = step

    def read_into(self, buffer: memoryview, position: int) -> int:
        self._step()
        return super().read_into(buffer, position)

    def read_at(self, position: int, size: int) -> bytes:
        self._step()
        return super().read_at(position, size)
