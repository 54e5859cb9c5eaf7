"""Check what a broker needs to start, before it loads any partition.

That is the cluster and node of each directory, and the first metadata of the cluster. Follows
``KafkaRaftServer.initializeLogDirs`` and ``MetaPropertiesEnsemble``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kdump.check import invariants
from kdump.check.findings import Finding, Place, Severity
from kdump.formats import names
from kdump.formats.meta_properties import MetaProperties
from kdump.formats.uuids import format_uuid
from kdump.log.directory import LogDirectory
from kdump.log.problems import FileProblem
from kdump.scan.batches import Stop, Window
from kdump.scan.records import RecordColumns
from kdump.scan.walk import expand_window, walk_windows
from kdump.storage.entries import EntryKind
from kdump.storage.location import Location

_FIRST_FREE_ID: Final = 100
"""Kafka reserves the directory ids below it (``DirectoryId.reserved``)."""
_FRAME_VERSION: Final = 1
_MAGIC: Final = 2
_FEATURE: Final = "FEATURE_LEVEL_RECORD"
_METADATA_VERSION: Final = "metadata.version"


def check_start(directories: Sequence[LogDirectory]) -> Iterator[Finding]:
    """Check what a broker needs to start with log directories.

    Args:
        directories: the log directories of one broker.
    """
    for each in directories:
        yield from _check_readable(each, len(directories))
    yield from _check_complete(directories)
    yield from _check_same_broker(directories)
    yield from _check_directory_ids(directories)
    for each in directories:
        if _has_metadata(each):
            yield from check_bootstrap(each.path)


def is_reserved(directory_id: UUID) -> bool:
    """Whether Kafka reserves a directory id."""
    most, least = directory_id.int >> 64, directory_id.int & (1 << 64) - 1
    return most == 0 and (least < _FIRST_FREE_ID or least >= 1 << 63)


def _place(directory: LogDirectory) -> Place:
    return Place(str(directory.path / names.META_PROPERTIES))


def _has_metadata(directory: LogDirectory) -> bool:
    return any(partition.is_cluster_metadata for partition in directory.partitions)


def _problem_of(directory: LogDirectory) -> FileProblem | None:
    found = (each for each in directory.problems if each.path.name == names.META_PROPERTIES)
    return next(found, None)


def _check_readable(directory: LogDirectory, directories: int) -> Iterator[Finding]:
    """Check that ``meta.properties`` can be read."""
    problem = _problem_of(directory)
    if problem is None or isinstance(problem.error, OSError):
        return
    error = problem.error
    what = (
        "meta.properties cannot be read: a broker does not start"
        if directories == 1 or _has_metadata(directory)
        else "meta.properties cannot be read: a broker starts without this directory, and does not"
        " serve its partitions"
    )
    yield invariants.META_PROPERTIES_MALFORMED.finding(
        Place(str(problem.path), error.position),
        f"{what} ({error.what})",
        expected=error.expected,
        found=error.found,
    )


def _check_complete(directories: Sequence[LogDirectory]) -> Iterator[Finding]:
    """Check that every directory has its cluster and node id."""
    is_known = any(each.meta_properties is not None for each in directories)
    is_kraft = any(map(_has_metadata, directories)) or any(
        each.meta_properties is not None and each.meta_properties.version >= 1
        for each in directories
    )
    for each in directories:
        properties = each.meta_properties
        if properties is None:
            if _problem_of(each) is None and (is_known or is_kraft):
                yield invariants.META_PROPERTIES_MISSING.finding(
                    _place(each), "there is no meta.properties: a broker does not start"
                )
        elif properties.node_id is None:
            yield _incomplete(each, "node id", properties)
        elif properties.cluster_id is None and is_kraft:
            yield _incomplete(each, "cluster id", properties)


def _incomplete(directory: LogDirectory, what: str, properties: MetaProperties) -> Finding:
    return invariants.META_PROPERTIES_INCOMPLETE.finding(
        _place(directory),
        f"meta.properties has no {what}: a broker does not start ({what} not found)",
        found=f"version {properties.version}",
    )


def _check_same_broker(directories: Iterable[LogDirectory]) -> Iterator[Finding]:
    """Check that all directories belong to one cluster and one node."""
    cluster_id: str | None = None
    node_id: int | None = None
    for each in directories:
        properties = each.meta_properties
        if properties is None:
            continue
        found = (properties.cluster_id or cluster_id, properties.node_id)
        expected = (cluster_id or properties.cluster_id, node_id)
        if node_id is not None and found[1] is not None and found != expected:
            yield invariants.META_PROPERTIES_MISMATCH.finding(
                _place(each),
                "the directories are of different clusters or nodes:"
                " a broker does not start on them together",
                expected=f"cluster {expected[0]}, node {expected[1]}",
                found=f"cluster {found[0]}, node {found[1]}",
            )
            continue
        cluster_id, node_id = found[0], node_id if found[1] is None else found[1]


def _check_directory_ids(directories: Iterable[LogDirectory]) -> Iterator[Finding]:
    """Check that no two directories have the same id, and none has a reserved one."""
    seen: dict[UUID, Location] = {}
    for each in directories:
        directory_id = each.meta_properties and each.meta_properties.directory_id
        if not directory_id:
            continue
        if is_reserved(directory_id):
            yield invariants.DIRECTORY_ID_RESERVED.finding(
                _place(each),
                "the directory has an id that Kafka reserves: a broker does not start",
                found=format_uuid(directory_id),
            )
        elif directory_id in seen:
            yield invariants.DIRECTORY_ID_TWICE.finding(
                _place(each),
                f"the directory has the id of {seen[directory_id]}:"
                " one of the two is a copy, and a broker does not start on both",
                found=format_uuid(directory_id),
            )
        seen.setdefault(directory_id, each.path)


def check_bootstrap(log_dir: Location) -> Iterator[Finding]:
    """Check that ``bootstrap.checkpoint``, if it exists, has the cluster's first metadata version.

    A broker reads only the one beside the cluster's metadata. It reads batches up to the first
    incomplete one, ignores their checksums, and refuses records that it cannot decode
    (``BootstrapDirectory``, ``BatchFileReader``).
    """
    path = log_dir / names.BOOTSTRAP_CHECKPOINT
    if path.kind() is not EntryKind.FILE:
        return
    try:
        bootstrap = _read_bootstrap(path)
    except OSError as failure:
        yield invariants.FILE_UNREADABLE.finding(
            Place(str(path)), f"cannot be read: {failure.strerror or failure}"
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


@dataclass(frozen=True, slots=True)
class _Bootstrap:
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
