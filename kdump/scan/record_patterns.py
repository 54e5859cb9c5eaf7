"""Find records by patterns in their keys, values and headers, many records at once.

Nothing is copied: an Arrow array lies over the bytes of all records, and its elements are the keys,
the values and what is between them. Patterns are RE2's, over UTF-8; other bytes match only
literally.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from kdump.formats.compression import Codec
from kdump.formats.java.text_lines import is_utf8
from kdump.formats.record_batch import CODEC_MASK
from kdump.scan.batches import PADDING_BYTES, Bytes, Column, Flags, Window
from kdump.scan.records import RecordColumns, locate_headers


class PatternProblem(ValueError):
    """A pattern that cannot be searched for; says why."""


class Patterns(Struct, frozen=True):
    """Alternative patterns: one has to match.

    Attributes:
        texts: one or more.
        is_fixed: whether they are strings to find, and not regular expressions.
        ignores_case: whether upper and lower case are the same.
    """

    texts: tuple[bytes, ...]
    is_fixed: bool = False
    ignores_case: bool = False

    def check(self) -> None:
        """Refuse what cannot be searched for.

        Raises:
            PatternProblem: a pattern is not a regular expression of RE2, or not UTF-8.
        """
        nothing = _texts(_NO_BYTES, np.zeros(2, np.int64))
        for text in self.texts:
            shown = text.decode(errors="backslashreplace")
            if not is_utf8(text) and (self.ignores_case or not self.is_fixed):
                raise PatternProblem(f"'{shown}' is not UTF-8: find it with -F and without -i")
            try:
                if not self.is_fixed:
                    pc.match_substring_regex(nothing, text)
            except pa.ArrowInvalid as problem:
                what = str(problem).removeprefix("Invalid regular expression: ")
                raise PatternProblem(f"'{shown}' is not a regular expression: {what}") from None
        try:
            self.found_in(nothing)
        except pa.ArrowInvalid as problem:
            what = str(problem).removeprefix("Invalid regular expression: ").partition(":")[0]
            raise PatternProblem(f"the patterns together are refused: {what}") from None

    @property
    def is_context_free(self) -> bool:
        """Whether a match does not depend on the bytes around it."""
        return self.is_fixed or not any(map(_CONTEXT.search, map(_unescaped, self.texts)))

    def found_in(self, texts: pa.Array) -> Flags:
        """Return which elements of a large_string array match; its bytes need not be UTF-8."""
        return functools.reduce(np.logical_or, self._each_found_in(texts))

    def _each_found_in(self, texts: pa.Array) -> Iterator[Flags]:
        strings: list[bytes] = []
        expressions: list[bytes] = []
        for text in self.texts:
            string = self._string_of(text)
            if string is not None and (len(string) > _LONG_STRING_BYTES or not is_utf8(string)):
                strings.append(string)
            else:
                # Faster than Arrow's own search for a string.
                expressions.append(self._expression(text))
        if expressions:
            expression = b"|".join(expressions)
            yield _flags(pc.match_substring_regex(texts, expression, ignore_case=self.ignores_case))
        for string in strings:
            yield _flags(pc.match_substring(texts, string))

    def _string_of(self, text: bytes) -> bytes | None:
        """The string that a pattern finds; None if it finds several."""
        if self.ignores_case:
            return None
        if self.is_fixed:
            return text
        if not _STRING.fullmatch(text.decode()):
            return None
        found = _CHARACTER.findall(text.decode())
        return "".join(character * int(count or 1) for character, count in found).encode()

    def _expression(self, text: bytes) -> bytes:
        return b"(?:" + (_SPECIAL.sub(rb"\\\g<0>", text) if self.is_fixed else text) + b")"


_LONG_STRING_BYTES: Final = 256
"""From here on RE2 may need time for each byte of the string at each byte that it searches: it
keeps all places where a match may have begun, and when these are too many, tries each."""
_CHARACTER: Final = re.compile(r"([^\\^$.|?*+()\[\]{}])(?:\{([0-9]{1,4})\})?")
_STRING: Final = re.compile(f"(?:{_CHARACTER.pattern})+")
"""An expression that finds only one string: characters, perhaps with how often each is repeated."""
_SPECIAL: Final = re.compile(rb"[\\^$.|?*+()\[\]{}]")
"""What has a meaning in a regular expression."""
_ESCAPED: Final = re.compile(rb"\\[^AzbBQ]", re.DOTALL)
_CONTEXT: Final = re.compile(rb"[\\^$]")
"""In an expression without other escapes: looks at what is around it, or begins a quotation."""


def _unescaped(text: bytes) -> bytes:
    return _ESCAPED.sub(b"", text)


def _flags(matches: pa.BooleanArray) -> Flags:
    found: Flags = matches.to_numpy(zero_copy_only=False)
    return found


class _Spans(NamedTuple):
    """Parts of the bytes of records; a null has size -1.

    Columns have shape (n, k): k parts of each of n things, in the order of their positions.
    """

    data: Bytes
    start: Column
    size: Column

    @classmethod
    def of(cls, data: Bytes, *parts: tuple[Column, Column]) -> _Spans:
        """Return parts given by the starts and sizes of each."""
        starts, sizes = zip(*parts, strict=True)
        return cls(data, np.stack(starts, axis=1), np.stack(sizes, axis=1))

    @classmethod
    def of_columns(cls, *columns: pa.Array) -> _Spans:
        """Return copies of parts given as columns of large_binary."""
        sizes = [
            pc.fill_null(pc.binary_length(each), -1).to_numpy(zero_copy_only=False)
            for each in columns
        ]
        size = np.stack(sizes, axis=1)
        joined = pc.binary_join_element_wise(
            *columns,
            pa.scalar(b"", pa.large_binary()),
            null_handling="replace",
            null_replacement=b"",
        )
        data = joined.buffers()[2] or b""
        used = np.maximum(size, 0).reshape(-1)
        start = (np.cumsum(used) - used).reshape(size.shape)
        return cls(np.frombuffer(data, np.uint8)[: int(used.sum())], start, size)

    def matching(self, patterns: Patterns) -> Flags:
        """Return which parts match, with shape (n, k)."""
        # One look at all bytes is faster than one at each part, and mostly enough.
        if (
            patterns.is_context_free
            and not patterns.found_in(_texts(self.data, np.array([0, len(self.data)])))[0]
        ):
            return np.zeros(self.start.shape, np.bool_)
        return self._of_parts(patterns.found_in)

    def equal(self, text: bytes) -> Flags:
        """Return which parts are ``text``, with shape (n, k)."""
        scalar = pa.scalar(text, pa.large_binary())
        return self._of_parts(lambda texts: _flags(pc.equal(texts.view(pa.large_binary()), scalar)))

    def _of_parts(self, found: Callable[[pa.Array], Flags]) -> Flags:
        if not self.start.size:
            return np.zeros(self.start.shape, np.bool_)
        # Every second element is what is between two parts.
        flags = found(self._texts())[0::2].reshape(self.start.shape)
        return flags & (self.size >= 0)

    def _texts(self) -> pa.Array:
        """Return the parts and what is between them."""
        edges = np.empty((self.start.size, 2), np.int64)
        edges[:, 0] = self.start.reshape(-1)
        edges[:, 1] = edges[:, 0] + np.maximum(self.size.reshape(-1), 0)
        return _texts(self.data, edges.reshape(-1))

    def only(self, number: int) -> _Spans:
        """Return only one of the k parts."""
        one = slice(number, number + 1)
        return _Spans(self.data, self.start[:, one], self.size[:, one])


def _texts(data: Bytes, edges: Column) -> pa.Array:
    """Return what is between each edge and the next as a large_string array.

    Nothing is copied, and whether it is UTF-8 is not checked.
    """
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(edges) - 1, buffers)


_NO_BYTES: Final = np.zeros(PADDING_BYTES, np.uint8)
_NO_SPANS: Final = _Spans(_NO_BYTES, np.empty((0, 2), np.int64), np.empty((0, 2), np.int64))


class RecordPart(enum.Enum):
    """A part of a record; the value is the word for it."""

    KEY = "key"
    VALUE = "value"
    HEADERS = "headers"


class HeaderPattern(Struct, frozen=True):
    """A header to find.

    Attributes:
        name: its name, exactly.
        patterns: what its value has to match; None for any header of this name.
    """

    name: bytes
    patterns: Patterns | None = None


class RecordPatterns(Struct, frozen=True):
    """Which records to find: those that meet every condition given here.

    Nothing matches a null key or value.

    Attributes:
        anywhere: has to match in one of ``parts``.
        parts: where ``anywhere`` is looked for; in headers, that is their names and values.
        key: has to match in the key.
        value: has to match in the value.
        headers: one of these headers has to be there; empty for no such condition.
        is_inverted: find the other records instead.
    """

    anywhere: Patterns | None = None
    parts: frozenset[RecordPart] = frozenset({RecordPart.KEY, RecordPart.VALUE})
    key: Patterns | None = None
    value: Patterns | None = None
    headers: tuple[HeaderPattern, ...] = ()
    is_inverted: bool = False

    def check(self) -> None:
        """Refuse what cannot be searched for.

        Raises:
            PatternProblem: as :meth:`Patterns.check`.
        """
        for patterns in self._all_patterns():
            patterns.check()

    def _all_patterns(self) -> Iterator[Patterns]:
        named = (header.patterns for header in self.headers)
        for patterns in (self.anywhere, self.key, self.value, *named):
            if patterns is not None:
                yield patterns

    def may_be_in(self, window: Window) -> Flags:
        """Return which batches of magic 2 may hold a match, without decoding them.

        That is known of batches that are not compressed.
        """
        batches = window.batches
        flags = np.ones(batches.count, np.bool_)
        plain = np.flatnonzero((batches.attributes & CODEC_MASK) == Codec.NONE)
        if self.is_inverted or window.is_giant or not plain.size:
            return flags
        start = batches.position[plain] - window.start
        whole = _Spans.of(window.data, (start, batches.size_bytes[plain]))
        for patterns in (self.anywhere, self.key, self.value):
            if patterns is not None and patterns.is_context_free:
                flags[plain] &= whole.matching(patterns)[:, 0]
        return flags

    def in_columns(
        self, columns: RecordColumns, contents: tuple[pa.Array, pa.Array] | None = None
    ) -> Flags:
        """Return which records match.

        Args:
            contents: what to look at instead of their keys and values, as large_binary.
        """
        return self._in_contents(
            columns,
            _Spans.of(
                columns.data,
                (columns.key_start, columns.key_size),
                (columns.value_start, columns.value_size),
            )
            if contents is None
            else _Spans.of_columns(*contents),
        )

    def _in_contents(self, columns: RecordColumns, contents: _Spans) -> Flags:
        if not self._needs_headers:
            return self._matching(_Searched(contents))
        found = locate_headers(columns)
        headers = _Spans.of(
            columns.data, (found.key_start, found.key_size), (found.value_start, found.value_size)
        )
        owner = np.repeat(np.arange(columns.count), columns.headers_count)
        return self._matching(_Searched(contents, headers, owner))

    def in_pairs(self, pairs: Sequence[tuple[bytes | None, bytes | None]]) -> Flags:
        """Return which records match, given as pairs of key and value; they have no headers."""
        keys, values = zip(*pairs, strict=True) if pairs else ((), ())
        binary = pa.large_binary()
        return self._matching(
            _Searched(_Spans.of_columns(pa.array(keys, binary), pa.array(values, binary)))
        )

    @property
    def _needs_headers(self) -> bool:
        return bool(self.headers) or (
            self.anywhere is not None and RecordPart.HEADERS in self.parts
        )

    def _matching(self, records: _Searched) -> Flags:
        flags = np.ones(len(records.contents.start), np.bool_)
        if self.anywhere is not None:
            flags &= records.matching(self.anywhere, self.parts)
        if self.key is not None:
            flags &= records.matching(self.key, {RecordPart.KEY})
        if self.value is not None:
            flags &= records.matching(self.value, {RecordPart.VALUE})
        if self.headers:
            flags &= functools.reduce(np.logical_or, map(records.with_header, self.headers))
        return ~flags if self.is_inverted else flags


class _Searched(NamedTuple):
    """What is searched of n records.

    Attributes:
        contents: keys and values, shape (n, 2).
        headers: names and values of headers, shape (h, 2).
        owner: of each header, the record that has it.
    """

    contents: _Spans
    headers: _Spans = _NO_SPANS
    owner: Column = np.empty(0, np.int64)

    def matching(self, patterns: Patterns, parts: AbstractSet[RecordPart]) -> Flags:
        """Return which records match in one of ``parts``."""
        flags: Flags
        if {RecordPart.KEY, RecordPart.VALUE} <= parts:
            flags = np.logical_or(*self.contents.matching(patterns).T)
        elif RecordPart.KEY in parts:
            flags = self.contents.only(0).matching(patterns)[:, 0]
        elif RecordPart.VALUE in parts:
            flags = self.contents.only(1).matching(patterns)[:, 0]
        else:
            flags = np.zeros(len(self.contents.start), np.bool_)
        if RecordPart.HEADERS in parts:
            flags[self.owner[self.headers.matching(patterns).any(axis=1)]] = True
        return flags

    def with_header(self, wanted: HeaderPattern) -> Flags:
        """Return which records have a header."""
        found = self.headers.only(0).equal(wanted.name)[:, 0]
        if wanted.patterns is not None and found.any():
            found &= self.headers.only(1).matching(wanted.patterns)[:, 0]
        flags = np.zeros(len(self.contents.start), np.bool_)
        flags[self.owner[found]] = True
        return flags
