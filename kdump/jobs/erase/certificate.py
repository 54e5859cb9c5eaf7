"""The certificate of an erasure: what was erased, what was searched, what was not reached.

Keys and fields are in it only as HMACs under a random salt that it names: whoever knows one can
look it up, nobody can read one off. (Whoever guesses keys can try them: a certificate about short
numbers tells as much as a list of those numbers.)
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, to_builtins

import kdump
from kdump.errors import KdumpError
from kdump.log.directory import LogDirectory
from kdump.payloads.named_fields import NamedField
from kdump.repair.erase.erased_list import ErasedRun, erased_partitions
from kdump.repair.erase.erased_offsets import ErasedOffsets
from kdump.repair.erase.key_search import LEAST_BYTES, FieldsOfTopics
from kdump.repair.erase.named_records import NamedRecords
from kdump.storage.location import Location
from kdump.words import counted

FORMAT: Final = "kdump-erase-certificate"
_VERSION: Final = 1
_ALGORITHM: Final = "HMAC-SHA256"
_SALT_BYTES: Final = 32

_ALWAYS_OUT_OF_REACH: Final = (
    "log directories that are not listed here, of these and of other brokers",
    "names of files and directories, and extended attributes",
    (
        "snapshots of the file system, backups, mirrors, exports, and the stores of consumers and"
        " of stream processors on other disks"
    ),
    (
        "free blocks of the disks: what was removed now was overwritten first, which reaches the"
        " old blocks only where the file system and the disk write in place; what brokers, the log"
        " cleaner and earlier runs have deleted was not overwritten"
    ),
    (
        "bytes that no reader decodes: compressed data other than whole batches in indexes and in"
        " snapshots of producers, and what follows the last whole message in the compressed data of"
        " a batch; what follows the end of that was searched only for keys of 8 bytes or more which"
        " are in no field of a record of the same file, not even as a part of a longer word"
    ),
    (
        "keys of digits in checkpoints and other small files of Kafka, and binary numbers of 4 or 8"
        " bytes in its indexes and snapshots; and keys of zeroes only in bytes that are no records"
    ),
    (
        "keys in another form, such as compressed, encrypted, hashed, in other upper and lower"
        " case, or as a part of a longer word, in keys, values, headers and other files; but"
        " base64, UTF-16 and what JSON and URLs escape was searched, and in other files hexadecimal"
    ),
)


class SearchedRemote(Struct, frozen=True):
    """Remote storage that was searched.

    Attributes:
        segments: how many.
        holding: names of those in which something was found, or that cannot be read.
    """

    segments: int
    holding: Sequence[str]


class CertifiedDirectory(Struct, frozen=True):
    """A log directory in a certificate.

    Attributes:
        runs: what was erased in it.
        overwritten_bytes: how many bytes of undo data were overwritten.
    """

    directory: LogDirectory
    runs: Sequence[ErasedRun]
    searched_files: int
    searched_bytes: int
    overwritten_bytes: int

    def row(self) -> dict[str, Any]:
        meta = self.directory.meta_properties
        directory_id = None if meta is None else meta.directory_id
        return {
            "log_dir": str(self.directory.path),
            "cluster_id": None if meta is None else meta.cluster_id,
            "node_id": None if meta is None else meta.node_id,
            "directory_id": None if directory_id is None else str(directory_id),
            "searched_files": self.searched_files,
            "searched_bytes": self.searched_bytes,
            "overwritten_bytes": self.overwritten_bytes,
            "runs": [
                {
                    "created_ms": run.created_ms,
                    "kdump": run.kdump,
                    "is_masked": run.is_masked,
                    "partitions": run.partition_rows,
                }
                for run in self.runs
            ],
        }


def encode_certificate(
    directories: Iterable[CertifiedDirectory],
    named: NamedRecords,
    fields: FieldsOfTopics,
    *,
    undecoded_records: int,
    possible_places: int,
    remote: SearchedRemote | None,
    remote_topics: Sequence[str],
    now_ms: int,
    salt: bytes | None = None,
) -> bytes:
    """The certificate as JSON.

    Args:
        named: the keys that were searched.
        fields: those that were looked for.
        undecoded_records: records of these topics that cannot be decoded, or only in part.
        possible_places: how often a key may be in other keys and values.
        remote: the remote storage that was searched; None if none was.
        remote_topics: topics with remote storage in these log directories.
        salt: of the hashes; None for a random one.
    """
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    rows = [each.row() for each in directories]
    short = sum(len(each) < LEAST_BYTES for each in (*named.keys, *named.prefixes))
    segments = [
        (run, segment)
        for row in rows
        for run in row["runs"]
        for partition in run["partitions"]
        for segment in partition["segments"]
    ]
    without_key = sum(segment["records_without_key"] for _, segment in segments)
    masked = sum(segment["erased_records"] for run, segment in segments if run["is_masked"])
    document = {
        "format": FORMAT,
        "version": _VERSION,
        "kdump": kdump.__version__,
        "created_ms": now_ms,
        "hash": {"algorithm": _ALGORITHM, "salt": salt.hex()},
        "keys": sorted(keyed_hash(salt, key) for key in named.keys),
        "prefixes": sorted(keyed_hash(salt, prefix) for prefix in named.prefixes),
        "fields": [
            {"hash": keyed_hash(salt, each.identity), "topic": topic}
            for topic, found in fields.items()
            for each in found
        ],
        "short_keys": short,
        "records_without_key": without_key,
        "undecoded_records": undecoded_records,
        "possible_places": possible_places,
        "remote": None if remote is None else to_builtins(remote),
        "log_directories": rows,
        "not_reached": [
            *_ALWAYS_OUT_OF_REACH,
            *_in_remote_storage(remote, remote_topics),
            *_also(short, without_key, masked),
            *_possible(possible_places),
            *_beside_fields(fields, undecoded_records),
        ],
    }
    return (json.dumps(document, indent=2) + "\n").encode()


def _in_remote_storage(
    remote: SearchedRemote | None, remote_topics: Sequence[str]
) -> Iterable[str]:
    if remote is None:
        yield "segments and indexes in remote storage"
        if remote_topics:
            yield f"remote storage of these topics, which is enabled: {', '.join(remote_topics)}"
        return
    yield "remote storage but for the logs of the segments that were searched"
    if remote.holding:
        yield (
            "these remote segments, in which keys or fields were found, or which cannot be read:"
            f" {', '.join(remote.holding)}"
        )


def _also(short: int, without_key: int, masked: int) -> Iterable[str]:
    if short:
        yield (
            f"{counted(short, 'key')} of less than {LEAST_BYTES} bytes inside other fields and"
            " other bytes: searched only as whole keys of records"
        )
    if without_key:
        yield (
            f"copies of {counted(without_key, 'erased record')} without a key to search for, or"
            " named only by a field, so that the key can be that of many others: searched only at"
            " their offsets, in files whose partition is known"
        )
    if masked:
        yield (
            "offsets, times, sizes, names of headers and hashed keys of"
            f" {counted(masked, 'masked record')}:"
            " whoever knows a key, and the secret if there was one, can compute its hash"
        )


def _possible(places: int) -> Iterable[str]:
    if places:
        yield (
            f"{counted(places, 'possible place')} of keys in other keys and values: what is beside"
            " it makes a longer word of it in text, and not in every binary format"
        )


def _beside_fields(fields: FieldsOfTopics, undecoded_records: int) -> Iterable[str]:
    if fields:
        yield (
            f"fields in anything but records of {', '.join(fields)}; in JSON and other data that is"
            " written in a string or in bytes; and in records that were decoded by a schema of"
            " another registry which fits them, too"
        )
    if undecoded_records:
        yield (
            f"fields of {counted(undecoded_records, 'record')} of these topics and of undo data:"
            " the key or the value cannot be decoded, or only in part"
        )


def keyed_hash(salt: bytes, key: bytes) -> str:
    """The hash of a key in a certificate."""
    return hmac.digest(salt, key, "sha256").hex()


class ComparedNames(Struct, frozen=True):
    """How what is given to look for fits a certificate.

    Attributes:
        unknown_keys: given keys that it does not have.
        unknown_prefixes: likewise.
        unknown_fields: likewise.
        fields: given fields that it has.
        fields_left: fields of it that are not given; only its keys are searched by their hashes.
        prefixes_left: likewise.
    """

    unknown_keys: int
    unknown_prefixes: int
    unknown_fields: int
    fields: int
    fields_left: int
    prefixes_left: int

    @property
    def are_equal(self) -> bool:
        """Whether all that is given is in the certificate, and all of it can be looked for."""
        unknown = self.unknown_keys + self.unknown_prefixes + self.unknown_fields
        return not (unknown or self.fields_left or self.prefixes_left)


class Certificate(Struct, frozen=True):
    """What verifying needs of a certificate.

    Attributes:
        salt: of its hashes.
        keys: the hashes of the erased keys.
        records_without_key: erased records that no key can find.
        fields: the topics of each erased field, by its hash.
        prefixes: the hashes of the erased prefixes of keys.
        erased: where no record must be.
    """

    salt: bytes
    keys: frozenset[str]
    records_without_key: int
    fields: Mapping[str, Sequence[str]]
    prefixes: frozenset[str]
    erased: ErasedOffsets

    def has(self, key: bytes) -> bool:
        """Whether the certificate is about this key."""
        return keyed_hash(self.salt, key) in self.keys

    def compare(self, given: NamedRecords) -> ComparedNames:
        """Compare what is given to look for with what the certificate is about."""
        keys, prefixes, fields = (
            {keyed_hash(self.salt, each) for each in names}
            for names in (given.keys, given.prefixes, (each.identity for each in given.fields))
        )
        return ComparedNames(
            unknown_keys=len(keys - self.keys),
            unknown_prefixes=len(prefixes - self.prefixes),
            unknown_fields=len(fields - self.fields.keys()),
            fields=len(fields & self.fields.keys()),
            fields_left=len(self.fields.keys() - fields),
            prefixes_left=len(self.prefixes - prefixes),
        )

    def topics_of(self, field: NamedField) -> Sequence[str]:
        """The topics in which this field was erased; none if the certificate is not about it."""
        return self.fields.get(keyed_hash(self.salt, field.identity), ())


def read_certificate(path: Location) -> Certificate:
    """Read a certificate.

    Raises:
        KdumpError: it is none.
        OSError: it cannot be read.
    """
    try:
        document: Mapping[str, Any] = json.loads(path.read())
        if (document["format"], document["version"]) != (FORMAT, _VERSION):
            raise ValueError("another format or version")
        if document["hash"]["algorithm"] != _ALGORITHM:
            raise ValueError("another hash")
        keys = frozenset(map(str, document["keys"]))
        salt = bytes.fromhex(document["hash"]["salt"])
        fields: dict[str, list[str]] = {}
        for each in document["fields"]:
            fields.setdefault(str(each["hash"]), []).append(str(each["topic"]))
        prefixes = frozenset(map(str, document["prefixes"]))
        erased = ErasedOffsets.of(
            partition
            for directory in document["log_directories"]
            for run in directory["runs"]
            if not run["is_masked"]
            for partition in erased_partitions(run["partitions"])
        )
        without_key = int(document["records_without_key"])
        return Certificate(salt, keys, without_key, fields, prefixes, erased)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise KdumpError(f"{path}: is not a certificate that this kdump can verify") from problem
