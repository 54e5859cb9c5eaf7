"""The small files for a directory's identity and its clean shutdown."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.formats.clean_shutdown import (
    CleanShutdown,
    decode_clean_shutdown,
    encode_clean_shutdown,
)
from kdump.formats.errors import FormatError
from kdump.formats.meta_properties import MetaProperties, decode_meta_properties
from kdump.formats.partition_metadata import (
    PartitionMetadata,
    decode_partition_metadata,
    encode_partition_metadata,
)
from kdump.formats.quorum_state import QuorumState, decode_quorum_state
from kdump.formats.uuids import parse_uuid

TOPIC_ID_TEXT = "lr5S-dRKRWmPcDKmX_2mNw"
TOPIC_ID = uuid.UUID("96be52f9-d44a-4569-8f70-32a65ffda637")

PARTITION_METADATA_SAMPLE = f"version: 0\ntopic_id: {TOPIC_ID_TEXT}".encode()
META_PROPERTIES_SAMPLE = (
    b"#\n#Sat Nov 21 05:45:23 UTC 2026\nnode.id=1\ndirectory.id=V1dW8O41RR6_pKmks-3sKg\n"
    b"version=1\ncluster.id=kdumpGoldenAAAAAAAAAAA\n"
)
QUORUM_STATE_SAMPLE = (
    b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,'
    b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)
QUORUM_STATE_SAMPLE_V0 = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1}],"data_version":0}'
)
CLEAN_SHUTDOWN_SAMPLE = b'{"version":0,"brokerEpoch":301}'


class TestPartitionMetadata:
    def test_it_is_read_and_written_as_kafka_does(self) -> None:
        metadata = PartitionMetadata(0, TOPIC_ID)
        assert decode_partition_metadata(PARTITION_METADATA_SAMPLE) == metadata
        assert encode_partition_metadata(metadata) == PARTITION_METADATA_SAMPLE

    @pytest.mark.parametrize(
        "data",
        [
            f"version: 3\ntopic_id: {TOPIC_ID_TEXT}\n".encode(),
            f"version: 3\r\ntopic_id:\t{TOPIC_ID_TEXT}==\nmore".encode(),
            f"v: 3\nt: {TOPIC_ID_TEXT}".encode(),
        ],
    )
    def test_later_versions_and_other_words_are_read(self, data: bytes) -> None:
        assert decode_partition_metadata(data) == PartitionMetadata(3, TOPIC_ID)

    @pytest.mark.parametrize(
        ("data", "line"),
        [
            (b"", 1),
            (b"version: -1\ntopic_id: x", 1),
            (b"version:0\n", 1),
            (b"version: 0", 2),
            (b"version: 0\ntopic_id: x", 2),
            (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2),
            (b"version: 0\n\ntopic_id: lr5S-dRKRWmPcDKmX_2mNw", 2),
        ],
    )
    def test_the_malformed_line_is_named(self, data: bytes, line: int) -> None:
        with pytest.raises(FormatError, match=f"malformed in line {line} "):
            decode_partition_metadata(data)


class TestMetaProperties:
    def test_version_1_has_everything(self) -> None:
        assert decode_meta_properties(META_PROPERTIES_SAMPLE) == MetaProperties(
            version=1,
            cluster_id="kdumpGoldenAAAAAAAAAAA",
            node_id=1,
            directory_id=parse_uuid("V1dW8O41RR6_pKmks-3sKg"),
        )

    def test_version_0_may_have_nothing_and_calls_the_node_broker(self) -> None:
        assert decode_meta_properties(b"") == MetaProperties(0, None, None, None)
        assert decode_meta_properties(b"version=0\nbroker.id=7").node_id == 7

    @pytest.mark.parametrize(
        "data",
        [
            b"version=2",
            b"version=one",
            b"version=1\ncluster.id=c",
            b"version=1\nnode.id=x\ncluster.id=c",
            b"version=1\nnode.id=1",
            b"broker.id=x",
            b"directory.id=x",
        ],
    )
    def test_what_a_broker_refuses(self, data: bytes) -> None:
        with pytest.raises(FormatError, match=r"meta\.properties has "):
            decode_meta_properties(data)


class TestCleanShutdown:
    def test_it_is_read_and_written_as_kafka_does(self) -> None:
        assert decode_clean_shutdown(CLEAN_SHUTDOWN_SAMPLE) == CleanShutdown(0, 301)
        assert encode_clean_shutdown(301) == CLEAN_SHUTDOWN_SAMPLE

    def test_older_brokers_left_it_empty(self) -> None:
        assert decode_clean_shutdown(b"") == CleanShutdown(None, None)

    @pytest.mark.parametrize(
        "data", [b"{}", b'{"brokerEpoch":null}', b'{"brokerEpoch":true}', b"[]", b"\0"]
    )
    def test_it_must_have_a_broker_epoch(self, data: bytes) -> None:
        with pytest.raises(FormatError, match=r"\.kafka_cleanshutdown"):
            decode_clean_shutdown(data)


class TestQuorumState:
    def test_version_1(self) -> None:
        assert decode_quorum_state(QUORUM_STATE_SAMPLE) == QuorumState(
            data_version=1,
            leader_id=1,
            leader_epoch=2,
            voted_id=-1,
            voted_directory_id=None,
            cluster_id=None,
            current_voters=None,
        )

    def test_version_0_has_cluster_and_voters(self) -> None:
        state = decode_quorum_state(QUORUM_STATE_SAMPLE_V0)
        assert (state.cluster_id, state.current_voters) == ("", (1,))

    def test_the_directory_that_was_voted_for_has_an_id(self) -> None:
        voted = QUORUM_STATE_SAMPLE.replace(b"A" * 22, TOPIC_ID_TEXT.encode())
        assert decode_quorum_state(voted).voted_directory_id == TOPIC_ID

    def test_only_the_first_line_counts(self) -> None:
        assert decode_quorum_state(QUORUM_STATE_SAMPLE + b"\nnonsense").leader_id == 1

    @pytest.mark.parametrize(
        ("sample", "part"),
        [
            (QUORUM_STATE_SAMPLE, b'"leaderId":1,'),
            (QUORUM_STATE_SAMPLE, b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",'),
            (QUORUM_STATE_SAMPLE, b',"data_version":1'),
            (QUORUM_STATE_SAMPLE_V0, b'"clusterId":"",'),
            (QUORUM_STATE_SAMPLE_V0, b'"currentVoters":[{"voterId":1}],'),
            (QUORUM_STATE_SAMPLE_V0, b'"voterId":1'),
        ],
    )
    def test_no_part_of_it_may_be_missing(self, sample: bytes, part: bytes) -> None:
        with pytest.raises(FormatError, match="quorum-state has no valid"):
            decode_quorum_state(sample.replace(part, b""))

    def test_later_versions_are_refused(self) -> None:
        later = QUORUM_STATE_SAMPLE.replace(b'version":1', b'version":2')
        with pytest.raises(FormatError, match="unknown data_version"):
            decode_quorum_state(later)


@pytest.mark.parametrize("decode", [decode_clean_shutdown, decode_quorum_state])
@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"brokerEpoch":' + b"9" * 10_000 + b"}",
        b'{"brokerEpoch":1e999,"data_version":NaN}',
    ],
    ids=["brackets", "braces", "digits", "floats"],
)
def test_json_that_is_hostile_is_a_format_error(
    decode: Callable[[bytes], object], data: bytes
) -> None:
    with pytest.raises(FormatError):
        decode(data)


@pytest.mark.slow
@given(st.uuids(), st.integers(0, 2**31 - 1))
def test_partition_metadata_is_read_back(topic_id: uuid.UUID, version: int) -> None:
    if topic_id.int:
        metadata = PartitionMetadata(version, topic_id)
        assert decode_partition_metadata(encode_partition_metadata(metadata)) == metadata
