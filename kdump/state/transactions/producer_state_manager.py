"""A partition's producers up to an offset, and their snapshots on disk.

Follows ``ProducerStateManager`` and ``UnifiedLog.loadProducersFromRecords``.
"""

from __future__ import annotations

from collections.abc import Iterable

from kdump.formats import producer_snapshot
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.scan.batches import Window
from kdump.state.transactions.markers import InvalidMarker
from kdump.state.transactions.producers import CompletedTxn, Producer, Producers, append_batches
from kdump.target.refusal import Refused
from kdump.target.virtual_directory import VirtualDirectory, Written, file_name


class ProducerStateManager:
    """The producers of a partition up to ``map_end_offset``, and the snapshots known of.

    Kafka creates one for each segment that it recovers, and one for the whole log. Each lists the
    snapshots when it is created, and keeps that list even if it becomes wrong.

    Args:
        expire_before_ms: reading a snapshot drops producers that have no open transaction and were
            last seen at or before this time; None drops none.

    Raises:
        Refused: a file with the suffix of a snapshot has no offset in its name.
    """

    def __init__(self, directory: VirtualDirectory, expire_before_ms: int | None) -> None:
        self._directory = directory
        self._expire_before_ms = expire_before_ms
        self.producers = Producers()
        self.unreplicated_txns: dict[int, int] = {}
        self.map_end_offset = 0
        self._last_snapshot_offset = 0
        self._snapshots = directory.list_snapshots().copy()

    @property
    def has_snapshots(self) -> bool:
        return len(self._snapshots) > 0

    @property
    def is_empty(self) -> bool:
        return not self.producers.by_id and not self.unreplicated_txns

    def entries(self) -> tuple[ProducerEntry, ...]:
        """The producers as Kafka writes them to a snapshot."""
        return tuple(each.entry() for each in self.producers.by_id.values())

    @property
    def open_txns(self) -> dict[int, int]:
        """The first offset of each open transaction, by producer id."""
        return {
            producer.producer_id: producer.txn_first_offset
            for producer in self.producers.by_id.values()
            if producer.txn_first_offset is not None
        }

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is open, or whose end is not replicated."""
        first_offsets = [
            self.producers.first_open_offset,
            min(self.unreplicated_txns, default=None),
        ]
        return min((each for each in first_offsets if each is not None), default=None)

    def complete_txn(self, txn: CompletedTxn, file_name: str) -> None:
        """Close a transaction; it stays unstable until it is replicated.

        Raises:
            Refused: it is not open.
        """
        if not self.producers.complete(txn):
            raise Refused(
                f"the transaction of producer {txn.producer_id} at offset"
                f" {txn.first_offset} ends without having begun",
                file_name,
                "IllegalArgumentException",
            )
        self.unreplicated_txns[txn.first_offset] = txn.last_offset

    def load_segment_part(self, windows: Iterable[Window], file_name: str) -> None:
        """Apply the batches of one segment, as ``loadProducersFromRecords`` does.

        Raises:
            Refused: as :func:`append_batches`; every invalid marker is one here.
        """
        staged = _SegmentProducers(self.producers)
        completed: list[CompletedTxn] = []
        for window in windows:
            try:
                completed.extend(append_batches(window, window.batches.count, staged, file_name))
            except InvalidMarker as problem:
                position = int(window.batches.position[problem.row])
                raise Refused(str(problem), file_name, "InvalidRecordException", position) from None
        for producer in staged.in_order():
            known = self.producers.by_id.get(producer.producer_id)
            if known is None:
                self.producers.by_id[producer.producer_id] = producer
            else:
                known.update(producer)
        for first_offset, producer_id in staged.begun:
            self.producers.begin_txn(first_offset, producer_id)
        for txn in completed:
            self.complete_txn(txn, file_name)

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int) -> None:
        """Reload the newest snapshot in range and delete the others."""
        for offset in self._snapshots.outside(log_start_offset, log_end_offset):
            self._delete_snapshot(offset)
        if log_end_offset != self.map_end_offset:
            self._clear()
            self._load_from_snapshot(log_start_offset)
            return
        self._forget_replicated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        newest_offset = self._snapshots.newest_offset
        self._last_snapshot_offset = log_start_offset if newest_offset is None else newest_offset

    def truncate_fully(self, offset: int) -> None:
        """Drop all state and delete all snapshots."""
        self._clear()
        for known in self._snapshots.offsets:
            self._delete_snapshot(known)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def advance_high_watermark(self, offset: int) -> None:
        """Drop completed transactions that end below ``offset``."""
        self._forget_replicated(offset)

    def take_snapshot(self) -> None:
        """Write a snapshot, unless the last one is as new."""
        if self.map_end_offset <= self._last_snapshot_offset:
            return
        offset = self.map_end_offset
        name = snapshot_name(offset)
        entries = [producer.entry() for producer in in_java_order(self.producers.by_id.values())]
        data = producer_snapshot.encode(entries)
        if name in self._directory:
            # Kafka overwrites the file in place and does not truncate a longer one.
            data += self._directory.read(name)[len(data) :]
        self._directory.put(name, Written(data))
        self._snapshots.put(offset, name)
        self._last_snapshot_offset = offset

    def delete_segment_snapshot(self, base_offset: int) -> None:
        """Delete the snapshot of a segment that is deleted, if this state knows of it."""
        self._delete_snapshot(base_offset)

    def remove_stray_snapshots(self, base_offsets: list[int]) -> None:
        """List the snapshots again, and delete those at no segment's base offset.

        The newest of these stays if it is at or above the last base offset: a clean shutdown
        leaves such a snapshot.
        """
        snapshots = self._directory.list_snapshots().copy()
        known = set(base_offsets)
        strays = [offset for offset in snapshots.offsets if offset not in known]
        going = strays[:-1]
        if strays and base_offsets and strays[-1] < max(base_offsets):
            going = strays
        self._snapshots = snapshots
        for offset in going:
            self._delete_snapshot(offset)

    def _clear(self) -> None:
        self.producers.clear()
        self.unreplicated_txns.clear()

    def _forget_replicated(self, offset: int) -> None:
        for first_offset, last_offset in list(self.unreplicated_txns.items()):
            if last_offset < offset:
                del self.unreplicated_txns[first_offset]

    def _load_from_snapshot(self, log_start_offset: int) -> None:
        while (offset := self._snapshots.newest_offset) is not None:
            name = self._snapshots.name_at(offset)
            try:
                data = self._directory.read(name)
                entries = producer_snapshot.read(data).entries
            except FormatError:
                self._delete_snapshot(offset)
                continue
            for entry in entries:
                self._load(entry)
            self._last_snapshot_offset = self.map_end_offset = offset
            return
        self._last_snapshot_offset = self.map_end_offset = log_start_offset

    def _load(self, entry: ProducerEntry) -> None:
        is_expired = (
            self._expire_before_ms is not None
            and entry.current_txn_first_offset < 0
            and entry.timestamp <= self._expire_before_ms
        )
        if not is_expired:
            self.producers.load(entry)

    def _delete_snapshot(self, offset: int) -> None:
        name = self._snapshots.forget(offset)
        if name is not None:
            self._directory.remove(name)


class _SegmentProducers(Producers):
    """The producers of one segment, before they are applied to the state of the log."""

    def __init__(self, known: Producers) -> None:
        super().__init__()
        self._known = known
        self.begun: list[tuple[int, int]] = []

    def producer(self, producer_id: int) -> Producer:
        found = self.by_id.get(producer_id)
        if found is None:
            known = self._known.by_id.get(producer_id)
            found = Producer(producer_id) if known is None else known.staged()
            self.by_id[producer_id] = found
        return found

    def begin_txn(self, first_offset: int, producer_id: int) -> None:
        self.begun.append((first_offset, producer_id))

    def in_order(self) -> list[Producer]:
        """The producers in the order of the map from which Kafka applies them.

        Kafka fills it by ``computeIfAbsent``, which inserts at the front of a bucket and grows the
        table before it inserts.
        """
        listed = list(self.by_id.values())
        return _by_bucket(listed[::-1], _bucket_count(len(listed) - 1))


def snapshot_name(offset: int) -> str:
    """Name of the snapshot at ``offset``."""
    return file_name(offset, FileKind.PRODUCER_SNAPSHOT)


def in_java_order(producers: Iterable[Producer]) -> list[Producer]:
    """The producers in the iteration order of a Java ``HashMap`` by producer id.

    That is the order of the hash table's buckets, and within one, the order of insertion.
    """
    listed = list(producers)
    return _by_bucket(listed, _bucket_count(len(listed)))


def _bucket_count(size: int) -> int:
    """The number of buckets of a map that has grown to ``size`` entries."""
    count = 16
    while size > count * 3 // 4:
        count *= 2
    return count


def _by_bucket(producers: list[Producer], bucket_count: int) -> list[Producer]:
    def bucket(producer: Producer) -> int:
        folded = (producer.producer_id ^ (producer.producer_id >> 32)) & 0xFFFFFFFF
        return (folded ^ (folded >> 16)) & (bucket_count - 1)

    return sorted(producers, key=bucket)
