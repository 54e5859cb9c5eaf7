"""Find erased keys wherever they are, and records of some topics with an erased field.

A key may be that of a record, or be inside other fields, or in any bytes.

Records that can be read are searched field by field. A key is found if a record has it, or if it
occurs in another key, in a value or in a header; one of printable characters must stand alone
there: ``alice`` is found in ``tenant/alice``, not in ``malice`` or ``alice2``.
Where that is not certain, it is counted apart (:mod:`kdump.repair.erase.key_standing`). All other
bytes of a file are searched as they are (:mod:`kdump.repair.erase.searched_content`). Keys of less
than :data:`LEAST_BYTES` bytes occur everywhere by chance: they are searched only as whole keys of
records. So are keys of digits in the small files of Kafka, and of numbers in binary in its indexes,
which are full of other numbers. Other forms of keys are searched, too
(:mod:`kdump.repair.erase.key_forms`).
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from kdump.formats.names import (
    CLUSTER_METADATA_TOPIC,
    COORDINATOR_TOPICS,
    REMOTE_LOG_METADATA_TOPIC,
)
from kdump.formats.record_batch import CODEC_MASK, LARGEST_RECORD_BYTES
from kdump.payloads.named_fields import NamedField
from kdump.ranges import joined
from kdump.repair.erase.erased_list import MARK
from kdump.repair.erase.erased_offsets import ErasedOffsets, ErasedRanges
from kdump.repair.erase.key_forms import forms_in_files, forms_in_records, is_number
from kdump.repair.erase.key_standing import Standing, standing
from kdump.repair.erase.named_records import NamedRecords, RecordMatcher
from kdump.repair.erase.searched_content import (
    SearchedContent,
    UndecodedBytes,
    batches_to_doubt,
    decoded_messages,
    searched,
)
from kdump.scan.batches import BatchColumns, Bytes, read_chunks
from kdump.scan.records import HeaderColumns, RecordColumns, locate_headers
from kdump.scan.source import data_ranges
from kdump.scan.walk import MessageSet
from kdump.storage.byte_source import ByteSource
from kdump.storage.location import Location

LEAST_BYTES: Final = 4
"""Shorter keys are not searched in other fields and in raw bytes."""
_WIDE_BYTES: Final = 8
_CHUNK_BYTES: Final = 1 << 20
_MOST_PLACES: Final = 100
"""So many offsets of a file are kept, as examples."""
_TOPICS_OF_KAFKA: Final = COORDINATOR_TOPICS | {CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC}
"""Their records are full of offsets, ids of producers and other numbers."""


class FoundKeys(Struct, frozen=True):
    """What was found in a file.

    Attributes:
        searched_bytes: its size.
        records: records that have a key or a field, or are where one was erased.
        mentions: places inside other keys, values and headers of records.
        raw: places in bytes that are no records.
        unreadable_batches: batches and other bytes in which a key may hide: they cannot be decoded.
        offsets: of some of the records that have a key, or in which one is or may be.
        undecoded_records: records in which a field may hide: they cannot be decoded.
        possible: places in other keys and values where a key may be, or a longer word.
    """

    searched_bytes: int = 0
    records: int = 0
    mentions: int = 0
    raw: int = 0
    unreadable_batches: int = 0
    offsets: tuple[int, ...] = ()
    undecoded_records: int = 0
    possible: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing is certainly there, or hidden; there may be possible places."""
        return not (self.records or self.mentions or self.raw or self.unreadable_batches)

    def __add__(self, other: FoundKeys) -> FoundKeys:
        return FoundKeys(
            self.searched_bytes + other.searched_bytes,
            self.records + other.records,
            self.mentions + other.mentions,
            self.raw + other.raw,
            self.unreadable_batches + other.unreadable_batches,
            (self.offsets + other.offsets)[:_MOST_PLACES],
            self.undecoded_records + other.undecoded_records,
            self.possible + other.possible,
        )


class KeyPatterns:
    """Finds any of many keys in bytes, at any position."""

    def __init__(self, keys: frozenset[bytes], prefixes: frozenset[bytes]) -> None:
        every = {*keys, *prefixes}
        self._prefixes = prefixes
        self._of_width = [
            _Patterns(width, patterns)
            for width, patterns in (
                (_WIDE_BYTES, [key for key in every if len(key) >= _WIDE_BYTES]),
                (LEAST_BYTES, [key for key in every if LEAST_BYTES <= len(key) < _WIDE_BYTES]),
            )
            if patterns
        ]
        self.longest_bytes = max(map(len, every), default=0)

    def places(self, data: Bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the position of each occurrence, and the key."""
        for each in self._of_width:
            yield from each.places(data)

    def standing(self, key: bytes, around: bytes, at: int) -> Standing:
        """What the occurrence of a key at ``at`` of a field is."""
        return standing(key, around, at, is_begun=key in self._prefixes)


@functools.lru_cache(maxsize=1)
def _patterns_of(
    keys: frozenset[bytes], prefixes: tuple[bytes, ...]
) -> tuple[KeyPatterns, KeyPatterns]:
    """What is searched in records, and in all other bytes.

    Each of the files, which may be tens of thousands, is searched for the same keys.
    """
    return (
        KeyPatterns(_in_forms(keys, forms_in_records), _in_forms(prefixes, forms_in_records)),
        KeyPatterns(
            _in_forms(keys, forms_in_files) | {MARK},
            _in_forms(prefixes, forms_in_files),
        ),
    )


def _in_forms(
    keys: Iterable[bytes], forms: Callable[[bytes], frozenset[bytes]]
) -> frozenset[bytes]:
    return frozenset(each for key in keys if len(key) >= LEAST_BYTES for each in (key, *forms(key)))


class _Patterns:
    """Keys of at least ``width`` bytes, found by their first ``width`` bytes."""

    def __init__(self, width: int, keys: list[bytes]) -> None:
        self._width = width
        self._type = np.dtype(f"<u{width}")
        self._by_start: dict[bytes, dict[int, set[bytes]]] = defaultdict(lambda: defaultdict(set))
        for key in keys:
            self._by_start[key[:width]][len(key)].add(key)
        starts = np.frombuffer(b"".join(sorted(self._by_start)), self._type)
        self._starts = np.sort(starts)
        self._may_begin = np.zeros(1 << 16, np.bool_)
        self._may_begin[(starts & starts.dtype.type(0xFFFF)).astype(np.int64)] = True

    def places(self, data: Bytes) -> Iterator[tuple[int, bytes]]:
        count = len(data) - self._width + 1
        if count <= 0:
            return
        pairs = np.ndarray(count, "<u2", data, strides=(1,))
        candidates = np.flatnonzero(self._may_begin[pairs])
        values = np.ndarray(count, self._type, data, strides=(1,))[candidates]
        at = np.minimum(np.searchsorted(self._starts, values), len(self._starts) - 1)
        for position in candidates[self._starts[at] == values].tolist():
            start = data[position : position + self._width].tobytes()
            for size, keys in self._by_start[start].items():
                found = data[position : position + size].tobytes()
                if found in keys:
                    yield position, found


FieldsOfTopics = Mapping[str, tuple[NamedField, ...]]
"""Fields by topic: elsewhere a field may mean something else."""


def fields_of_topics(found: Iterable[tuple[NamedField, str]]) -> FieldsOfTopics:
    """Each field once for each topic."""
    fields: dict[str, dict[NamedField, None]] = {}
    for each, topic in found:
        fields.setdefault(topic, {})[each] = None
    return {topic: tuple(fields[topic]) for topic in sorted(fields)}


class KeySearch(Struct, frozen=True):
    """Searches files for keys and fields.

    Attributes:
        named: the keys, what they begin with, and the schemas for fields.
        fields: what records of each topic must not have.
        erased: where no record of a partition must be.
    """

    named: NamedRecords
    largest_record_bytes: int = LARGEST_RECORD_BYTES
    fields: FieldsOfTopics = field(default_factory=dict)
    erased: ErasedOffsets = ErasedOffsets()

    def matcher(self, topic: str | None) -> RecordMatcher:
        """What finds records of a topic; of any topic, if it is not known."""
        if topic is None:
            fields = tuple(dict.fromkeys(itertools.chain.from_iterable(self.fields.values())))
        else:
            fields = self.fields.get(topic, ())
        return replace(self.named, fields=fields).matcher("")

    def file(
        self,
        path: Location,
        names: Collection[str],
        topic: str | None = None,
        partition: str | None = None,
        topic_id: str | None = None,
    ) -> FoundKeys:
        """Search a file.

        Args:
            names: what its content is or was called, which tells what may be in it.
            topic: whose records may be in it; None if any.
            partition: the ``TOPIC-PARTITION`` whose records are in it; None if nobody knows.
            topic_id: of the topic; None if nobody knows.

        Raises:
            OSError: it cannot be read.
        """
        with path.open_file() as source:
            erased = self.erased.of_partition(partition, topic_id)
            return _FileSearch(self, names, source, topic, erased).found()


class _FileSearch:
    def __init__(
        self,
        search: KeySearch,
        names: Collection[str],
        source: ByteSource,
        topic: str | None,
        erased: ErasedRanges,
    ) -> None:
        self._search = search
        self._content = SearchedContent.of(names)
        self._source = source
        self._patterns, self._raw_patterns = _patterns_of(search.named.keys, search.named.prefixes)
        self._matcher = search.matcher(topic)
        self._has_numbers_of_kafka = topic in _TOPICS_OF_KAFKA
        self._erased = erased
        self._seen: set[bytes] = set()
        self._compressed: list[range] = []

    def found(self) -> FoundKeys:
        total = FoundKeys(self._source.size_bytes)
        for step in searched(self._source, self._content, self._search.largest_record_bytes):
            match step:
                case UndecodedBytes(start, end, may_hide):
                    total += FoundKeys(raw=self._raw(start, end), unreadable_batches=int(may_hide))
                case MessageSet():
                    total += self._in_messages(step)
                case RecordColumns():
                    total += self._in_columns(step)
        return total + FoundKeys(raw=self._beside_compressed())

    def _beside_compressed(self) -> int:
        """How often a key occurs in the bytes of compressed batches, though not in what they hold.

        It follows the end of compressed data, where no reader looks.
        """
        return sum(
            len(key) >= _WIDE_BYTES and key not in self._seen
            for each in joined(self._compressed)
            for key in self._keys_in(each.start, each.stop, self._patterns)
        )

    def _note_compressed(self, batches: BatchColumns) -> None:
        rows = np.flatnonzero(batches.attributes & CODEC_MASK)
        if len(rows):
            start, end = int(batches.position[rows[0]]), int(batches.next_position[rows[-1]])
            self._compressed.append(range(start, end))

    def _raw(self, start: int, end: int) -> int:
        """How often a key occurs in a range, at least partly."""
        return sum(
            not self._is_anywhere(key) for key in self._keys_in(start, end, self._raw_patterns)
        )

    def _is_anywhere(self, key: bytes) -> bool:
        """Whether a key may be a number of Kafka's own in such a file, or was never written."""
        if not any(key):
            return True
        match self._content:
            case SearchedContent.NUMBERS:
                return key.isdigit()
            case SearchedContent.PLAIN:
                return is_number(key)
        return False

    def _keys_in(self, start: int, end: int, patterns: KeyPatterns) -> Iterator[bytes]:
        """Yield the key of each occurrence in a range, also if it is only partly there."""
        margin = max(0, patterns.longest_bytes - 1)
        begin, stop = max(0, start - margin), min(self._source.size_bytes, end + margin)
        # A hole can be a terabyte long; but a key may begin or end with zeroes of one.
        ranges = data_ranges(self._source, begin, stop)
        for piece in joined(range(max(begin, a - margin), b + margin) for a, b in ranges):
            held = b""
            position = piece.start
            for chunk in read_chunks(self._source, position, min(stop, piece.stop), _CHUNK_BYTES):
                data = np.frombuffer(held + bytes(chunk), np.uint8)
                first = position - len(held)
                for at, key in patterns.places(data):
                    is_new = at + len(key) > len(held)
                    if is_new and first + at < end and first + at + len(key) > start:
                        yield key
                position += len(chunk)
                held = data[max(0, len(data) - margin) :].tobytes() if margin else b""

    def _in_messages(self, found: MessageSet) -> FoundKeys:
        self._note_compressed(found.window.batches)
        records = mentions = undecoded = raw = possible = 0
        offsets = []
        messages, may_hide = decoded_messages(found, self._search.largest_record_bytes)
        for offset, key, value in messages:
            is_named = offset in self._erased or self._matcher.names(offset, key, value)
            undecoded += is_named is None
            found_in = {*self._standings_in(key), *self._standings_in(value)}
            if is_named:
                records += 1
            elif Standing.ALONE in found_in:
                mentions += 1
            elif Standing.POSSIBLE in found_in:
                possible += 1
            else:
                continue
            offsets.append(offset)
        if may_hide:
            batches = found.window.batches
            raw = self._raw(int(batches.position[0]), int(batches.next_position[0]))
        places = tuple(offsets[:_MOST_PLACES])
        return FoundKeys(0, records, mentions, raw, int(may_hide), places, undecoded, possible)

    def _standings_in(self, content: bytes | None) -> Iterator[Standing]:
        if content:
            for at, key in self._patterns.places(np.frombuffer(content, np.uint8)):
                self._seen.add(key)
                yield self._standing(key, content, at)

    def _standing(self, key: bytes, around: bytes, at: int) -> Standing:
        """What the occurrence of a key at ``at`` of a field is."""
        found = self._patterns.standing(key, around, at)
        if found is Standing.ALONE and self._has_numbers_of_kafka and is_number(key):
            return Standing.POSSIBLE
        return found

    def _in_columns(self, columns: RecordColumns) -> FoundKeys:
        self._note_compressed(columns.batches)
        named, is_undecoded = self._matcher.look(columns)
        named |= self._erased.records(columns)
        rows = set(np.flatnonzero(named).tolist())
        records = len(rows)
        mentions = raw = possible = 0
        fields = _Fields(columns)
        for position, key in self._patterns.places(columns.data):
            self._seen.add(key)
            row = int(np.searchsorted(columns.end, position, "right"))
            if row < columns.count and position >= columns.key_start[row]:
                if named[row]:
                    continue
                field_start = fields.around(row, position, len(key))
                # Across two fields, what is beside it says nothing.
                around, start = field_start or (key, position)
                found = self._standing(key, around, position - start)
                if found is not Standing.IN_WORD:
                    mentions += found is Standing.ALONE
                    possible += found is Standing.POSSIBLE
                    rows.add(row)
            elif columns.problems:
                raw += 1
        doubtful = batches_to_doubt(columns)
        for row in doubtful:
            start = int(columns.batches.position[row])
            raw += self._raw(start, int(columns.batches.next_position[row]))
        offsets = columns.offset[sorted(rows)[:_MOST_PLACES]].tolist()
        undecoded = int(np.count_nonzero(is_undecoded))
        return FoundKeys(
            0, records, mentions, raw, len(doubtful), tuple(offsets), undecoded, possible
        )


class _Fields:
    """Keys, values and headers of records, by positions in them."""

    def __init__(self, columns: RecordColumns) -> None:
        self._columns = columns
        self._content = functools.lru_cache(maxsize=1)(self._content_of)

    def around(self, row: int, position: int, size_bytes: int) -> tuple[bytes, int] | None:
        """The field of a record that has these bytes, and where it begins; None if none does.

        Args:
            row: of the record.
            position: of the first of the bytes.
            size_bytes: how many.
        """
        for start, size in self._near(row, position):
            if start <= position and position + size_bytes <= start + size:
                return self._content(start, size), start
        return None

    def _near(self, row: int, position: int) -> Iterator[tuple[int, int]]:
        """The start and size of each field that may have a position."""
        columns = self._columns
        yield int(columns.key_start[row]), int(columns.key_size[row])
        yield int(columns.value_start[row]), int(columns.value_size[row])
        found = self._headers
        at = int(np.searchsorted(found.key_start, position, "right")) - 1
        if at >= 0:
            yield int(found.key_start[at]), int(found.key_size[at])
            yield int(found.value_start[at]), int(found.value_size[at])

    @functools.cached_property
    def _headers(self) -> HeaderColumns:
        return locate_headers(self._columns)

    def _content_of(self, start: int, size: int) -> bytes:
        return self._columns.data[start : start + size].tobytes()
