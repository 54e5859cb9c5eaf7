"""Write ``meta.properties`` of a node's directories, so that it starts on them together.

The cluster and the node are those on which all directories agree, or those that the user gives:
they are never chosen by a majority. Directory ids are kept.
"""

from __future__ import annotations

import hashlib
import itertools
import uuid
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct, field

from kdump.check.assigned_nodes import assigned_directory_id
from kdump.check.start import has_metadata
from kdump.check.voters import LoggedVoters
from kdump.errors import UsageProblem
from kdump.formats.directory_ids import is_reserved
from kdump.formats.meta_properties import MetaProperties
from kdump.formats.uuids import format_uuid, parse_uuid
from kdump.log.directory import LogDirectory
from kdump.repair.rebuild.identity import known_directory_id
from kdump.state.metadata.cluster import ClusterImage
from kdump.storage.location import Location
from kdump.words import counted

NEW: Final = "new"
"""The word for a new random directory id."""

Value = TypeVar("Value", bound=Hashable)


class GivenIdentity(Struct, frozen=True):
    """What the user says about a node.

    Attributes:
        cluster_id: None if not given.
        node_id: None if not given.
        directory_ids: of some directories; None for a new random one.
    """

    cluster_id: str | None = None
    node_id: int | None = None
    directory_ids: Mapping[Location, uuid.UUID | None] = field(default_factory=dict)


class NodeEvidence(Struct, frozen=True):
    """What is known about a node besides its ``meta.properties``.

    Attributes:
        node_id: of the properties file; None if unknown.
        cluster: the cluster's metadata about topics; None if unknown.
        voters: in the cluster's metadata, by the directory that has it.
    """

    node_id: int | None = None
    cluster: ClusterImage | None = None
    voters: Mapping[Location, LoggedVoters] = field(default_factory=dict)


class RepairedIdentity(Struct, frozen=True):
    """New ``meta.properties`` of a directory.

    Attributes:
        properties: the new content.
        changes: what is different, a sentence for each.
        is_new_id: whether the directory id is a new random one.
    """

    directory: LogDirectory
    properties: MetaProperties
    changes: tuple[str, ...]
    is_new_id: bool


def new_directory_id() -> uuid.UUID:
    """A random directory id, as ``DirectoryId.random`` makes it."""
    while True:
        found = uuid.uuid4()
        if _is_directory_id(found):
            return found


def derived_directory_id(seed: str) -> uuid.UUID:
    """As :func:`new_directory_id`, but the same for a seed in a preview and in the run."""
    for attempt in itertools.count():
        digest = hashlib.sha256(f"{seed} {attempt}".encode("utf-8", "surrogatepass")).digest()
        found = uuid.UUID(bytes=digest[:16], version=4)
        if _is_directory_id(found):
            return found
    raise AssertionError("endless")


def _is_directory_id(found: uuid.UUID) -> bool:
    return not is_reserved(found) and not format_uuid(found).startswith("-")


def repaired_identities(
    directories: Sequence[LogDirectory],
    given: GivenIdentity,
    evidence: NodeEvidence,
) -> list[RepairedIdentity]:
    """The new ``meta.properties`` of those directories that need one.

    Args:
        directories: all log directories of a node.
        given: what the user says.
        evidence: what else is known.

    Raises:
        UsageProblem: the directories do not say enough, or contradict each other; it names the
            option that is needed, and says how many directories have which value.
    """
    found = [each.meta_properties for each in directories if each.meta_properties is not None]
    clusters = Counter(each.cluster_id for each in found if each.cluster_id is not None)
    nodes = Counter(each.node_id for each in found if each.node_id is not None)
    if evidence.node_id is not None:
        nodes.setdefault(evidence.node_id, 0)
    repair = _Repair(directories, given, evidence)
    repair.version = max((each.version for each in found), default=1)
    cluster_id = _decided("cluster", given.cluster_id, clusters, "--cluster-id")
    node_id = _decided("node", given.node_id, nodes, "--node-id")
    return [
        repaired
        for each in directories
        if (repaired := repair.repaired(each, cluster_id, node_id)) is not None
    ]


def _decided(what: str, given: Value | None, known: Counter[Value], option: str) -> Value:
    """The value that was given, or the only known one.

    Raises:
        UsageProblem: there is none, or several.
    """
    if given is not None:
        return given
    if len(known) == 1:
        return next(iter(known))
    if not known:
        raise UsageProblem(f"no directory says which {what} it belongs to: give {option}")
    shown = ", ".join(
        f"{value} ({counted(count, 'directory', 'directories') if count else 'the file'})"
        for value, count in known.most_common()
    )
    raise UsageProblem(
        f"the directories belong to different {what}s: {shown}; give {option}, or name only the"
        " directories that belong together"
    )


class _Repair(Struct):
    directories: Sequence[LogDirectory]
    given: GivenIdentity
    evidence: NodeEvidence
    version: int = 1

    def repaired(
        self, directory: LogDirectory, cluster_id: str, node_id: int
    ) -> RepairedIdentity | None:
        """The new content for a directory; None if it stays."""
        old = directory.meta_properties
        changes = []
        if old is None:
            changes.append(f"written for node {node_id} of cluster {cluster_id}")
        else:
            changes += _change("cluster id", old.cluster_id, cluster_id)
            changes += _change("node id", old.node_id, node_id)
        own = None if old is None else old.directory_id
        directory_id, why = self._directory_id(directory, node_id)
        if directory_id is None and (changes or (own and is_reserved(own))):
            directory_id, why = new_directory_id(), NEW
        if directory_id is not None and directory_id != own:
            before = "" if own is None else f"{format_uuid(own)} -> "
            changes.append(f"directory id {before}{format_uuid(directory_id)} ({why})")
        if not changes:
            return None
        version = self.version if old is None else old.version
        properties = MetaProperties(version, cluster_id, node_id, directory_id)
        return RepairedIdentity(directory, properties, tuple(changes), why == NEW)

    def _directory_id(self, directory: LogDirectory, node_id: int) -> tuple[uuid.UUID | None, str]:
        """The id of a directory, and where it comes from; None if nobody knows it.

        Raises:
            UsageProblem: another directory has it too, or the voters are not known.
        """
        own = directory.meta_properties and directory.meta_properties.directory_id
        taken = self._taken(directory)
        if directory.path in self.given.directory_ids:
            wanted = self.given.directory_ids[directory.path]
            if wanted is None:
                return new_directory_id(), NEW
            if is_reserved(wanted) or wanted in taken:
                why = f"the id of {taken[wanted].path}" if wanted in taken else "reserved by Kafka"
                raise UsageProblem(f"--directory-id {directory.path}={format_uuid(wanted)}: {why}")
            return wanted, "as given"
        if own and not is_reserved(own):
            if own in taken:
                return self._id_of_copy(directory, taken[own], own, node_id)
            return own, "kept"
        others = {format_uuid(each) for each in taken}
        cluster = self.evidence.cluster
        if has_metadata(directory):
            named, why = self._voter_id(directory, node_id)
            if named is not None or cluster is None:
                return named, why
            known = assigned_directory_id(directory, node_id, cluster, others)
        else:
            known = known_directory_id(directory, node_id, others, cluster)
        return (None, "") if known is None else (parse_uuid(known), "as the cluster's metadata has")

    def _id_of_copy(
        self, directory: LogDirectory, other: LogDirectory, own: uuid.UUID, node_id: int
    ) -> tuple[uuid.UUID | None, str]:
        """The id of one of two directories with the same id.

        Raises:
            UsageProblem: the cluster's metadata does not tell which of them is the copy.
        """
        mine, theirs = (self._assigned(each, node_id) for each in (directory, other))
        if mine == own and theirs not in (None, own):
            return own, "kept"
        if mine is not None and mine != own and mine not in self._taken(directory):
            return mine, "as the cluster's metadata has"
        raise UsageProblem(
            f"{directory.path} and {other.path} have the same directory id, {format_uuid(own)}:"
            f" one is a copy; give --directory-id LOG_DIR={NEW} for the copy"
        )

    def _assigned(self, directory: LogDirectory, node_id: int) -> uuid.UUID | None:
        """The id by which the cluster's metadata knows a directory; None if unknown."""
        voters = self.evidence.voters.get(directory.path)
        named = None if voters is None else voters.directory_of(node_id)
        if named is None and self.evidence.cluster is not None:
            named = assigned_directory_id(directory, node_id, self.evidence.cluster)
        return None if named is None else parse_uuid(named)

    def _voter_id(self, directory: LogDirectory, node_id: int) -> tuple[uuid.UUID | None, str]:
        """The id of the directory with the metadata, by which a controller is known.

        Raises:
            UsageProblem: the voters are not known, or the metadata does not have the node.
        """
        voters = self.evidence.voters.get(directory.path)
        if voters is None:
            raise UsageProblem(
                f"{directory.path}: the cluster's metadata cannot be read, so the id of this"
                f" directory is unknown; give --directory-id {directory.path}=ID, or ={NEW}"
            )
        self._require_known(directory, node_id, voters)
        named = voters.directory_of(node_id)
        return (None, "") if named is None else (parse_uuid(named), "as the voters have")

    def _require_known(self, directory: LogDirectory, node_id: int, voters: LoggedVoters) -> None:
        """Refuse a node that is neither a voter nor a broker of the metadata in its own directory.

        As that node, the disk of a controller would only observe, and its voter would be missing.
        """
        cluster = self.evidence.cluster
        if cluster is None or not voters.is_dynamic or not voters.voters:
            return
        brokers = cluster.log_dirs.keys() | cluster.known_levels.keys()
        if node_id in voters.voters or node_id in brokers:
            return
        path = directory.path
        raise UsageProblem(
            f"{path}: the cluster's metadata in it has no node {node_id}: its voters are"
            f" {_listed(voters.voters)}, its brokers {_listed(brokers)}; give --node-id of the node"
            f" whose disk this is, or, if node {node_id} is new, --directory-id {path}={NEW}"
        )

    def _taken(self, directory: LogDirectory) -> dict[uuid.UUID, LogDirectory]:
        """The ids that other directories have afterwards."""
        taken = {}
        for each in self.directories:
            if each is directory:
                continue
            own = each.meta_properties and each.meta_properties.directory_id
            wanted = self.given.directory_ids.get(each.path, own)
            if wanted:
                taken[wanted] = each
        return taken


def _listed(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(nodes))) or "none"


def _change(what: str, old: object, new: object) -> Iterable[str]:
    if old != new:
        yield f"{what} {'' if old is None else f'{old} -> '}{new}"
