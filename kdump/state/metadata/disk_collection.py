"""The document of ``kdump metadata collect``: what the disks of a host know about their cluster.

It is complete: :mod:`kdump.repair.cluster` makes a plan for the whole cluster of the documents of
all hosts, without their disks. The names of its fields are those of the attributes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from kdump.formats.checkpoints import EpochEntry
from kdump.formats.json_document import (
    MOST,
    MOST_INT32,
    DocumentError,
    JsonObject,
    checked_number,
    document_lines,
    read_document,
)
from kdump.formats.names import PartitionState

COLLECTION_FORMAT: Final = "kdump metadata collection"
COLLECTION_VERSION: Final = 5

STATE_WORDS: Final = {each.name.lower(): each for each in PartitionState}
"""``live``, ``future``, ``delete`` and ``stray``, as in the output of ``kdump ls``."""


class CollectedLoad(Struct, frozen=True):
    """What a starting broker makes of a log.

    Attributes:
        log_start_offset: where the log begins then; likewise ``log_end_offset``.
        leader_epochs: as the broker then has them in memory.
    """

    log_start_offset: int
    log_end_offset: int
    leader_epochs: tuple[EpochEntry, ...]


def joined(ranges: Iterable[range]) -> Iterator[range]:
    """The same offsets, each once, in ranges that rise and do not touch."""
    current: range | None = None
    for each in sorted(ranges, key=lambda each: each.start):
        if current is not None and each.start <= current.stop:
            current = range(current.start, max(current.stop, each.stop))
            continue
        if current is not None:
            yield current
        current = each
    if current is not None:
        yield current


class CollectedPartition(Struct, frozen=True):
    """A partition's directory. What cannot be read is None, never 0; ``problems`` say why.

    The offsets and epochs are those of the valid records in its files, whatever a start does to
    them; ``loaded`` is what a start makes of them.

    Attributes:
        directory: its name.
        topic: from the name, likewise ``partition`` and ``state``.
        topic_id: from ``partition.metadata``.
        leader_epochs: epochs that begin before the end of the log, and their first offsets,
            ascending: of ``leader-epoch-checkpoint``, or of batch headers if the two disagree.
        highest_epoch: the highest leader epoch that the checkpoint or a batch header names, whether
            the log reaches it or not. None if there is none.
        log_start_offset: the offset of the first record.
        log_end_offset: the offset after the last valid batch.
        loaded: what a starting broker makes of the log; None if it does not load it.
        last_stable_offset: None also where finding it would mean reading more of the log.
        high_watermark: of ``replication-offset-checkpoint``.
        highest_producer_id: in the batches that were read and in producer snapshots.
        size_bytes: of its files; None if the directory cannot be listed.
        problems: what is damaged or cannot be read.
        keeps_damage: whether some of the damage is still there when a broker has started.
        missing_offsets: those that no valid batch has, from the start of the log to the last one;
            None if the log was not read whole, or is cleaned.
        damaged_offsets: those that no valid batch has where the log is damaged, cleaned or not.
        is_cleaned: whether the cleaner may have removed records, so that offsets are missing
            without any loss.
        dropped_swaps: the offsets from the first to the last record of each file that a start
            deletes or replaces because of an unfinished swap, if no log has those records.
        doubtful_offsets: those of the last batch if its base offset may be wrong: the log counts as
            ending before the gap in front of it.
    """

    directory: str
    topic: str
    partition: int
    state: PartitionState
    topic_id: str | None
    leader_epochs: tuple[EpochEntry, ...]
    highest_epoch: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    loaded: CollectedLoad | None
    last_stable_offset: int | None
    high_watermark: int | None
    highest_producer_id: int | None
    size_bytes: int | None
    problems: tuple[str, ...] = ()
    keeps_damage: bool = False
    missing_offsets: tuple[range, ...] | None = None
    damaged_offsets: tuple[range, ...] = ()
    is_cleaned: bool = False
    dropped_swaps: tuple[range, ...] = ()
    doubtful_offsets: tuple[range, ...] = ()


class CollectedVoter(Struct, frozen=True):
    """A voter of the controllers' quorum.

    Attributes:
        directory_id: None with kraft.version 0.
        endpoints: ``NAME://HOST:PORT`` for each listener.
    """

    node_id: int
    directory_id: str | None = None
    endpoints: tuple[str, ...] = ()


class CollectedRecord(Struct, frozen=True):
    """A record of the cluster's metadata, as the JSON of ``kafka-dump-log`` has it.

    Attributes:
        type: Kafka's name of the type, such as ``TOPIC_RECORD``.
        data: the fields by Kafka's names; bytes in base64.
    """

    type: str
    version: int
    data: Mapping[str, Any]


class RemovedTopic(Struct, frozen=True):
    """A topic that a copy of the metadata log says was deleted.

    Attributes:
        offset: of the RemoveTopicRecord; likewise ``epoch`` and ``timestamp_ms``.
        is_committed: whether the record is known to be committed; None if the disks do not say.
    """

    topic: str
    topic_id: str
    offset: int
    epoch: int
    timestamp_ms: int | None
    is_committed: bool | None


class CollectedMetadata(Struct, frozen=True):
    """A copy of the cluster's metadata, ``__cluster_metadata-0``.

    Attributes:
        epoch: of the last batch, or of the snapshot if no batch follows it.
        end_offset: the offset after the last record that can be read.
        timestamp_ms: when the last batch was appended; None if there is none.
        committed_end_offset: records before it are known to be committed; None if nothing says so.
        highest_offset: the highest end of any snapshot or segment in the directory, whether it can
            be read or not; likewise ``highest_epoch``, with ``quorum-state``. New metadata must lie
            above both.
        kraft_version: 0 or 1.
        voters: of the quorum, as the copy or ``quorum-state`` names them.
        removed_topics: those whose deletion is still in the log, by offset.
        records: what the metadata consists of at ``end_offset``, in the order of a snapshot and
            without control records.
        problems: what is damaged or cannot be read.
        unknown: those of them about records that the collecting kdump did not know, or only in
            part: ``records`` lack what they say.
    """

    epoch: int
    end_offset: int
    timestamp_ms: int | None
    committed_end_offset: int | None
    highest_epoch: int
    highest_offset: int
    kraft_version: int
    voters: tuple[CollectedVoter, ...]
    removed_topics: tuple[RemovedTopic, ...]
    records: tuple[CollectedRecord, ...]
    problems: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class ClaimedPartition(Struct, frozen=True):
    """A partition that records of an internal topic name.

    Attributes:
        highest_leader_epoch: that they name; None if they name none.
        highest_offset: that they name, such as a committed offset; likewise.
    """

    partition: int
    highest_leader_epoch: int | None = None
    highest_offset: int | None = None


class TopicClaim(Struct, frozen=True):
    """What the records of an internal topic say of another topic.

    Attributes:
        source: ``__consumer_offsets``, ``__transaction_state`` or ``__remote_log_metadata``.
        topic_id: None where the records have none.
        partitions: by number.
    """

    source: str
    topic: str
    topic_id: str | None
    partitions: tuple[ClaimedPartition, ...]


class CollectedDirectory(Struct, frozen=True):
    """A log directory.

    Attributes:
        path: as it was given to ``collect``.
        cluster_id: of ``meta.properties``; likewise ``node_id`` and ``directory_id``. None if it
            does not have them.
        is_clean_shutdown: whether the broker was stopped cleanly.
        broker_epoch: of the clean shutdown marker; None without one, or if it has none.
        partitions: by name of the directory; without ``__cluster_metadata``.
        claims: of its internal topics, by source, topic and id.
        highest_transactional_producer_id: in the records of ``__transaction_state``.
        has_streams_groups: whether there are some in the records of ``__consumer_offsets``.
        metadata: its copy of the cluster's metadata; None if it has none.
        problems: what is damaged or cannot be read in the directory itself.
    """

    path: str
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    is_clean_shutdown: bool
    broker_epoch: int | None
    partitions: tuple[CollectedPartition, ...] = ()
    claims: tuple[TopicClaim, ...] = ()
    highest_transactional_producer_id: int | None = None
    has_streams_groups: bool = False
    metadata: CollectedMetadata | None = None
    problems: tuple[str, ...] = ()


class DiskCollection(Struct, frozen=True):
    """What the log directories of a host know about their cluster.

    Attributes:
        kdump: the version of kdump that read them.
        created_ms: when.
        log_directories: in the order in which they were given.
    """

    kdump: str
    created_ms: int
    log_directories: tuple[CollectedDirectory, ...] = ()


# --- to JSON

_SPREAD: Final = (
    *("log_directories", "partitions", "claims", "records", "removed_topics", "voters"),
)
"""Lists with a line for each element."""


def encode_collection(collection: DiskCollection) -> Iterator[bytes]:
    """Yield the text of the document."""
    yield from document_lines(
        {
            "format": COLLECTION_FORMAT,
            "version": COLLECTION_VERSION,
            "kdump": collection.kdump,
            "created_ms": collection.created_ms,
            "log_directories": [_directory_fields(each) for each in collection.log_directories],
        },
        _SPREAD,
    )


def _directory_fields(directory: CollectedDirectory) -> dict[str, Any]:
    metadata = directory.metadata
    return asdict(directory) | {
        "partitions": [_partition_fields(each) for each in directory.partitions],
        "claims": [_claim_fields(each) for each in directory.claims],
        "metadata": None if metadata is None else _metadata_fields(metadata),
    }


def _partition_fields(partition: CollectedPartition) -> dict[str, Any]:
    loaded, missing = partition.loaded, partition.missing_offsets
    return asdict(partition) | {
        "missing_offsets": None if missing is None else _range_pairs(missing),
        "damaged_offsets": _range_pairs(partition.damaged_offsets),
        "dropped_swaps": _range_pairs(partition.dropped_swaps),
        "doubtful_offsets": _range_pairs(partition.doubtful_offsets),
        "state": partition.state.name.lower(),
        "leader_epochs": _pairs(partition.leader_epochs),
        "loaded": None
        if loaded is None
        else asdict(loaded) | {"leader_epochs": _pairs(loaded.leader_epochs)},
    }


def _range_pairs(ranges: Iterable[range]) -> list[list[int]]:
    return [[each.start, each.stop - 1] for each in ranges]


def _pairs(entries: Iterable[EpochEntry]) -> list[list[int]]:
    return [[each.epoch, each.start_offset] for each in entries]


def _claim_fields(claim: TopicClaim) -> dict[str, Any]:
    return asdict(claim) | {"partitions": [asdict(each) for each in claim.partitions]}


def _metadata_fields(metadata: CollectedMetadata) -> dict[str, Any]:
    return asdict(metadata) | {
        "voters": [asdict(each) for each in metadata.voters],
        "removed_topics": [asdict(each) for each in metadata.removed_topics],
        "records": [asdict(each) for each in metadata.records],
    }


# --- from JSON


def decode_collection(data: bytes) -> DiskCollection:
    """Read the document.

    Raises:
        DocumentError: it is another file, or was damaged; the message names the field.
    """
    document = read_document(data, COLLECTION_FORMAT, COLLECTION_VERSION)
    document.has_only(_DOCUMENT_FIELDS)
    return DiskCollection(
        kdump=document.text("kdump"),
        created_ms=document.number("created_ms"),
        log_directories=tuple(map(_directory, document.objects("log_directories"))),
    )


_DOCUMENT_FIELDS: Final = ("format", "version", *DiskCollection.__struct_fields__)


def _directory(document: JsonObject) -> CollectedDirectory:
    document.has_only(CollectedDirectory.__struct_fields__)
    metadata = document.optional(document.object, "metadata")
    return CollectedDirectory(
        path=document.text("path"),
        cluster_id=document.optional(document.text, "cluster_id"),
        node_id=document.optional_int32("node_id"),
        directory_id=document.optional(document.uuid, "directory_id"),
        is_clean_shutdown=document.flag("is_clean_shutdown"),
        broker_epoch=document.optional(document.number, "broker_epoch"),
        partitions=tuple(map(_partition, document.objects("partitions"))),
        claims=tuple(map(_claim, document.objects("claims"))),
        highest_transactional_producer_id=document.optional(
            document.number, "highest_transactional_producer_id"
        ),
        has_streams_groups=document.flag("has_streams_groups"),
        metadata=None if metadata is None else _metadata(metadata),
        problems=document.texts("problems"),
    )


def _partition(document: JsonObject) -> CollectedPartition:
    document.has_only(CollectedPartition.__struct_fields__)
    return CollectedPartition(
        directory=document.text("directory"),
        topic=document.text("topic"),
        partition=document.number("partition", most=MOST_INT32),
        state=document.word("state", STATE_WORDS),
        topic_id=document.optional(document.uuid, "topic_id"),
        leader_epochs=_epochs(document, "leader_epochs"),
        highest_epoch=document.optional_int32("highest_epoch"),
        log_start_offset=document.optional(document.number, "log_start_offset"),
        log_end_offset=document.optional(document.number, "log_end_offset"),
        loaded=_loaded(document.optional(document.object, "loaded")),
        last_stable_offset=document.optional(document.number, "last_stable_offset"),
        high_watermark=document.optional(document.number, "high_watermark"),
        highest_producer_id=document.optional(document.number, "highest_producer_id"),
        size_bytes=document.optional(document.number, "size_bytes"),
        problems=document.texts("problems"),
        keeps_damage=document.flag("keeps_damage"),
        missing_offsets=None
        if document.value("missing_offsets") is None
        else _ranges(document, "missing_offsets"),
        damaged_offsets=_ranges(document, "damaged_offsets"),
        is_cleaned=document.flag("is_cleaned"),
        dropped_swaps=_ranges(document, "dropped_swaps"),
        doubtful_offsets=_ranges(document, "doubtful_offsets"),
    )


def _ranges(document: JsonObject, name: str) -> tuple[range, ...]:
    found: list[range] = []
    for first, last, where in _number_pairs(document, name, "the first and the last offset"):
        if last < first or (found and first < found[-1].stop):
            raise DocumentError(f"{where}: the offsets do not rise")
        found.append(range(first, last + 1))
    return tuple(found)


def _loaded(document: JsonObject | None) -> CollectedLoad | None:
    if document is None:
        return None
    document.has_only(CollectedLoad.__struct_fields__)
    return CollectedLoad(
        document.number("log_start_offset"),
        document.number("log_end_offset"),
        _epochs(document, "leader_epochs"),
    )


_PAIR: Final = 2


def _epochs(document: JsonObject, name: str) -> tuple[EpochEntry, ...]:
    found: list[EpochEntry] = []
    for epoch, offset, where in _number_pairs(document, name, "an epoch and an offset", MOST_INT32):
        if found and epoch <= found[-1].epoch:
            raise DocumentError(f"{where}: the epoch is not above the one before")
        found.append(EpochEntry(epoch, offset))
    return tuple(found)


def _number_pairs(
    document: JsonObject, name: str, what: str, most: int = MOST
) -> Iterator[tuple[int, int, str]]:
    """The pairs of a list, the first at most ``most``, each with where it is."""
    for value, where in document.each(name):
        if type(value) is not list or len(value) != _PAIR:
            raise DocumentError(f"{where}: not {what}: {value!r:.80}")
        yield checked_number(value[0], where, most=most), checked_number(value[1], where), where


def _claim(document: JsonObject) -> TopicClaim:
    document.has_only(TopicClaim.__struct_fields__)
    return TopicClaim(
        source=document.text("source"),
        topic=document.text("topic"),
        topic_id=document.optional(document.uuid, "topic_id"),
        partitions=tuple(map(_claimed_partition, document.objects("partitions"))),
    )


def _claimed_partition(document: JsonObject) -> ClaimedPartition:
    document.has_only(ClaimedPartition.__struct_fields__)
    return ClaimedPartition(
        document.number("partition", most=MOST_INT32),
        document.optional_int32("highest_leader_epoch"),
        document.optional(document.number, "highest_offset"),
    )


def _metadata(document: JsonObject) -> CollectedMetadata:
    document.has_only(CollectedMetadata.__struct_fields__)
    return CollectedMetadata(
        epoch=document.number("epoch", most=MOST_INT32),
        end_offset=document.number("end_offset"),
        timestamp_ms=document.optional(document.number, "timestamp_ms"),
        committed_end_offset=document.optional(document.number, "committed_end_offset"),
        highest_epoch=document.number("highest_epoch", most=MOST_INT32),
        highest_offset=document.number("highest_offset"),
        kraft_version=document.number("kraft_version", most=1),
        voters=tuple(map(_voter, document.objects("voters"))),
        removed_topics=tuple(map(_removed_topic, document.objects("removed_topics"))),
        records=tuple(map(decode_record, document.objects("records"))),
        problems=document.texts("problems"),
        unknown=document.texts("unknown"),
    )


def _voter(document: JsonObject) -> CollectedVoter:
    document.has_only(CollectedVoter.__struct_fields__)
    return CollectedVoter(
        document.number("node_id", most=MOST_INT32),
        document.optional(document.uuid, "directory_id"),
        document.texts("endpoints"),
    )


def _removed_topic(document: JsonObject) -> RemovedTopic:
    document.has_only(RemovedTopic.__struct_fields__)
    return RemovedTopic(
        topic=document.text("topic"),
        topic_id=document.uuid("topic_id"),
        offset=document.number("offset"),
        epoch=document.number("epoch", most=MOST_INT32),
        timestamp_ms=document.optional(document.number, "timestamp_ms"),
        is_committed=document.optional(document.flag, "is_committed"),
    )


def decode_record(document: JsonObject) -> CollectedRecord:
    """Decode a record.

    Raises:
        DocumentError: it is not one; whether Kafka knows its type and fields is not checked.
    """
    document.has_only(CollectedRecord.__struct_fields__)
    return CollectedRecord(
        document.text("type"),
        document.number("version", most=(1 << 15) - 1),
        document.object("data").fields,
    )
