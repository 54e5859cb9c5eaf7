"""A small valid log directory, and the events of its verification."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.index_files import offset_index_bytes, time_index_bytes
from builders.log_directories import write_log_directory
from kdump.check.findings import Finding, Severity
from kdump.check.part import Level
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions
from kdump.formats import names, producer_snapshot, record_batch, transaction_index
from kdump.formats.checkpoints import EpochEntry, encode_leader_epoch_checkpoint
from kdump.formats.names import FileKind, OffsetFileName
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.record_batch import BatchHeader, Record, decode_header, encode_batch
from kdump.formats.transaction_index import AbortedTxn
from kdump.jobs.verify.scrub import Scrub
from kdump.jobs.verify.verify import VerifyEvent, VerifyRequest, VerifySummary, VerifyTarget, verify
from kdump.log.directory import read_log_directory
from kdump.state.metadata.settings import read_settings
from kdump.storage.local_disk import local

NOW_MS: Final = BASE_TIMESTAMP_MS + 60_000
END_OFFSET: Final = 18
PARTITION: Final = ("orders", 0)
ABORT, COMMIT = 0, 1


def records(first_offset: int, count: int) -> list[Record]:
    """Make records with consecutive offsets."""
    return [record(first_offset + step) for step in range(count)]


def marker(
    offset: int, producer_id: int, kind: int, *, coordinator_epoch: int = 0, **fields: Any
) -> bytes:
    """Make the control batch that ends a transaction."""
    end = record(offset, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch))
    attributes = record_batch.CONTROL_FLAG | record_batch.TRANSACTIONAL_FLAG
    return batch([end], attributes=attributes, producer_id=producer_id, producer_epoch=0, **fields)


def forged(content: bytes, **fields: int) -> bytes:
    """Change header fields of a batch, and correct its checksum."""
    header = replace(decode_header(content), **fields)
    return encode_batch(header, content[record_batch.HEADER_BYTES :])


def with_body(content: bytes, body: bytes) -> bytes:
    """Change the records of a batch under the same header, and correct its checksum."""
    return encode_batch(decode_header(content), body)


def idempotent(first_offset: int, sequence: int, **fields: Any) -> bytes:
    """Make a batch of three records of producer 7."""
    return batch(
        records(first_offset, 3),
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
        **fields,
    )


def _segments() -> dict[int, list[bytes]]:
    return {
        0: [
            batch(records(0, 3)),
            idempotent(3, 0),
            idempotent(6, 3),
            batch(
                records(9, 2),
                attributes=record_batch.TRANSACTIONAL_FLAG,
                producer_id=9,
                producer_epoch=0,
                base_sequence=0,
            ),
            marker(11, 9, ABORT),
        ],
        12: [
            batch(records(12, 3), partition_leader_epoch=1),
            idempotent(15, 6, partition_leader_epoch=1),
        ],
    }


def _plain_segments(value: bytes) -> dict[int, list[bytes]]:
    def of(first_offset: int, count: int, **fields: Any) -> bytes:
        rows = [record(first_offset + step, value=value) for step in range(count)]
        return batch(rows, **fields)

    seven, nine = ({"producer_id": each, "producer_epoch": 0} for each in (7, 9))
    return {
        0: [
            of(0, 3),
            of(3, 3, **seven, base_sequence=0),
            of(6, 3, **seven, base_sequence=3),
            of(9, 2, **nine, base_sequence=0),
            of(11, 1),
        ],
        12: [
            of(12, 3, partition_leader_epoch=1),
            of(15, 3, **seven, base_sequence=6, partition_leader_epoch=1),
        ],
    }


def _producer_9() -> ProducerEntry:
    return ProducerEntry(9, 0, 1, 10, 1, BASE_TIMESTAMP_MS + 11, 0, -1)


def _snapshots() -> dict[int, list[ProducerEntry]]:
    return {
        12: [ProducerEntry(7, 0, 5, 8, 2, BASE_TIMESTAMP_MS + 8, -1, -1), _producer_9()],
        END_OFFSET: [ProducerEntry(7, 0, 8, 17, 2, BASE_TIMESTAMP_MS + 17, -1, -1), _producer_9()],
    }


@dataclass(slots=True)
class LogModel:
    """A partition with some of everything, to be changed before it is written.

    Attributes:
        segments: batches by base offset; the indexes are built from them.
        aborted: entries of the transaction index, by base offset.
        snapshots: producers by offset.
        epochs: entries of ``leader-epoch-checkpoint``.
        is_clean: whether the directory has a clean shutdown marker.
        others: names of valid partitions beside it.
    """

    segments: dict[int, list[bytes]] = field(default_factory=_segments)
    aborted: dict[int, list[AbortedTxn]] = field(
        default_factory=lambda: {0: [AbortedTxn(9, 9, 11, 12)]}
    )
    snapshots: dict[int, list[ProducerEntry]] = field(default_factory=_snapshots)
    epochs: list[EpochEntry] = field(default_factory=lambda: [EpochEntry(0, 0), EpochEntry(1, 12)])
    is_clean: bool = True
    others: tuple[str, ...] = ()

    @classmethod
    def plain(cls, value: bytes = b"value", others: tuple[str, ...] = ()) -> LogModel:
        """A partition without transactions; ``value`` is that of each record."""
        return cls(
            segments=_plain_segments(value),
            aborted={},
            snapshots={
                offset: [seven, ProducerEntry(9, 0, 1, 10, 1, BASE_TIMESTAMP_MS + 10, -1, -1)]
                for offset, (seven, _) in _snapshots().items()
            },
            others=others,
        )

    def write(self, root: Path) -> Path:
        """Write the log directory ``root``; return the partition's directory."""
        offsets = {PARTITION: END_OFFSET} | {(name, 0): END_OFFSET for name in self.others}
        write_log_directory(
            root, clean=self.is_clean, recovery_points=offsets, high_watermarks=offsets
        )
        for name in self.others:
            LogModel.plain()._write_partition(root / f"{name}-0")
        return self._write_partition(root / "-".join(map(str, PARTITION)))

    def _write_partition(self, partition: Path) -> Path:
        partition.mkdir()
        for base_offset, batches in self.segments.items():
            write_segment(partition, base_offset, batches)
        for base_offset, aborted in self.aborted.items():
            path = file(partition, base_offset, FileKind.TRANSACTION_INDEX)
            path.write_bytes(transaction_index.encode(aborted))
        for offset, producers in self.snapshots.items():
            path = file(partition, offset, FileKind.PRODUCER_SNAPSHOT)
            path.write_bytes(producer_snapshot.encode(producers))
        (partition / names.LEADER_EPOCH_CHECKPOINT).write_bytes(
            encode_leader_epoch_checkpoint(self.epochs)
        )
        write_topic_id(partition)
        return partition


def write_topic_id(partition: Path) -> None:
    from builders.log_directories import TOPIC_ID

    (partition / names.PARTITION_METADATA).write_bytes(
        encode_partition_metadata(PartitionMetadata(0, TOPIC_ID))
    )


def file(partition: Path, offset: int, kind: FileKind) -> Path:
    """Return the path of a file that is named after an offset."""
    return partition / str(OffsetFileName(offset, kind))


def write_segment(partition: Path, base_offset: int, batches: Sequence[bytes]) -> None:
    """Write a log, and indexes with an entry for all batches but the first."""
    headers: list[BatchHeader] = []
    positions: list[int] = []
    position = 0
    for content in batches:
        if len(content) >= record_batch.HEADER_BYTES:
            headers.append(decode_header(content))
            positions.append(position)
        position += len(content)
    file(partition, base_offset, FileKind.LOG).write_bytes(b"".join(batches))
    by_offset = [
        (header.last_offset, position)
        for header, position in list(zip(headers, positions, strict=True))[1:]
        if 0 <= header.last_offset - base_offset < 2**31
    ]
    by_time: list[tuple[int, int]] = []
    for header in headers:
        if (
            not by_time or header.max_timestamp > by_time[-1][0]
        ) and 0 <= header.last_offset - base_offset < 2**31:
            by_time.append((header.max_timestamp, header.last_offset))
    file(partition, base_offset, FileKind.OFFSET_INDEX).write_bytes(
        offset_index_bytes(by_offset, base_offset)
    )
    file(partition, base_offset, FileKind.TIME_INDEX).write_bytes(
        time_index_bytes(by_time, base_offset)
    )


def said_of(
    *roots: Path,
    level: Level = Level.DEEP,
    now_ms: int = NOW_MS,
    options: EngineOptions = DEFAULT_OPTIONS,
    given: Mapping[str, str] = MappingProxyType({}),
    with_statistics: bool = False,
    scrub: Scrub | None = None,
    is_living: bool = False,
) -> list[VerifyEvent]:
    """Return all events of a verification of log directories."""
    directories = [read_log_directory(local(root)) for root in roots]
    targets = [
        VerifyTarget(each, root, is_living) for root in directories for each in root.partitions
    ]
    request = VerifyRequest(
        targets,
        directories,
        level,
        now_ms,
        read_settings(directories, given),
        with_statistics=with_statistics,
        living=[each.path for each in directories] if is_living else [],
        scrub=scrub,
    )
    return list(verify(request, options))


def state_of(root: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return content, owner, mode and times of everything below ``root``, except access times."""
    return {str(path): (_digest(path), _status(path)) for path in (root, *root.rglob("*"))}


def _digest(path: Path) -> str:
    is_file = path.is_file() and not path.is_symlink()
    return hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""


def _status(path: Path) -> tuple[int, ...]:
    status = path.lstat()
    return (
        status.st_mode,
        status.st_ino,
        status.st_nlink,
        status.st_uid,
        status.st_gid,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def findings_in(
    *roots: Path, level: Level = Level.DEEP, at_least: Severity = Severity.INFO
) -> list[Finding]:
    """Return the findings of a verification of one broker's log directories."""
    return [
        each
        for each in said_of(*roots, level=level)
        if isinstance(each, Finding) and each.severity >= at_least
    ]


def summary_of(*roots: Path, level: Level = Level.DEEP) -> VerifySummary:
    """Return the summary of a verification."""
    last = said_of(*roots, level=level)[-1]
    assert isinstance(last, VerifySummary)
    return last
