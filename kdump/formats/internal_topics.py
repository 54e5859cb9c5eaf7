"""The records of Kafka's own topics, and control records, as ``kafka-dump-log`` prints them.

Each topic has a ``parse_*`` function, which takes a record's key and value and gives the text that
``org.apache.kafka.tools.DumpLogSegments`` prints, and the values. :data:`DECODERS` has these
functions by the names of that tool's decoder options. For bytes that are not such a record, the
text is the tool's message, or that of the exception that it prints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeAlias

from msgspec import Struct

from kdump.formats.control_records import parse_control_record
from kdump.formats.coordinator_records import read_fields, read_prefix, require_known_version
from kdump.formats.cursor import Cursor
from kdump.formats.errors import FormatError
from kdump.formats.feature_levels import unknown_level
from kdump.formats.java.jackson import message_node, node_text
from kdump.formats.message_decoder import (
    UNKNOWN_TAGGED_FIELDS,
    MessageValue,
    SchemaError,
    decode,
    java_message,
    read_unsigned_varint,
)
from kdump.formats.message_encoder import encode
from kdump.formats.remote_log_metadata import event_text
from kdump.formats.schema import MessageSchema, RecordType
from kdump.formats.schemas import (
    consumer_protocol,
    control,
    group_coordinator,
    metadata,
    remote_storage,
    share,
    transaction,
)

TOMBSTONE_TEXT: Final = "<DELETE>"


class ParsedRecord(Struct, frozen=True):
    """A record of an internal topic.

    Attributes:
        key_text: what the official tool prints after ``key:``; None where it prints no key.
        payload_text: what it prints after ``payload:``; None where it prints no payload.
        type_name: Kafka's name for the type of record; None where the type is unknown.
        version: of the value; None where there is none.
        key: the fields of the key; None where the topic has no keys or this one is damaged.
        value: the fields of the value; None in a tombstone and where it is damaged.
        error: Kafka's message about what is wrong with it; None for a valid record.
    """

    key_text: str | None = None
    payload_text: str | None = None
    type_name: str | None = None
    version: int | None = None
    key: MessageValue | None = None
    value: MessageValue | None = None
    error: str | None = None


Parse: TypeAlias = Callable[[bytes | None, bytes | None, int], ParsedRecord]


def parse_offsets(key: bytes | None, value: bytes | None, offset: int) -> ParsedRecord:
    """A record of ``__consumer_offsets``, as ``--offsets-decoder`` prints it.

    In the value of a classic group of consumers, each member's ``subscription`` and
    ``assignment`` are structs where they can be read, and the bytes otherwise.

    Args:
        key: the record's key; None where it has none.
        value: its value; None in a tombstone.
        offset: of the record, for the texts about damage.

    Raises:
        FormatError: the record has no key, which ends the official tool.
    """
    return _parse_coordinator_record(group_coordinator.RECORD_TYPES, key, value, offset)


def parse_transaction_log(key: bytes | None, value: bytes | None, offset: int) -> ParsedRecord:
    """A record of ``__transaction_state``, as ``--transaction-log-decoder`` prints it.

    Arguments and errors are those of :func:`parse_offsets`.
    """
    return _parse_coordinator_record(transaction.RECORD_TYPES, key, value, offset)


def parse_share_group_state(key: bytes | None, value: bytes | None, offset: int) -> ParsedRecord:
    """A record of ``__share_group_state``, as ``--share-group-state-decoder`` prints it.

    Arguments and errors are those of :func:`parse_offsets`.
    """
    return _parse_coordinator_record(share.RECORD_TYPES, key, value, offset)


def parse_cluster_metadata(key: bytes | None, value: bytes | None, offset: int) -> ParsedRecord:
    """A record of ``__cluster_metadata`` or of its snapshots, as the official tool prints it.

    Args:
        key: ignored: these records have none.
        value: the record's value.
        offset: of the record, for the texts about damage.
    """
    try:
        record_type, version, message = _decode_framed(metadata.RECORD_TYPES, value or b"")
    except FormatError as error:
        reason = java_message(error)
        return ParsedRecord(payload_text=f"Error at {offset}, skipping. {reason}", error=reason)
    data = message_node(record_type.value, message, version)
    return ParsedRecord(
        payload_text=node_text({"type": record_type.name, "version": version, "data": data}),
        type_name=record_type.name,
        version=version,
        value=message,
    )


def parse_remote_log_metadata(key: bytes | None, value: bytes | None, offset: int) -> ParsedRecord:
    """A record of ``__remote_log_metadata``, as ``--remote-log-metadata-decoder`` prints it.

    Args:
        key: ignored: these records have none.
        value: the record's value.
        offset: of the record, for the texts about damage.
    """
    try:
        if value is None:
            raise SchemaError(_NULL_VALUE_MESSAGE)
        record_type, version, message = _decode_framed(remote_storage.RECORD_TYPES, value)
        text = event_text(record_type.value, message)
    except FormatError as error:
        reason = java_message(error)
        return ParsedRecord(
            payload_text=f"Error at offset {offset}, skipping. {reason}", error=reason
        )
    return ParsedRecord(
        payload_text=text, type_name=record_type.name, version=version, value=message
    )


DECODERS: Final[Mapping[str, Parse]] = {
    "offsets": parse_offsets,
    "transaction-log": parse_transaction_log,
    "cluster-metadata": parse_cluster_metadata,
    "remote-log-metadata": parse_remote_log_metadata,
    "share-group-state": parse_share_group_state,
}
"""The decoders by the names that the official tool's options have, less ``-decoder``."""


# --- records with a key: consumer offsets, transactions, share groups


def _parse_coordinator_record(
    record_types: Mapping[int, RecordType], key: bytes | None, value: bytes | None, offset: int
) -> ParsedRecord:
    """Follows ``CoordinatorRecordMessageParser`` and ``CoordinatorRecordSerde``."""
    if key is None:
        raise FormatError(
            f"Failed to decode message at offset {offset} using the specified decoder "
            "(message had a missing key)"
        )
    record_type = version = key_message = None
    try:
        key_cursor = Cursor(key)
        type_id = read_prefix(key_cursor, "key")
        record_type = record_types.get(type_id)
        if record_type is None or record_type.key is None:
            return ParsedRecord(
                key_text=f"Unknown record type {type_id} at offset {offset}, skipping.",
                error=f"Found an unknown record type {type_id}",
            )
        key_message = read_fields(record_type.key, key_cursor, type_id, "key")
        value_message, value_node = None, None
        if value is not None:
            value_cursor = Cursor(value)
            version = read_prefix(value_cursor, "value")
            require_known_version(record_type, version)
            value_message = read_fields(record_type.value, value_cursor, version, "value")
            value_node = message_node(record_type.value, value_message, version)
            if record_type is group_coordinator.GROUP_METADATA:
                _unfold_members(value_message, value_node)
    except FormatError as error:
        reason = java_message(error)
        return ParsedRecord(
            key_text=f"Error at offset {offset}, skipping. {reason}",
            type_name=record_type.name if record_type else None,
            version=version,
            key=key_message,
            error=reason,
        )
    key_node = message_node(record_type.key, key_message, 0)
    return ParsedRecord(
        key_text=node_text({"type": str(type_id), "data": key_node}),
        payload_text=TOMBSTONE_TEXT
        if value_node is None
        else node_text({"version": str(version), "data": value_node}),
        type_name=record_type.name,
        version=version,
        key=key_message,
        value=value_message,
    )


_CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_CONSUMER_PROTOCOL_FIELDS: Final[Mapping[str, MessageSchema]] = {
    "subscription": consumer_protocol.CONSUMER_PROTOCOL_SUBSCRIPTION,
    "assignment": consumer_protocol.CONSUMER_PROTOCOL_ASSIGNMENT,
}


def _unfold_members(group: MessageValue, group_node: dict[str, Any]) -> None:
    """Replace the bytes of a consumer group's members by structs."""
    if group["protocolType"] != _CONSUMER_PROTOCOL_TYPE:
        return
    for member, member_node in zip(group["members"], group_node["members"], strict=True):
        for name, schema in _CONSUMER_PROTOCOL_FIELDS.items():
            cursor = Cursor(member[name])
            try:
                version = cursor.int16()
                unfolded = decode(schema, cursor, version)
            except FormatError:
                # Kafka falls back to the bytes too: other clients may write anything there.
                continue
            member[name] = unfolded
            member_node[name] = message_node(schema, unfolded, version)


# --- records that begin with their type and version: cluster and remote log metadata

_FRAME_VERSION: Final = 1
_MAX_INT16: Final = 0x7FFF

_NULL_VALUE_MESSAGE: Final = (
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
    '"org.apache.kafka.common.record.internal.Record.value()" is null'
)


def decode_cluster_metadata(value: bytes) -> tuple[str, int, MessageValue]:
    """Decode the value of a record of ``__cluster_metadata`` or of its snapshots.

    Returns:
        Kafka's name for the type of record, its version, and its fields.

    Raises:
        FormatError: Kafka cannot read it.
    """
    record_type, version, message = _decode_framed(metadata.RECORD_TYPES, value)
    return record_type.name, version, message


def unknown_to_kdump(name: str, version: int, fields: Mapping[str, Any]) -> str | None:
    """What a decoded record of ``__cluster_metadata`` may say beyond what kdump knows of its type.

    Kafka reads a newer version of a record, and tagged fields that it does not know, without what
    is new. Whoever writes the record again loses that.

    Args:
        name: Kafka's name for the type of record.
        version: of the record.
        fields: as :func:`decode_cluster_metadata` returns them.

    Returns:
        A sentence; None if kdump knows all of it.
    """
    highest = _METADATA_TYPES[name].value.versions.highest
    if not 0 <= version <= highest:
        return f"version {version} of {name} is unknown to this kdump, which knows 0 to {highest}"
    if name == _FEATURE_LEVEL:
        return unknown_level(fields["name"], fields["featureLevel"])
    if _has_unknown_fields(fields):
        return f"the {name} has fields that are unknown to this kdump"
    return None


def _has_unknown_fields(value: object) -> bool:
    if isinstance(value, Mapping):
        return UNKNOWN_TAGGED_FIELDS in value or any(map(_has_unknown_fields, value.values()))
    return isinstance(value, list) and any(map(_has_unknown_fields, value))


_FEATURE_LEVEL: Final = "FEATURE_LEVEL_RECORD"


def encode_cluster_metadata(name: str, version: int, fields: Mapping[str, Any]) -> bytes:
    """Encode the value of a record of ``__cluster_metadata`` or of its snapshots.

    Args:
        name: Kafka's name for the type of record.
        version: of the record.
        fields: as :func:`decode_cluster_metadata` returns them.

    Raises:
        EncodingError: a value does not fit its field, or not this version.
        KeyError: there is no such type.
    """
    record_type = _METADATA_TYPES[name]
    # All three numbers of the frame are varints, and small.
    frame = bytes([_FRAME_VERSION, record_type.id, version])
    return frame + encode(record_type.value, fields, version)


_METADATA_TYPES: Final = {each.name: each for each in metadata.RECORD_TYPES.values()}


def decode_remote_log_metadata(value: bytes) -> tuple[str, int, MessageValue]:
    """Decode the value of a record of ``__remote_log_metadata``.

    Returns:
        As :func:`decode_cluster_metadata`.

    Raises:
        FormatError: Kafka cannot read it.
    """
    record_type, version, message = _decode_framed(remote_storage.RECORD_TYPES, value)
    return record_type.name, version, message


def _decode_framed(
    record_types: Mapping[int, RecordType], data: bytes
) -> tuple[RecordType, int, MessageValue]:
    """Follows ``AbstractApiMessageSerde``; gives type, version and fields."""
    cursor = Cursor(data)
    frame_version = _read_frame_number(cursor, "frame version")
    if frame_version == 0:
        _fail(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from "
            "the preview release of KRaft in 2.8 to newer versions are not supported."
        )
    if frame_version != _FRAME_VERSION:
        _fail(
            f"Could not deserialize metadata record due to unknown frame version {frame_version}"
            f"(only frame version {_FRAME_VERSION} is supported)"
        )
    type_id = _read_frame_number(cursor, "type")
    version = _read_frame_number(cursor, "version")
    record_type = record_types.get(type_id)
    if record_type is None:
        _fail(
            "org.apache.kafka.common.errors.UnsupportedVersionException: "
            f"Unknown metadata id {type_id}"
        )
    try:
        message = decode(record_type.value, cursor, version)
    except FormatError as error:
        raise SchemaError(
            f"Failed to deserialize record with type {type_id}", position=error.position
        ) from error
    if cursor.remaining > 0:
        _fail(f"Found {cursor.remaining} byte(s) of garbage after {type_id}")
    return record_type, version, message


def _read_frame_number(cursor: Cursor, name: str) -> int:
    try:
        number = read_unsigned_varint(cursor)
    except FormatError:
        _fail(f"Error while reading {name}")
    if number > _MAX_INT16:
        _fail(f"Value for {name} was too large.")
    # Java narrows a negative number to an int16 silently.
    return ((number & 0xFFFF) ^ 0x8000) - 0x8000


def _fail(message: str) -> NoReturn:
    raise SchemaError(message)


# --- control records

_UNKNOWN_CONTROL_TYPE: Final = "UNKNOWN"
_CONTROL_LABELS: Final[Mapping[str, str]] = {
    "LEADER_CHANGE": "LeaderChange:",
    "SNAPSHOT_HEADER": "SnapshotHeader",
    "SNAPSHOT_FOOTER": "SnapshotFooter",
    "KRAFT_VERSION": "KRaftVersion",
    "KRAFT_VOTERS": "KRaftVoters",
}


def control_record_text(key: bytes | None, value: bytes | None) -> str:
    """Give the text that the official tool prints for a control record after its metadata.

    Args:
        key: the record's key; None where it has none.
        value: its value; None where it has none.

    Returns:
        Text that begins with a space, as ``" endTxnMarker: COMMIT coordinatorEpoch: 0"``.

    Raises:
        FormatError: key or value are not those of a control record; the official tool ends.
    """
    type_id, record_type, message = parse_control_record(key, value)
    if record_type is None:
        return f" controlType: {_UNKNOWN_CONTROL_TYPE}({type_id})"
    if record_type.value is control.END_TXN_MARKER:
        return f" endTxnMarker: {record_type.name} coordinatorEpoch: {message['coordinatorEpoch']}"
    # The fields printed are those of the record's version, although it is read as version 0.
    node = message_node(record_type.value, message, message["version"])
    return f" {_CONTROL_LABELS[record_type.name]} {node_text(node)}"


def control_record_value(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """A control record's values.

    Args:
        key: the record's key; None where it has none.
        value: its value; None where it has none.

    Returns:
        ``type`` (Kafka's name; ``"UNKNOWN"`` for types above the known ones), ``typeId`` and
        ``data``, the fields of the value (empty where the type is unknown).

    Raises:
        FormatError: key or value are not those of a control record.
    """
    type_id, record_type, message = parse_control_record(key, value)
    name = record_type.name if record_type else _UNKNOWN_CONTROL_TYPE
    return {"type": name, "typeId": type_id, "data": message}
