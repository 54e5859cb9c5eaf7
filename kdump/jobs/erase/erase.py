"""Erase records: find them, and write the logs without them.

Tasks count what is named in parts of logs. Then the logs that lose something are written beside the
old ones, one by one, and checked; a plan puts them in place.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from msgspec import Struct, field
from msgspec.structs import replace

from kdump import __version__
from kdump.apply.early_content import EarlyContent
from kdump.apply.files import DISK, Content, FileRange, Files
from kdump.apply.interrupted_runs import unfinished
from kdump.apply.overwriting import overwrite
from kdump.apply.pinned_directory import status_of
from kdump.apply.plan import TargetDirectory, TargetPartition, require_in_place
from kdump.apply.staging import stage_file
from kdump.broker.cleaner.cleaned_segment import GroupRewriter, GroupToRewrite, RewrittenGroup
from kdump.broker.cleaner.compaction_parts import Amount
from kdump.broker.cleaner.compaction_round import staged_name
from kdump.broker.loader.checkpoints import is_loaded
from kdump.broker.loader.load_context import IndexSettings
from kdump.broker.retention.retention_outcome import LoadedLog
from kdump.engine.engine import Engine, run_in_order
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, open_engine
from kdump.engine.engine_rates import JobKind
from kdump.engine.job import Split
from kdump.engine.splits import partition_splits
from kdump.errors import KdumpError
from kdump.formats import transaction_index
from kdump.formats.names import FileKind, PartitionState, TopicPartition, may_be_cut
from kdump.formats.record_batch import LARGEST_RECORD_BYTES
from kdump.formats.transaction_index import AbortedTxn
from kdump.jobs.erase.remains import (
    Remains,
    remains_of,
    remote_files_to_search,
    search_files,
    undecoded_records,
)
from kdump.jobs.loading.verdict_words import TWICE
from kdump.jobs.problems.unreadable import Unreadable
from kdump.jobs.retain.old_segments import require_clean
from kdump.jobs.retain.segment_deletion import DecideLater, delete_segments_split, load_undamaged
from kdump.log.directory import LogDirectory
from kdump.log.partition import Leftover, LeftoverKind, Partition
from kdump.log.remote_files import RemotePlace
from kdump.log.segment import Segment
from kdump.log.selection import PartitionSelection
from kdump.phases import during, phase
from kdump.repair.erase.erased_list import (
    FILE_NAME,
    ErasedPartition,
    ErasedRun,
    ErasedSegment,
    FileDigest,
    encode_list,
    read_list,
)
from kdump.repair.erase.erased_log import LogToErase, Matched, MatchedAmount
from kdump.repair.erase.key_search import KeySearch, fields_of_topics
from kdump.repair.erase.mask import Mask
from kdump.repair.erase.named_records import NamedRecords
from kdump.repair.verdict.verdict import Verdict
from kdump.state.metadata.settings import DirectorySettings
from kdump.storage.location import Location
from kdump.target.refusal import Refusal, Refused
from kdump.target.target_file import Gone, NewBytes, RenamedFrom, TargetFile
from kdump.target.virtual_directory import file_name

_NS_PER_MS: Final = 1_000_000


HARMLESS: Final = (LeftoverKind.DELETED, LeftoverKind.CLEANED)
"""Leftover files that a broker deletes when it starts, whatever is in them."""


class NotErased(enum.Enum):
    """Why a selected partition is left unchanged; the value says it."""

    TWICE = TWICE
    KAFKA_0_7 = "its logs are of Kafka 0.7, which kdump does not rewrite"
    MOVING = "it is being moved between log directories; let its broker finish first"
    LEFTOVERS = (
        "it has leftover files of an interrupted change; run kdump recover first, which finishes it"
    )
    REMOTE_STORAGE = (
        "remote.storage.enable is set for its topic: remote storage has segments that kdump does"
        " not rewrite"
    )


class EraseRequest(Struct, frozen=True):
    """What to erase, and where.

    Attributes:
        twice: the partitions that are in two directories of a broker.
        largest_record_bytes: a log with larger records in compressed batches is left unchanged.
        mask: what masks the named records; None if they go.
    """

    directories: Sequence[LogDirectory]
    settings: DirectorySettings
    selection: PartitionSelection
    named: NamedRecords
    now_ms: int
    twice: Collection[Location] = ()
    largest_record_bytes: int = LARGEST_RECORD_BYTES
    mask: Mask | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are selected, also of directories that are not read."""
        every = (each for directory in self.directories for each in directory.partitions)
        return tuple(sorted(self.selection.topics_in(every)))

    def selects(self, partition: Partition) -> bool:
        """Whether a partition is selected; those that await deletion, and stray ones, are not."""
        return (
            partition.state in (PartitionState.LIVE, PartitionState.FUTURE)
            and partition.topic_partition is not None
            and not partition.is_cluster_metadata
            and partition in self.selection
        )

    def may_hold(self, partition: Partition) -> bool:
        """Whether a partition has records of what is selected, as far as its name tells."""
        name, key = partition.path.name, partition.topic_partition
        return partition in self.selection or (
            key is not None and may_be_cut(name) and self.selection.may_match_cut(name, key)
        )

    def why_unchanged(self, directory: LogDirectory, partition: Partition) -> NotErased | None:
        """Why a selected partition is left unchanged; None if it is read."""
        if partition.state is PartitionState.FUTURE:
            return NotErased.MOVING
        if partition.path in self.twice:
            return NotErased.TWICE
        if not is_loaded(partition):
            return NotErased.KAFKA_0_7
        if self.settings[directory.path].topic(partition.key.topic).remote_storage_enable:
            return NotErased.REMOTE_STORAGE
        is_harmless = all(each.kind in HARMLESS for each in partition.leftovers)
        return None if is_harmless else NotErased.LEFTOVERS


class SegmentErasure(Struct, frozen=True):
    """What a segment loses."""

    base_offset: int
    amount: MatchedAmount


ErasureProblem = Verdict | Unreadable | Refusal


class PartitionErasure(Struct, frozen=True):
    """What a partition loses.

    Attributes:
        unchanged: why it was not read; None if it was.
        problem: why it is left unchanged although it was read; None if it is not.
        segments: all its segments.
        files: the target state of the files that change.
        erased: what is gone then, for the list of the log directory.
        keys: those of the records that are gone.
    """

    directory: LogDirectory
    partition: Partition
    unchanged: NotErased | None = None
    problem: ErasureProblem | None = None
    segments: tuple[SegmentErasure, ...] = ()
    files: Mapping[str, TargetFile] = field(default_factory=dict)
    erased: tuple[ErasedSegment, ...] = ()
    keys: frozenset[bytes] = frozenset()

    @property
    def key(self) -> TopicPartition:
        return self.partition.key

    @property
    def amount(self) -> MatchedAmount:
        """What all its segments lose."""
        return sum((each.amount for each in self.segments), MatchedAmount())

    @property
    def is_changed(self) -> bool:
        return self.problem is None and self.amount.erased_records > 0

    @property
    def dropped_files(self) -> tuple[Leftover, ...]:
        """The unfinished files (``.cleaned``) that are deleted first; no undo has them."""
        return self.partition.unfinished_files if self.is_changed else ()


class Shares(Struct, frozen=True):
    """The share of its records that a topic loses.

    Attributes:
        amount: of all its replicas that were read.
    """

    topic: str
    amount: MatchedAmount

    def is_over(self, percent: int) -> bool:
        return self.amount.erased_records * 100 > self.amount.records * percent


class MatchSplit(Split, frozen=True, eq=False, kw_only=True):
    """A part of a log in which named records are counted.

    Attributes:
        partition: ``TOPIC-PARTITION``.
    """

    partition: str
    base_offset: int


class MatchJob(Struct, frozen=True):
    """Counts the named records in parts of logs.

    Attributes:
        mask: what masks the records; None if they go.
    """

    named: NamedRecords
    largest_record_bytes: int
    mask: Mask | None = None

    def run(self, split: MatchSplit, /) -> Matched | Refusal | Unreadable:
        matcher = self.named.matcher(split.partition)
        log = LogToErase(
            split.path, matcher, split.start, split.end, self.largest_record_bytes, self.mask
        )
        try:
            return log.matched(split.base_offset)
        except Refused as refused:
            return refused.refusal
        except OSError as failure:
            return Unreadable.of(failure, split.path)


def find_named(
    request: EraseRequest, options: EngineOptions = DEFAULT_OPTIONS
) -> list[PartitionErasure]:
    """Find what each selected partition loses; nothing is written.

    Raises:
        NotCleanError: a log directory needs recovery first.
        KdumpError: the engine failed.
    """
    found: list[PartitionErasure] = []
    for directory in request.directories:
        selected = [each for each in directory.partitions if request.selects(each)]
        if selected:
            require_clean(directory)
        with phase(f"loading {directory.path}", len(selected)) as loading:
            found += [_loaded(request, directory, each) for each in loading.over(selected)]
    total_bytes = sum(each.partition.data_bytes for each in found if _is_read(each))
    with (
        open_engine(options, kind=JobKind.SCAN, total_bytes=total_bytes) as engine,
        phase("looking for the records"),
    ):
        return list(_with_matches(request, found, engine))


def find_in_remote(
    request: EraseRequest, remote: RemotePlace, options: EngineOptions = DEFAULT_OPTIONS
) -> tuple[list[Remains], int]:
    """Find the remote segments of selected partitions in which the keys or fields are.

    Returns:
        These segments, and in how many records of all of them no field could be looked for.

    Raises:
        KdumpError: they cannot be listed, or the engine failed.
    """
    files = remote_files_to_search(remote, request.selection)
    named = request.named
    fields = fields_of_topics(
        (each, file.topic) for file in files if file.topic for each in named.fields
    )
    search = KeySearch(named, request.largest_record_bytes, fields)
    found = search_files(files, search, options)
    return remains_of(found), undecoded_records(each for _, each in found)


def _is_read(erasure: PartitionErasure) -> bool:
    return erasure.unchanged is None and erasure.problem is None


def _loaded(
    request: EraseRequest, directory: LogDirectory, partition: Partition
) -> PartitionErasure:
    """A partition, and whether a broker would load it without a repair."""
    unchanged = request.why_unchanged(directory, partition)
    if unchanged is not None:
        return PartitionErasure(directory, partition, unchanged)
    split = delete_segments_split(
        partition,
        directory,
        request.settings[directory.path],
        DecideLater(),
        now_ms=request.now_ms,
        is_replicated=False,
    )
    loaded = load_undamaged(split)
    problem = None if isinstance(loaded, LoadedLog) else loaded
    return PartitionErasure(directory, partition, problem=problem)


def _with_matches(
    request: EraseRequest, found: Sequence[PartitionErasure], engine: Engine
) -> Iterator[PartitionErasure]:
    """The same partitions with what each of their segments loses."""
    splits: list[MatchSplit] = []
    owners: list[tuple[int, int]] = []
    results = list(found)
    for number, erasure in enumerate(found):
        if not _is_read(erasure):
            continue
        try:
            own = list(_splits(erasure.partition))
        except OSError as failure:
            problem = Unreadable.of(failure, erasure.partition.path)
            results[number] = replace(erasure, problem=problem)
            continue
        splits += own
        owners += ((number, split.base_offset) for split in own)
    amounts: dict[int, dict[int, MatchedAmount]] = {}
    job = MatchJob(request.named, request.largest_record_bytes, request.mask)
    misfits: dict[tuple[int, int], Refusal] = {}
    for (number, base_offset), (_, matched) in zip(
        owners, run_in_order(engine, job, splits), strict=True
    ):
        if not isinstance(matched, Matched):
            if results[number].problem is None:
                results[number] = replace(results[number], problem=matched)
            continue
        own_amounts = amounts.setdefault(number, {})
        own_amounts[base_offset] = own_amounts.get(base_offset, MatchedAmount()) + matched.amount
        if matched.misfit is not None:
            misfits.setdefault((number, base_offset), matched.misfit)
    for (number, base_offset), misfit in misfits.items():
        if results[number].problem is None and amounts[number][base_offset].erased_records:
            results[number] = replace(results[number], problem=misfit)
    for number, erasure in enumerate(results):
        segments = tuple(SegmentErasure(*each) for each in amounts.get(number, {}).items())
        yield erasure if erasure.problem is not None else replace(erasure, segments=segments)


def _splits(partition: Partition) -> Iterator[MatchSplit]:
    bases = {partition.path / each.log_name: each.base_offset for each in partition.segments}
    for split in partition_splits(partition):
        yield MatchSplit(
            split.path,
            split.start,
            split.end,
            split.size_bytes,
            split.label,
            partition=str(partition.key),
            base_offset=bases[split.path],
        )


def shares_of_topics(found: Sequence[PartitionErasure]) -> list[Shares]:
    """The share that each topic loses, in the order of their names."""
    amounts: dict[str, MatchedAmount] = {}
    for each in found:
        topic = each.key.topic
        amounts[topic] = amounts.get(topic, MatchedAmount()) + each.amount
    return [Shares(topic, amounts[topic]) for topic in sorted(amounts)]


def differing_replicas(found: Iterable[PartitionErasure]) -> list[list[PartitionErasure]]:
    """The replicas of each partition that lose different numbers of records.

    They differ afterwards, unless some were erased before. What is written for a batch depends on
    that batch alone: replicas that are equal, and read, stay equal.
    """
    replicas: dict[tuple[str | None, TopicPartition], list[PartitionErasure]] = {}
    for each in found:
        if each.partition.state is PartitionState.LIVE:
            replicas.setdefault((each.directory.cluster_id, each.key), []).append(each)
    return [
        same
        for same in replicas.values()
        if any(each.amount.erased_records for each in same)
        and len({(_is_read(each), each.amount.erased_records) for each in same}) > 1
    ]


class ErasedLogs:
    """Writes the logs without the named records, in a locked, clean log directory.

    Apply the targets inside the context: at its end, what no run has put in place is removed,
    unless an interrupted run needs it.
    """

    def __init__(self, request: EraseRequest, files: Files = DISK) -> None:
        self._request = request
        self.files = files
        self._staged: dict[Path, list[Path]] = {}
        self._early: dict[Path, EarlyContent] = {}

    def __enter__(self) -> Self:
        return self

    @during("removing new files that are not in use")
    def __exit__(self, *_: object) -> None:
        for log_dir, paths in self._staged.items():
            left = [path for path in paths if status_of(path) is not None]
            if left and not unfinished(log_dir):
                for path in left:
                    with contextlib.suppress(OSError):  # a broker deletes it, and so does a run
                        self.files.unlink(path)

    def write(self, found: PartitionErasure) -> PartitionErasure:
        """Write the new logs of a partition beside the old ones.

        Returns:
            The partition with the target state of its files; or with the reason why it is left
            unchanged.

        Raises:
            KdumpError: what was written is not what was meant; a bug of kdump.
            OSError: the disk fails, or is full.
        """
        require_in_place(found.partition.path.local_path)
        log_dir = found.directory.path.local_path
        if log_dir not in self._early:
            self._early[log_dir] = EarlyContent.of_next_run(log_dir, self.files)
        early = self._early[log_dir]
        self._drop_unfinished(found.partition)
        files: dict[str, TargetFile] = {}
        gone: list[ErasedSegment] = []
        keys: set[bytes] = set()
        lost = {each.base_offset: each.amount for each in found.segments}
        for segment in found.partition.segments:
            amount = lost.get(segment.base_offset, MatchedAmount())
            if not amount.erased_records:
                continue
            outcome = self._write_segment(found, segment, amount)
            if isinstance(outcome, Refusal):
                return replace(found, problem=outcome, segments=())  # none of them loses anything
            log = self._log_to_erase(found, segment)
            erased = log.erased()
            keys |= erased.keys
            staged = staged_name(segment.base_offset)
            files[segment.log_name] = RenamedFrom(staged, outcome.after.size_bytes)
            files[staged] = Gone()
            for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
                files[file_name(segment.base_offset, kind)] = early.staged(outcome.indexes[kind])
            gone.append(
                ErasedSegment(
                    segment.base_offset,
                    erased.ranges(),
                    len(erased.offsets),
                    erased.records_without_key,
                    FileDigest.of(log.path),
                    FileDigest.of(found.partition.path / staged),
                )
            )
        return replace(found, files=files, erased=tuple(gone), keys=frozenset(keys))

    def _log_to_erase(self, found: PartitionErasure, segment: Segment) -> LogToErase:
        return LogToErase(
            found.partition.path / segment.log_name,
            self._request.named.matcher(str(found.key)),
            largest_record_bytes=self._request.largest_record_bytes,
            mask=self._request.mask,
        )

    def _drop_unfinished(self, partition: Partition) -> None:
        """Remove unfinished segments, as a broker does: beside them, new ones would not count."""
        for leftover in partition.unfinished_files:
            path = (partition.path / leftover.name).local_path
            overwrite(path, self.files)
            self.files.unlink(path)

    def _write_segment(
        self, found: PartitionErasure, segment: Segment, amount: MatchedAmount
    ) -> RewrittenGroup | Refusal:
        partition = found.partition
        log = partition.path / segment.log_name
        group = GroupToRewrite(
            path=partition.path,
            base_offsets=(segment.base_offset,),
            parts=(),
            skipped=Amount(),
            aborted_txns=_aborted_txns(partition, segment),
            settings=self._index_settings(found),
            modified_ms=log.status().modified_ms,
        )
        to_erase = self._log_to_erase(found, segment)
        rewriter = GroupRewriter(group)
        staged = (partition.path / staged_name(segment.base_offset)).local_path
        try:
            stage_file(
                staged,
                _content(rewriter, to_erase, partition.path.local_path),
                like=log.local_path,
                modified_ns=group.modified_ms * _NS_PER_MS,
                files=self.files,
            )
        except _NotWritten:
            assert isinstance(rewriter.outcome, Refusal), "otherwise it is written"
            return rewriter.outcome
        self._staged.setdefault(found.directory.path.local_path, []).append(staged)
        outcome = rewriter.outcome
        assert isinstance(outcome, RewrittenGroup), "a refusal is not written"
        _require_erased(replace(to_erase, path=partition.path / staged.name), amount)
        return outcome

    def _index_settings(self, found: PartitionErasure) -> IndexSettings:
        settings = self._request.settings[found.directory.path]
        topic = settings.topic(found.key.topic)
        return IndexSettings(
            topic.index_interval_bytes, topic.segment_index_bytes, settings.kafka_version
        )


def _require_erased(written: LogToErase, amount: MatchedAmount) -> None:
    """Read a new log again: every record but the named ones must be there; masked ones, too.

    Raises:
        KdumpError: it has not.
    """
    try:
        found = written.amount()
    except Refused as refused:
        raise _wrongly_written(written, str(refused.refusal)) from refused
    expected = amount.records
    if written.mask is None:
        expected -= amount.erased_records
    if found.erased_records or found.records != expected:
        what = f"{found.records} records, {found.erased_records} of them named; not {expected}"
        raise _wrongly_written(written, what)


def _wrongly_written(written: LogToErase, what: str) -> KdumpError:
    return KdumpError(
        f"{written.path}: was not written as it should be ({what}); nothing has been changed;"
        " check the disk and the memory of this machine, and report this"
    )


def _aborted_txns(partition: Partition, segment: Segment) -> tuple[AbortedTxn, ...]:
    path = partition.segment_path(segment, FileKind.TRANSACTION_INDEX)
    return transaction_index.decode(path.read()).entries if path.kind() is not None else ()


class _NotWritten(Exception):
    """A new log cannot be completed."""


def _content(rewriter: GroupRewriter, log: LogToErase, folder: Path) -> Content:
    """The content of the new log.

    Raises:
        _NotWritten: it cannot be completed; the outcome says why.
    """
    for piece in rewriter.pieces([log.chunks()]):
        if isinstance(piece, bytes):
            yield piece
        else:
            yield FileRange(folder / piece.name, piece.start, piece.end)
    if isinstance(rewriter.outcome, Refusal):
        raise _NotWritten


def targets(request: EraseRequest, found: Sequence[PartitionErasure]) -> list[TargetDirectory]:
    """The target state of each log directory, in the order of ``found``.

    The clean shutdown marker stays: a loading broker resolves every state in between, and without
    the marker it would recover segments in which nothing was erased.

    Raises:
        KdumpError: the list of a log directory cannot be used.
    """
    by_directory: dict[Location, list[PartitionErasure]] = {}
    for each in found:
        by_directory.setdefault(each.directory.path, []).append(each)
    return [
        TargetDirectory(
            path.local_path,
            tuple(
                TargetPartition(each.partition.path.local_path, each.files)
                for each in own
                if each.files
            ),
            _root(request, path, own),
        )
        for path, own in by_directory.items()
    ]


def _root(
    request: EraseRequest, log_dir: Location, found: Sequence[PartitionErasure]
) -> dict[str, TargetFile]:
    """The list of what was erased, with what is erased now."""
    changed = [each for each in found if each.files]
    if not changed:
        return {}
    run = ErasedRun(
        request.now_ms,
        __version__,
        request.named.keys.union(*(each.keys for each in changed)),
        request.named.prefixes,
        tuple(
            ErasedPartition(str(each.key), each.erased, each.partition.known_topic_id)
            for each in changed
        ),
        request.mask is not None,
        request.named.fields,
        request.topics,
    )
    return {FILE_NAME: NewBytes(encode_list([*read_list(log_dir), run]))}
