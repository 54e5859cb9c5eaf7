"""The document of ``kdump metadata collect``: what the disks of a host know about their cluster.

It is complete: :mod:`kdump.repair.cluster` makes a plan for the whole cluster of the documents of
all hosts, without their disks. The names of its fields are those of the attributes here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Struct

from kdump.formats.checkpoints import EpochEntry
from kdump.formats.json_document import (
    MOST,
    MOST_INT32,
    DocumentError,
    checked_number,
    document_lines,
    elements,
    read_document,
)
from kdump.formats.json_struct import (
    LATER,
    Form,
    Int16,
    Int32,
    Uuid,
    decode_struct,
    encode_struct,
    number,
    word,
)
from kdump.formats.names import PartitionState

COLLECTION_FORMAT: Final = "kdump metadata collection"
COLLECTION_VERSION: Final = 5

STATE_WORDS: Final = {each.name.lower(): each for each in PartitionState}
"""``live``, ``future``, ``delete`` and ``stray``, as in the output of ``kdump ls``."""


def _read_ranges(value: Any, where: str) -> tuple[range, ...]:
    found: list[range] = []
    for first, last, at in _number_pairs(value, where, "the first and the last offset"):
        if last < first or (found and first < found[-1].stop):
            raise DocumentError(f"{at}: the offsets do not rise")
        found.append(range(first, last + 1))
    return tuple(found)


def _read_epochs(value: Any, where: str) -> tuple[EpochEntry, ...]:
    found: list[EpochEntry] = []
    for epoch, offset, at in _number_pairs(value, where, "an epoch and an offset", MOST_INT32):
        if found and epoch <= found[-1].epoch:
            raise DocumentError(f"{at}: the epoch is not above the one before")
        found.append(EpochEntry(epoch, offset))
    return tuple(found)


_PAIR: Final = 2


def _number_pairs(
    value: Any, where: str, what: str, most: int = MOST
) -> Iterator[tuple[int, int, str]]:
    """The pairs of a list, the first at most ``most``, each with where it is."""
    for pair, at in elements(value, where):
        if type(pair) is not list or len(pair) != _PAIR:
            raise DocumentError(f"{at}: not {what}: {pair!r:.80}")
        yield checked_number(pair[0], at, most=most), checked_number(pair[1], at), at


Ranges: TypeAlias = Annotated[
    tuple[range, ...],
    Form(_read_ranges, lambda ranges: [[each.start, each.stop - 1] for each in ranges]),
]
"""Offsets that rise; JSON has the first and the last of each range."""
Epochs: TypeAlias = Annotated[
    tuple[EpochEntry, ...], Form(_read_epochs, lambda entries: [[*each] for each in entries])
]
"""Ascending; JSON has pairs."""


class CollectedLoad(Struct, frozen=True):
    """What a starting broker makes of a log.

    Attributes:
        log_start_offset: where the log begins then; likewise ``log_end_offset``.
        leader_epochs: as the broker then has them in memory.
    """

    log_start_offset: int
    log_end_offset: int
    leader_epochs: Epochs


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
    partition: Int32
    state: Annotated[PartitionState, word(STATE_WORDS)]
    topic_id: Uuid | None
    leader_epochs: Epochs
    highest_epoch: Int32 | None
    log_start_offset: int | None
    log_end_offset: int | None
    loaded: CollectedLoad | None
    last_stable_offset: int | None
    high_watermark: int | None
    highest_producer_id: int | None
    size_bytes: int | None
    problems: tuple[str, ...] = ()
    keeps_damage: bool = False
    missing_offsets: Ranges | None = None
    damaged_offsets: Ranges = ()
    is_cleaned: bool = False
    dropped_swaps: Ranges = ()
    doubtful_offsets: Ranges = ()


class CollectedVoter(Struct, frozen=True):
    """A voter of the controllers' quorum.

    Attributes:
        directory_id: None with kraft.version 0.
        endpoints: ``NAME://HOST:PORT`` for each listener.
    """

    node_id: Int32
    directory_id: Uuid | None = None
    endpoints: tuple[str, ...] = ()


class CollectedRecord(Struct, frozen=True):
    """A record of the cluster's metadata, as the JSON of ``kafka-dump-log`` has it.

    Attributes:
        type: Kafka's name of the type, such as ``TOPIC_RECORD``.
        data: the fields by Kafka's names; bytes in base64.
    """

    type: str
    version: Int16
    data: Mapping[str, Any]


class RemovedTopic(Struct, frozen=True):
    """A topic that a copy of the metadata log says was deleted.

    Attributes:
        offset: of the RemoveTopicRecord; likewise ``epoch`` and ``timestamp_ms``.
        is_committed: whether the record is known to be committed; None if the disks do not say.
    """

    topic: str
    topic_id: Uuid
    offset: int
    epoch: Int32
    timestamp_ms: int | None
    is_committed: bool | None


class LaterPartition(Struct, frozen=True):
    """A partition that a topic got after the moment to which metadata is taken back."""

    topic_id: Uuid
    partition: Int32


class RewoundMetadata(Struct, frozen=True):
    """The moment to which metadata is taken back.

    Attributes:
        time_ms: batches that were appended later do not count.
        later_topics: ids of topics that were created after that, and that no record names.
        problem: why the copy does not say what the metadata were then: its records are those of its
            end. None if it does.
        later_partitions: partitions that topics of that time got later, and that the records have.
    """

    time_ms: int
    later_topics: tuple[Uuid, ...]
    problem: Annotated[str | None, LATER] = None
    later_partitions: Annotated[tuple[LaterPartition, ...], LATER] = ()


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
        rewound: the moment that topics, configurations, quotas, ACLs, credentials and tokens are
            from; None if that is ``end_offset``, too.
    """

    epoch: Int32
    end_offset: int
    timestamp_ms: int | None
    committed_end_offset: int | None
    highest_epoch: Int32
    highest_offset: int
    kraft_version: Annotated[int, number(most=1)]
    voters: tuple[CollectedVoter, ...]
    removed_topics: tuple[RemovedTopic, ...]
    records: tuple[CollectedRecord, ...]
    problems: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    rewound: Annotated[RewoundMetadata | None, LATER] = None


class ClaimedPartition(Struct, frozen=True):
    """A partition that records of an internal topic name.

    Attributes:
        highest_leader_epoch: that they name; None if they name none.
        highest_offset: that they name, such as a committed offset; likewise.
    """

    partition: Int32
    highest_leader_epoch: Int32 | None = None
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
    topic_id: Uuid | None
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
    node_id: Int32 | None
    directory_id: Uuid | None
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


_SPREAD: Final = (
    *("log_directories", "partitions", "claims", "records", "removed_topics", "voters"),
)
"""Lists with a line for each element."""
_HEAD: Final = {"format": COLLECTION_FORMAT, "version": COLLECTION_VERSION}


def encode_collection(collection: DiskCollection) -> Iterator[bytes]:
    """Yield the text of the document."""
    yield from document_lines(_HEAD | encode_struct(collection), _SPREAD)


def decode_collection(data: bytes) -> DiskCollection:
    """Read the document.

    Raises:
        DocumentError: it is another file, or was damaged; the message names the field.
    """
    document = read_document(data, COLLECTION_FORMAT, COLLECTION_VERSION)
    return decode_struct(DiskCollection, document, _HEAD)
