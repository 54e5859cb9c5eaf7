"""Confluent's wire format: which schema a payload was written with.

A payload begins with a magic byte and the id of its schema, or the record has a header with them.

==========  =====================================================================
byte 0      0: an id follows; 1: a GUID follows
1 to 4      the id, big-endian; for magic 1, bytes 1 to 16 are the GUID
then        Protobuf only: the indexes that lead to the type of the message
then        the data; with a header, all of the payload is the data
==========  =====================================================================

Follows ``SchemaId`` and ``MessageIndexes`` of the registry's sources, and ``SchemaId`` and
``dual_schema_id_deserializer`` of the Python client.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from msgspec import Struct

from kdump.formats.cursor import Cursor
from kdump.formats.errors import FormatError
from kdump.formats.record_batch import RecordHeader

MAGIC_ID: Final = 0
MAGIC_GUID: Final = 1
ID_SIZE: Final = 5
"""The magic byte and an id."""
GUID_SIZE: Final = 17
"""The magic byte and a GUID."""

KEY_HEADER: Final = b"__key_schema_id"
VALUE_HEADER: Final = b"__value_schema_id"

FIRST_MESSAGE: Final = (0,)


class WirePayload(Struct, frozen=True):
    """A payload, and which schema it was written with.

    Attributes:
        schema: the id of the schema, or its GUID.
        framing: what follows the id or the GUID where that is; :func:`split_message` needs it.
        is_in_header: whether a header has the id: then all of the payload is data.
        data: the payload without ``framing``, if ``is_in_header``.
    """

    schema: int | UUID
    framing: bytes
    is_in_header: bool = False
    data: bytes = b""

    @property
    def body(self) -> bytes:
        """The data of a payload that is not Protobuf."""
        return self.data if self.is_in_header else self.framing


def read_payload(payload: bytes) -> WirePayload | None:
    """Read the id or the GUID at the start of a payload; None if there is none."""
    if len(payload) >= ID_SIZE and payload[0] == MAGIC_ID:
        return WirePayload(int.from_bytes(payload[1:ID_SIZE]), payload[ID_SIZE:])
    if len(payload) >= GUID_SIZE and payload[0] == MAGIC_GUID:
        return WirePayload(UUID(bytes=payload[1:GUID_SIZE]), payload[GUID_SIZE:])
    return None


def read_headers(
    headers: Iterable[RecordHeader], name: bytes, payload: bytes
) -> WirePayload | None:
    """Read the id or the GUID in the first header called ``name``; None if there is none."""
    for header in headers:
        if header.key == name:
            found = None if header.value is None else read_payload(header.value)
            return found and WirePayload(found.schema, found.framing, True, payload)
    return None


def split_message(payload: WirePayload) -> tuple[tuple[int, ...], bytes]:
    """Return the indexes of the type of a Protobuf message, and its data.

    The first index counts the messages of the file, each further one those within the message.

    Raises:
        FormatError: there are no valid indexes.
    """
    cursor = Cursor(payload.framing)
    count = cursor.varint()
    if not 0 <= count <= cursor.remaining:
        raise FormatError("impossible number of message indexes", found=count)
    indexes = tuple(cursor.varint() for _ in range(count)) or FIRST_MESSAGE
    if min(indexes) < 0:
        raise FormatError("negative message index", found=min(indexes))
    return indexes, payload.data if payload.is_in_header else payload.framing[cursor.position :]
