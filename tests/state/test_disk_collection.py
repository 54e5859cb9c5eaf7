"""What ``metadata collect`` writes is read back; anything else is refused, with the field named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.cluster_documents import COLLECTIONS, damaged
from builders.json_schemas import problem_of_document
from kdump.formats.checkpoints import EpochEntry
from kdump.formats.json_document import DocumentError
from kdump.formats.names import PartitionState
from kdump.state.metadata.disk_collection import (
    CollectedDirectory,
    CollectedLoad,
    CollectedMetadata,
    CollectedPartition,
    CollectedRecord,
    DiskCollection,
    decode_collection,
    encode_collection,
)

TOPIC_ID = "Xia8jFxURT6Z0Ngpe1QksQ"


def partition(number: int) -> CollectedPartition:
    return CollectedPartition(
        directory=f"orders-of-the-north-{number}",
        topic="orders-of-the-north",
        partition=number,
        state=PartitionState.LIVE,
        topic_id=TOPIC_ID,
        leader_epochs=(EpochEntry(0, 0), EpochEntry(3, 1_000_000), EpochEntry(17, 123_456_789)),
        highest_epoch=17,
        log_start_offset=100_000_000,
        log_end_offset=223_456_789,
        loaded=CollectedLoad(100_000_000, 223_456_789, (EpochEntry(17, 123_456_789),)),
        last_stable_offset=223_456_700,
        high_watermark=223_456_000,
        highest_producer_id=3_000_123,
        size_bytes=10_000_000_000,
    )


def records(count: int) -> tuple[CollectedRecord, ...]:
    fields: dict[str, Any] = {
        "topicId": TOPIC_ID,
        **{name: [1, 2, 3] for name in ("replicas", "isr")},
        **{name: [] for name in ("removingReplicas", "addingReplicas", "lastKnownElr")},
        **dict.fromkeys(("leader", "leaderEpoch", "partitionEpoch", "leaderRecoveryState"), 17),
        "directories": [TOPIC_ID] * 3,
        "eligibleLeaderReplicas": [],
    }
    return tuple(
        CollectedRecord("PARTITION_RECORD", 2, {"partitionId": number, **fields})
        for number in range(count)
    )


def collection(partitions: int) -> DiskCollection:
    metadata = CollectedMetadata(
        epoch=3,
        end_offset=9,
        timestamp_ms=None,
        committed_end_offset=None,
        highest_epoch=3,
        highest_offset=9,
        kraft_version=1,
        voters=(),
        removed_topics=(),
        records=records(partitions),
    )
    directory = CollectedDirectory(
        path="/data/d1",
        cluster_id="c",
        node_id=1,
        directory_id=TOPIC_ID,
        is_clean_shutdown=True,
        broker_epoch=5,
        partitions=tuple(map(partition, range(partitions))),
        metadata=metadata,
    )
    return DiskCollection("0.1.0", 1795292332040, (directory,))


def text_of(found: DiskCollection) -> bytes:
    return b"".join(encode_collection(found))


@given(COLLECTIONS)
def test_a_collection_is_read_back(found: DiskCollection) -> None:
    assert decode_collection(text_of(found)) == found


@given(COLLECTIONS)
def test_a_collection_is_what_the_schema_describes(found: DiskCollection) -> None:
    assert problem_of_document("metadata-collection", json.loads(text_of(found))) is None


@given(damaged(COLLECTIONS.map(text_of).map(json.loads)))
def test_a_damaged_collection_is_refused_or_read(document: Any) -> None:
    try:
        found = decode_collection(json.dumps(document).encode())
    except DocumentError:
        return
    assert decode_collection(text_of(found)) == found


@given(st.binary() | st.text().map(str.encode))
def test_any_other_file_is_refused(data: bytes) -> None:
    with pytest.raises(DocumentError):
        decode_collection(data)


def test_ten_thousand_partitions_fit_into_twenty_megabytes() -> None:
    assert len(text_of(collection(10_000))) < 20e6


def test_a_partition_is_one_line() -> None:
    lines = text_of(collection(100)).splitlines()
    assert sum(b"orders-of-the-north-" in line for line in lines) == 100


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (b'"node_id": 1', b'"node_id": -1', "log_directories[0].node_id: not a number from 0 to"),
        (b'"node_id": 1', b'"nodeid": 1', "log_directories[0].nodeid: there is no such field"),
        (b'"node_id": 1', b'"path": ""', "path: given twice in one object"),
        (b'"live"', b'"alive"', "partitions[0].state: not one of live, future, delete, stray"),
        (b'"size_bytes"', b'"sizes"', "log_directories[0].partitions[0].sizes: there is no such"),
        (b"[[0, 0], [3,", b"[[3, 0], [3,", "leader_epochs[1]: the epoch is not above the one"),
        (b"[[0, 0]", b"[[0]", "partitions[0].leader_epochs[0]: not an epoch and an offset"),
        (b'"version": 5,', b'"version": 4,', "this kdump reads version 5"),
        (b"collection", b"plan", "not a kdump metadata collection"),
        (b"{", b"[" * 100_000, "not JSON: nested too deeply"),
        (b": 9,", b": NaN,", "not JSON: NaN"),
    ],
)
def test_what_is_wrong_is_named(old: bytes, new: bytes, what: str) -> None:
    data = text_of(collection(1))
    assert old in data
    with pytest.raises(DocumentError) as raised:
        decode_collection(data.replace(old, new, 1))
    assert what in str(raised.value)
