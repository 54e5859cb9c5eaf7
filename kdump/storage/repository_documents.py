"""The documents of a repository: directories, snapshots, and what says that it is one.

``docs/backup.md`` describes them for people who read a repository without kdump.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from kdump.formats.json_document import (
    DocumentError,
    JsonObject,
    checked_text,
    document_lines,
    read_document,
)
from kdump.formats.json_struct import (
    LATER,
    Form,
    Integer,
    TimeNs,
    decode_struct,
    encode_struct,
    number,
)
from kdump.storage.entries import is_file_name

REPOSITORY_FORMAT: Final = "kdump-repository"
SNAPSHOT_FORMAT: Final = "kdump-snapshot"
DIRECTORY_FORMAT: Final = "kdump-directory"
VERSION: Final = 1
"""Of all three: a repository has documents of one version only."""

_DIGEST: Final = re.compile("[0-9a-f]{64}")
_PERMISSIONS: Final = re.compile("[0-7]{4}")
_MOST_ID: Final = 2**32 - 1
_MOST_FILE_ID: Final = 2**64 - 1


def _read_digest(value: Any, where: str) -> str:
    if not _DIGEST.fullmatch(checked_text(value, where)):
        raise DocumentError(f"{where}: not a SHA-256 in hexadecimal digits")
    return str(value)


def _read_permissions(value: Any, where: str) -> int:
    if not _PERMISSIONS.fullmatch(checked_text(value, where)):
        raise DocumentError(f"{where}: not four octal digits: {value!r}")
    return int(value, 8)


_Digest: TypeAlias = Annotated[str, Form(_read_digest)]
_Permissions: TypeAlias = Annotated[int, Form(_read_permissions, "{:04o}".format)]
_Id: TypeAlias = Annotated[int, number(most=_MOST_ID)]


class RepositoryPiece(NamedTuple):
    """Bytes that are stored under their SHA-256.

    Attributes:
        sha256: in 64 hexadecimal digits.
        size_bytes: how many bytes.
    """

    sha256: _Digest
    size_bytes: int


Pieces = tuple[RepositoryPiece, ...]


def stored_bytes(pieces: Iterable[RepositoryPiece]) -> int:
    """How many bytes pieces have together."""
    return sum(each.size_bytes for each in pieces)


class FileAttributes(NamedTuple):
    """What a restored file or directory gets besides its bytes.

    Attributes:
        permissions: the permission bits, 0 to 0o7777.
        modified_ns: the modification time.
    """

    permissions: _Permissions
    uid: _Id
    gid: _Id
    modified_ns: TimeNs


class _Damage(Struct, frozen=True):
    """The row of a finding in a file."""

    file: str
    severity: str
    code: str
    position: Integer | None
    offset: Integer | None
    what: str
    expected: str | None
    found: str | None
    loss: str | None


class BackedUpFile(Struct, frozen=True):
    """A file of a snapshot.

    Attributes:
        name: in its directory.
        attributes: as it had them.
        changed_ns: when it last changed in any way (``st_ctime``), which tells whether it has
            changed since.
        file_id: its number on its disk, likewise.
        content: all its bytes, if they are few.
        pieces: otherwise where its bytes are; joined, they are the file.
        damage: what was found in it: rows of findings, with the name of the ``file`` for a path.
    """

    name: str
    size_bytes: int
    attributes: FileAttributes
    changed_ns: int
    file_id: int
    content: bytes | None = None
    pieces: Pieces = ()
    damage: tuple[Mapping[str, Any], ...] = ()

    def fields(self) -> dict[str, Any]:
        """As the document of its directory has it."""
        fields: dict[str, Any] = {"name": self.name, "size_bytes": self.size_bytes}
        fields |= encode_struct(self.attributes)
        fields |= {"changed_ns": self.changed_ns, "file_id": self.file_id}
        if self.content is not None:
            fields["base64"] = base64.b64encode(self.content).decode()
        else:
            fields["pieces"] = [each._asdict() for each in self.pieces]
        if self.damage:
            fields["damage"] = list(self.damage)
        return fields

    @classmethod
    def decoded(cls, fields: JsonObject) -> BackedUpFile:
        size_bytes = fields.number("size_bytes")
        content = None
        pieces: Pieces = ()
        if "base64" in fields.fields:
            try:
                content = base64.b64decode(fields.text("base64"), validate=True)
            except binascii.Error as error:
                raise DocumentError(f"{fields.path('base64')}: {error}") from None
            found_bytes = len(content)
        else:
            pieces = tuple(map(_piece, fields.objects("pieces")))
            found_bytes = stored_bytes(pieces)
        if found_bytes != size_bytes:
            what = f"not the size of what is stored: {found_bytes}"
            raise DocumentError(f"{fields.path('size_bytes')}: {what}")
        return cls(
            _name(fields),
            size_bytes,
            _attributes(fields),
            fields.time_ns("changed_ns"),
            fields.number("file_id", most=_MOST_FILE_ID),
            content,
            pieces,
            tuple(map(_damage, fields.objects("damage"))) if "damage" in fields.fields else (),
        )


class StoredDirectory(NamedTuple):
    """A directory in another: its name, and the piece that is its document."""

    name: str
    document: RepositoryPiece


class BackedUpDirectory(Struct, frozen=True):
    """A directory of a snapshot, at any depth."""

    attributes: FileAttributes
    files: tuple[BackedUpFile, ...] = ()
    directories: tuple[StoredDirectory, ...] = ()

    def document(self) -> bytes:
        """Its text: the same for the same directory."""
        fields = {
            "format": DIRECTORY_FORMAT,
            "version": VERSION,
            **encode_struct(self.attributes),
            "files": [each.fields() for each in self.files],
            "directories": [
                {"name": each.name, **each.document._asdict()} for each in self.directories
            ],
        }
        return b"".join(document_lines(fields, {"files", "directories"}))

    @classmethod
    def decoded(cls, data: bytes) -> BackedUpDirectory:
        """Read its document.

        Raises:
            DocumentError: it is malformed.
        """
        fields = read_document(data, DIRECTORY_FORMAT, VERSION)
        found = cls(
            _attributes(fields),
            tuple(map(BackedUpFile.decoded, fields.objects("files"))),
            tuple(
                StoredDirectory(_name(each), _piece(each)) for each in fields.objects("directories")
            ),
        )
        names = [*(each.name for each in found.files), *(each.name for each in found.directories)]
        if len({*names}) < len(names):
            raise DocumentError("two of its entries have the same name")
        return found


class NotBackedUp(Struct, frozen=True):
    """Something that a backup cannot have, and why."""

    path: str
    what: str


class BackedUpLogDirectory(Struct, frozen=True):
    """A log directory of a snapshot.

    Attributes:
        path: absolute, without links.
        host: the name of the machine.
        cluster_id: from ``meta.properties``; None if that is missing or does not say.
        node_id: likewise.
        directory_id: likewise, as Kafka writes it.
        root: the piece that is the document of its root.
        partitions: how many directories of partitions it has.
        files: how many files.
        size_bytes: of its files.
        added_bytes: how many the repository did not have before.
        damaged_files: in how many files damage was found.
        left_out: what the backup does not have.
        is_in_use: whether a broker was using it: it is as after a crash.
    """

    path: str
    host: str
    cluster_id: str | None
    node_id: Integer | None
    directory_id: str | None
    root: RepositoryPiece
    partitions: int
    files: int
    size_bytes: int
    added_bytes: int
    damaged_files: int
    left_out: tuple[NotBackedUp, ...] = ()
    is_in_use: Annotated[bool, LATER] = False

    @property
    def identity(self) -> tuple[str, str | None, int | None, str | None]:
        """The same as of an earlier backup of the same disk."""
        return self.path, self.cluster_id, self.node_id, self.directory_id


class Snapshot(Struct, frozen=True):
    """What was backed up by one run.

    Attributes:
        begun_ms: when the run began.
        ended_ms: when everything else was stored.
        kdump: the version that wrote it.
    """

    begun_ms: int
    ended_ms: int
    kdump: str
    log_dirs: tuple[BackedUpLogDirectory, ...]

    def document(self) -> bytes:
        head = {"format": SNAPSHOT_FORMAT, "version": VERSION, "kdump": self.kdump}
        return b"".join(document_lines(head | encode_struct(self), {"log_dirs"}))

    @classmethod
    def decoded(cls, data: bytes) -> Snapshot:
        """Read its document.

        Raises:
            DocumentError: it is malformed.
        """
        return decode_struct(cls, read_document(data, SNAPSHOT_FORMAT, VERSION), is_open=True)


def repository_document(created_ms: int) -> bytes:
    """The file that says that a directory is a repository."""
    fields = {"format": REPOSITORY_FORMAT, "version": VERSION, "created_ms": created_ms}
    return json.dumps(fields).encode() + b"\n"


def _piece(fields: JsonObject) -> RepositoryPiece:
    return decode_struct(RepositoryPiece, fields, is_open=True)


def _attributes(fields: JsonObject) -> FileAttributes:
    return decode_struct(FileAttributes, fields, is_open=True)


def _name(fields: JsonObject) -> str:
    """The name of a file that cannot lead out of its directory."""
    name = fields.text("name")
    if not is_file_name(name):
        raise DocumentError(f"{fields.path('name')}: no file can have this name: {name!r:.80}")
    return name


def _damage(fields: JsonObject) -> Mapping[str, Any]:
    return encode_struct(decode_struct(_Damage, fields, is_open=True))
