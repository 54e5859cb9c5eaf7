"""Compare producer snapshots with the state that replaying the log gives."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from msgspec import Struct

from kdump.check import invariants
from kdump.check.findings import Finding, Place
from kdump.check.producers import ProducerReplay
from kdump.formats import producer_snapshot
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind, OffsetFileName
from kdump.formats.producer_snapshot import ProducerEntry, ProducerSnapshot
from kdump.log.partition import Partition
from kdump.storage.location import Location


class SnapshotFile(Struct, frozen=True):
    """What the check of a snapshot as a file needs to know.

    Attributes:
        finding: why Kafka cannot read it; None if it can.
        has_open_transactions: whether a transaction is open in it.
    """

    size_bytes: int
    finding: Finding | None
    has_open_transactions: bool


class SnapshotFiles:
    """The producer snapshots of a partition; most are read once, for both of their checks."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._known: dict[int, SnapshotFile] = {}

    def path(self, offset: int) -> Location:
        return self._partition.path / str(OffsetFileName(offset, FileKind.PRODUCER_SNAPSHOT))

    def read(self, offset: int) -> ProducerSnapshot | Finding:
        """Read the snapshot at ``offset``; gives the finding if Kafka cannot.

        Raises:
            OSError: the file is missing, or cannot be read.
        """
        path = self.path(offset)
        data = path.read_listed()
        snapshot = check_snapshot_file(str(path), data)
        self._known[offset] = SnapshotFile(
            len(data),
            snapshot if isinstance(snapshot, Finding) else None,
            not isinstance(snapshot, Finding)
            and any(entry.current_txn_first_offset >= 0 for entry in snapshot.entries),
        )
        return snapshot

    def file(self, offset: int) -> SnapshotFile:
        """The snapshot at ``offset`` as a file, which is read unless it has been.

        Raises:
            OSError: as :meth:`read`.
        """
        if offset not in self._known:
            self.read(offset)
        return self._known[offset]


def check_snapshot(
    snapshots: SnapshotFiles,
    offset: int,
    replay: ProducerReplay,
    *,
    is_whole: bool,
    log_start_offset: int = 0,
) -> Iterator[Finding]:
    """Compare the snapshot at ``offset`` with the state of the log there.

    Args:
        snapshots: of the partition, which has that snapshot.
        offset: the end of the batches that the snapshot covers, exclusive.
        replay: the producers' state at ``offset``.
        is_whole: whether the log has all batches ever written to it; otherwise producers and
            markers may be missing from it.
        log_start_offset: brokers before 2.3 forget the producers that wrote nothing after it.

    Raises:
        OSError: the snapshot cannot be read.
    """
    try:
        snapshot = snapshots.read(offset)
    except FileNotFoundError:
        return
    if isinstance(snapshot, Finding):
        return  # the check of the file reports it
    if not snapshot.entries and not replay:
        return
    path = snapshots.path(offset)
    state = replay.entries()
    found = {entry.producer_id: entry for entry in snapshot.entries}
    writers = {each[0].last_offset: producer_id for producer_id, each in state.items()}
    for producer_id, entry in found.items():
        known = state.pop(producer_id, None)
        writer = writers.get(entry.last_offset, producer_id) if entry.last_offset >= 0 else None
        if known is None:
            if is_whole:
                yield _contradiction(str(path), offset, None, entry)
                continue
        elif not any(_agree(entry, each, is_whole=is_whole) for each in known):
            yield _contradiction(str(path), offset, known[0], entry)
            continue
        if writer not in (None, producer_id):
            # Compaction removes batches, but gives no offset to another producer.
            yield invariants.SNAPSHOT_STATE.finding(
                Place(str(path), None, offset),
                f"the snapshot contradicts the log about who wrote offset {entry.last_offset}",
                expected=f"producer {writer}",
                found=f"producer {producer_id}",
            )
    expiry = _Expiry(found.values())
    for known in state.values():
        has_expired = known[0].current_txn_first_offset < 0 and (
            any(expiry.is_possible(each) for each in known)
            or known[0].last_offset < log_start_offset
        )
        if not has_expired:
            yield _contradiction(str(path), offset, known[0], None)


class _Expiry:
    """Which producers may be missing from a snapshot because they expired.

    A broker drops the producers whose timestamp is too old at that moment, but for those with an
    open transaction. Timestamps may be any: a producer that wrote later than the missing one may
    have come after that moment with an older timestamp, but one that wrote before must be younger.
    """

    def __init__(self, entries: Iterable[ProducerEntry]) -> None:
        found = sorted(
            (entry.last_offset, entry.timestamp)
            for entry in entries
            if entry.current_txn_first_offset < 0
        )
        self._last_offsets = [last_offset for last_offset, _ in found]
        self._oldest = list(itertools.accumulate((timestamp for _, timestamp in found), min))

    def is_possible(self, missing: ProducerEntry) -> bool:
        """Whether the producer may have expired."""
        count = bisect_left(self._last_offsets, missing.last_offset)
        return not count or missing.timestamp < self._oldest[count - 1]


def open_transactions(partition: Partition, offset: int) -> dict[int, int]:
    """First offsets of the transactions that are open in the snapshot at ``offset``, by producer.

    Raises:
        OSError: the snapshot cannot be read.
    """
    path = partition.path / str(OffsetFileName(offset, FileKind.PRODUCER_SNAPSHOT))
    try:
        entries = producer_snapshot.read(path.read()).entries
    except (FileNotFoundError, FormatError):
        return {}
    return {
        entry.producer_id: entry.current_txn_first_offset
        for entry in entries
        if entry.current_txn_first_offset >= 0
    }


def _agree(entry: ProducerEntry, known: ProducerEntry, *, is_whole: bool) -> bool:
    if is_whole:
        return _without_absent(entry) == _without_absent(known)
    # Compaction keeps only a producer's last batch: a snapshot in the middle of the log may have
    # later batches than are left, but never earlier ones.
    if entry.epoch != known.epoch:
        return entry.epoch > known.epoch
    if known.last_offset < 0 or entry.last_offset < 0:
        return True
    if entry.last_offset != known.last_offset:
        return entry.last_offset > known.last_offset
    return entry.last_sequence == known.last_sequence


def _without_absent(entry: ProducerEntry) -> tuple[int, ...]:
    """The fields, with one value for each way to write "no transaction" or "no batch"."""
    return (
        entry.epoch,
        entry.last_sequence,
        max(entry.last_offset, -1),
        entry.offset_delta,
        entry.timestamp,
        entry.coordinator_epoch,
        max(entry.current_txn_first_offset, -1),
    )


def _contradiction(
    path: str, offset: int, known: ProducerEntry | None, entry: ProducerEntry | None
) -> Finding:
    producer_id = entry.producer_id if entry is not None else known.producer_id if known else -1
    return invariants.SNAPSHOT_STATE.finding(
        Place(path, None, offset),
        f"the snapshot contradicts the log about producer {producer_id}",
        expected="no state of this producer" if known is None else _words(known),
        found="no state of this producer" if entry is None else _words(entry),
    )


def _words(entry: ProducerEntry) -> str:
    return (
        f"epoch {entry.epoch}, last sequence {entry.last_sequence}, last offset"
        f" {entry.last_offset} (batch of {entry.offset_delta + 1}), timestamp {entry.timestamp},"
        f" coordinator epoch {entry.coordinator_epoch}, open transaction from"
        f" {entry.current_txn_first_offset}"
    )


def missing_snapshot(partition: Partition, offset: int) -> Finding:
    """The finding for a missing snapshot at the start of a segment or the end of the log."""
    name = str(OffsetFileName(offset, FileKind.PRODUCER_SNAPSHOT))
    return invariants.SNAPSHOT_MISSING.finding(
        Place(str(partition.path / name), None, offset),
        "a producer snapshot is missing; a starting broker reads the log from the previous one",
    )


def check_snapshot_file(path: str, data: bytes) -> ProducerSnapshot | Finding:
    """Decode a snapshot, or return the finding why Kafka cannot read it."""
    try:
        snapshot = producer_snapshot.decode(data)
    except FormatError as problem:
        return invariants.SNAPSHOT_MALFORMED.of_error(Place(path, problem.position), problem)
    problem_ = producer_snapshot.crc_problem(data, snapshot)
    if problem_ is None:
        return snapshot
    return invariants.SNAPSHOT_CHECKSUM.finding(
        Place(path, problem_.position),
        "the checksum of a producer snapshot does not match",
        expected=problem_.expected,
        found=problem_.found,
    )
