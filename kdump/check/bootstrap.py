"""Check ``bootstrap.checkpoint``, the first metadata of a cluster.

Follows ``BootstrapDirectory`` and ``BatchFileReader``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from kdump.check import invariants
from kdump.check.findings import Finding, Place, Severity
from kdump.errors import reason_of
from kdump.formats import names
from kdump.scan.batches import Stop, Window
from kdump.scan.records import RecordColumns
from kdump.scan.walk import expand_window, walk_windows
from kdump.storage.entries import EntryKind
from kdump.storage.location import Location

_FRAME_VERSION: Final = 1
_MAGIC: Final = 2
_FEATURE: Final = "FEATURE_LEVEL_RECORD"
_METADATA_VERSION: Final = "metadata.version"


def check_bootstrap(log_dir: Location) -> Iterator[Finding]:
    """Check that ``bootstrap.checkpoint``, if it exists, has the cluster's first metadata version.

    A broker reads only the one beside the cluster's metadata. It reads batches up to the first
    incomplete one, ignores their checksums, and refuses records that it cannot decode.
    """
    path = log_dir / names.BOOTSTRAP_CHECKPOINT
    if path.kind() is not EntryKind.FILE:
        return
    try:
        bootstrap = _read_bootstrap(path)
    except OSError as failure:
        yield invariants.FILE_UNREADABLE.finding(
            Place(str(path)), f"cannot be read: {reason_of(failure)}"
        )
        return
    if bootstrap.problem:
        yield invariants.BOOTSTRAP_MALFORMED.finding(
            Place(str(path)),
            f"the cluster's first metadata cannot be read: {bootstrap.problem}; a broker does not"
            " start",
        )
    elif bootstrap.is_damaged:
        yield invariants.BOOTSTRAP_MALFORMED.finding(
            Place(str(path)),
            "the cluster's first metadata is damaged; a broker does not check its checksums, and"
            " may not start",
            severity=Severity.ERROR,
        )


class _Bootstrap(Struct, frozen=True):
    """The problems of ``bootstrap.checkpoint``.

    Attributes:
        problem: why a broker reads no metadata version from it; empty if it does.
        is_damaged: whether a checksum does not match, or bytes are not a batch.
    """

    problem: str
    is_damaged: bool


def _read_bootstrap(path: Location) -> _Bootstrap:
    """Read the file once, for what a broker reads and for the checksums that it ignores.

    Brokers write magic 2 here.
    """
    has_version = is_damaged = False
    with path.open_file() as source:
        for step in walk_windows(source, follow_bad=False):
            if isinstance(step, Window):
                is_valid = step.batches.is_valid & (step.batches.magic == _MAGIC)
                is_damaged |= not is_valid.all()
                for columns in expand_window(step, with_records=True):
                    if not isinstance(columns, RecordColumns):
                        continue
                    if columns.problems:
                        return _Bootstrap("a record is malformed", is_damaged)
                    has_version |= any(map(_is_metadata_version, _values(columns)))
            elif isinstance(step, Stop) and step.problem is not None:
                is_damaged = True
                if step.is_fatal_to_kafka:
                    return _Bootstrap(step.problem.what, is_damaged)
    return _Bootstrap("" if has_version else "it has no metadata.version", is_damaged)


def _values(columns: RecordColumns) -> Iterator[bytes]:
    for row in range(len(columns.batch)):
        value = columns.value(row)
        if value and len(value) > 1 and value[0] == _FRAME_VERSION:
            yield value


def _is_metadata_version(value: bytes) -> bool:
    # It imports the schemas of all internal topics, and few directories have this file.
    from kdump.formats import internal_topics

    parsed = internal_topics.parse_cluster_metadata(None, value, 0)
    return (
        parsed.type_name == _FEATURE
        and parsed.value is not None
        and parsed.value["name"] == _METADATA_VERSION
    )
