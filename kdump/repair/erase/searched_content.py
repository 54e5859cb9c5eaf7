"""What may be in a file that is searched for keys, and where one may hide that no search finds.

Bytes that decode to nothing may be a piece of a compressed batch. They are taken for searched only
where that is out of the question: in zeroes, in text, and in indexes and snapshots in which no
valid batch is found. One may be there: a segment restored under a wrong name, a misdirected write.
"""

from __future__ import annotations

import codecs
import enum
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, Self

import numpy as np
from msgspec import Struct

from kdump.dump.files import DumpKind
from kdump.formats.errors import FormatError
from kdump.formats.message_set import decode_message
from kdump.formats.names import quarantined_from
from kdump.formats.record_batch import CODEC_MASK, HEADER_BYTES
from kdump.scan.batches import read_chunks
from kdump.scan.last_block import LastBlock
from kdump.scan.records import RecordColumns
from kdump.scan.resync import find_batch
from kdump.scan.source import is_zero
from kdump.scan.walk import (
    MessageSet,
    Skipped,
    largest_message_bytes,
    message_bytes,
    walk_segment,
)
from kdump.storage.byte_source import ByteSource

_CHUNK_BYTES: Final = 1 << 20
_IS_CONTROL: Final = np.array(
    [(byte < 0x20 and byte not in b"\t\n\r") or byte == 0x7F for byte in range(256)]
)


_OF_A_SEGMENT: Final = re.compile(r"[0-9]{20}[-.]|[0-9]{1,19}_[A-Za-z0-9_-]{22}\.")
"""How the names of indexes and snapshots begin; those of remote segments have an id, too.

A broker's cache of their indexes has the plain number of the offset (``RemoteIndexCache``).
"""


class SearchedContent(enum.Enum):
    """What the content of a file may be."""

    BATCHES = "segments and their copies"
    PLAIN = "indexes and snapshots of producers"
    NUMBERS = "small files of Kafka: names of topics, and numbers"
    ANYTHING = "files of anybody"

    @classmethod
    def of(cls, names: Collection[str]) -> Self:
        """What a file may hold, in which is the content of files with these names."""
        found = {_content_of(name) for name in names}
        if len(found) == 1:
            return cls(found.pop())
        return cls(cls.BATCHES if cls.BATCHES in found else cls.ANYTHING)


def _content_of(name: str) -> SearchedContent:
    is_copy = ".log" in name
    otherwise = SearchedContent.BATCHES if is_copy else SearchedContent.ANYTHING
    found = _BY_KIND.get(DumpKind.of(name), otherwise)
    is_kafkas = found is not SearchedContent.PLAIN or _OF_A_SEGMENT.match(
        quarantined_from(name) or name
    )
    return found if is_kafkas else otherwise


_BY_KIND: Final[Mapping[DumpKind | None, SearchedContent]] = {
    DumpKind.SEGMENT: SearchedContent.BATCHES,
    DumpKind.METADATA_SNAPSHOT: SearchedContent.BATCHES,
    DumpKind.SEGMENT_0_7: SearchedContent.BATCHES,
    DumpKind.OFFSET_INDEX: SearchedContent.PLAIN,
    DumpKind.TIME_INDEX: SearchedContent.PLAIN,
    DumpKind.TRANSACTION_INDEX: SearchedContent.PLAIN,
    DumpKind.PRODUCER_SNAPSHOT: SearchedContent.PLAIN,
    DumpKind.SMALL_FILE: SearchedContent.NUMBERS,
}


class UndecodedBytes(Struct, frozen=True):
    """Bytes of a file that are no records.

    Attributes:
        start: of the first.
        end: after the last.
        may_hide: whether records may be in them that only decoding would show.
    """

    start: int
    end: int
    may_hide: bool


def searched(
    source: ByteSource, content: SearchedContent, largest_record_bytes: int
) -> Iterator[RecordColumns | MessageSet | UndecodedBytes]:
    """Yield everything in a file: its records, also of damaged batches, and all other bytes.

    Args:
        source: the file.
        content: what may be in it.

    Raises:
        OSError: reading fails.
    """
    size_bytes = source.size_bytes
    if content is SearchedContent.PLAIN:
        if find_batch(LastBlock(source, size_bytes), 0) is None:
            yield UndecodedBytes(0, size_bytes, may_hide=False)
            return
        content = SearchedContent.BATCHES
    if content is SearchedContent.NUMBERS:
        yield UndecodedBytes(0, size_bytes, may_hide=not _is_text(source, 0, size_bytes))
        return
    has_batches = content is SearchedContent.BATCHES
    skipped: list[Skipped] = []
    for step in walk_segment(
        source, with_records=True, follow_bad=True, largest_record_bytes=largest_record_bytes
    ):
        if isinstance(step, Skipped):
            skipped.append(step)
        elif isinstance(step, RecordColumns | MessageSet):
            has_batches = True
            yield step
    for each in skipped:
        is_seen = is_zero(source, each.start, each.end) or (
            not has_batches and _is_text(source, each.start, each.end)
        )
        yield UndecodedBytes(each.start, each.end, may_hide=not is_seen)


def batches_to_doubt(columns: RecordColumns) -> list[int]:
    """The rows of batches in which records may hide.

    They cannot be decoded, or say that they have no records; or are damaged: a flipped bit may be
    in a key.
    """
    batches = columns.batches
    may_hide = (batches.records_count == 0) & (batches.size_bytes > HEADER_BYTES)
    may_hide |= ~batches.is_valid
    if columns.is_continued:
        may_hide[0] = False  # counted where it begins
    may_hide[list(columns.problems)] = True
    return np.flatnonzero(may_hide).tolist()


def decoded_messages(
    found: MessageSet, largest_record_bytes: int
) -> tuple[list[tuple[int, bytes | None, bytes | None]], bool]:
    """Offset, key and value of each message, and whether others may hide in the set.

    A message that holds the others compressed may have a key of its own, which no reader returns.
    So may bytes that follow the value of a message: they count as a value.

    Raises:
        OSError: reading fails.
    """
    decoded: list[tuple[int, bytes | None, bytes | None]] = []
    may_hide = found.problem is not None or not found.window.batches.is_valid[0]
    if found.window.batches.attributes[0] & CODEC_MASK:
        try:
            largest = largest_message_bytes(largest_record_bytes)
            outer = decode_message(message_bytes(found.window, 0, largest))
            if outer.key is not None or outer.rest:
                decoded.append((outer.offset, outer.key, outer.rest or None))
        except FormatError:
            may_hide = True
    for message in found.messages:
        try:
            decoded.append((message.offset, message.key, message.value))
            if message.rest:
                decoded.append((message.offset, None, message.rest))
        except FormatError:
            may_hide = True
    return decoded, may_hide


def has_controls(data: bytes) -> bool:
    """Whether there are control characters, other than tabs and ends of lines."""
    return bool(_IS_CONTROL[np.frombuffer(data, np.uint8)].any())


def _is_text(source: ByteSource, start: int, end: int) -> bool:
    """Whether a range is text in UTF-8 without control characters."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in read_chunks(source, start, end, _CHUNK_BYTES):
            data = bytes(chunk)
            if has_controls(data):
                return False
            decoder.decode(data)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
