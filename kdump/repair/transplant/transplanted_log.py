"""A log as it becomes in another cluster: the files of a new partition directory.

The source is loaded as a broker would load it, in memory, so that a log after a crash is recovered
on the way. What belongs to the old cluster is then replaced (``LogManager.isStrayReplica``,
``LogLoader``, ``UnifiedLog.rebuildProducerState``):

- ``partition.metadata`` gets the id of the target's topic.
- Leader epochs above the target's are lowered to it, in batch headers and in the checkpoint.
- Producer snapshots of another cluster are dropped: its producer ids would collide. The log gets an
  empty segment at its end, with an empty snapshot. A broker begins there when it loads producers,
  also after a crash, so that it never counts the batches before it.
- An open transaction has no coordinator any more: it is refused, truncated or aborted.

Offsets, records, indexes and transaction indexes stay.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.loader import load_directory
from kdump.broker.loader.recovered_partition import Recovered
from kdump.errors import ExitStatus, KdumpError
from kdump.formats import names, producer_snapshot
from kdump.formats.checkpoints import encode_leader_epoch_checkpoint
from kdump.formats.end_txn_marker import ABORTED, encode_end_txn_batch
from kdump.formats.names import FileKind, FileStage
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.record_batch import NO_PARTITION_LEADER_EPOCH
from kdump.log.partition import Partition
from kdump.repair.log_end import end_log
from kdump.repair.transplant.lowered_epochs import (
    StoredRange,
    TransplantedFile,
    lowered,
    lowered_entries,
)
from kdump.repair.verdict.outcome_verdict import verdict
from kdump.repair.verdict.verdict import Verdict, VerdictKind
from kdump.scan.batches import read_windows
from kdump.storage.location import Location
from kdump.target.refusal import Refusal
from kdump.target.target_file import (
    CopiedFrom,
    Gone,
    JoinedFrom,
    Kept,
    KeptUpTo,
    NewBytes,
    RenamedFrom,
    TargetFile,
)
from kdump.target.virtual_directory import VirtualDirectory, Written, file_name
from kdump.words import counted

_COPIED_KINDS: Final = (
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.LOG,
    FileKind.TRANSACTION_INDEX,
)
_FIRST_MAGIC_WITH_EPOCHS: Final = 2


class OpenTransactions(enum.Enum):
    """What to do with a transaction that is open; the value is the word on the command line."""

    REFUSE = "refuse"
    TRUNCATE = "truncate"
    """The log ends before the first one begins."""
    ABORT = "abort"
    """Abort markers are appended."""


class NotTransplantableError(KdumpError):
    """A partition that cannot be transplanted as it is; says what to do first."""

    exit_status = ExitStatus.DAMAGE_LEFT


class Destination(Struct, frozen=True):
    """What a log becomes.

    Attributes:
        topic_id: of the target's topic.
        highest_epoch: leader epochs above it are lowered to it; None keeps all.
        keeps_producers: whether the target is the cluster that gave the producers their ids.
        open_transactions: what to do with them.
        now_ms: the current time, for abort markers.
    """

    topic_id: UUID
    highest_epoch: int | None
    keeps_producers: bool
    open_transactions: OpenTransactions
    now_ms: int


class TransplantedLog(Struct, frozen=True):
    """A log for another cluster.

    Attributes:
        files: content of each file of the new directory.
        log_start_offset: where it begins.
        checkpointed_log_start_offset: its line in the log start checkpoint; None for no line.
        source_end_offset: where the source ends.
        log_end_offset: where it ends.
        highest_epoch: the highest leader epoch of the source; None if there is none.
        producers: how many producers the source has.
        open_transactions: the producers whose transactions were open, by first offset.
        verdict: on the source, as it was loaded.
    """

    files: Mapping[str, NewBytes | TransplantedFile]
    log_start_offset: int
    checkpointed_log_start_offset: int | None
    source_end_offset: int
    log_end_offset: int
    highest_epoch: int | None
    producers: int
    open_transactions: tuple[ProducerEntry, ...]
    verdict: Verdict

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.files.values())


def transplanted(
    source: Partition, context: LoadContext, destination: Destination
) -> TransplantedLog:
    """Compute the files of a partition for another cluster. Reads all of its batches.

    Args:
        destination: what it becomes.

    Raises:
        NotTransplantableError: the source is damaged, or has an open transaction that is neither
            to be aborted nor truncated.
        OSError: a file cannot be read.
    """
    directory = VirtualDirectory(source.path)
    loaded = _loaded(directory, context, source.path)
    judged = verdict(loaded)
    if judged.kind is VerdictKind.LOSS:
        raise NotTransplantableError(
            f"{source.path}: {judged.sentence}; repair it first, for example with kdump recover"
        )
    open_txns = tuple(
        sorted(
            (each for each in loaded.producers if each.current_txn_first_offset >= 0),
            key=lambda each: each.current_txn_first_offset,
        )
    )
    ended = _without_open_transactions(directory, context, loaded, open_txns, destination)
    if not destination.keeps_producers:
        _forget_producers(directory, ended.log_end_offset)
    in_batches = _require_valid(directory, source.path)
    in_checkpoint = max((each.epoch for each in ended.leader_epochs), default=in_batches)
    highest = max(in_batches, in_checkpoint)
    epochs = lowered_entries(ended.leader_epochs, destination.highest_epoch)
    metadata = PartitionMetadata(0, destination.topic_id)
    return TransplantedLog(
        files={
            **dict(_files(directory, destination.highest_epoch)),
            names.PARTITION_METADATA: NewBytes(encode_partition_metadata(metadata)),
            names.LEADER_EPOCH_CHECKPOINT: NewBytes(encode_leader_epoch_checkpoint(epochs)),
        },
        log_start_offset=ended.log_start_offset,
        checkpointed_log_start_offset=ended.checkpointed_log_start_offset,
        source_end_offset=loaded.log_end_offset,
        log_end_offset=ended.log_end_offset,
        highest_epoch=None if highest == NO_PARTITION_LEADER_EPOCH else highest,
        producers=len(loaded.producers),
        open_transactions=open_txns,
        verdict=judged,
    )


def _loaded(directory: VirtualDirectory, context: LoadContext, path: Location) -> Recovered:
    outcome = load_directory(directory, context)
    if isinstance(outcome, Refusal):
        raise NotTransplantableError(f"{path}: a broker does not load it: {outcome}")
    return outcome


# ---- Transactions and producers


def _without_open_transactions(
    directory: VirtualDirectory,
    context: LoadContext,
    loaded: Recovered,
    open_txns: Sequence[ProducerEntry],
    destination: Destination,
) -> Recovered:
    """End the open transactions of a loaded log as asked, and return it as it is then."""
    if not open_txns:
        return loaded
    first = open_txns[0].current_txn_first_offset
    if destination.open_transactions is OpenTransactions.REFUSE:
        ids = ", ".join(str(each.producer_id) for each in open_txns)
        what = counted(len(open_txns), "open transaction")
        raise NotTransplantableError(
            f"{directory.path}: has {what} from offset {first} on (producer {ids}), which no"
            f" coordinator of the target knows: give --open-transactions"
            f" abort to end them with a marker, or truncate to end the log at offset {first}"
        )
    if destination.open_transactions is OpenTransactions.TRUNCATE:
        recovered_from = end_log(directory, first)
    else:
        recovered_from = loaded.log_end_offset
        _abort(directory, loaded, open_txns, destination.now_ms)
    again = replace(context, is_clean=False, recovery_point=recovered_from)
    return _loaded(directory, again, directory.path)


def _abort(
    directory: VirtualDirectory, loaded: Recovered, open_txns: Sequence[ProducerEntry], now_ms: int
) -> None:
    """Append a segment with a marker for each open transaction."""
    epochs = loaded.leader_epochs
    epoch = epochs[-1].epoch if epochs else NO_PARTITION_LEADER_EPOCH
    end = loaded.log_end_offset
    markers = (
        encode_end_txn_batch(
            ABORTED,
            producer.producer_id,
            producer.epoch,
            offset=offset,
            partition_leader_epoch=epoch,
            timestamp=now_ms,
        )
        for offset, producer in enumerate(open_txns, end)
    )
    directory.put_segment(end, b"".join(markers))


def _forget_producers(directory: VirtualDirectory, end_offset: int) -> None:
    """Make a broker begin without producers, also when it recovers the log after a crash."""
    for name in directory.snapshot_names():
        directory.remove(name)
    if end_offset not in directory.base_offsets():
        directory.put_segment(end_offset, b"")
    name = file_name(end_offset, FileKind.PRODUCER_SNAPSHOT)
    directory.put(name, Written(producer_snapshot.encode(())))


# ---- Files


def _require_valid(directory: VirtualDirectory, path: Location) -> int:
    """Read all batches, and return their highest leader epoch; -1 if there is none.

    No checksum covers the offset of a batch, and after a clean shutdown no broker looks at it. The
    first recovery fails.

    Raises:
        NotTransplantableError: one is damaged, or not where its offset belongs.
    """
    highest = NO_PARTITION_LEADER_EPOCH
    for base in directory.base_offsets():
        reached = base
        name = file_name(base, FileKind.LOG)
        with directory.open(name) as source:
            for window in read_windows(source):
                batches = window.batches
                stop = window.stop
                if not batches.is_valid.all():
                    at = int(batches.position[batches.is_valid.argmin()])
                    raise _damaged(path, name, at, "a batch with a wrong checksum")
                if stop is not None and stop.problem is not None:
                    raise _damaged(path, name, stop.position, str(stop.problem))
                ends = np.concatenate(([reached], batches.last_offset + 1))
                is_behind = batches.base_offset < ends[:-1]
                if is_behind.any():
                    at = int(batches.position[is_behind.argmax()])
                    raise _damaged(path, name, at, "a batch with an offset before that of another")
                reached = int(ends[-1])
                is_new = batches.magic >= _FIRST_MAGIC_WITH_EPOCHS
                highest = max(highest, *batches.partition_leader_epoch[is_new].tolist(), -1)
    return highest


def _damaged(path: Location, name: str, position: int, what: str) -> NotTransplantableError:
    return NotTransplantableError(
        f"{path / name}: byte {position}: {what}; kdump verify shows what is damaged, kdump"
        " verify --repair repairs it"
    )


def _files(
    directory: VirtualDirectory, highest_epoch: int | None
) -> Iterator[tuple[str, NewBytes | TransplantedFile]]:
    """The files of the new directory that hold the log."""
    for name, target in directory.target_files().items():
        parsed = names.parse_offset_file_name(name)
        if parsed is None or parsed.stage is not FileStage.LIVE:
            continue
        if parsed.kind not in (*_COPIED_KINDS, FileKind.PRODUCER_SNAPSHOT):
            continue
        limit = highest_epoch if parsed.kind is FileKind.LOG else None
        content = _content(directory, name, target, limit)
        if content is not None:
            yield name, content


def _content(
    directory: VirtualDirectory, name: str, target: TargetFile, highest_epoch: int | None
) -> NewBytes | TransplantedFile | None:
    def part(of: str, start: int, end: int | None) -> StoredRange:
        return StoredRange.of(directory.path / of, start, end)

    ranges: list[StoredRange] = []
    match target:
        case Gone():
            return None
        case NewBytes(data):
            if highest_epoch is None:
                return target
            return NewBytes(b"".join(lowered([data], highest_epoch)))
        case Kept():
            ranges.append(part(name, 0, None))
        case KeptUpTo(size_bytes):
            ranges.append(part(name, 0, size_bytes))
        case RenamedFrom(source, size_bytes):
            ranges.append(part(source, 0, size_bytes))
        case CopiedFrom(source, start, end):
            ranges.append(part(source, start, end))
        case JoinedFrom(pieces):
            ranges += [part(each.name, each.start, each.end) for each in pieces]
    return TransplantedFile(tuple(ranges), highest_epoch)
