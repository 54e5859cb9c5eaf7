"""``.rsm-manifest``: how Aiven's tiered storage plugin stored a segment.

JSON of ``SegmentManifestV1``. The log is stored as chunks; each may be compressed with zstd, then
encrypted. The indexes are parts of one object. Sizes of chunks that differ are a zstd frame in
base64 (``ChunkSizesBinaryCodec``)::

    count    int32
    base     int32                           with two or more sizes; so is the next field
    width    int8                            bytes of each difference, 1 to 4
    sizes    (count - 1) differences from base, big-endian
    last     int32
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from msgspec import Struct

from kdump.formats.checkpoints import EpochEntry
from kdump.formats.compression import Codec, decompress
from kdump.formats.cursor import Cursor
from kdump.formats.errors import FormatError
from kdump.formats.json_document import DocumentError, JsonObject
from kdump.formats.remote_names import RemoteFileKind

IV_BYTES: Final = 12
TAG_BYTES: Final = 16
_LARGEST_SIZES: Final = 10 << 20
"""The most bytes of encoded sizes that the plugin itself decodes."""
_MOST: Final = 2**31 - 1
_INDEXES: Final = {
    "offset": RemoteFileKind.OFFSET_INDEX,
    "timestamp": RemoteFileKind.TIME_INDEX,
    "producerSnapshot": RemoteFileKind.PRODUCER_SNAPSHOT,
    "leaderEpoch": RemoteFileKind.LEADER_EPOCHS,
    "transaction": RemoteFileKind.TRANSACTION_INDEX,
}


class ObjectRange(Struct, frozen=True):
    """Bytes of an object."""

    position: int
    size_bytes: int


class ChunkIndex(Struct, frozen=True):
    """Where the chunks of a log are stored.

    Attributes:
        chunk_bytes: of the log in each chunk but the last.
        log_bytes: the size of the log.
        stored_bytes: how many bytes a chunk takes, if all but the last take the same; else 0.
        last_stored_bytes: how many the last chunk takes, in that case.
        ends: where each chunk ends in the object, in the other case.
    """

    chunk_bytes: int
    log_bytes: int
    stored_bytes: int = 0
    last_stored_bytes: int = 0
    ends: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """How many chunks."""
        return -(-self.log_bytes // self.chunk_bytes)

    def stored(self, number: int) -> ObjectRange:
        """The bytes of a chunk in the object."""
        if self.ends:
            start = self.ends[number - 1] if number else 0
            return ObjectRange(start, self.ends[number] - start)
        is_last = number == self.count - 1
        size = self.last_stored_bytes if is_last else self.stored_bytes
        return ObjectRange(number * self.stored_bytes, size)

    def size_of(self, number: int) -> int:
        """How many bytes of the log a chunk has."""
        return min(self.chunk_bytes, self.log_bytes - number * self.chunk_bytes)


@dataclass(frozen=True, slots=True)
class ChunkEncryption:
    """How chunks and indexes are encrypted: AES-GCM, with the initialization vector in front.

    Attributes:
        key_id: of the RSA key that the data key is encrypted with.
        data_key: encrypted.
        additional_data: authenticated with each chunk.
    """

    key_id: str
    data_key: bytes = field(repr=False)
    additional_data: bytes = field(repr=False)


class SegmentManifest(Struct, frozen=True):
    """How a segment is stored, and which it is.

    Attributes:
        chunks: of its log.
        indexes: where the small files are in the object of indexes; those that there are.
        is_compressed: whether chunks are compressed.
        encryption: None if nothing is encrypted.
        start_offset: the first offset of the segment.
        end_offset: the last one, inclusive.
        leader_epochs: in it, by epoch.
    """

    chunks: ChunkIndex
    indexes: Mapping[RemoteFileKind, ObjectRange]
    is_compressed: bool
    encryption: ChunkEncryption | None
    start_offset: int
    end_offset: int
    leader_epochs: tuple[EpochEntry, ...]


def decode_segment_manifest(data: bytes) -> SegmentManifest:
    """Decode a manifest.

    Raises:
        FormatError: it is no manifest of version 1.
    """
    try:
        return _manifest(JsonObject.of(json.loads(data), ""))
    except (DocumentError, ValueError, RecursionError) as problem:
        if isinstance(problem, FormatError):
            raise
        what = str(problem) if isinstance(problem, DocumentError) else "it is not JSON"
        raise FormatError(f"the manifest of a segment cannot be read: {what}") from None


def _manifest(document: JsonObject) -> SegmentManifest:
    if document.text("version") != "1":
        raise FormatError(
            "the manifest has an unknown version", expected=1, found=document.text("version")
        )
    indexes = document.object("segmentIndexes")
    found = {kind: _range(indexes, name) for name, kind in _INDEXES.items()}
    segment = document.object("remoteLogSegmentMetadata")
    epochs = segment.object("segmentLeaderEpochs")
    pairs = {int(name): epochs.number(name) for name in epochs.fields if name.isdecimal()}
    return SegmentManifest(
        _chunks(document.object("chunkIndex")),
        {kind: each for kind, each in found.items() if each is not None},
        document.flag("compression"),
        _encryption(document),
        segment.number("startOffset"),
        segment.number("endOffset"),
        tuple(EpochEntry(epoch, pairs[epoch]) for epoch in sorted(pairs)),
    )


def _range(indexes: JsonObject, name: str) -> ObjectRange | None:
    if indexes.fields.get(name) is None:
        return None
    found = indexes.object(name)
    return ObjectRange(found.number("position", most=_MOST), found.number("size", most=_MOST))


def _encryption(document: JsonObject) -> ChunkEncryption | None:
    if document.fields.get("encryption") is None:
        return None
    found = document.object("encryption")
    key_id, _, key = found.text("dataKey").partition(":")
    return ChunkEncryption(key_id, _base64(key), _base64(found.text("aad")))


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise FormatError("the manifest has invalid base64", found=repr(text[:40])) from None


def _chunks(found: JsonObject) -> ChunkIndex:
    chunk_bytes = found.number("originalChunkSize", least=1, most=_MOST)
    log_bytes = found.number("originalFileSize", most=_MOST)
    kind = found.text("type")
    if kind == "fixed":
        stored = found.number("transformedChunkSize", least=1, most=_MOST)
        last = found.number("finalTransformedChunkSize", least=1, most=_MOST)
        return ChunkIndex(chunk_bytes, log_bytes, stored, last)
    if kind != "variable":
        raise FormatError("unknown kind of chunk index", expected="fixed or variable", found=kind)
    sizes = decode_chunk_sizes(_base64(found.text("transformedChunks")))
    index = ChunkIndex(chunk_bytes, log_bytes, ends=tuple(accumulate(sizes)))
    if len(sizes) != index.count:
        raise FormatError(
            "the manifest has sizes of another number of chunks",
            expected=index.count,
            found=len(sizes),
        )
    return index


def decode_chunk_sizes(data: bytes) -> list[int]:
    """Decode the sizes of chunks from their zstd frame.

    Raises:
        FormatError: they are malformed, or larger than the plugin accepts.
    """
    cursor = Cursor(decompress(Codec.ZSTD, data, limit_bytes=_LARGEST_SIZES))
    count = cursor.int32()
    if count <= 0:
        return []
    if count == 1:
        return [cursor.int32()]
    base, width = cursor.int32(), cursor.int8()
    if not 1 <= width <= 4:
        raise FormatError("impossible width of chunk sizes", expected="1 to 4", found=width)
    deltas = cursor.take((count - 1) * width)
    sizes = [
        base + int.from_bytes(deltas[at : at + width], "big") for at in range(0, len(deltas), width)
    ]
    return [*sizes, cursor.int32()]


_NAME: Final = re.compile(r"([0-9]{20}-[A-Za-z0-9_-]{22})\.(log|indexes|rsm-manifest)")


def parse_object_name(name: str) -> tuple[str, str] | None:
    """The name of a segment, and what the object has; None for any other object."""
    match = _NAME.fullmatch(name)
    return None if match is None else (match[1], match[2])
