"""Documents about a dead cluster: random ones, and ways to damage them."""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator
from typing import Any, Final

from hypothesis import strategies as st

from kdump.formats.checkpoints import EpochEntry
from kdump.formats.names import PartitionState
from kdump.state.metadata.cluster_plan import (
    ClusterPlan,
    FirstLeader,
    MovedAside,
    Notice,
    NoticeKind,
    PlannedConfig,
    PlannedController,
    PlannedFeature,
    PlannedRecord,
    PlannedTopic,
    PlannedTopicPartition,
    ResourceConfig,
    SeenOnDisks,
    SeenPartition,
    SeenReplica,
    Source,
    SourceKind,
)
from kdump.state.metadata.disk_collection import (
    ClaimedPartition,
    CollectedDirectory,
    CollectedLoad,
    CollectedMetadata,
    CollectedPartition,
    CollectedRecord,
    CollectedVoter,
    DiskCollection,
    RemovedTopic,
    RewoundMetadata,
    TopicClaim,
)

INT32: Final = st.integers(0, 2**31 - 1)
INT64: Final = st.integers(0, 2**63 - 1)
UUIDS: Final = st.binary(min_size=16, max_size=16).map(
    lambda data: base64.urlsafe_b64encode(data).rstrip(b"=").decode()
)
TEXTS: Final = st.text(max_size=8) | st.just("/data/\udcff")


def nullable(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values, or None."""
    return st.none() | strategy


def tuples(strategy: st.SearchStrategy[Any], most: int = 2, **options: Any) -> Any:
    """A few values."""
    return st.lists(strategy, max_size=most, **options).map(tuple)


EPOCHS: Final = st.dictionaries(INT32, INT64, max_size=3).map(
    lambda found: tuple(EpochEntry(epoch, found[epoch]) for epoch in sorted(found))
)


def _inclusive(first: int, last: int) -> range:
    return range(first, last + 1)


RANGES: Final = st.lists(INT64, max_size=6, unique=True).map(
    lambda found: tuple(map(_inclusive, sorted(found)[::2], sorted(found)[1::2]))
)
PARTITIONS: Final = st.builds(
    CollectedPartition,
    directory=TEXTS,
    topic=TEXTS,
    partition=INT32,
    state=st.sampled_from(PartitionState),
    topic_id=nullable(UUIDS),
    leader_epochs=EPOCHS,
    highest_epoch=nullable(INT32),
    log_start_offset=nullable(INT64),
    log_end_offset=nullable(INT64),
    loaded=nullable(st.builds(CollectedLoad, INT64, INT64, EPOCHS)),
    last_stable_offset=nullable(INT64),
    high_watermark=nullable(INT64),
    highest_producer_id=nullable(INT64),
    size_bytes=INT64,
    problems=tuples(TEXTS),
    missing_offsets=nullable(RANGES),
    damaged_offsets=RANGES,
    is_cleaned=st.booleans(),
    dropped_swaps=RANGES,
    doubtful_offsets=RANGES,
)
CLAIMS: Final = st.builds(
    TopicClaim,
    source=TEXTS,
    topic=TEXTS,
    topic_id=nullable(UUIDS),
    partitions=tuples(st.builds(ClaimedPartition, INT32, nullable(INT32), nullable(INT64))),
)
DATA: Final = st.dictionaries(
    TEXTS,
    TEXTS | INT64 | st.floats(allow_nan=False, allow_infinity=False) | st.lists(TEXTS, max_size=2),
    max_size=2,
)
RECORDS: Final = st.builds(CollectedRecord, TEXTS, st.integers(0, 32767), DATA)
METADATA: Final = st.builds(
    CollectedMetadata,
    epoch=INT32,
    end_offset=INT64,
    timestamp_ms=nullable(INT64),
    committed_end_offset=nullable(INT64),
    highest_epoch=INT32,
    highest_offset=INT64,
    kraft_version=st.integers(0, 1),
    voters=tuples(st.builds(CollectedVoter, INT32, nullable(UUIDS), tuples(TEXTS))),
    removed_topics=tuples(
        st.builds(
            RemovedTopic, TEXTS, UUIDS, INT64, INT32, nullable(INT64), nullable(st.booleans())
        )
    ),
    records=tuples(RECORDS),
    problems=tuples(TEXTS),
    rewound=nullable(st.builds(RewoundMetadata, INT64, tuples(UUIDS))),
)
COLLECTIONS: Final = st.builds(
    DiskCollection,
    kdump=TEXTS,
    created_ms=INT64,
    log_directories=tuples(
        st.builds(
            CollectedDirectory,
            path=TEXTS,
            cluster_id=nullable(TEXTS),
            node_id=nullable(INT32),
            directory_id=nullable(UUIDS),
            is_clean_shutdown=st.booleans(),
            broker_epoch=nullable(INT64),
            partitions=tuples(PARTITIONS),
            claims=tuples(CLAIMS),
            highest_transactional_producer_id=nullable(INT64),
            has_streams_groups=st.booleans(),
            metadata=nullable(METADATA),
            problems=tuples(TEXTS),
        ),
        2,
    ),
)
"""Any collection that can be written, whether it makes sense or not."""

SOURCES: Final = st.builds(Source, st.sampled_from(SourceKind), TEXTS)
SOURCES_BY_NAME: Final = st.dictionaries(TEXTS, SOURCES, max_size=2)


@st.composite
def planned_partitions(draw: st.DrawFn, number: int) -> PlannedTopicPartition:
    """A partition that does not contradict itself."""
    replicas = tuple(draw(st.lists(INT32, min_size=1, max_size=3, unique=True)))
    some = st.lists(st.sampled_from(replicas), max_size=3, unique=True).map(tuple)
    isr = draw(some)
    return PlannedTopicPartition(
        partition=number,
        replicas=replicas,
        directories=tuple(draw(UUIDS) for _ in replicas),
        isr=isr,
        elr=draw(some),
        last_known_elr=draw(some),
        removing_replicas=draw(some),
        adding_replicas=draw(some),
        leader=draw(st.sampled_from((-1, *isr))),
        leader_recovery_state=draw(st.sampled_from(("RECOVERED", "RECOVERING"))),
        leader_epoch=draw(INT32),
        partition_epoch=draw(INT32),
        sources=draw(SOURCES_BY_NAME),
    )


CONFIGS: Final = tuples(
    st.builds(PlannedConfig, TEXTS, TEXTS, SOURCES), unique_by=lambda each: each.name
)


@st.composite
def planned_topics(draw: st.DrawFn) -> PlannedTopic:
    """A topic whose partitions have no holes."""
    count = draw(st.integers(1, 3))
    partitions = tuple(draw(planned_partitions(number)) for number in range(count))
    return PlannedTopic(draw(TEXTS), draw(UUIDS), draw(SOURCES), draw(CONFIGS), partitions)


def kept(record_type: str) -> Any:
    """Records of one type."""
    return tuples(st.builds(PlannedRecord, st.just(record_type), st.integers(0, 9), DATA, SOURCES))


SOME_EPOCH: Final = st.integers(-1, 2**31 - 1)
PLANS: Final = st.builds(
    ClusterPlan,
    kdump=TEXTS,
    created_ms=INT64,
    cluster_id=TEXTS,
    snapshot_offset=st.integers(1, 2**63 - 1),
    snapshot_epoch=st.integers(1, 2**31 - 2),
    kraft_version=st.integers(0, 1),
    controller_listener=TEXTS,
    controllers=tuples(
        st.builds(PlannedController, INT32, TEXTS, st.integers(1, 65535), UUIDS),
        min_size=1,
        unique_by=lambda each: each.node_id,
    ),
    next_producer_id=INT64,
    sources=SOURCES_BY_NAME,
    features=tuples(
        st.builds(PlannedFeature, TEXTS, st.integers(0, 32767), SOURCES),
        unique_by=lambda each: each.name,
    ),
    topics=tuples(planned_topics(), unique_by=(lambda each: each.name, lambda each: each.topic_id)),
    configs=tuples(
        st.builds(ResourceConfig, st.integers(0, 127), TEXTS, TEXTS, TEXTS, SOURCES),
        unique_by=lambda each: (each.resource_type, each.resource_name, each.name),
    ),
    brokers=kept("REGISTER_BROKER_RECORD"),
    acls=kept("ACCESS_CONTROL_ENTRY_RECORD"),
    scram=kept("USER_SCRAM_CREDENTIAL_RECORD"),
    quotas=kept("CLIENT_QUOTA_RECORD"),
    delegation_tokens=kept("DELEGATION_TOKEN_RECORD"),
    move_aside=tuples(st.builds(MovedAside, INT32, TEXTS, nullable(UUIDS), TEXTS)),
    first_leaders=tuples(st.builds(FirstLeader, TEXTS, INT32, INT32)),
    notices=tuples(
        st.builds(
            Notice,
            st.sampled_from(NoticeKind),
            TEXTS,
            nullable(TEXTS),
            nullable(INT32),
            TEXTS,
            st.booleans(),
            nullable(TEXTS),
        )
    ),
    is_loss_accepted=st.booleans(),
    seen=st.builds(
        SeenOnDisks,
        nullable(TEXTS),
        INT64,
        INT32,
        st.integers(-1, 2**63 - 1),
        tuples(
            st.builds(
                SeenPartition,
                TEXTS,
                UUIDS,
                INT32,
                tuples(INT32, unique=True),
                SOME_EPOCH,
                tuples(st.builds(SeenReplica, INT32, SOME_EPOCH, st.integers(-1, 2**63 - 1))),
            )
        ),
    ),
)
"""Any plan that can be written."""


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (*path, key)
            yield from _places(value[key], (*path, key))


@st.composite
def damaged(draw: st.DrawFn, documents: st.SearchStrategy[Any]) -> Any:
    """A document in which one value is replaced, removed or added."""
    document = copy.deepcopy(draw(documents))
    *path, last = draw(st.sampled_from(list(_places(document))))
    holder = document
    for key in path:
        holder = holder[key]
    junk = st.sampled_from((None, True, -1, 2**70, 1.5, "", "x", [], [None], {}, {"x": 1}))
    if draw(st.booleans()):
        holder[last] = draw(junk)
    elif isinstance(holder, dict) and draw(st.booleans()):
        holder[f"{last}x"] = draw(junk)
    else:
        del holder[last]
    return document
