"""Requests and responses as bytes, by the classes that ``kio`` generates from Kafka's schemas.

Answers are given as mappings with the names of the newest version: what an older version does not
have is left out, and what an answer does not say has the default of the schema.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from msgspec import Struct

from kdump.serve.message_shapes import MalformedMessage, MessageCut, nested_entity, walk_of, without
from kdump.serve.stored_batches import LEAST_RANGE_BYTES, SentRange, StoredBatches

FETCH: Final = 1
API_VERSIONS: Final = 18
_LENGTH_BYTES: Final = 4
_PREFIX_BYTES: Final = 8
"""Of a header: the key and the version of the API, and the correlation id."""
_NEWEST: Final = {66: 1}
"""The newest version that is answered, where that is not the newest of all: ``ListTransactions``
takes a regular expression after that."""
_OLDEST: Final = {17: 1}
"""The oldest one, likewise: after version 0 of ``SaslHandshake`` come bare bytes, not requests."""
_IMPLIED: Final[Mapping[str, Any]] = {
    "throttle_time": dt.timedelta(),
    "error_code": ErrorCode.none,
}
"""Fields that the schemas have no default for, and that nearly every answer has alike."""

Answer = Mapping[str, Any]
"""The fields of a response, by their names in the newest version."""


class Request(NamedTuple):
    """A decoded request.

    Attributes:
        correlation_id: repeated in the response.
        client_id: what the client calls itself.
        body: of a class of ``kio``; None if the version is not one that is answered.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Any


# They are looked up by names of modules.
_request_schema = functools.cache(load_request_schema)
_response_schema = functools.cache(load_response_schema)


def versions_of(api_key: int) -> tuple[int, int]:
    """The oldest and the newest version of an API that is answered."""
    versions = schema_name_map[api_key_map[api_key]]
    newest = max(versions)
    return _OLDEST.get(api_key, min(versions)), min(newest, _NEWEST.get(api_key, newest))


def decode_request(data: bytes, api_keys: frozenset[int]) -> Request:
    """Decode a request.

    Args:
        data: the request without its length.
        api_keys: the APIs that are answered.

    Raises:
        MalformedMessage: it is not a request of one of these APIs, or is malformed.
    """
    if len(data) < _PREFIX_BYTES:
        raise MalformedMessage("it is shorter than a header")
    api_key = int.from_bytes(data[0:2], "big", signed=True)
    version = int.from_bytes(data[2:4], "big", signed=True)
    correlation_id = int.from_bytes(data[4:8], "big", signed=True)
    if api_key not in api_keys:
        name = api_key_map.get(api_key)
        what = f"API {api_key}" if name is None else name
        raise MalformedMessage(f"{what} is not answered")
    oldest, newest = versions_of(api_key)
    if not oldest <= version <= newest:
        if api_key != API_VERSIONS:
            raise MalformedMessage(
                f"version {version} of {api_key_map[api_key]} is not answered: {oldest} to {newest}"
            )
        # Clients ask with their newest version first, and learn from the answer which one to use.
        return Request(api_key, version, correlation_id, None, None)
    schema = _request_schema(api_key, version)
    header, body_at = _decoded(schema.__header_schema__, data, 0)
    # What follows the body is ignored, as by a broker: librdkafka asks for all topics with three
    # bytes too many.
    body, _ = _decoded(schema, data, body_at)
    return Request(api_key, version, correlation_id, header.client_id, body)


class Response(Struct, frozen=True):
    """An encoded response with its length, in parts that are sent in their order.

    Attributes:
        parts: bytes, and ranges of files.
        held_bytes: how much memory it takes; an open file counts as some.
    """

    parts: Sequence[memoryview | SentRange]

    @property
    def held_bytes(self) -> int:
        return sum(
            LEAST_RANGE_BYTES if isinstance(each, SentRange) else len(each) for each in self.parts
        )


class _AroundBatches(io.BytesIO):
    """A buffer for everything but the batches.

    Attributes:
        batches: each with the byte of the buffer before which it comes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[int, StoredBatches]] = []

    def write(self, data: Any, /) -> int:
        if not isinstance(data, StoredBatches):
            return super().write(data)
        self.batches.append((self.tell(), data))
        return len(data)


def _parts(
    data: memoryview, batches: Iterable[tuple[int, StoredBatches]]
) -> Iterator[memoryview | SentRange]:
    begin = 0
    for position, each in batches:
        yield data[begin:position]
        yield from (memoryview(part) if isinstance(part, bytes) else part for part in each.parts)
        begin = position
    yield data[begin:]


def encode_response(request: Request, answer: Answer) -> Response:
    """Encode the response to a request."""
    version = request.version if request.body is not None else 0
    schema: Any = _response_schema(request.api_key, version)
    header_schema = schema.__header_schema__
    # A buffer that is not Python's own takes a third longer.
    buffer = _AroundBatches() if request.api_key == FETCH else io.BytesIO()
    buffer.write(bytes(_LENGTH_BYTES))
    entity_writer(header_schema)(
        buffer,
        header_schema(correlation_id=request.correlation_id),
    )
    entity_writer(schema)(buffer, built(schema, answer))
    batches = buffer.batches if isinstance(buffer, _AroundBatches) else ()
    data = buffer.getbuffer()
    size_bytes = len(data) - _LENGTH_BYTES + sum(len(each) for _, each in batches)
    data[:_LENGTH_BYTES] = size_bytes.to_bytes(_LENGTH_BYTES, "big")
    return Response([each for each in _parts(data, batches) if each])


def encoded(entity: Any) -> bytes:
    """Encode an entity of ``kio`` on its own, such as what is in a field of bytes."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def built(schema: type, answer: Answer) -> Any:
    """A message of a class of ``kio`` from the fields of an answer.

    What is within may be built already.
    """
    values: dict[str, Any] = {}
    for name, nested in _fields_of(schema):
        if name in answer:
            value = answer[name]
            if nested is None or value is None:
                values[name] = value
            elif isinstance(value, Mapping):
                values[name] = built(nested, value)
            else:
                values[name] = tuple(
                    each if isinstance(each, nested) else built(nested, each) for each in value
                )
        elif name in _IMPLIED:
            values[name] = _IMPLIED[name]
    return schema(**values)


def class_within(schema: Any, name: str) -> type:
    """The class of the entities in a field of a class of ``kio``."""
    found = dict(_fields_of(schema))[name]
    assert found is not None, f"{name} has plain values"
    return found


@functools.cache
def _fields_of(schema: type) -> tuple[tuple[str, type | None], ...]:
    """The fields of a class, and the class of the entities in each."""
    return tuple((each.name, nested_entity(each)) for each in dataclasses.fields(schema))


def _decoded(schema: Any, data: bytes, position: int) -> tuple[Any, int]:
    """Decode an entity; gives the byte after it, too."""
    cuts: list[MessageCut] = []
    end = walk_of(schema)(memoryview(data), position, cuts)
    try:
        entity, _ = entity_reader(schema)(without(data, cuts) if cuts else data, position)
    except (SerialError, LookupError, ValueError, TypeError, OverflowError) as problem:
        raise MalformedMessage(str(problem) or type(problem).__name__) from problem
    return entity, end
