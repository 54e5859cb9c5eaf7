r"""Whether a key that occurs in a field stands there alone, or is merely a part of a longer word.

Text tells: letters and digits beside a key make a longer word, unless they escape something else,
as the ``n`` of ``\n`` does in JSON. Scripts without blanks between words do not tell. Neither do
binary formats: the size of a string, or what follows it, may read as a letter or a digit, even in a
field in which everything reads as text. A place is taken for a part of a word only where no size
speaks for the key, in text; or, in what is no text, where a size in front speaks for a longer
string. All others count, at least as possible places.
"""

from __future__ import annotations

import enum
import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kdump.repair.erase.key_forms import is_number
from kdump.repair.erase.searched_content import has_controls

_ESCAPE: Final = re.compile(
    rb"(?<!\\)(?P<slashes>\\+)(?:[bfnrt]|u(?P<unicode>[0-9A-Fa-f]{4}))\Z"
    rb"|%(?P<byte>[0-9A-Fa-f]{2})\Z"
)
"""What JSON or a URL has in place of a character."""
_MOST_ESCAPE_BYTES: Final = 40
_LARGEST_CHARACTER_BYTES: Final = 4
_PRINTABLE: Final = range(0x20, 0x7F)
_LEAST_BINARY_BYTES: Final = 5
"""A shorter number may be any other number, or a part of one."""
_MOST_VARINT_BYTES: Final = 5
_FARTHEST_BYTES: Final = 4096
"""So far in front of a key the size of a longer string is looked for."""
_FRAME_BYTES: Final = 5
"""A zero and the id of a schema, in front of JSON."""


class Standing(enum.Enum):
    """What an occurrence of a key in a field is."""

    ALONE = "the key"
    POSSIBLE = "the key, or a part of a longer word"
    IN_WORD = "a part of a longer word"


def standing(key: bytes, around: bytes, at: int, *, is_begun: bool = False) -> Standing:
    """What the occurrence of a key at ``at`` of a field is.

    A number of four bytes is only certain as the whole key of a record.

    Args:
        key: what occurs there.
        around: the field.
        at: where it begins.
        is_begun: whether the key is longer than that, so that anything may follow.
    """
    if len(key) < _LEAST_BINARY_BYTES and is_number(key):
        return Standing.POSSIBLE
    if not all(byte in _PRINTABLE or byte >= 0x80 for byte in key):
        return Standing.ALONE
    end = at + len(key)
    beside = set()
    if at and _of_character(_first(key, 0)) is not Standing.ALONE:
        beside.add(_of_what_is_before(around, at))
    if not is_begun and end < len(around) and _of_character(_last(key)) is not Standing.ALONE:
        beside.add(_of_character(_first(around, end)))
    if beside <= {Standing.ALONE}:
        return Standing.ALONE
    in_text = Standing.IN_WORD if Standing.IN_WORD in beside else Standing.POSSIBLE
    if _is_json(around):
        return in_text
    by_sizes = _by_sizes(key, around, at, is_begun=is_begun)
    return in_text if by_sizes is Standing.IN_WORD else by_sizes


def _of_what_is_before(around: bytes, at: int) -> Standing:
    """What a key is by the character before it, which may be escaped."""
    found = _of_character(_last(around[max(0, at - _LARGEST_CHARACTER_BYTES) : at]))
    escape = _ESCAPE.search(around[max(0, at - _MOST_ESCAPE_BYTES) : at])
    if found is not Standing.IN_WORD or escape is None:
        return found
    if code := escape["unicode"] or escape["byte"]:
        number = int(code, 16)
        if escape["byte"] and number >= 0x80:
            return Standing.POSSIBLE  # a part of a character
        escaped = _of_character(chr(number))
        if escaped is not Standing.ALONE:
            return escaped
    # Elsewhere it may be a name after a backslash or a percent sign.
    is_certain = len(escape["slashes"] or b"") % 2 == 1 and _is_json(around)
    return Standing.ALONE if is_certain else Standing.POSSIBLE


def _of_character(character: str | None) -> Standing:
    """What a key is by a character beside it; None if that is no text in UTF-8."""
    if character is None:
        return Standing.IN_WORD
    category = unicodedata.category(character)
    if category == "Lo":
        return Standing.POSSIBLE  # such as Chinese
    return Standing.IN_WORD if category[0] in "LMN" else Standing.ALONE


def _first(data: bytes, at: int) -> str | None:
    """The character that begins at ``at``."""
    if data[at] < 0x80:
        return chr(data[at])
    return _only(data[at : at + size] for size in range(2, _LARGEST_CHARACTER_BYTES + 1))


def _last(data: bytes) -> str | None:
    """The character that ends some bytes."""
    if data[-1] < 0x80:
        return chr(data[-1])
    return _only(data[-size:] for size in range(2, _LARGEST_CHARACTER_BYTES + 1))


def _only(pieces: Iterable[bytes]) -> str | None:
    """The first piece that is one character in UTF-8."""
    for piece in pieces:
        text = piece.decode(errors="ignore")
        if len(text) == 1 and text.encode() == piece:
            return text
    return None


def _by_sizes(key: bytes, around: bytes, at: int, *, is_begun: bool) -> Standing:
    """What a key in a longer word is by the sizes that may be in front of it."""
    has_size, may_have_size = (
        any(_fits(around, at, size, len(key), is_begun=is_begun) for size in sizes)
        for sizes in (_sizes_before(around, at), _less_certain_sizes(around, at))
    )
    if _is_text(around):
        # A payload may be nothing else than a string.
        if has_size and at == 1 and not is_begun:
            return Standing.ALONE
        return Standing.POSSIBLE if has_size or may_have_size else Standing.IN_WORD
    if has_size:
        return Standing.ALONE
    if _is_in_longer_string(around, at, at + len(key), is_begun=is_begun):
        return Standing.POSSIBLE if may_have_size else Standing.IN_WORD
    return Standing.ALONE if may_have_size and not is_begun else Standing.POSSIBLE


def _sizes_before(data: bytes, at: int) -> Iterator[int]:
    """How many bytes a string may have that begins at ``at``, by the size before it.

    A byte: Protobuf, Thrift, Java, ASN.1; twice as many: Avro; MessagePack. More bytes: numbers of
    both orders, also with a zero at the end as in BSON, and varints.
    """
    if not at:
        return
    byte = data[at - 1]
    yield byte
    if byte % 2 == 0:
        yield byte // 2
    if 0xA0 <= byte < 0xC0:
        yield byte - 0xA0
    for width in (2, 4):
        if at >= width:
            number = data[at - width : at]
            yield int.from_bytes(number)
            little = int.from_bytes(number, "little")
            yield little
            yield little - 1
    if byte < 0x80:
        value = byte
        for before in reversed(data[max(0, at - _MOST_VARINT_BYTES) : at - 1]):
            if before < 0x80:
                break
            value = value << 7 | before & 0x7F
        yield value
        if value % 2 == 0:
            yield value // 2


def _less_certain_sizes(data: bytes, at: int) -> Iterator[int]:
    """Likewise in CBOR and Smile, to which most letters are sizes, and in Kafka's own messages.

    These have one more than the size, which others have in front of a word of a letter more.
    """
    byte = data[at - 1] if at else 0
    if 0x60 <= byte < 0x78:
        yield byte - 0x60
    if 0x40 <= byte < 0x80:
        yield byte - 0x3F
    if byte:
        yield byte - 1
    if 0 < byte < 0x80 and at > 1 and data[at - 2] >= 0x80:
        yield (byte << 7 | data[at - 2] & 0x7F) - 1


def _fits(data: bytes, at: int, size: int, key_bytes: int, *, is_begun: bool) -> bool:
    """Whether a string of this size at ``at`` may be the key."""
    if not is_begun:
        return size == key_bytes
    return key_bytes <= size <= len(data) - at and _is_text_at(data, at, at + size)


def _is_in_longer_string(data: bytes, at: int, end: int, *, is_begun: bool) -> bool:
    """Whether a size in front speaks for a string that has these bytes, and others.

    It is directly before the key, or where the text begins in which the key is.
    """
    first = at
    while first > max(0, at - _FARTHEST_BYTES) and data[first - 1] in _PRINTABLE:
        first -= 1
    return any(
        end <= start + size <= len(data) and _is_text_at(data, start, start + size)
        for start in {first, first + 1, at}
        if start < at or (start == at and not is_begun)
        for sizes in (_sizes_before(data, start), _less_certain_sizes(data, start))
        for size in sizes
        if size > end - at
    )


def _is_text_at(data: bytes, start: int, end: int) -> bool:
    return _is_text_without_memory(data[start:end])


def _is_text_without_memory(data: bytes) -> bool:
    """Whether something is text in UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return not has_controls(data)


_is_text: Final = functools.lru_cache(maxsize=1)(_is_text_without_memory)
"""A key may be in the same field at very many places."""


@functools.lru_cache(maxsize=1)
def _is_json(field: bytes) -> bool:
    """Whether a field is an object or a list of JSON, perhaps with the id of its schema."""
    text = field[_FRAME_BYTES:] if field.startswith(b"\0") else field
    if not text.lstrip().startswith((b"{", b"[")):
        return False
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
