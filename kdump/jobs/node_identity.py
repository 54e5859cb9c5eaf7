"""Whether a node starts on its log directories, and the ``meta.properties`` with which it does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.apply.plan import TargetDirectory
from kdump.check.assigned_nodes import OtherNode, looks_like
from kdump.check.findings import Finding, Severity
from kdump.check.log_dirs import ConfiguredDirectories, check_log_dirs
from kdump.check.start import NodeDirectories, StartProblem, start_problems
from kdump.check.voters import (
    LoggedVoters,
    check_configured_voters,
    check_logged_voters,
    read_voters,
)
from kdump.errors import KdumpError, UsageProblem
from kdump.formats import names
from kdump.formats.meta_properties import encode_meta_properties
from kdump.formats.server_properties import BROKER_ROLE, ServerProperties
from kdump.jobs.metadata.metadata_copies import read_copies
from kdump.log.directory import (
    DirectoryKind,
    LogDirectory,
    directory_kind,
    read_log_directory,
    what_is_there_instead,
)
from kdump.log.partition import Partition
from kdump.log.selection import only_metadata
from kdump.phases import phase
from kdump.repair.rebuild.node_directories import (
    GivenIdentity,
    NodeEvidence,
    RepairedIdentity,
    repaired_identities,
)
from kdump.state.metadata.cluster import ClusterImage, cluster_view, read_newest_image
from kdump.state.metadata.metadata_replay import END, CopyReplay
from kdump.storage.entries import Entry
from kdump.storage.location import Location
from kdump.target.target_file import NewBytes

_EXPECTED: Final = (
    names.LOG_DIRECTORY_FILES | names.OF_FILE_SYSTEMS | {str(names.CLUSTER_METADATA_PARTITION)}
)
"""Entries of a log directory without partitions, which may be a new disk."""


def read_node_directory(path: Location) -> LogDirectory:
    """Read what a node checks in a log directory before it reads a log; it may be empty.

    Raises:
        UsageProblem: it is the directory of a partition.
        KdumpError: it is another program's directory.
        OSError: it cannot be listed.
    """
    with phase(f"listing {path}"):
        kind = directory_kind(path)
        if kind is DirectoryKind.NOT_KAFKA:
            others = [
                each.name
                for each in path.entries()
                if each.name not in _EXPECTED and not each.name.startswith(names.KDUMP_PREFIX)
            ]
            if others:
                instead = what_is_there_instead(path)
                raise KdumpError(f"{path}: not a Kafka log directory, and not empty{instead}")
    if kind.is_partition:
        raise UsageProblem(f"{path} is a partition: name its log directory, {path.around}")
    return read_log_directory(
        path,
        DirectoryKind.LOG_DIRECTORY,
        select=only_metadata,
    )


class ServerFile(Struct, frozen=True):
    """A properties file.

    Attributes:
        path: as typed.
        content: what it says about the identity.
    """

    path: str
    content: ServerProperties


@dataclass(frozen=True)
class NodeIdentity:
    """The log directories of a node, and its properties file.

    Attributes:
        directories: as given.
        server: None if it was not given.
    """

    directories: Sequence[LogDirectory]
    server: ServerFile | None = None

    @cached_property
    def configured(self) -> ConfiguredDirectories | None:
        """The directories by their names in the properties file."""
        if self.server is None:
            return None
        return ConfiguredDirectories.of(self.server.content, self.directories)

    @cached_property
    def node(self) -> NodeDirectories:
        """The directories as the node takes them."""
        if self.server is None or self.configured is None:
            return replace(NodeDirectories.as_given(self.directories), is_configured=True)
        return NodeDirectories.configured(
            self.configured.by_name,
            self.server.content.metadata_log_dir,
            self.server.content.node_id,
        )

    @cached_property
    def voters(self) -> Mapping[Location, LoggedVoters]:
        """The voters in the readable copies of the cluster's metadata, by log directory."""
        with phase("reading the voters"):
            found = {each.path: read_voters(copy) for each, copy in self._copies()}
        return {path: voters for path, voters in found.items() if voters is not None}

    @cached_property
    def other_nodes(self) -> list[OtherNode]:
        """The directories whose partitions are those of another node or directory."""
        with contextlib.suppress(OSError):
            if self._cluster is not None:
                found = (
                    looks_like(each, self._cluster, self.directories) for each in self.directories
                )
                return [each for each in found if each is not None]
        return []

    @cached_property
    def problems(self) -> list[StartProblem]:
        """What keeps the node from starting or joining, in Kafka's order."""
        found: list[StartProblem] = []
        if self.server is not None:
            found += check_configured_voters(self.server.path, self.server.content)
        with phase("checking log directories"):
            found += start_problems(self.node)
            if self.server is not None and self.configured is not None:
                found += check_log_dirs(
                    self.server.path, self.server.content, self.configured, self.directories
                )
        found += (
            # Only a broker waits for the controller when it starts.
            StartProblem(each, is_refusal=self._is_broker and each.severity is Severity.SEVERE)
            for each in self._voter_findings()
        )
        found += (StartProblem(each.finding, is_refusal=False) for each in self.other_nodes)
        return found

    @property
    def _is_broker(self) -> bool:
        """Whether the node is a broker, by its file; without one, by what its directories have."""
        if self.server is not None:
            return BROKER_ROLE in self.server.content.roles
        return any(
            key.topic != names.CLUSTER_METADATA_TOPIC
            for each in self.directories
            for key, _ in each.identities
        )

    def alone_in_sync(self) -> tuple[str, ...] | None:
        """Partitions whose only replica in sync is on this node, and no directory here.

        A broker that starts without them has empty replicas, and leads: the others truncate to 0.
        None if no copy of the metadata that can be read says which there are.
        """
        ids = {each.meta_properties.node_id for each in self.directories if each.meta_properties}
        node_id = self.node.node_id
        if node_id is None and len(ids) == 1:
            (node_id,) = ids
        with phase("reading the cluster's metadata"), contextlib.suppress(OSError):
            copies = read_copies(self.directories)
            if not copies or node_id is None:
                return None
            image = CopyReplay(copies[0].partition, lambda _problem: None).image_at(END)
            here = {each.name for each in self._entries()}
            return tuple(
                sorted(
                    name
                    for key, each in cluster_view(image).assignments
                    if each.is_alone_in_sync(node_id) and (name := str(key)) not in here
                )
            )
        return None

    @property
    def has_empty_disk(self) -> bool:
        """Whether a directory has no partition of a topic."""
        with phase("listing the log directories"):
            return any(
                all(each.name in _EXPECTED for each in self._entries(directory))
                for directory in self.directories
            )

    def _entries(self, *directories: LogDirectory) -> Iterator[Entry]:
        for each in directories or self.directories:
            yield from each.path.entries()

    def repaired(self, given: GivenIdentity) -> list[RepairedIdentity]:
        """The new ``meta.properties`` of the directories that need one.

        Raises:
            UsageProblem: the user has to say more.
            OSError: the cluster's metadata cannot be read.
        """
        node_id = None if self.server is None else self.server.content.node_id
        evidence = NodeEvidence(node_id, self._cluster, self.voters)
        return repaired_identities(self.directories, given, evidence)

    def after(self, repaired: Sequence[RepairedIdentity]) -> NodeIdentity:
        """The same node with new ``meta.properties``."""
        new = {each.directory.path: each.properties for each in repaired}
        return NodeIdentity(
            [
                each
                if each.path not in new
                else replace(
                    each,
                    meta_properties=new[each.path],
                    problems=tuple(
                        problem
                        for problem in each.problems
                        if problem.path.name != names.META_PROPERTIES
                    ),
                )
                for each in self.directories
            ],
            self.server,
        )

    @cached_property
    def _cluster(self) -> ClusterImage | None:
        """The cluster's metadata in the newest of these directories; None if none can be read.

        Raises:
            OSError: a copy cannot be read.
        """
        with phase("reading the cluster's metadata"):
            return read_newest_image(copy for _, copy in self._copies())

    def _copies(self) -> Iterator[tuple[LogDirectory, Partition]]:
        for each in self.directories:
            for partition in each.partitions:
                if partition.is_cluster_metadata:
                    yield each, partition

    def _voter_findings(self) -> Iterator[Finding]:
        roles = frozenset[str]() if self.server is None else self.server.content.roles
        for each, _ in self._copies():
            node_id = each.node_id if self.node.node_id is None else self.node.node_id
            voters = self.voters.get(each.path)
            if voters is not None:
                yield from check_logged_voters(each, voters, node_id, roles)


def targets_of(
    directories: Sequence[LogDirectory], repaired: Sequence[RepairedIdentity]
) -> list[TargetDirectory]:
    """The target states of log directories with new ``meta.properties``."""
    new = {each.directory.path: each.properties for each in repaired}
    return [
        TargetDirectory(
            each.path.local_path,
            (),
            {names.META_PROPERTIES: NewBytes(encode_meta_properties(new[each.path]))}
            if each.path in new
            else {},
        )
        for each in directories
    ]
