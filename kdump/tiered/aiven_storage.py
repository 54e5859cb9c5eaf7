"""The objects of Aiven's tiered storage plugin, seen as ``LocalTieredStorage`` would store them.

The plugin names objects ``TOPIC-TOPIC_ID/PARTITION/OFFSET-SEGMENT_ID`` with the suffixes ``log``,
``indexes`` and ``rsm-manifest`` (``ObjectKeyFactory``). Logs are decompressed and decrypted as they
are read, a chunk at a time.
"""

from __future__ import annotations

import errno
import functools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kdump.errors import KdumpError
from kdump.formats.compression import Codec, decompress
from kdump.formats.errors import FormatError
from kdump.formats.names import is_topic_name
from kdump.formats.remote_names import (
    RemoteFileKind,
    TopicIdPartition,
    parse_remote_directory_name,
    parse_remote_file_name,
    parse_topic_directory_name,
)
from kdump.formats.segment_manifest import (
    IV_BYTES,
    TAG_BYTES,
    ObjectRange,
    SegmentManifest,
    decode_segment_manifest,
    parse_object_name,
)
from kdump.scan.source import read_at
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.location import Location, StoredFile
from kdump.storage.memory_file import MemoryFile
from kdump.storage.rooted_storage import RootedStorage
from kdump.tiered.private_keys import chunk_cipher, data_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_CHUNKS_KEPT: Final = 2
LARGEST_CHUNK_BYTES: Final = 128 << 20
"""Of larger chunks nothing is decoded; the plugin's default is 4 MiB."""
_ADDED_BYTES: Final = IV_BYTES + TAG_BYTES
_FRAME_BYTES: Final = 1 << 20
"""More than zstd adds to a chunk of random bytes."""


@dataclass(frozen=True, slots=True)
class AivenStorage(RootedStorage):
    """Objects of Aiven's plugin, as one directory for each partition.

    The root is ``/``, a partition ``/TOPIC-PARTITION-TOPIC_ID``.

    Attributes:
        objects: the directory of all objects: the prefix of their keys.
        private_key: decrypts what is encrypted; None without one.
        made: differs between two views of the same objects: they may have changed meanwhile.
    """

    objects: Location
    private_key: Location | None = None
    made: str = field(default_factory=lambda: uuid.uuid4().hex)

    def name_of(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        if parse_remote_file_name(name) is None:
            return str(self._folder(path) or self.objects)
        return str(self._object(folder, name))

    def entries(self, path: str) -> list[Entry]:
        if path in ("/", "."):
            return list(self._partitions())
        return list(self._files(path))

    def status(self, path: str) -> Entry:
        folder, _, name = path.rpartition("/")
        if parse_remote_file_name(name) is None:
            located = self._folder(path) or self.objects
            return located.status()._replace(name=name)
        found = {each.name: each for each in self._files(folder)}
        if name not in found:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", self.name_of(path))
        return found[name]

    def open_file(self, location: Location) -> StoredFile:
        folder, _, name = location.path.rpartition("/")
        parsed = parse_remote_file_name(name)
        if parsed is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(location))
        stored = self._object(folder, name)
        _, manifest = self.manifest_of(location.path)
        reader = _Reader(manifest, _key(self, manifest))
        if parsed.kind is RemoteFileKind.LOG:
            return _Log(location, reader, stored.open_file())
        return MemoryFile(location, reader.index(stored, parsed.kind))

    def manifest_of(self, path: str) -> tuple[Location, SegmentManifest]:
        """Read the manifest of a file's segment, once for all of this view.

        Raises:
            OSError: it cannot be read, or is malformed.
        """
        folder, _, name = path.rpartition("/")
        located = self._object(folder, name).parent / f"{_stem(name)}.rsm-manifest"
        return located, _manifest(located, self.made)

    def _partitions(self) -> Iterator[Entry]:
        for topic in self.objects.entries():
            parsed = parse_topic_directory_name(topic.name)
            if topic.kind is not EntryKind.DIRECTORY or parsed is None:
                continue
            for number in (self.objects / topic.name).entries():
                if number.kind is EntryKind.DIRECTORY and number.name.isdecimal():
                    name = f"{parsed[0]}-{number.name}-{parsed[1]}"
                    yield Entry(name, EntryKind.DIRECTORY)

    def _folder(self, path: str) -> Location | None:
        """The directory of a partition's objects."""
        owner = parse_remote_directory_name(path.rpartition("/")[2])
        return None if owner is None else self.objects / _topic(owner) / _number(owner)

    def _object(self, folder: str, name: str) -> Location:
        """The object that has a file of a segment."""
        located = self._folder(folder) or self.objects
        suffix = "log" if name.endswith(RemoteFileKind.LOG.value) else "indexes"
        return located / f"{_stem(name)}.{suffix}"

    def _files(self, path: str) -> Iterator[Entry]:
        """The files of a partition's segments; objects that are of no manifest as they are."""
        folder = self._folder(path)
        if folder is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        objects = {each.name: each for each in folder.entries()}
        for name, entry in objects.items():
            parsed = parse_object_name(name)
            if parsed is None or f"{parsed[0]}.rsm-manifest" not in objects:
                yield entry
            elif parsed[1] == "rsm-manifest":
                yield from self._segment_files(folder, parsed[0], objects)

    def _segment_files(
        self, folder: Location, stem: str, objects: dict[str, Entry]
    ) -> Iterator[Entry]:
        """The files of a segment; a log that cannot be opened if the manifest is malformed."""
        log = objects.get(f"{stem}.log")
        try:
            manifest = _manifest(folder / f"{stem}.rsm-manifest", self.made)
        except OSError:
            if log is not None:
                yield log
            return
        if log is not None:
            yield log._replace(size_bytes=manifest.chunks.log_bytes)
        indexes = objects.get(f"{stem}.indexes")
        for kind, stored in manifest.indexes.items():
            if indexes is not None:
                size = stored.size_bytes
                if manifest.encryption is not None and size:
                    size = max(0, size - _ADDED_BYTES)
                yield indexes._replace(name=f"{stem}{kind.value}", size_bytes=size)


def _stem(name: str) -> str:
    return name.partition(".")[0]


def _topic(owner: TopicIdPartition) -> str:
    return f"{owner.topic_partition.topic}-{owner.topic_id}"


def _number(owner: TopicIdPartition) -> str:
    return str(owner.topic_partition.partition)


@functools.lru_cache(maxsize=4096)
def _manifest(path: Location, _made: str) -> SegmentManifest:
    try:
        return decode_segment_manifest(path.read())
    except FormatError as problem:
        raise OSError(errno.EINVAL, str(problem), str(path)) from problem


@functools.lru_cache(maxsize=1024)
def _decrypted(private_key: Location, encrypted: bytes, _made: str) -> bytes:
    return data_key(private_key, encrypted)


def _key(storage: AivenStorage, manifest: SegmentManifest) -> AESGCM | None:
    """The cipher of a segment; None if it is not encrypted.

    Raises:
        KdumpError: there is no key, or not the right one.
    """
    if manifest.encryption is None:
        return None
    if storage.private_key is None:
        raise KdumpError(
            f"{storage.objects}: remote segments are encrypted with the key"
            f" {manifest.encryption.key_id!r}: give it with --private-key"
        )
    return chunk_cipher(_decrypted(storage.private_key, manifest.encryption.data_key, storage.made))


class _Reader:
    """Reads and decodes what is stored of a segment."""

    def __init__(self, manifest: SegmentManifest, cipher: AESGCM | None) -> None:
        self.manifest = manifest
        self._cipher = cipher

    @property
    def is_plain(self) -> bool:
        """Whether the stored bytes are those of the log."""
        return not self.manifest.is_compressed and self._cipher is None

    def chunk(self, file: StoredFile, number: int) -> bytes:
        """A chunk of the log.

        Raises:
            OSError: it cannot be read, or is damaged.
        """
        size = self.manifest.chunks.size_of(number)
        if size > LARGEST_CHUNK_BYTES:
            most = LARGEST_CHUNK_BYTES >> 20
            raise _damaged(file, f"chunks of {size} bytes: at most {most} MiB are decoded")
        data = self._stored(file, self.manifest.chunks.stored(number), f"chunk {number}")
        if self.manifest.is_compressed:
            try:
                data = decompress(Codec.ZSTD, data, limit_bytes=size)
            except FormatError as problem:
                raise _UndecodableError(file, f"chunk {number}: {problem.what}") from problem
        if len(data) != size:
            what = f"chunk {number} has {len(data)} bytes instead of {size}"
            raise _UndecodableError(file, what)
        return data

    def index(self, path: Location, kind: RemoteFileKind) -> bytes:
        """A small file of the segment.

        Raises:
            OSError: it is not there, cannot be read, or is damaged.
        """
        stored = self.manifest.indexes.get(kind)
        if stored is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        with path.open_file() as file:
            return self._stored(file, stored, kind.value[1:])

    def _stored(self, file: StoredFile, where: ObjectRange, what: str) -> bytes:
        """Stored bytes, decrypted."""
        if where.position + where.size_bytes > file.size_bytes:
            raise _damaged(file, f"it ends before {what} does")
        if where.size_bytes > LARGEST_CHUNK_BYTES + _ADDED_BYTES + _FRAME_BYTES:
            raise _damaged(file, f"{what} takes {where.size_bytes} bytes")
        data = read_at(file, where.position, where.size_bytes)
        if len(data) != where.size_bytes:
            raise _damaged(file, f"it ends before {what} does")
        if self._cipher is None or not data:
            return data
        from cryptography.exceptions import InvalidTag

        assert self.manifest.encryption is not None
        iv, rest = data[:IV_BYTES], data[IV_BYTES:]
        try:
            return self._cipher.decrypt(iv, rest, self.manifest.encryption.additional_data)
        except (InvalidTag, ValueError) as problem:
            raise _UndecodableError(file, f"{what} cannot be decrypted") from problem


class _UndecodableError(OSError):
    """Stored bytes were read, and are not what the plugin wrote."""

    def __init__(self, file: StoredFile, what: str) -> None:
        super().__init__(errno.EIO, f"damaged: {what}", str(file.location))


def _damaged(file: StoredFile, what: str) -> OSError:
    return OSError(errno.EIO, f"damaged: {what}", str(file.location))


class _Log(StoredFile):
    """The log of a segment, decoded as it is read: one or two chunks are in memory.

    A log that is neither compressed nor encrypted is read as it is. Chunks are decoded one by one:
    one that cannot be is read as bytes that are of no batch, and those after it are not lost.
    """

    def __init__(self, location: Location, reader: _Reader, file: StoredFile) -> None:
        super().__init__(location, reader.manifest.chunks.log_bytes)
        self._reader = reader
        self._file = file
        self._chunks: dict[int, bytes] = {}

    def read_into(self, buffer: memoryview, position: int) -> int:
        filled = 0
        chunk_bytes = self._reader.manifest.chunks.chunk_bytes
        wanted = max(0, min(len(buffer), self.size_bytes - position))
        if self._reader.is_plain:
            filled = self._file.read_into(buffer[:wanted], position)
            if filled < wanted:
                raise _damaged(self._file, "it ends before the log does")
        while filled < wanted:
            number, start = divmod(position + filled, chunk_bytes)
            piece = self._chunk(number)[start : start + wanted - filled]
            buffer[filled : filled + len(piece)] = piece
            filled += len(piece)
        self.reached_bytes = position + filled
        return filled

    def _chunk(self, number: int) -> bytes:
        chunk = self._chunks.get(number)
        if chunk is None:
            try:
                chunk = self._reader.chunk(self._file, number)
            except _UndecodableError:
                # Not zeros, which may be padding.
                chunk = b"\xff" * self._reader.manifest.chunks.size_of(number)
            while len(self._chunks) >= _CHUNKS_KEPT:
                del self._chunks[next(iter(self._chunks))]
            self._chunks[number] = chunk
        return chunk

    def close(self) -> None:
        self._chunks.clear()
        self._file.close()


def manifest_of(log: Location) -> tuple[Location, SegmentManifest] | None:
    """The manifest of the segment that a log is of; None where logs have none.

    Raises:
        OSError: it cannot be read, or is malformed.
    """
    storage = log.storage
    if not isinstance(storage, AivenStorage):
        return None
    return storage.manifest_of(log.path)


def has_aiven_objects(objects: Location) -> bool:
    """Whether a directory looks like the prefix of the plugin's objects.

    Raises:
        OSError: it cannot be listed.
    """
    for topic in objects.entries():
        parsed = parse_topic_directory_name(topic.name)
        if topic.kind is EntryKind.DIRECTORY and parsed is not None and is_topic_name(parsed[0]):
            inside = (objects / topic.name).entries()
            if any(each.kind is EntryKind.DIRECTORY and each.name.isdecimal() for each in inside):
                return True
    return False
