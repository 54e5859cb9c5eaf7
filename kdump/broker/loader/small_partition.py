"""Load a small partition in plain Python, as long as everything in it is as usual.

A log directory has thousands of partitions whose unflushed segments have a few batches each. For
so few, :mod:`kdump.broker.loader.loader` spends nearly all of its time on the way: it lists, opens
and encodes the same small files again for each segment, as a broker does.

Here each file is read once, and only what the rules lead to is computed. That is possible where
nothing is missing, left over, damaged or part of a transaction: then a segment ends where the next
one begins, its producers are in the snapshot there, and nothing has to be replayed. Anything else
is left to the loader, so both give the same result for every partition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from kdump.broker.loader.claims import Claims
from kdump.broker.loader.load_context import IndexSettings, LoadContext
from kdump.broker.loader.load_report import LoadReport, RecoveredSegment
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats import names, producer_snapshot, record_batch
from kdump.formats.checkpoints import (
    encode_leader_epoch_checkpoint,
    known_leader_epochs,
)
from kdump.formats.errors import FormatError
from kdump.formats.fixed_layout import layout
from kdump.formats.index_layouts import OFFSET_ENTRY_FIELDS, TIME_ENTRY_FIELDS
from kdump.formats.names import FileKind
from kdump.formats.partition_metadata import decode_partition_metadata
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.record_batch import NO_TIMESTAMP
from kdump.scan.source import read_at
from kdump.scan.usual_batches import (
    LARGEST_SMALL_LOG_BYTES,
    HeaderFields,
    UnusualError,
    usual_batches,
)
from kdump.state.epochs.epoch_history import EpochHistory, begin_before
from kdump.state.transactions.producer_events import BatchRun
from kdump.state.transactions.producer_state_manager import in_java_order
from kdump.state.transactions.producers import Producers
from kdump.target.target_file import Gone, Kept, KeptUpTo, NewBytes, TargetFile
from kdump.target.virtual_directory import VirtualDirectory, Written

_LOG: Final = FileKind.LOG.value
_OFFSET_INDEX: Final = FileKind.OFFSET_INDEX.value
_TIME_INDEX: Final = FileKind.TIME_INDEX.value
_SNAPSHOT: Final = FileKind.PRODUCER_SNAPSHOT.value
_INDEX_SUFFIXES: Final = (_OFFSET_INDEX, _TIME_INDEX)
_OFFSET_ENTRY: Final = layout(OFFSET_ENTRY_FIELDS)
_TIME_ENTRY: Final = layout(TIME_ENTRY_FIELDS)
_DIGITS: Final = 20
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_OF_TRANSACTIONS: Final = record_batch.OF_TRANSACTIONS
_MOST_FILE_BYTES: Final = 4000
"""Larger snapshots and indexes are left to the loader, which need not hold them in memory."""
_KEPT: Final = Kept()
_GONE: Final = Gone()
_NO_PRODUCERS: Final = producer_snapshot.encode(())


def load_small(directory: VirtualDirectory, context: LoadContext) -> Recovered | None:
    """Load a partition; None, and the directory is unchanged, if anything is not as usual.

    What cannot be read is not as usual either: the loader reports it.
    """
    if context.log_start_offset:
        return None  # part of the log may no longer be read
    sizes = directory.untouched_sizes()
    if sizes is None:
        return None
    try:
        partition = _SmallPartition(directory, sizes, context)
        end_offset = partition.end_of_clean_log() if context.is_clean else partition.recover()
        loaded = partition.loaded(end_offset)
    except (UnusualError, FormatError, OSError):
        return None
    for name, file in loaded.files.items():
        if isinstance(file, NewBytes):
            directory.put(name, Written(file.data))
        elif isinstance(file, KeptUpTo):
            directory.truncate(name, file.size_bytes)
        elif isinstance(file, Gone):
            directory.remove(name)
    return loaded


class _SmallPartition:
    """A partition with nothing but whole segments, producer snapshots and the small files.

    Raises:
        UnusualError: from the constructor and all methods.
        FormatError: likewise, for a small file.
        OSError: likewise.
    """

    def __init__(
        self, directory: VirtualDirectory, sizes: dict[str, int], context: LoadContext
    ) -> None:
        self._directory = directory
        self._sizes = sizes
        self._context = context
        offsets = _offsets_by_suffix(sizes)
        self._bases = sorted(offsets[_LOG])
        for suffix in _INDEX_SUFFIXES:
            if sorted(offsets[suffix]) != self._bases:
                raise UnusualError
        if not self._bases:
            raise UnusualError
        self._snapshots = sorted(offsets[_SNAPSHOT])
        self._taken: tuple[int, list[ProducerEntry]] | None = None
        """The offset of the last snapshot that loading takes, and the producers in it."""
        self._changes: dict[str, bytes] = {}
        """New content of files, where it is not that on disk."""
        self._recovered: list[int] = []
        self._producers = Producers()
        self._epochs_on_disk = self._read(names.LEADER_EPOCH_CHECKPOINT)
        self._epochs = EpochHistory()
        for epoch, start_offset in known_leader_epochs(self._epochs_on_disk):
            self._assign(epoch, start_offset)
        self._are_epochs_written = False
        self._last_headers: dict[int, HeaderFields] = {}
        """The last batch of each producer, after the last entry of the active segment's index."""
        self._claims = Claims(
            (context.recovery_point, context.high_watermark),
            self._epochs.entries,
            tuple(self._snapshots),
        )
        if names.PARTITION_METADATA in sizes:
            decode_partition_metadata(self._read(names.PARTITION_METADATA))

    def _read(self, name: str) -> bytes:
        """A whole file, which is as large as it was when the directory was listed."""
        data = self._directory.read_small(name) if name in self._sizes else None
        if data is None:
            raise UnusualError
        return data

    # A log after a clean shutdown

    def end_of_clean_log(self) -> int:
        """The log end offset, by the index of the active segment and the batches after its end.

        Follows :meth:`~kdump.broker.loader.loaded_segment.LoadedSegment.next_offset`.
        """
        base_offset = self._bases[-1]
        index = self._read(_named(base_offset, _OFFSET_INDEX))
        self._require_whole_entries(base_offset)
        if len(index) > _MOST_FILE_BYTES:
            raise UnusualError
        last_indexed, position = base_offset, 0
        entries = list(_OFFSET_ENTRY.iter_unpack(index))
        if any(before[0] >= after[0] for before, after in pairwise(entries)):
            raise UnusualError
        if entries:
            last_indexed, position = base_offset + entries[-1][0], entries[-1][1]
        tail = self._tail(_named(base_offset, _LOG), position)
        if not tail and not entries:
            return base_offset
        last_offset = -1
        for _, _, header in usual_batches(tail, checksums=False):
            if header[9] >= 0:
                self._last_headers[header[9]] = header
            if not last_offset < header[0] <= header[0] + header[6] < _INT64_MAX:
                raise UnusualError
            last_offset = header[0] + header[6]
        if last_offset < last_indexed:
            raise UnusualError
        return last_offset + 1

    def _require_whole_entries(self, base_offset: int) -> None:
        """Leave indexes that closing the active segment would trim, or that are too large."""
        most_bytes = self._context.settings.max_bytes
        for suffix, entry in ((_OFFSET_INDEX, _OFFSET_ENTRY), (_TIME_INDEX, _TIME_ENTRY)):
            size_bytes = self._sizes[_named(base_offset, suffix)]
            if size_bytes % entry.size or size_bytes > most_bytes // entry.size * entry.size:
                raise UnusualError

    def _tail(self, name: str, position: int) -> bytes:
        """A log from a position on."""
        size_bytes = self._sizes[name] - position
        if not 0 <= size_bytes <= LARGEST_SMALL_LOG_BYTES or position < 0:
            raise UnusualError
        if self._sizes[name] <= LARGEST_SMALL_LOG_BYTES:
            return self._read(name)[position:]
        with (self._directory.path / name).open_file() as source:
            tail = read_at(source, position, size_bytes)
        if len(tail) != size_bytes:
            raise UnusualError
        return tail

    # A log after an unclean shutdown

    def recover(self) -> int:
        """Recover the unflushed segments; returns the log end offset."""
        if self._context.recovery_point == _INT64_MAX:
            raise UnusualError
        at = max(0, bisect_right(self._bases, self._context.recovery_point) - 1)
        unflushed = self._bases[at:]
        first = unflushed[0]
        # To recover the first one, a broker loads the snapshot where it begins, and deletes those
        # after it.
        self._snapshots = [offset for offset in self._snapshots if 0 < offset <= first]
        if first:
            if not self._snapshots or self._snapshots[-1] != first:
                raise UnusualError
            self._load(self._entries_at(first))
        end_offset = first
        for base_offset in unflushed:
            if base_offset != end_offset:
                raise UnusualError
            end_offset = self._recover_segment(base_offset)
            if end_offset > base_offset:
                self._take_snapshot(end_offset)
        self._recovered = unflushed
        return end_offset

    def _recover_segment(self, base_offset: int) -> int:
        """Check a segment and rebuild its indexes; returns where it ends."""
        settings = self._context.settings
        log = self._read(_named(base_offset, _LOG))
        index = _IndexContent(base_offset, settings)
        last_offset = base_offset - 1
        latest_epoch = self._latest_epoch
        for position, _, header in usual_batches(log, checksums=True):
            # fmt: off
            (
                first_offset, _, epoch, _, _, attributes, offset_delta,
                _, timestamp, producer_id, _, _, _,
            ) = header
            # fmt: on
            if first_offset <= last_offset or offset_delta < 0 or attributes & _OF_TRANSACTIONS:
                raise UnusualError
            last_offset = first_offset + offset_delta
            if last_offset - base_offset > _INT32_MAX or last_offset >= _INT64_MAX:
                raise UnusualError
            if epoch > latest_epoch:
                self._assign(epoch, first_offset)
                self._are_epochs_written = True
                latest_epoch = epoch
            if producer_id >= 0:
                self._producers.append(BatchRun.of_batch(header, position))
            index.add(position, last_offset, timestamp)
        self._changes |= index.files()
        return last_offset + 1

    @property
    def _latest_epoch(self) -> int:
        latest = self._epochs.latest_epoch
        return -1 if latest is None else latest

    def _assign(self, epoch: int, start_offset: int) -> None:
        try:
            self._epochs.assign(epoch, start_offset)
        except ValueError:
            raise UnusualError from None

    def _take_snapshot(self, offset: int) -> None:
        """Take a snapshot, and go on with what a state that is loaded from it has."""
        self._snapshots.append(offset)
        entries = [each.entry() for each in in_java_order(self._producers.by_id.values())]
        self._taken = offset, entries
        data = producer_snapshot.encode(entries) if entries else _NO_PRODUCERS
        if len(data) > _MOST_FILE_BYTES:
            raise UnusualError
        self._changes[_named(offset, _SNAPSHOT)] = data
        if entries:
            self._load(entries)

    def _entries_at(self, offset: int) -> list[ProducerEntry]:
        """The producers in the snapshot at an offset."""
        if self._taken is not None and self._taken[0] == offset:
            return self._taken[1]
        data = self._read(_named(offset, _SNAPSHOT))
        if data == _NO_PRODUCERS:
            return []
        if len(data) > _MOST_FILE_BYTES:
            raise UnusualError
        return list(producer_snapshot.read(data).entries)

    def _load(self, entries: Iterable[ProducerEntry]) -> None:
        self._producers = Producers()
        expire_before_ms = self._context.expire_before_ms
        for entry in entries:
            if entry.current_txn_first_offset >= 0:
                raise UnusualError
            if expire_before_ms is None or entry.timestamp > expire_before_ms:
                self._producers.load(entry)

    # Both

    def loaded(self, end_offset: int) -> Recovered:
        """Load the producers at the end of the log, and stop."""
        start_offset = max(0, self._bases[0])
        claims = self._claims
        if (
            claims.go_past(end_offset)
            or begin_before(claims.epochs, start_offset)
            or claims.lack_snapshot(self._bases)
        ):
            raise UnusualError
        is_written = self._epochs.truncate_from_end(end_offset)
        is_written |= self._epochs.truncate_from_start(0)
        if is_written or self._are_epochs_written:
            epochs = encode_leader_epoch_checkpoint(self._epochs.entries)
            if epochs != self._epochs_on_disk:
                self._changes[names.LEADER_EPOCH_CHECKPOINT] = epochs
        self._drop_stray_snapshots()
        self._load_last_snapshot(start_offset, end_offset)
        self._require_known_producers()
        recovery_point = end_offset
        if not self._context.is_clean:
            recovery_point = min(self._context.recovery_point, end_offset)
        files = self._target_files()
        report = LoadReport(
            cuts=(),
            dropped=(),
            splits=(),
            leftovers=(),
            recovered=tuple(
                RecoveredSegment(base, "it was not flushed", is_rebuilt=False)
                for base in self._recovered
            ),
            rebuilt_indexes=tuple(
                name
                for name in files
                if name.endswith(_INDEX_SUFFIXES) and isinstance(files[name], NewBytes)
            ),
        )
        return Recovered(
            files=files,
            log_start_offset=start_offset,
            log_end_offset=end_offset,
            recovery_point=max(recovery_point, start_offset, end_offset),
            checkpointed_log_start_offset=None,
            active_base_offset=self._bases[-1],
            leader_epochs=self._epochs.entries,
            report=report,
            producers=tuple(each.entry() for each in self._producers.by_id.values()),
        )

    def _drop_stray_snapshots(self) -> None:
        """Keep the snapshots where segments begin, and one at or after the active segment."""
        bases = set(self._bases)
        strays = [offset for offset in self._snapshots if offset not in bases]
        if strays and strays[-1] >= self._bases[-1]:
            strays.pop()
        if strays:
            going = set(strays)
            self._snapshots = [offset for offset in self._snapshots if offset not in going]

    def _load_last_snapshot(self, start_offset: int, end_offset: int) -> None:
        """Load the snapshot at the end of the log, and drop those that are not inside it."""
        if self._context.is_clean and not self._snapshots:
            # As after an upgrade: snapshots are taken, unless the log is empty from the start.
            if self._bases[-1] or end_offset:
                raise UnusualError
            return
        self._snapshots = [
            offset for offset in self._snapshots if start_offset < offset <= end_offset
        ]
        if (self._snapshots[-1] if self._snapshots else start_offset) != end_offset:
            raise UnusualError
        self._load(self._entries_at(end_offset) if self._snapshots else ())

    def _require_known_producers(self) -> None:
        """Leave producers that contradict the last batches, as the loader tells; none is open."""
        known = self._producers.by_id
        oldest = min((each.timestamp for each in known.values()), default=None)
        for producer_id, header in self._last_headers.items():
            flags, producer = header[5] & _OF_TRANSACTIONS, known.get(producer_id)
            if flags == record_batch.TRANSACTIONAL_FLAG:
                raise UnusualError
            if producer is None:
                if oldest is not None and oldest <= header[8]:
                    raise UnusualError
            elif not flags and producer.last_offset != header[0] + header[6]:
                raise UnusualError

    def _target_files(self) -> dict[str, TargetFile]:
        """The target state of each file."""
        files: dict[str, TargetFile] = dict.fromkeys(sorted({*self._sizes, *self._changes}), _KEPT)
        kept = set(self._snapshots)
        for name in list(files):
            if name.endswith(_SNAPSHOT) and int(name[:_DIGITS]) not in kept:
                self._changes.pop(name, None)
                if name in self._sizes:
                    files[name] = _GONE
                else:
                    del files[name]
        for name, data in self._changes.items():
            size_bytes = self._sizes.get(name, -1)
            if size_bytes < len(data) or self._first_bytes(name, len(data)) != data:
                files[name] = NewBytes(data)
            elif size_bytes > len(data):
                files[name] = KeptUpTo(len(data))
        return files

    def _first_bytes(self, name: str, size_bytes: int) -> bytes:
        if self._sizes[name] == size_bytes:
            return self._read(name)
        with (self._directory.path / name).open_file() as source:
            return read_at(source, 0, size_bytes)


class _IndexContent:
    """The entries of a segment's indexes (``LogSegment.recover``).

    Raises:
        UnusualError: from :meth:`files`, if an index may be full.
    """

    def __init__(self, base_offset: int, settings: IndexSettings) -> None:
        self._base_offset = base_offset
        self._settings = settings
        self._largest, self._offset_of_largest = NO_TIMESTAMP, base_offset
        self._last_position = 0
        self._last_time = NO_TIMESTAMP
        self._offset_entries: list[bytes] = []
        self._time_entries: list[bytes] = []

    def add(self, position: int, last_offset: int, timestamp: int) -> None:
        """Take the next batch."""
        if timestamp > self._largest:
            self._largest, self._offset_of_largest = timestamp, last_offset
        if position > self._last_position + self._settings.interval_bytes:
            relative_offset = last_offset - self._base_offset
            self._offset_entries.append(_OFFSET_ENTRY.pack(relative_offset, position))
            self._last_position = position
            self._add_time()

    def _add_time(self) -> None:
        if self._largest > self._last_time:
            relative_offset = self._offset_of_largest - self._base_offset
            self._time_entries.append(_TIME_ENTRY.pack(self._largest, relative_offset))
            self._last_time = self._largest

    def files(self) -> dict[str, bytes]:
        """The content of both by name, after closing the segment; to be called once."""
        self._add_time()
        # Kafka leaves the last slot of a time index free until the segment is closed.
        least_room = (len(self._offset_entries) + len(self._time_entries) + 2) * _TIME_ENTRY.size
        if least_room > self._settings.max_bytes:
            raise UnusualError
        return {
            _named(self._base_offset, _OFFSET_INDEX): b"".join(self._offset_entries),
            _named(self._base_offset, _TIME_INDEX): b"".join(self._time_entries),
        }


def _named(offset: int, suffix: str) -> str:
    """Name of a file at an offset, which is not negative."""
    return f"{offset:020d}{suffix}"


def _offsets_by_suffix(sizes: Iterable[str]) -> dict[str, list[int]]:
    """The offsets in the names of segments' files and snapshots, by suffix.

    Raises:
        UnusualError: there is another file.
    """
    found: dict[str, list[int]] = {_LOG: [], _OFFSET_INDEX: [], _TIME_INDEX: [], _SNAPSHOT: []}
    for name in sizes:
        digits, suffix = name[:_DIGITS], name[_DIGITS:]
        if suffix in found and digits.isdigit() and digits.isascii():
            offset = int(digits)
            if offset >= _INT64_MAX:
                raise UnusualError
            found[suffix].append(offset)
        elif name not in (names.LEADER_EPOCH_CHECKPOINT, names.PARTITION_METADATA):
            raise UnusualError
    return found
