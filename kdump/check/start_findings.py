"""Check what a node needs to start, as far as its log directories and the metadata in them say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from kdump.check.findings import Finding
from kdump.check.start import NodeDirectories, has_metadata, start_problems
from kdump.log.directory import LogDirectory
from kdump.state.metadata.cluster import ClusterImage
from kdump.storage.location import Location


def check_start(
    directories: Sequence[LogDirectory],
    clusters: Mapping[Location, ClusterImage | None] = MappingProxyType({}),
) -> Iterator[Finding]:
    """Check what a broker needs to start with log directories.

    Args:
        directories: the log directories of one broker.
        clusters: the cluster's metadata by log directory; None if unknown.
    """
    for problem in start_problems(NodeDirectories.as_given(directories)):
        yield problem.finding
    for each in directories:
        cluster = clusters.get(each.path)
        properties = each.meta_properties
        if not (cluster and cluster.voters and properties and has_metadata(each)):
            continue
        # It imports the schemas of the metadata, which most directories are read without.
        from kdump.check.voters import LoggedVoters, check_logged_voters
        from kdump.state.metadata.metadata_nodes import Voter

        logged = LoggedVoters(
            is_dynamic=True,
            voters={node_id: Voter(node_id, id_) for node_id, id_ in cluster.voters.items()},
        )
        yield from check_logged_voters(each, logged, properties.node_id, frozenset())
