from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders.messages import encode, int16, message_values, varint
from builders.samples import examples
from kdump.formats.errors import FormatError
from kdump.formats.internal_topics import (
    DECODERS,
    ParsedRecord,
    control_record_text,
    control_record_value,
    parse_cluster_metadata,
    parse_offsets,
    parse_remote_log_metadata,
    parse_share_group_state,
    parse_transaction_log,
)
from kdump.formats.schema import RecordType
from kdump.formats.schemas import (
    consumer_protocol,
    control,
    group_coordinator,
    metadata,
    remote_storage,
    share,
    transaction,
)

TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"
ZERO_ID = "A" * 22

OFFSET_KEY = {"group": "g", "topic": "t", "partition": 3}
OFFSET_VALUE = {
    "offset": 42,
    "leaderEpoch": 5,
    "metadata": 'a "note"',
    "commitTimestamp": 1_767_225_600_000,
}


def key_of(record_type: RecordType, value: dict[str, Any]) -> bytes:
    assert record_type.key is not None
    return int16(record_type.id) + encode(record_type.key, value, 0)


def value_of(record_type: RecordType, value: dict[str, Any], version: int) -> bytes:
    return int16(version) + encode(record_type.value, value, version)


def framed(record_type: RecordType, value: dict[str, Any], version: int = 0) -> bytes:
    prefix = varint(1) + varint(record_type.id) + varint(version)
    return prefix + encode(record_type.value, value, version)


def offset_commit(version: int = 3) -> tuple[bytes, bytes]:
    record_type = group_coordinator.OFFSET_COMMIT
    return key_of(record_type, OFFSET_KEY), value_of(record_type, OFFSET_VALUE, version)


# --- __consumer_offsets, __transaction_state, __share_group_state


def test_an_offset_commit_is_printed_as_kafka_prints_it() -> None:
    key, value = offset_commit()
    assert parse_offsets(key, value, 7) == ParsedRecord(
        key_text='{"type":"1","data":{"group":"g","topic":"t","partition":3}}',
        payload_text='{"version":"3","data":{"offset":42,"leaderEpoch":5,'
        '"metadata":"a \\"note\\"","commitTimestamp":1767225600000}}',
        type_name="OffsetCommit",
        version=3,
        key=OFFSET_KEY,
        value=OFFSET_VALUE,
    )


def test_a_record_without_a_value_is_a_tombstone() -> None:
    key, _ = offset_commit()
    parsed = parse_offsets(key, None, 7)
    assert (parsed.payload_text, parsed.version, parsed.value) == ("<DELETE>", None, None)
    assert parsed.key == OFFSET_KEY
    assert parsed.error is None


def test_bytes_after_key_and_value_do_not_matter() -> None:
    key, value = offset_commit()
    assert parse_offsets(key + b"x", value + b"y", 7) == parse_offsets(key, value, 7)


@pytest.mark.parametrize("parse", [parse_offsets, parse_transaction_log, parse_share_group_state])
def test_a_record_without_a_key_is_a_format_error(parse: Any) -> None:
    with pytest.raises(FormatError, match="Failed to decode message at offset 7 using"):
        parse(None, b"", 7)


def test_an_unknown_type_is_skipped() -> None:
    parsed = parse_offsets(int16(9), b"\x00\x00", 7)
    assert parsed.key_text == "Unknown record type 9 at offset 7, skipping."
    assert (parsed.payload_text, parsed.type_name) == (None, None)
    assert parsed.error == "Found an unknown record type 9"


READ_KEY = "Could not read record with version 1 from key's buffer due to: "
READ_VALUE = "Could not read record with version 3 from value's buffer due to: "


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        pytest.param(b"", b"", "Could not read version from key's buffer.", id="an empty key"),
        pytest.param(int16(1), b"", f"{READ_KEY}null.", id="a key that ends early"),
        pytest.param(
            int16(1) + int16(9) + b"abc",
            b"",
            f"{READ_KEY}Error reading byte array of 9 byte(s): only 3 byte(s) available.",
            id="a string that reaches past the key",
        ),
        pytest.param(
            int16(1) + int16(-1),
            b"",
            f"{READ_KEY}non-nullable field group was serialized as null.",
            id="a string that may not be null",
        ),
        pytest.param(
            offset_commit()[0],
            b"\x00",
            "Could not read version from value's buffer.",
            id="a value that is too short for a version",
        ),
        pytest.param(
            offset_commit()[0],
            int16(5),
            "Found an unknown record version 5 for 1 type",
            id="a version that is too high",
        ),
        pytest.param(
            offset_commit()[0],
            int16(-1),
            "Found an unknown record version -1 for 1 type",
            id="a version that is negative",
        ),
        pytest.param(
            offset_commit()[0],
            offset_commit()[1][:-1],
            f"{READ_VALUE}null.",
            id="a value that ends early",
        ),
    ],
)
def test_damage_is_reported_with_the_official_tools_message(
    key: bytes, value: bytes, reason: str
) -> None:
    parsed = parse_offsets(key, value, 7)
    assert parsed.key_text == f"Error at offset 7, skipping. {reason}"
    assert parsed.payload_text is None
    assert parsed.value is None
    assert parsed.error == reason


def test_a_key_is_known_though_its_value_is_damaged() -> None:
    key, value = offset_commit()
    parsed = parse_offsets(key, value[:-1], 7)
    assert (parsed.type_name, parsed.version, parsed.key) == ("OffsetCommit", 3, OFFSET_KEY)


SUBSCRIPTION = {"topics": ["t"], "userData": None, "ownedPartitions": []}
SUBSCRIPTION_BYTES = int16(1) + encode(
    consumer_protocol.CONSUMER_PROTOCOL_SUBSCRIPTION, SUBSCRIPTION, 1
)


def group_of(protocol_type: str, subscription: bytes) -> ParsedRecord:
    record_type = group_coordinator.GROUP_METADATA
    member = {
        "memberId": "m",
        "clientId": "c",
        "clientHost": "/h",
        "sessionTimeout": 1,
        "subscription": subscription,
        "assignment": b"",
    }
    value = {
        "protocolType": protocol_type,
        "generation": 1,
        "protocol": None,
        "leader": "m",
        "members": [member],
    }
    parsed = parse_offsets(key_of(record_type, {"group": "g"}), value_of(record_type, value, 0), 7)
    assert parsed.value is not None
    return parsed


def test_subscriptions_and_assignments_of_consumers_are_decoded() -> None:
    parsed = group_of("consumer", SUBSCRIPTION_BYTES)
    assert parsed.payload_text == (
        '{"version":"0","data":{"protocolType":"consumer","generation":1,"protocol":null,'
        '"leader":"m","members":[{"memberId":"m","clientId":"c","clientHost":"/h",'
        '"sessionTimeout":1,"subscription":{"topics":["t"],"userData":null,'
        '"ownedPartitions":[]},"assignment":""}]}}'
    )
    assert parsed.value is not None
    assert parsed.value["members"][0]["subscription"] == SUBSCRIPTION


@pytest.mark.parametrize(
    ("protocol_type", "subscription"),
    [
        pytest.param("connect", SUBSCRIPTION_BYTES, id="another protocol"),
        pytest.param("consumer", SUBSCRIPTION_BYTES[:-1], id="bytes that cannot be read"),
        pytest.param("consumer", b"\x00", id="bytes without a version"),
    ],
)
def test_metadata_of_other_groups_members_stays_bytes(
    protocol_type: str, subscription: bytes
) -> None:
    parsed = group_of(protocol_type, subscription)
    assert parsed.value is not None
    assert parsed.value["members"][0]["subscription"] == subscription


def test_a_transaction_is_printed_as_kafka_prints_it() -> None:
    record_type = transaction.TRANSACTION_LOG
    value = {
        "producerId": 1,
        "previousProducerId": -1,
        "nextProducerId": 2,
        "producerEpoch": 0,
        "nextProducerEpoch": -1,
        "transactionTimeoutMs": 60000,
        "transactionStatus": 1,
        "transactionPartitions": [{"topic": "t", "partitionIds": [0, 2]}],
        "transactionLastUpdateTimestampMs": 5,
        "transactionStartTimestampMs": 4,
        "clientTransactionVersion": 0,
    }
    key = key_of(record_type, {"transactionalId": "tx"})
    parsed = parse_transaction_log(key, value_of(record_type, value, 1), 0)
    assert parsed.key_text == '{"type":"0","data":{"transactionalId":"tx"}}'
    assert parsed.payload_text == (
        '{"version":"1","data":{"producerId":1,"nextProducerId":2,"producerEpoch":0,'
        '"transactionTimeoutMs":60000,"transactionStatus":1,'
        '"transactionPartitions":[{"topic":"t","partitionIds":[0,2]}],'
        '"transactionLastUpdateTimestampMs":5,"transactionStartTimestampMs":4}}'
    )


def test_a_share_group_state_is_printed_as_kafka_prints_it() -> None:
    key = key_of(share.SHARE_UPDATE, {"groupId": "g", "topicId": TOPIC_ID, "partition": 0})
    value = {
        "snapshotEpoch": 0,
        "leaderEpoch": 1,
        "startOffset": 10,
        "deliveryCompleteCount": 4,
        "stateBatches": [
            {"firstOffset": 10, "lastOffset": 12, "deliveryState": 2, "deliveryCount": 1}
        ],
    }
    parsed = parse_share_group_state(key, value_of(share.SHARE_UPDATE, value, 0), 0)
    assert parsed.key_text == (
        f'{{"type":"1","data":{{"groupId":"g","topicId":"{TOPIC_ID}","partition":0}}}}'
    )
    assert parsed.payload_text == (
        '{"version":"0","data":{"snapshotEpoch":0,"leaderEpoch":1,"startOffset":10,'
        '"deliveryCompleteCount":4,"stateBatches":[{"firstOffset":10,"lastOffset":12,'
        '"deliveryState":2,"deliveryCount":1}]}}'
    )


# --- __cluster_metadata

FEATURE_LEVEL = metadata.RECORD_TYPES[12]
FEATURE_LEVEL_BYTES = framed(FEATURE_LEVEL, {"name": "metadata.version", "featureLevel": 29})


def test_a_metadata_record_is_printed_with_its_type_and_version() -> None:
    assert parse_cluster_metadata(None, FEATURE_LEVEL_BYTES, 7) == ParsedRecord(
        payload_text='{"type":"FEATURE_LEVEL_RECORD","version":0,'
        '"data":{"name":"metadata.version","featureLevel":29}}',
        type_name="FEATURE_LEVEL_RECORD",
        version=0,
        value={"name": "metadata.version", "featureLevel": 29},
    )


def test_a_metadata_record_of_a_later_version_is_printed_as_far_as_it_is_known() -> None:
    data = varint(1) + varint(12) + varint(99) + FEATURE_LEVEL_BYTES[3:]
    parsed = parse_cluster_metadata(None, data, 7)
    assert parsed.version == 99
    assert parsed.value == {"name": "metadata.version", "featureLevel": 29}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(None, "Error while reading frame version", id="no value"),
        pytest.param(b"", "Error while reading frame version", id="an empty value"),
        pytest.param(b"\x01", "Error while reading type", id="no type"),
        pytest.param(b"\x01\x0c", "Error while reading version", id="no version"),
        pytest.param(
            b"\x00",
            "Could not deserialize metadata record with frame version 0. Note that upgrades from "
            "the preview release of KRaft in 2.8 to newer versions are not supported.",
            id="the frame of the preview release",
        ),
        pytest.param(
            b"\x02",
            "Could not deserialize metadata record due to unknown frame version 2"
            "(only frame version 1 is supported)",
            id="a later frame",
        ),
        pytest.param(
            b"\x01" + varint(0x8000),
            "Value for type was too large.",
            id="a type that is too large",
        ),
        pytest.param(
            b"\x01" + varint(-1) + b"\x00",
            "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id -1",
            id="a negative type",
        ),
        pytest.param(
            b"\x01\x06\x00",
            "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id 6",
            id="an unknown type",
        ),
        pytest.param(
            FEATURE_LEVEL_BYTES[:-1],
            "Failed to deserialize record with type 12",
            id="a record that ends early",
        ),
        pytest.param(
            FEATURE_LEVEL_BYTES + b"xyz",
            "Found 3 byte(s) of garbage after 12",
            id="bytes behind the record",
        ),
    ],
)
def test_damaged_metadata_is_reported_with_the_official_tools_message(
    data: bytes | None, reason: str
) -> None:
    parsed = parse_cluster_metadata(None, data, 7)
    assert parsed == ParsedRecord(payload_text=f"Error at 7, skipping. {reason}", error=reason)


# --- __remote_log_metadata

TOPIC_PARTITION = {"name": "t", "id": TOPIC_ID, "partition": 2}
SEGMENT_ID = {"topicIdPartition": TOPIC_PARTITION, "id": ZERO_ID}
SEGMENT = {
    "remoteLogSegmentId": SEGMENT_ID,
    "startOffset": 10,
    "endOffset": 19,
    "brokerId": 1,
    "maxTimestampMs": 5,
    "eventTimestampMs": 6,
    "segmentLeaderEpochs": [
        {"leaderEpoch": 3, "offset": 15},
        {"leaderEpoch": 0, "offset": 9},
        {"leaderEpoch": 0, "offset": 10},
    ],
    "segmentSizeInBytes": 100,
    "customMetadata": b"abc",
    "remoteLogSegmentState": 1,
    "txnIndexEmpty": True,
}
SEGMENT_RECORD = remote_storage.RECORD_TYPES[0]
SEGMENT_ID_TEXT = f"RemoteLogSegmentId{{topicIdPartition={TOPIC_ID}:t-2, id={ZERO_ID}}}"


def remote(record_type: int, value: dict[str, Any]) -> str | None:
    data = framed(remote_storage.RECORD_TYPES[record_type], value)
    return parse_remote_log_metadata(None, data, 7).payload_text


def test_a_remote_segment_is_printed_as_its_class_prints_itself() -> None:
    assert remote(0, SEGMENT) == (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={SEGMENT_ID_TEXT}, startOffset=10, "
        "endOffset=19, brokerId=1, maxTimestampMs=5, eventTimestampMs=6, "
        "segmentLeaderEpochs={0=10, 3=15}, segmentSizeInBytes=100, "
        "customMetadata=Optional[CustomMetadata{3 bytes}], state=COPY_SEGMENT_FINISHED, "
        "txnIdxEmpty=true}"
    )


def test_an_update_of_a_remote_segment_is_printed_as_its_class_prints_itself() -> None:
    update = {
        "remoteLogSegmentId": SEGMENT_ID,
        "brokerId": 1,
        "eventTimestampMs": 6,
        "customMetadata": None,
        "remoteLogSegmentState": 3,
    }
    assert remote(1, update) == (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={SEGMENT_ID_TEXT}, "
        "customMetadata=Optional.empty, state=DELETE_SEGMENT_FINISHED, "
        "eventTimestampMs=6, brokerId=1}"
    )


def test_the_deletion_of_a_remote_partition_is_printed_as_its_class_prints_itself() -> None:
    deletion = {
        "topicIdPartition": TOPIC_PARTITION,
        "brokerId": 1,
        "eventTimestampMs": 6,
        "remotePartitionDeleteState": 0,
    }
    assert remote(2, deletion) == (
        f"RemotePartitionDeleteMetadata{{topicPartition={TOPIC_ID}:t-2, "
        "state=DELETE_PARTITION_MARKED, eventTimestampMs=6, brokerId=1}"
    )


def test_a_snapshot_of_a_remote_segment_is_printed_as_its_class_prints_itself() -> None:
    assert remote(3, SEGMENT | {"segmentId": TOPIC_ID}) == (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={TOPIC_ID}, startOffset=10, endOffset=19, "
        "maxTimestampMs=5, segmentLeaderEpochs={0=10, 3=15}, segmentSizeInBytes=100, "
        "customMetadata=Optional[CustomMetadata{3 bytes}], state=COPY_SEGMENT_FINISHED, "
        "txnIdxEmpty=true}"
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"startOffset": -1},
            "Unexpected start offset = -1. StartOffset for a remote segment cannot be negative",
        ),
        (
            {"endOffset": 9},
            (
                "Unexpected end offset = 9. "
                "EndOffset for a remote segment cannot be less than startOffset = 10"
            ),
        ),
        ({"segmentLeaderEpochs": []}, "segmentLeaderEpochs can not be null or empty"),
        ({"remoteLogSegmentState": 4}, "state can not be null"),
    ],
)
def test_a_remote_segment_that_its_class_refuses_is_reported_with_its_message(
    change: dict[str, Any], reason: str
) -> None:
    assert remote(0, SEGMENT | change) == f"Error at offset 7, skipping. {reason}"


def test_a_remote_record_without_a_value_is_reported_with_javas_message() -> None:
    assert parse_remote_log_metadata(None, None, 7).payload_text == (
        'Error at offset 7, skipping. Cannot invoke "java.nio.ByteBuffer.remaining()" because the '
        'return value of "org.apache.kafka.common.record.internal.Record.value()" is null'
    )


# --- control records


def control_key(record_type: int, version: int = 0) -> bytes:
    return int16(version) + int16(record_type)


VOTERS = {
    "version": 0,
    "voters": [
        {
            "voterId": 1,
            "voterDirectoryId": TOPIC_ID,
            "endpoints": [{"name": "CONTROLLER", "host": "h", "port": 65535}],
            "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
        }
    ],
}


@pytest.mark.parametrize(
    ("type_id", "value", "text"),
    [
        (0, int16(0) + bytes(4), " endTxnMarker: ABORT coordinatorEpoch: 0"),
        (1, int16(7) + bytes(3) + b"\x05", " endTxnMarker: COMMIT coordinatorEpoch: 5"),
        (
            2,
            bytes.fromhex("0000 00000001 02 00000001 00 01 00"),
            (
                ' LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],'
                '"grantingVoters":[]}'
            ),
        ),
        (
            3,
            struct.pack(">hqb", 0, 123, 0),
            ' SnapshotHeader {"version":0,"lastContainedLogTimestamp":123}',
        ),
        (4, bytes(3), ' SnapshotFooter {"version":0}'),
        (5, bytes.fromhex("0000 0001 00"), ' KRaftVersion {"version":0,"kRaftVersion":1}'),
        (
            6,
            encode(control.VOTERS_RECORD, VOTERS, 0),
            (
                ' KRaftVoters {"version":0,"voters":[{"voterId":1,'
                f'"voterDirectoryId":"{TOPIC_ID}",'
                '"endpoints":[{"name":"CONTROLLER","host":"h","port":65535}],'
                '"kRaftVersionFeature":{"minSupportedVersion":0,"maxSupportedVersion":1}}]}'
            ),
        ),
        (7, b"whatever", " controlType: UNKNOWN(7)"),
        (-1, b"", " controlType: UNKNOWN(-1)"),
    ],
)
def test_a_control_record_is_printed_as_kafka_prints_it(
    type_id: int, value: bytes, text: str
) -> None:
    assert control_record_text(control_key(type_id), value) == text


def test_a_leader_change_is_printed_in_the_version_that_it_claims() -> None:
    value = bytes.fromhex("0001 00000001 02 00000001 00 01 00")
    assert f'"voterId":1,"voterDirectoryId":"{ZERO_ID}"' in control_record_text(
        control_key(2), value
    )


def test_a_later_version_of_the_key_is_read_like_the_known_one() -> None:
    assert control_record_text(control_key(1, version=3), int16(0) + bytes(4)) == (
        " endTxnMarker: COMMIT coordinatorEpoch: 0"
    )


def test_the_values_of_a_control_record_are_under_its_type() -> None:
    assert control_record_value(control_key(1), int16(0) + bytes(4)) == {
        "type": "COMMIT",
        "typeId": 1,
        "data": {"coordinatorEpoch": 0},
    }
    assert control_record_value(control_key(9), None) == {
        "type": "UNKNOWN",
        "typeId": 9,
        "data": {},
    }


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        pytest.param(None, b"", "has no key", id="no key"),
        pytest.param(bytes(3), b"", "Must have at least 4 bytes, but found only 3", id="short key"),
        pytest.param(control_key(1, -1), b"", "control record: -1", id="version of the key"),
        pytest.param(control_key(1), None, "COMMIT has no value", id="no value"),
        pytest.param(control_key(1), int16(-1), "marker: -1", id="version of the value"),
        pytest.param(control_key(1), bytes(5), "ends early", id="short marker"),
        pytest.param(control_key(2), bytes(5), "ends early", id="short leader change"),
    ],
)
def test_a_control_record_that_cannot_be_read_is_a_format_error(
    key: bytes | None, value: bytes | None, expected: str
) -> None:
    with pytest.raises(FormatError, match=expected):
        control_record_text(key, value)


# --- anything

FAMILIES = {
    "offsets": group_coordinator,
    "transaction-log": transaction,
    "share-group-state": share,
    "cluster-metadata": metadata,
    "remote-log-metadata": remote_storage,
}


@st.composite
def records(draw: st.DrawFn, decoder: str) -> tuple[bytes | None, bytes]:
    """A valid key and value for ``decoder``."""
    record_type = draw(st.sampled_from(sorted(FAMILIES[decoder].RECORD_TYPES.items())))[1]
    versions = record_type.value.versions
    version = draw(st.integers(versions.lowest, versions.highest))
    value = draw(message_values(record_type.value, version))
    if record_type.key is None:
        return None, framed(record_type, value, version)
    key = draw(message_values(record_type.key, 0))
    return key_of(record_type, key), value_of(record_type, value, version)


@pytest.mark.parametrize("decoder", sorted(set(DECODERS) - {"remote-log-metadata"}))
def test_every_valid_record_is_read(decoder: str) -> None:
    @given(records(decoder))
    def check(record: tuple[bytes | None, bytes]) -> None:
        parsed = DECODERS[decoder](*record, 7)
        assert parsed.error is None
        assert parsed.value is not None
        assert parsed.payload_text is not None

    check()


@pytest.mark.hypothesis
@pytest.mark.parametrize("decoder", sorted(DECODERS))
def test_every_truncation_of_a_value_is_read_or_reported(decoder: str) -> None:
    @settings(max_examples=examples(0.2))
    @given(records(decoder))
    def check(record: tuple[bytes | None, bytes]) -> None:
        key, value = record
        for end in range(len(value)):
            parsed = DECODERS[decoder](key, value[:end], 7)
            assert (parsed.error is None) == (parsed.value is not None)

    check()


@pytest.mark.parametrize("decoder", sorted(DECODERS))
@given(key=st.none() | st.binary(), value=st.none() | st.binary())
@example(key=None, value=None)
def test_any_bytes_give_a_text_or_a_format_error(
    decoder: str, key: bytes | None, value: bytes | None
) -> None:
    with contextlib.suppress(FormatError):
        parsed = DECODERS[decoder](key, value, 7)
        assert parsed.key_text is not None or parsed.payload_text is not None


@given(key=st.none() | st.binary(max_size=5), value=st.none() | st.binary())
def test_any_bytes_give_a_control_record_or_a_format_error(
    key: bytes | None, value: bytes | None
) -> None:
    with contextlib.suppress(FormatError):
        assert control_record_text(key, value).startswith(" ")
