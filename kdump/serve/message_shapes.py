"""Refuse messages whose lengths and counts do not fit their bytes, before they are decoded.

The decoder of ``kio`` allocates room for as many elements as a message claims to have, and ends the
process if there is not so much memory. So each length and count is compared with the bytes that are
left first, by the same schemas. Nothing is decoded here: fields of a fixed size are stepped over
together. Tagged fields that the schemas do not have, as newer clients may add them, are found on
the way: the decoder refuses them, and a broker ignores them.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kdump.formats.cursor import write_unsigned_varint

_FIXED_BYTES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}
"""Types by the words that ``kio`` has for them."""
_LARGEST_VARINT_BYTES: Final = 5


class MalformedMessage(Exception):
    """The bytes are not the message that their header announces."""


class MessageCut(NamedTuple):
    """Bytes to leave out, or to replace; the end is exclusive."""

    start: int
    end: int
    instead: bytes = b""

    @property
    def saved_bytes(self) -> int:
        return self.end - self.start - len(self.instead)


Walk = Callable[[memoryview, int, list[MessageCut]], int]
"""Steps over a value that begins at a byte; gives the byte after it. Adds what to cut, in order, so
that no tagged field is left that the schemas do not have."""


@functools.cache
def walk_of(entity: type) -> Walk:
    """What steps over a message, or over a part of one, of a class of ``kio``.

    The walk raises :class:`MalformedMessage` if the bytes cannot hold it.
    """
    steps: list[Walk] = []
    tagged: dict[int, Walk] = {}
    fixed = 0
    is_flexible = bool(getattr(entity, "__flexible__", False))
    for field in dataclasses.fields(entity):
        tag = field.metadata.get("tag")
        # A client id is never compact; follows ``RequestHeader.json``.
        is_compact = is_flexible and field.name != "client_id"
        if tag is not None:
            size = _fixed_bytes(field)
            tagged[tag] = _skip(size) if size else _variable(field, is_compact, is_tagged=True)
        elif size := _fixed_bytes(field):
            fixed += size
        else:
            steps += [_skip(fixed)] if fixed else []
            steps.append(_variable(field, is_compact))
            fixed = 0
    steps += [_skip(fixed)] if fixed else []
    steps += [_tags(tagged)] if is_flexible else []

    def walk(data: memoryview, position: int, cuts: list[MessageCut]) -> int:
        for step in steps:
            position = step(data, position, cuts)
        return position

    return walk


def without(data: bytes, cuts: Iterable[MessageCut]) -> bytes:
    """What is left of a message."""
    return b"".join(_left(data, cuts))


def _left(data: bytes, cuts: Iterable[MessageCut]) -> Iterator[bytes]:
    begin = 0
    for each in cuts:
        yield data[begin : each.start]
        yield each.instead
        begin = each.end
    yield data[begin:]


def nested_entity(field: dataclasses.Field[Any]) -> type | None:
    """The class of the entity, or of the entities, that a field has; None for plain values."""
    pending = [field.type]
    while pending:
        each = pending.pop()
        if isinstance(each, type) and dataclasses.is_dataclass(each):
            return each
        pending += typing.get_args(each)
    return None


def _fixed_bytes(field: dataclasses.Field[Any]) -> int:
    """How many bytes a field always has; 0 if that differs."""
    if _is_array(field):
        return 0
    return _FIXED_BYTES.get(field.metadata.get("kafka_type", ""), 0)


def _is_array(field: dataclasses.Field[Any]) -> bool:
    return any(typing.get_origin(each) is tuple for each in _alternatives(field))


def _alternatives(field: dataclasses.Field[Any]) -> tuple[Any, ...]:
    if isinstance(field.type, types.UnionType):
        return typing.get_args(field.type)
    return (field.type,)


def _variable(field: dataclasses.Field[Any], is_compact: bool, *, is_tagged: bool = False) -> Walk:
    nested, kind = nested_entity(field), field.metadata.get("kafka_type", "")
    if nested is not None:
        item = walk_of(nested)
    elif size := _FIXED_BYTES.get(kind):
        item = _skip(size)
    else:
        item = _text(2 if kind == "string" else 4, is_compact)
    may_be_null = type(None) in _alternatives(field)
    if _is_array(field):
        return _array(item, is_compact, may_be_null=may_be_null)
    if nested is not None and not is_tagged and may_be_null:
        return _optional(item)
    return item


def _skip(size: int) -> Walk:
    def skip(data: memoryview, position: int, _cuts: list[MessageCut]) -> int:
        if position + size > len(data):
            raise MalformedMessage("it ends within a field")
        return position + size

    return skip


def _text(length_bytes: int, is_compact: bool) -> Walk:
    def text(data: memoryview, position: int, _cuts: list[MessageCut]) -> int:
        length, position = _length(data, position, length_bytes, is_compact)
        if length > len(data) - position:
            raise MalformedMessage(f"a field claims to have {length} bytes")
        return position + max(length, 0)

    return text


def _array(item: Walk, is_compact: bool, *, may_be_null: bool) -> Walk:
    def array(data: memoryview, position: int, cuts: list[MessageCut]) -> int:
        count, position = _length(data, position, 4, is_compact)
        if count < 0 and not may_be_null:
            raise MalformedMessage("an array is null that a broker has to get")
        if count > len(data) - position:
            raise MalformedMessage(f"an array claims to have {count} elements")
        for _ in range(count):
            position = item(data, position, cuts)
        return position

    return array


def _optional(item: Walk) -> Walk:
    def optional(data: memoryview, position: int, cuts: list[MessageCut]) -> int:
        following = _skip(1)(data, position, cuts)
        return following if data[position] > 127 else item(data, following, cuts)

    return optional


def _tags(tagged: Mapping[int, Walk]) -> Walk:
    def tags(data: memoryview, position: int, cuts: list[MessageCut]) -> int:
        begin, before, unknown, last = position, len(cuts), 0, -1
        count, position = _varint(data, position)
        first = position
        for _ in range(count):
            start = position
            tag, size_at = _varint(data, start)
            size, position = _varint(data, size_at)
            end = position + size
            if end > len(data):
                raise MalformedMessage(f"a tagged field claims to have {size} bytes")
            if tag <= last:
                raise MalformedMessage("tagged fields are not in order")
            known = tagged.get(tag)
            if known is None:
                unknown += 1
                # Those in a row are one cut: whoever asks decides how many there are.
                is_next = len(cuts) > before and cuts[-1].end == start
                cuts.append(MessageCut(cuts.pop().start if is_next else start, end))
            else:
                within: list[MessageCut] = []
                if known(data[:end], position, within) != end:
                    raise MalformedMessage("a tagged field is longer than its content")
                if within:
                    left = size - sum(each.saved_bytes for each in within)
                    cuts += [MessageCut(size_at, position, _as_varint(left)), *within]
            last, position = tag, end
        if unknown:
            cuts.insert(before, MessageCut(begin, first, _as_varint(count - unknown)))
        return position

    return tags


def _length(
    data: memoryview, position: int, length_bytes: int, is_compact: bool
) -> tuple[int, int]:
    """A length or a count, -1 for null, and the byte after it."""
    if is_compact:
        length, position = _varint(data, position)
        return length - 1, position
    following = _skip(length_bytes)(data, position, [])
    length = int.from_bytes(data[position:following], "big", signed=True)
    if length < -1:
        raise MalformedMessage(f"a field has the length {length}")
    return length, following


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """An unsigned number of variable length, and the byte after it."""
    value = 0
    for number, byte in enumerate(data[position : position + _LARGEST_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return value, position + number + 1
    raise MalformedMessage("a number of variable length has no end")


def _as_varint(value: int) -> bytes:
    encoded = bytearray()
    write_unsigned_varint(value, encoded)
    return bytes(encoded)
