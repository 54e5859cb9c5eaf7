"""The records of logs that grow, as a stream: what is new from one moment to the next.

A stream knows, for each partition, the offset before which everything was given out. Where it is
kept, Spark decides; a micro-batch that is run again reads the same offsets. Follows Spark's
``KafkaMicroBatchStream``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from kdump.errors import KdumpError, UsageProblem
from kdump.formats.names import TopicPartition, parse_offset_file_name
from kdump.jobs.table_rows.all_tables import RECORDS, table_of
from kdump.jobs.table_rows.records_reader import RecordsReader, open_records
from kdump.log.directory import read_lone_partition
from kdump.log.living import while_it_changes
from kdump.log.lock_holders import is_in_use_around
from kdump.log.log_search import Trust, find_log_start, log_end
from kdump.log.partition import Partition
from kdump.log.settled_listing import ATTEMPTS, wait
from kdump.log.valid_windows import Damage
from kdump.payloads.record_payloads import RecordPayloads
from kdump.storage.parallel_reads import each_read
from kdump.storage.places import concurrent_reads
from kdump.tables.kafka_log.found_partitions import FoundPartition, find_partitions
from kdump.tables.kafka_log.options import MOST_OFFSETS, Replicas, StreamParser
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.kafka_log.selected_offsets import Bound, Bounds, Edge
from kdump.tables.kafka_log.splits import (
    SourceSplit,
    grouped,
    offset_of,
    splits_of,
    stable_offset_of,
)

StreamOffsets = Mapping[TopicPartition, int]
"""By partition, the offset before which everything was given out."""

_LOG: Final = logging.getLogger(__name__)
_EVERY_RECORD: Final = PushedFilters()


class _Edges(NamedTuple):
    """A log at a moment.

    Attributes:
        start: its first offset.
        end: the offset after the last record that a consumer of the isolation level may read.
    """

    found: FoundPartition
    start: int
    end: int


class RecordsStream(Struct, frozen=True):
    """A stream of records; can be pickled.

    Attributes:
        reader: of the records between two moments.
        start: where the stream begins.
        most_offsets: about how many offsets a micro-batch goes on by; None for all there are.
        fails: whether offsets that are gone are an error.
    """

    reader: RecordsReader
    start: Bounds
    most_offsets: int | None
    fails: bool

    def initial(self) -> StreamOffsets:
        """Where a new stream begins.

        Raises:
            UsageProblem: a path is no log directory, or has none of what the options select.
            KdumpError: an offset that an option names is in no log.
            OSError: a file cannot be read.
        """
        return {key: self._first(key, each) for key, each in self._edges(self._found()).items()}

    def ends(self) -> StreamOffsets:
        """Where each log ends by now."""
        return {key: each.end for key, each in self._edges(self._found()).items()}

    def latest(
        self, start: StreamOffsets, most: int | None, last: StreamOffsets | None = None
    ) -> StreamOffsets:
        """To where a micro-batch goes that begins at ``start``.

        Args:
            most: about how many offsets it goes on by; None for all there are.
            last: where the whole stream ends, as :meth:`ends` found it; None if it does not end.

        Raises:
            KdumpError: offsets are gone that the stream has not given out.
            OSError: a file cannot be read.
        """
        edges = self._edges(self._found(start))
        for key in sorted(start.keys() - edges.keys(), key=str):
            self._lost(f"{key} is gone")
        if last is not None:
            # A partition that is not in either is of a later time.
            edges = {key: edges[key] for key in edges.keys() & (start.keys() | last.keys())}
        begin = {}
        for key, each in edges.items():
            begin[key] = start.get(key, each.start)
            if key not in start and each.start > 0:
                self._lost(f"{key} is new, and begins at {each.start}, not at 0")
            if each.end < begin[key]:
                self._lost(f"{key} ends at {each.end}, before offset {begin[key]}")
        ends = {key: each.end for key, each in edges.items()}
        if last is not None:
            ends = {key: max(begin[key], min(to, last.get(key, 0))) for key, to in ends.items()}
        return _limited(begin, ends, most)

    def splits(self, start: StreamOffsets, end: StreamOffsets) -> Sequence[tuple[SourceSplit, ...]]:
        """Divide a micro-batch into tasks; none if there is nothing to read.

        Raises:
            KdumpError: some of its offsets are gone.
            OSError: a file cannot be read.
        """
        wanted = {key: to for key, to in end.items() if start.get(key, 0) < to}
        if not wanted:
            return ()
        found = self._found(wanted)
        edges = self._edges({key: found[key] for key in wanted if key in found})
        froms: dict[TopicPartition, Bound] = {}
        for key, to in wanted.items():
            each = edges.get(key)
            if each is None:
                self._lost(f"{key} is gone")
                continue
            first = start.get(key, each.start)
            if first < each.start:
                self._lost(f"{key} begins at {each.start}: offsets from {first} on are deleted")
            if each.end < to:
                self._lost(f"{key} ends at {each.end}, before offset {to}")
            froms[key] = first
        options = replace(
            self.reader.options,
            start=Bounds(Edge.EARLIEST, froms),
            end=Bounds(Edge.LATEST, wanted),
            fail_on_data_loss=False,
        )
        own = [edges[key].found for key in froms]
        return grouped(splits_of(own, options, _EVERY_RECORD), options)

    def read(self, split: Sequence[SourceSplit]) -> Iterator[pa.RecordBatch]:
        """The records of one of :meth:`splits`.

        Raises:
            KdumpError: the log is damaged, or retention was faster.
            OSError: a file cannot be read.
        """
        if not self.fails:
            yield from self.reader.read(split, _EVERY_RECORD)
            return
        for each in split:
            is_kept = False
            for rows in self.reader.read((each,), _EVERY_RECORD):
                # What is open by now is read to its end, also if it is deleted.
                if not is_kept:
                    self._require_kept(each)
                is_kept = True
                yield rows
            if not is_kept:
                self._require_kept(each)

    def _require_kept(self, split: SourceSplit) -> None:
        """Refuse a split whose log may have been deleted before it was opened."""
        path = split.path.parent
        if not is_in_use_around(path):
            return
        base = parse_offset_file_name(split.path.name)
        assert base is not None
        first = max(base.offset, split.from_offset)
        try:
            segments = read_lone_partition(path, path.name).segments
        except FileNotFoundError:
            segments = ()
        if not segments or segments[0].base_offset > first:
            self._lost(f"{path}: offsets from {first} on were deleted while they were read")

    # ---- Where logs begin and end ----

    def _edges(
        self, found: Mapping[TopicPartition, FoundPartition]
    ) -> dict[TopicPartition, _Edges]:
        """Where each log begins and ends; without those that a broker has just deleted."""
        every = each_read(self._edges_of, found.values(), concurrent_reads())
        return {key: each for key, each in zip(found, every, strict=True) if each is not None}

    def _found(self, known: Iterable[TopicPartition] = ()) -> dict[TopicPartition, FoundPartition]:
        """The partitions to read.

        Args:
            known: partitions that should be there. For a moment, one that a broker moves to another
                disk has no name of its own.
        """
        found = self._listed()
        for attempt in range(ATTEMPTS):
            in_use = any(is_in_use_around(each.partition.path) for each in found.values())
            if not in_use or found.keys() >= set(known):
                break
            wait(attempt)
            found = self._listed()
        return found

    def _listed(self) -> dict[TopicPartition, FoundPartition]:
        found: dict[TopicPartition, FoundPartition] = {}
        for each in find_partitions(self.reader.options, _EVERY_RECORD):
            key = each.topic_partition
            if key is None or not each.is_replica:
                raise UsageProblem(
                    f"{each.partition.path} is not read as a stream of kafka-log: it is not the log"
                    " that a broker has of a partition"
                )
            if key in found:
                raise UsageProblem(
                    f"{key} is in {found[key].partition.path} and {each.partition.path}, with"
                    " different topic ids: a stream of kafka-log reads one of them"
                )
            found[key] = each
        return found

    def _edges_of(self, each: FoundPartition) -> _Edges | None:
        """Where a log begins and ends; None if a broker has just deleted it."""

        def of(partition: Partition) -> _Edges:
            start = find_log_start(partition, each.log_start_offset) or 0
            end = log_end(partition, Trust.CHECKSUMS).offset if partition.segments else start
            found = each.of(partition)
            if self.reader.options.is_committed:
                stable = stable_offset_of(found, _damaged)
                end = end if stable is None else min(end, stable)
            return _Edges(found, start, max(start, end))

        return while_it_changes(each.partition, of, gone=None)

    def _first(self, key: TopicPartition, each: _Edges) -> int:
        """Where the stream begins in a partition."""
        bound = self.start.of(key)
        offset = offset_of(each.found, bound, _damaged)
        if offset is None:
            return each.end
        if isinstance(bound, int) and not each.start <= bound <= each.end:
            within = f"outside of its log ({each.start} to {each.end})"
            self._lost(f"{key}: startingOffsets is {bound}, {within}")
        return min(max(offset, each.start), each.end)

    def _lost(self, what: str) -> None:
        """Say that records may be missing; fail, if the option says so."""
        if self.fails:
            raise KdumpError(f"{what}; with failOnDataLoss=false a stream of kafka-log goes on")
        _LOG.warning("%s", what)


def open_records_stream(
    options: Mapping[str, str],
    names: Sequence[str] | None = None,
    payloads: RecordPayloads | None = None,
) -> RecordsStream:
    """The stream that the options of the data source describe.

    Takes what :func:`~kdump.jobs.table_rows.table_reader.open_table` does.

    Raises:
        UsageProblem: an option is unknown, has an invalid value, or is not one of a stream.
        KdumpError: schemas are damaged or cannot be read, in ``FAILFAST``.
    """
    if table_of(options) is not RECORDS:
        raise UsageProblem("of kafka-log, only the table records can be read as a stream")
    parser = StreamParser.of(options)
    reader = open_records(parser.without_start(), names, payloads, skips_unreadable=False)
    if reader.options.replicas is Replicas.ALL:
        raise UsageProblem("a stream of kafka-log reads one replica of each partition")
    return RecordsStream(
        reader, parser.start(), parser.positive(MOST_OFFSETS), reader.options.fail_on_data_loss
    )


def offsets_as_json(offsets: StreamOffsets) -> dict[str, dict[str, int]]:
    """Offsets as Spark keeps them, in the form of its own source for Kafka."""
    found: dict[str, dict[str, int]] = {}
    for key, offset in sorted(offsets.items()):
        found.setdefault(key.topic, {})[str(key.partition)] = offset
    return found


def offsets_of_json(kept: Mapping[str, Any]) -> StreamOffsets:
    """What :func:`offsets_as_json` made."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in kept.items()
        for partition, offset in partitions.items()
    }


def _limited(begin: StreamOffsets, end: StreamOffsets, most: int | None) -> StreamOffsets:
    """Ends of a micro-batch of about ``most`` offsets, shared out by how much each log has.

    Follows ``KafkaMicroBatchStream.rateLimit``: every log that has something goes on.
    """
    sizes = {key: to - begin[key] for key, to in end.items() if to > begin[key]}
    total = sum(sizes.values())
    if most is None or total <= most:
        return end
    return {
        key: to if key not in sizes else begin[key] + max(1, most * sizes[key] // total)
        for key, to in end.items()
    }


def _damaged(damage: Damage) -> None:
    """What is damaged, who reads it says."""
