"""The keys and values of records that coordinators keep, as values without their text.

A key begins with the number of its record's type, a value with its version
(``CoordinatorRecordSerde``). :mod:`kdump.formats.internal_topics` has the text of such records.
"""

from __future__ import annotations

from collections.abc import Mapping

from kdump.formats.cursor import Cursor
from kdump.formats.errors import FormatError
from kdump.formats.message_decoder import MessageValue, SchemaError, decode, java_message
from kdump.formats.schema import MessageSchema, RecordType


def decode_key(
    record_types: Mapping[int, RecordType], key: bytes
) -> tuple[RecordType | None, MessageValue]:
    """Read the key of a record.

    Returns:
        The type of the record and the fields of the key. A type that is not among
        ``record_types`` is None, and has no fields; a coordinator skips such a record.

    Raises:
        FormatError: the key is malformed; a coordinator does not load its partition.
    """
    cursor = Cursor(key)
    type_id = read_prefix(cursor, "key")
    record_type = record_types.get(type_id)
    if record_type is None or record_type.key is None:
        return None, {}
    return record_type, read_fields(record_type.key, cursor, type_id, "key")


def decode_value(record_type: RecordType, value: bytes) -> MessageValue:
    """Read the value of a record whose type is known from its key.

    Raises:
        FormatError: it is malformed, or of an unknown version; a coordinator does not load its
            partition.
    """
    cursor = Cursor(value)
    version = read_prefix(cursor, "value")
    require_known_version(record_type, version)
    return read_fields(record_type.value, cursor, version, "value")


def read_prefix(cursor: Cursor, name: str) -> int:
    """Read the number that a key or a value begins with.

    Raises:
        SchemaError: there are too few bytes.
    """
    try:
        return cursor.int16()
    except FormatError as error:
        raise SchemaError(f"Could not read version from {name}'s buffer.") from error


def require_known_version(record_type: RecordType, version: int) -> None:
    """Refuse versions of a value that Kafka does not read.

    Raises:
        SchemaError: the version is not known.
    """
    if version not in record_type.value.versions:
        raise SchemaError(f"Found an unknown record version {version} for {record_type.id} type")


def read_fields(schema: MessageSchema, cursor: Cursor, version: int, name: str) -> MessageValue:
    """Read the fields of a key or a value.

    Raises:
        SchemaError: they are malformed.
    """
    try:
        return decode(schema, cursor, version)
    except FormatError as error:
        raise SchemaError(
            f"Could not read record with version {version} from {name}'s buffer "
            f"due to: {java_message(error)}.",
            position=error.position,
        ) from error
