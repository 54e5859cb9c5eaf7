"""The list of what was erased, which a log directory keeps until the erasure is finished.

It has the keys and fields themselves, because whatever is left is searched for in the end. So it is
as confidential as the records were. Finishing overwrites and removes it; an undo, which brings the
records back, only removes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Final, Self

from msgspec import Struct, convert, field, to_builtins

from kdump.errors import KdumpError
from kdump.formats.safe_json import json_line
from kdump.payloads.named_fields import NamedField
from kdump.repair.erase.named_records import NamedRecords
from kdump.scan.batches import read_chunks
from kdump.storage.location import Location

FILE_NAME: Final = "kdump-erased.json"
"""In the log directory. Its name has no dot in front: a journal must not name files of runs."""
_FORMAT: Final = "kdump-erased"
MARK: Final = b'"%s"' % _FORMAT.encode()
"""Tells a list, whatever its name."""
_VERSION: Final = 1


class FileDigest(Struct, frozen=True):
    """The content of a file, without its bytes.

    Attributes:
        size_bytes: how long it is.
        sha256: of its bytes, in hexadecimal.
    """

    size_bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Location) -> Self:
        """Read a file.

        Raises:
            OSError: it cannot be read.
        """
        digest = hashlib.sha256()
        with path.open_file() as source:
            size_bytes = source.size_bytes
            for chunk in read_chunks(source, 0, size_bytes):
                digest.update(chunk)
        return cls(size_bytes, digest.hexdigest())


class ErasedSegment(Struct, frozen=True):
    """What was erased of a segment.

    Attributes:
        erased: ranges of offsets, both ends included; every record of them that there was is gone.
        erased_records: how many there were.
        records_without_key: those among them that had no key, or were named by a field: their key
            may be that of many others.
        before: its log before.
        after: its log afterwards.
    """

    base_offset: int
    erased: tuple[tuple[int, int], ...]
    erased_records: int
    records_without_key: int
    before: FileDigest
    after: FileDigest


class ErasedPartition(Struct, frozen=True):
    """What was erased of a replica.

    Attributes:
        partition: ``TOPIC-PARTITION``.
        segments: the segments that lost records.
        topic_id: of its topic; None if nobody knows it.
    """

    partition: str
    segments: tuple[ErasedSegment, ...]
    topic_id: str | None = None


class ErasedRun(Struct, frozen=True):
    """What one run has erased in a log directory.

    Attributes:
        created_ms: when.
        kdump: the version of kdump.
        keys: those that were asked for, and those of the erased records.
        prefixes: those that were asked for.
        partitions: what is gone.
        is_masked: whether the records are there, masked.
        fields: those that were asked for.
        topics: those that were searched for the records.
    """

    created_ms: int
    kdump: str
    keys: frozenset[bytes]
    prefixes: tuple[bytes, ...]
    partitions: tuple[ErasedPartition, ...]
    is_masked: bool = False
    fields: tuple[NamedField, ...] = ()
    topics: tuple[str, ...] = ()

    @property
    def named(self) -> NamedRecords:
        """What must not be found any more."""
        return NamedRecords(self.keys, self.prefixes)

    @property
    def partition_rows(self) -> list[dict[str, Any]]:
        """Its partitions, for JSON."""
        return [to_builtins(each) for each in self.partitions]


class Erased(Struct):
    """What is erased of a segment, as it is found.

    Attributes:
        keys: of the records.
        offsets: of the records, rising.
        records_without_key: how many have none.
    """

    keys: set[bytes] = field(default_factory=set)
    offsets: list[int] = field(default_factory=list)
    records_without_key: int = 0

    def add(self, offset: int, key: bytes | None) -> None:
        self.offsets.append(offset)
        if key is None:
            self.records_without_key += 1
        else:
            self.keys.add(key)

    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The offsets as ranges, both ends included."""
        found: list[tuple[int, int]] = []
        for offset in self.offsets:
            if found and found[-1][1] + 1 == offset:
                found[-1] = (found[-1][0], offset)
            else:
                found.append((offset, offset))
        return tuple(found)


def encode_list(runs: Iterable[ErasedRun]) -> bytes:
    """The file of a log directory."""
    rows = [
        {
            "created_ms": run.created_ms,
            "kdump": run.kdump,
            "is_masked": run.is_masked,
            "keys": sorted(key.hex() for key in run.keys),
            "prefixes": [prefix.hex() for prefix in run.prefixes],
            "fields": [to_builtins(each) for each in run.fields],
            "topics": run.topics,
            "partitions": run.partition_rows,
        }
        for run in runs
    ]
    document = {"format": _FORMAT, "version": _VERSION, "runs": rows}
    return json_line(document)


def read_list(log_dir: Location) -> tuple[ErasedRun, ...]:
    """The runs in the file of a log directory, oldest first; none if it has no such file.

    Raises:
        KdumpError: the file is not what kdump writes there.
        OSError: it cannot be read.
    """
    path = log_dir / FILE_NAME
    if path.kind() is None:
        return ()
    try:
        document = json.loads(path.read())
        if (document["format"], document["version"]) != (_FORMAT, _VERSION):
            raise ValueError("another format or version")
        return tuple(map(_run, document["runs"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise KdumpError(
            f"{path}: is not the list of erased records that this kdump writes; use the version"
            " that has written it, or move the file away"
        ) from problem


def _run(row: dict[str, Any]) -> ErasedRun:
    return ErasedRun(
        int(row["created_ms"]),
        str(row["kdump"]),
        frozenset(map(bytes.fromhex, row["keys"])),
        tuple(map(bytes.fromhex, row["prefixes"])),
        erased_partitions(row["partitions"]),
        bool(row.get("is_masked", False)),  # older lists do not say it
        tuple(convert(each, NamedField) for each in row.get("fields", ())),
        tuple(map(str, row.get("topics", ()))),
    )


def erased_partitions(rows: Any) -> tuple[ErasedPartition, ...]:
    """The partitions of a run, from JSON; older lists have no ids of topics.

    Raises:
        ValueError: they are none.
    """
    return convert(rows, tuple[ErasedPartition, ...])
