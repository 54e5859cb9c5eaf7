"""Whether a node starts on its log directories, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kdump.check.start import first_refusal, has_metadata
from kdump.cli.output.events import Event
from kdump.cli.output.local_copies import LocalCopies
from kdump.errors import ExitStatus
from kdump.formats import names
from kdump.formats.uuids import format_uuid
from kdump.jobs.verify.finding_row import FINDING
from kdump.rows.common_rows import INTERRUPTED, PLANNED_DIRECTORY
from kdump.rows.row_type import FLAG, INTEGER, TEXT, Field, JsonAnswer, RowType, list_of
from kdump.storage.location import Location
from kdump.words import counted, first_of, shell_command

if TYPE_CHECKING:
    from kdump.check.assigned_nodes import OtherNode
    from kdump.jobs.node_identity import NodeIdentity
    from kdump.log.directory import LogDirectory
    from kdump.repair.rebuild.node_directories import GivenIdentity, RepairedIdentity

EMPTY_HOLDERS: Final[Mapping[Location, str]] = MappingProxyType({})
_BY_PROPERTIES: Final = frozenset(
    {
        "meta-properties-malformed",
        "meta-properties-missing",
        "meta-properties-incomplete",
        "meta-properties-mismatch",
        "directory-id-reserved",
        "directory-id-twice",
    }
)
"""Codes that another meta.properties can end."""

IDENTIFIED_DIRECTORY: Final = RowType(
    "log_directory",
    "A log directory and its ids; after --repair, with the new ones.",
    (
        Field("log_dir", TEXT, "The log directory."),
        Field(
            "configured_as",
            list_of(TEXT),
            "Its names in the properties file; empty without the file, or if it is not in it.",
        ),
        Field(
            "version", INTEGER.or_null, "Of meta.properties; null if it is missing or unreadable."
        ),
        Field("cluster_id", TEXT.or_null, "The id of the cluster; null if unknown."),
        Field("node_id", INTEGER.or_null, "The id of the node; null if unknown."),
        Field(
            "directory_id",
            TEXT.or_null,
            "The id of the directory, as Kafka writes it; null if it has none.",
        ),
        Field("has_metadata", FLAG, "Whether it has __cluster_metadata-0."),
        Field(
            "is_metadata_log_dir",
            FLAG,
            "Whether it is metadata.log.dir; without the properties file, whether it is the first"
            " with the cluster's metadata.",
        ),
        Field(
            "in_use_by",
            TEXT.or_null,
            "The process that holds the lock, such as a running broker; null if nobody does, and"
            " after --repair.",
        ),
    ),
)

SUMMARY: Final = RowType(
    "summary",
    "Whether the node starts on the directories; after --repair, with the new files.",
    (
        Field(
            "is_startable", FLAG, "Whether nothing that was checked keeps the node from starting."
        ),
        Field(
            "refusal_code",
            TEXT.or_null,
            "The code of the first finding for which Kafka refuses to start; null if it starts.",
        ),
        Field("refusal_path", TEXT.or_null, "The file or directory of that finding."),
        Field(
            "node_id",
            INTEGER.or_null,
            "The id of the node; null if the directories do not agree on one.",
        ),
        Field(
            "cluster_id",
            TEXT.or_null,
            "The id of the cluster; null if the directories do not agree on one.",
        ),
        Field(
            "alone_in_sync",
            list_of(TEXT).or_null,
            "Partitions whose only replica in sync is on the node, and that are in none of the"
            " directories; null if no copy of the metadata is in them.",
        ),
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "identity",
        (
            INTERRUPTED,
            PLANNED_DIRECTORY,
            IDENTIFIED_DIRECTORY,
            FINDING,
            SUMMARY,
        ),
    ),
)


def directory_events(
    node: NodeIdentity, holders: Mapping[Location, str] = EMPTY_HOLDERS
) -> Iterator[Event]:
    """Yield an event for each log directory: its ids.

    Args:
        holders: which process holds the lock of a directory; with it, no other broker starts.
    """
    configured = {} if node.configured is None else node.configured.by_name
    guessed = frozenset[str]() if node.configured is None else node.configured.guessed
    width = max(len(str(each.path)) for each in node.directories)
    for each in node.directories:
        called = [name for name, directory in configured.items() if directory is each]
        yield Event(
            "log_directory",
            {**_row(each, node, called), "in_use_by": holders.get(each.path)},
            [
                f"{str(each.path) + ':':{width + 1}} {_ids_text(each)}",
                *(
                    [f"  in use by {holders[each.path]}: no other broker starts on it"]
                    if each.path in holders
                    else []
                ),
                *(
                    f"  taken for {name} of the properties file, because the names end alike"
                    for name in called
                    if name in guessed
                ),
            ],
        )


def _row(directory: LogDirectory, node: NodeIdentity, called: Sequence[str]) -> dict[str, Any]:
    properties = directory.meta_properties
    return {
        "log_dir": str(directory.path),
        "configured_as": list(called),
        "version": properties and properties.version,
        "cluster_id": directory.cluster_id,
        "node_id": directory.node_id,
        "directory_id": directory.directory_id,
        "has_metadata": has_metadata(directory),
        "is_metadata_log_dir": directory.path == node.node.metadata,
    }


def _ids_text(directory: LogDirectory) -> str:
    properties = directory.meta_properties
    if properties is None:
        is_damaged = any(each.path.name == names.META_PROPERTIES for each in directory.problems)
        what = "unreadable meta.properties" if is_damaged else "no meta.properties"
    else:
        what = ", ".join(
            [
                f"node {'?' if properties.node_id is None else properties.node_id}",
                f"cluster {'?' if properties.cluster_id is None else properties.cluster_id}",
                f"directory {properties.directory_id_text or 'without an id'}",
            ]
        )
    return f"{what}, with the cluster's metadata" if has_metadata(directory) else what


def status_of(node: NodeIdentity) -> ExitStatus:
    """Return the exit status of what was found."""
    is_damaged = any(each.finding.severity.is_damage for each in node.problems)
    return ExitStatus.DAMAGE_LEFT if is_damaged else ExitStatus.SOUND


def summary(node: NodeIdentity, *, is_preview: bool = False) -> Event:
    """Return the event about the node as a whole.

    Args:
        is_preview: whether the files are not written yet.
    """
    refusal = first_refusal(node.problems)
    alone = node.alone_in_sync()
    ids = [each.meta_properties for each in node.directories if each.meta_properties is not None]
    nodes = {each.node_id for each in ids if each.node_id is not None}
    clusters = {each.cluster_id for each in ids if each.cluster_id is not None}
    node_id = nodes.pop() if len(nodes) == 1 else None
    cluster_id = clusters.pop() if len(clusters) == 1 else None
    who = "the node" if node_id is None else f"node {node_id}"
    if cluster_id is not None:
        who += f" of cluster {cluster_id}"
    if refusal is None:
        starts = "would start" if is_preview else "starts"
        line = f"{who} {starts} on {_these(node.directories)}"
        if any(each.finding.severity.is_damage for each in node.problems):
            line += ", but see above"
        else:
            line += " if it can load the logs, which kdump recover --dry-run says"
    else:
        refuses = "would not start" if is_preview else "does not start"
        line = f"{who} {refuses}: {refusal.place.path} [{refusal.code}]"
    row = {
        "is_startable": refusal is None,
        "refusal_code": refusal and refusal.code,
        "refusal_path": refusal and refusal.place.path,
        "node_id": node_id,
        "cluster_id": cluster_id,
        "alone_in_sync": None if alone is None else list(alone),
    }
    return Event("summary", row, [line, *_alone_lines(alone, node)])


_SHOWN_PARTITIONS: Final = 10


def _alone_lines(alone: Sequence[str] | None, node: NodeIdentity) -> Iterator[str]:
    """Yield what an empty disk costs, and what to do before the broker starts."""
    if alone is None:
        if node.has_empty_disk:
            yield (
                "no copy of the metadata is here: it is not known which partitions have their only"
                " replica in sync on a disk that is empty or missing; see kdump metadata show on a"
                " controller before the broker starts"
            )
        return
    if alone:
        yield (
            f"{counted(len(alone), 'partition')} without another replica in sync, and in none of"
            f" these directories: {first_of(alone, _SHOWN_PARTITIONS)}"
        )
        yield (
            "do not start the broker yet: it would lead them with empty logs, and other replicas"
            " would truncate to 0; first give them another leader, with an unclean election while"
            " this broker is down, or with kdump metadata collect and plan of the other disks"
        )


def _these(directories: Sequence[LogDirectory]) -> str:
    return "this directory" if len(directories) == 1 else f"these {len(directories)} directories"


def advice(node: NodeIdentity) -> Iterator[str]:
    """Yield what to type next, for people."""
    copies = LocalCopies()
    lines = list(_advice(node, copies))
    yield from copies.lines()
    yield from lines


def _advice(node: NodeIdentity, copies: LocalCopies) -> Iterator[str]:
    codes = {each.finding.code for each in node.problems}
    for each in node.other_nodes:
        yield from _assigned_advice(each, copies)
    if codes & _BY_PROPERTIES:
        yield from _counts(node.directories)
        if "meta-properties-mismatch" in codes:
            yield (
                "if these are disks of several nodes, or of several clusters, nothing is wrong yet:"
                " name those of one node at a time"
            )
        words = ["identity --repair"]
        if len(_clusters(node.directories)) != 1:
            words.append("--cluster-id ID")
        if len(_nodes(node)) != 1:
            words.append("--node-id ID")
        if node.server is not None:
            words.append(shell_command("", ["--server-properties", node.server.path])[7:])
        paths = copies.of(each.path for each in node.directories)
        yield f"to write meta.properties: {shell_command(' '.join(words), paths)}"
    for problem in node.problems:
        if problem.finding.code == "voters-mismatch" and problem.finding.expected is not None:
            yield from _voter_advice(node, copies)
            return


def _assigned_advice(other: OtherNode, copies: LocalCopies) -> Iterator[str]:
    (path,) = copies.of([other.directory.path])
    properties = other.directory.meta_properties
    words = ["identity --repair"]
    if properties is not None and properties.node_id != other.node_id:
        yield f"if {path} is the disk of node {other.node_id}, do not start this broker with it"
        words.append(f"--node-id {other.node_id}")
    if other.directory_id is not None:
        words.append(f"--directory-id {path}={other.directory_id}")
    yield (
        f"if only the meta.properties of {path} is that of another directory: "
        + shell_command(" ".join(words), [path])
    )


def _voter_advice(node: NodeIdentity, copies: LocalCopies) -> Iterator[str]:
    for each in node.directories:
        voters = node.voters.get(each.path)
        properties = each.meta_properties
        named = None if voters is None else voters.directory_of(each.node_id)
        own = properties and properties.directory_id
        if named is None or (own and format_uuid(own) == named):
            continue
        (path,) = copies.of([each.path])
        yield (
            f"if {each.path} is the disk of that voter, and nothing was formatted since: "
            + shell_command(f"identity --repair --directory-id {path}={named}", [path])
        )
        yield (
            "otherwise remove the old voter, while other controllers run: kafka-metadata-quorum.sh"
            f" --bootstrap-controller HOST:PORT remove-controller --controller-id {each.node_id}"
            f" --controller-directory-id {named}; then add this one: add-controller"
        )


def _clusters(directories: Iterable[LogDirectory]) -> dict[object, int]:
    found: dict[object, int] = {}
    for each in directories:
        value = each.cluster_id
        if value is not None:
            found[value] = found.get(value, 0) + 1
    return found


def _nodes(node: NodeIdentity) -> dict[object, int]:
    found: dict[object, int] = {}
    if node.server is not None and node.server.content.node_id is not None:
        found[node.server.content.node_id] = 0
    for each in node.directories:
        value = each.node_id
        if value is not None:
            found[value] = found.get(value, 0) + 1
    return found


def _counts(directories: Sequence[LogDirectory]) -> Iterator[str]:
    """Yield how many directories have which cluster id, if they disagree."""
    found = _clusters(directories)
    if len(found) > 1:
        shown = ", ".join(
            f"{value} ({counted(count, 'directory', 'directories')})"
            for value, count in found.items()
        )
        yield f"cluster ids: {shown}; kdump does not choose: give the right one"


def change_lines(
    repaired: Sequence[RepairedIdentity], given: GivenIdentity, before: NodeIdentity
) -> Iterator[str]:
    """Yield what is different in each ``meta.properties``, and what follows from it."""
    for each in repaired:
        yield f"{each.directory.path / names.META_PROPERTIES}: {'; '.join(each.changes)}"
    known = _clusters(before.directories)
    if given.cluster_id is not None and known and given.cluster_id not in known:
        yield f"no directory had the cluster id {given.cluster_id}: make sure that it is right"
    if any(given.cluster_id not in (None, each) for each in known):
        yield (
            "topics of another cluster become -stray when a broker starts: its cluster does not"
            " know them"
        )
    if any(each.is_new_id for each in repaired):
        yield (
            "the controllers do not know a new directory id: a broker reports its partitions there"
            " when it starts, and those without another replica get a leader when it starts again;"
            " a controller with dynamic voters has to be added as a voter"
        )
