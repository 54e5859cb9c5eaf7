"""Check what a node needs to start, before it reads any log.

That is the cluster and node of each directory, the directory with the cluster's metadata, and in
it the cluster's first metadata and the state of elections. Follows
``KafkaRaftServer.initializeLogDirs``, ``MetaPropertiesEnsemble`` and ``FileQuorumStateStore``, in
their order: the first problem that stops the start is the one that Kafka reports.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from kdump.check import invariants
from kdump.check.bootstrap import check_bootstrap
from kdump.check.findings import Finding, Place, Severity
from kdump.errors import reason_of
from kdump.formats import names
from kdump.formats.directory_ids import is_reserved
from kdump.formats.errors import FormatError
from kdump.formats.meta_properties import MetaProperties
from kdump.formats.quorum_state import decode_quorum_state
from kdump.formats.uuids import format_uuid
from kdump.log.directory import LogDirectory
from kdump.log.problems import FileProblem
from kdump.storage.entries import BrokenLinkError, EntryKind
from kdump.storage.location import Location

"""Kafka reserves the directory ids below it (``DirectoryId.reserved``)."""


class StartProblem(NamedTuple):
    """A finding about the start of a node.

    Attributes:
        is_refusal: whether the node does not start; otherwise it starts without the directory.
    """

    finding: Finding
    is_refusal: bool = True


class NodeDirectories(Struct, frozen=True):
    """The log directories of a node, as it takes them from its properties file.

    Attributes:
        directories: in the order in which Kafka checks them.
        metadata: the directory for the cluster's metadata; None if unknown.
        node_id: by the properties file; None if unknown.
        is_configured: whether the node is known to use all of them with KRaft. Otherwise they may
            be of a broker with ZooKeeper, which needs no files.
    """

    directories: tuple[LogDirectory, ...]
    metadata: Location | None
    node_id: int | None = None
    is_configured: bool = False

    @classmethod
    def as_given(cls, directories: Sequence[LogDirectory]) -> NodeDirectories:
        """The directories of a node whose properties file is not known."""
        with_metadata = filter(has_metadata, directories)
        metadata = next(with_metadata, directories[0] if len(directories) == 1 else None)
        return cls(
            tuple(sorted(directories, key=lambda each: java_order(str(each.path)))),
            None if metadata is None else metadata.path,
        )

    @classmethod
    def configured(
        cls, directories: Mapping[str, LogDirectory], metadata: str, node_id: int | None
    ) -> NodeDirectories:
        """The directories that a properties file names.

        Args:
            directories: by their names in the file.
            metadata: the name of the directory for the cluster's metadata.
        """
        own = directories.get(metadata)
        return cls(
            tuple(directories[name] for name in sorted(directories, key=java_order)),
            None if own is None else own.path,
            node_id,
            is_configured=True,
        )

    @property
    def with_properties(self) -> list[tuple[LogDirectory, MetaProperties]]:
        """The directories whose ``meta.properties`` can be read."""
        return [
            (each, each.meta_properties)
            for each in self.directories
            if each.meta_properties is not None
        ]

    @property
    def needs_properties(self) -> bool:
        """Whether the node does not start without ``meta.properties`` in each directory."""
        return (
            self.is_configured
            or any(map(has_metadata, self.directories))
            or any(each.version >= 1 for _, each in self.with_properties)
        )


def java_order(text: str) -> bytes:
    """The key by which Java sorts texts: their UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def start_problems(node: NodeDirectories) -> Iterator[StartProblem]:
    """Yield what keeps a node from starting on its directories, in Kafka's order."""
    yield from _ids(node)
    yield from _malformed(node)
    if node.is_configured:
        yield from _misplaced(node)
    yield from _missing(node)
    yield from _incomplete(node)
    for each in node.directories:
        if each.path == node.metadata or has_metadata(each):
            for finding in check_bootstrap(each.path):
                yield StartProblem(finding, finding.severity is Severity.SEVERE)
    for each in node.directories:
        if has_metadata(each):
            yield from _elections(each)


def has_metadata(directory: LogDirectory) -> bool:
    """Whether the cluster's metadata is in a log directory."""
    return any(partition.is_cluster_metadata for partition in directory.partitions)


def _place(directory: LogDirectory) -> Place:
    return Place(str(directory.path / names.META_PROPERTIES))


def _problem_of(directory: LogDirectory) -> FileProblem | None:
    """Why ``meta.properties`` cannot be read; None if it can, or is missing."""
    found = (each for each in directory.problems if each.path.name == names.META_PROPERTIES)
    problem = next(found, None)
    is_missing = (
        problem is not None
        and isinstance(problem.error, OSError)
        and problem.error.errno == errno.ENOENT
    )
    return None if is_missing else problem


def _ids(node: NodeDirectories) -> Iterator[StartProblem]:
    """Check the ids of cluster, node and directory (``MetaPropertiesEnsemble.verify``)."""
    cluster_id, node_id = None, node.node_id
    seen: dict[UUID, Location] = {}
    for each, properties in node.with_properties:
        found = (properties.cluster_id, properties.node_id)
        expected = (
            properties.cluster_id if cluster_id is None else cluster_id,
            properties.node_id if node_id is None else node_id,
        )
        if any(
            mine is not None and mine != wanted
            for mine, wanted in zip(found, expected, strict=True)
        ):
            yield StartProblem(_mismatch(each, found, expected, node))
        cluster_id, node_id = expected
        directory_id = properties.directory_id
        if directory_id is None:
            continue
        if is_reserved(directory_id):
            yield StartProblem(
                invariants.DIRECTORY_ID_RESERVED.finding(
                    _place(each),
                    "the directory has an id that Kafka reserves: a broker does not start",
                    found=format_uuid(directory_id),
                )
            )
        elif directory_id in seen:
            yield StartProblem(
                invariants.DIRECTORY_ID_TWICE.finding(
                    _place(each),
                    f"the directory has the id of {seen[directory_id]}:"
                    " one of the two is a copy, and a broker does not start on both",
                    found=format_uuid(directory_id),
                )
            )
        seen.setdefault(directory_id, each.path)


_Ids = tuple[str | None, int | None]


def _mismatch(
    directory: LogDirectory, found: _Ids, expected: _Ids, node: NodeDirectories
) -> Finding:
    what = (
        "the directories are of different clusters or nodes: a broker does not start on them"
        " together"
    )
    if node.node_id is not None and found[1] not in (None, node.node_id):
        what = "the directory is of another node than the properties file: a broker does not start"
    return invariants.META_PROPERTIES_MISMATCH.finding(
        _place(directory), what, expected=_ids_text(expected), found=_ids_text(found)
    )


def _ids_text(ids: _Ids) -> str:
    cluster_id, node_id = ("unknown" if each is None else each for each in ids)
    return f"cluster {cluster_id}, node {node_id}"


def _malformed(node: NodeDirectories) -> Iterator[StartProblem]:
    """Check that ``meta.properties`` can be read."""
    is_unknown = not node.with_properties
    for each in node.directories:
        problem = _problem_of(each)
        is_directory = names.META_PROPERTIES in each.refused
        is_unreadable = (
            problem is not None
            and isinstance(problem.error, OSError)
            and not isinstance(problem.error, BrokenLinkError)
        )
        # Whoever checks the whole directory reports unreadable files anyway.
        if not is_directory and (problem is None or (is_unreadable and not node.is_configured)):
            continue
        is_refusal = is_unknown or each.path == node.metadata
        what = "meta.properties cannot be read: a broker " + (
            "does not start"
            if is_refusal
            else "starts without this directory, and does not serve its partitions"
        )
        if problem is None:
            error = FormatError("it is a directory")
        elif isinstance(problem.error, OSError):
            error = FormatError(reason_of(problem.error))
        else:
            error = problem.error
        yield StartProblem(
            invariants.META_PROPERTIES_MALFORMED.of_error(
                Place(str(each.path / names.META_PROPERTIES), error.position),
                error,
                f"{what} ({error.what})",
            ),
            is_refusal,
        )


def _misplaced(node: NodeDirectories) -> Iterator[StartProblem]:
    """Check that the cluster's metadata is in no directory but the configured one."""
    for each, _ in node.with_properties:
        path = each.path / str(names.CLUSTER_METADATA_PARTITION)
        if each.path != node.metadata and path.kind() is not None:
            yield StartProblem(
                invariants.METADATA_MISPLACED.finding(
                    Place(str(path)),
                    "the cluster's metadata is not in metadata.log.dir: a broker does not start",
                    expected=f"it in {node.metadata or 'metadata.log.dir'}",
                )
            )


def _missing(node: NodeDirectories) -> Iterator[StartProblem]:
    """Check that every directory has ``meta.properties``."""
    if not node.needs_properties and not node.with_properties:
        return
    for each in node.directories:
        is_missing = each.meta_properties is None and _problem_of(each) is None
        if is_missing and names.META_PROPERTIES not in each.refused:
            yield StartProblem(
                invariants.META_PROPERTIES_MISSING.finding(
                    _place(each), "there is no meta.properties: a broker does not start"
                )
            )


def _incomplete(node: NodeDirectories) -> Iterator[StartProblem]:
    """Check that ``meta.properties`` has the cluster and the node."""
    for each, properties in node.with_properties:
        if properties.node_id is None:
            yield StartProblem(_without(each, "node id", properties))
        elif properties.cluster_id is None and node.needs_properties:
            yield StartProblem(_without(each, "cluster id", properties))


def _without(each: LogDirectory, what: str, properties: MetaProperties) -> Finding:
    return invariants.META_PROPERTIES_INCOMPLETE.finding(
        _place(each),
        f"meta.properties has no {what}: a broker does not start ({what} not found)",
        found=f"version {properties.version}",
    )


def _elections(directory: LogDirectory) -> Iterator[StartProblem]:
    """Check that the state of elections can be read."""
    path = directory.path / str(names.CLUSTER_METADATA_PARTITION) / names.QUORUM_STATE
    kind = path.kind()
    if kind not in (EntryKind.FILE, EntryKind.DIRECTORY):
        return
    try:
        if kind is EntryKind.DIRECTORY:
            raise FormatError("it is a directory")
        decode_quorum_state(path.read())
    except OSError as failure:
        yield StartProblem(
            invariants.FILE_UNREADABLE.finding(
                Place(str(path)), f"cannot be read: {reason_of(failure)}"
            )
        )
    except FormatError as error:
        yield StartProblem(
            invariants.QUORUM_STATE_MALFORMED.of_error(
                Place(str(path), error.position),
                error,
                f"quorum-state cannot be read: the node does not start ({error.what})",
            )
        )


def first_refusal(problems: Iterable[StartProblem]) -> Finding | None:
    """The problem with which Kafka refuses to start; None if it starts."""
    return next((each.finding for each in problems if each.is_refusal), None)
