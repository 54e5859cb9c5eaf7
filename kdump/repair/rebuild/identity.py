"""Rebuild ``meta.properties`` of a log directory from other directories and the cluster's metadata.

The cluster id and the node id are those of another directory of the same broker. The directory's
own id is in the cluster's metadata, which has the directory of each replica.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kdump.check.assigned_nodes import assigned_directory_id
from kdump.formats.directory_ids import is_reserved
from kdump.formats.meta_properties import MetaProperties, encode_meta_properties
from kdump.formats.uuids import format_uuid, parse_uuid
from kdump.log.directory import LogDirectory
from kdump.state.metadata.cluster import ClusterImage
from kdump.target.target_file import NewBytes

_VERSION: Final = 1


def rebuilt_meta_properties(
    directory: LogDirectory, others: Iterable[LogDirectory], cluster: ClusterImage | None
) -> NewBytes | None:
    """Rebuild ``meta.properties``.

    Args:
        directory: the log directory whose file is missing or damaged.
        others: the other directories of its broker.
        cluster: the cluster's metadata; None where it is not known.

    Returns:
        None where nobody knows: there is no other directory, or they contradict each other. Where
        only the directory's id is not known, it is left out, and a broker makes a new one; but not
        in the directory of the metadata, by whose id a controller is known to the others.
    """
    known = [
        each.meta_properties
        for each in others
        if each.meta_properties is not None and each.meta_properties.version >= _VERSION
    ]
    identities = {(each.cluster_id, each.node_id) for each in known}
    if len(identities) != 1:
        return None
    ((cluster_id, node_id),) = identities
    if cluster_id is None or node_id is None:
        return None
    taken = {text for each in known if (text := each.directory_id_text) is not None}
    text = known_directory_id(directory, node_id, taken, cluster)
    has_metadata = any(partition.is_cluster_metadata for partition in directory.partitions)
    if text is None and has_metadata:
        return None
    directory_id = None if text is None else parse_uuid(text)
    return NewBytes(
        encode_meta_properties(MetaProperties(_VERSION, cluster_id, node_id, directory_id))
    )


def known_directory_id(
    directory: LogDirectory, node_id: int, taken: set[str], cluster: ClusterImage | None
) -> str | None:
    """The id of a directory in Kafka's form: its own, or as the cluster's metadata has it.

    Args:
        taken: ids that other directories have.
        cluster: the cluster's metadata; None if unknown.

    Returns:
        None if it is unknown.
    """
    own = directory.meta_properties and directory.meta_properties.directory_id
    if own and not is_reserved(own) and format_uuid(own) not in taken:
        return format_uuid(own)
    if cluster is None:
        return None
    assigned = assigned_directory_id(directory, node_id, cluster, taken)
    if assigned is not None:
        return assigned
    left = [text for text in cluster.log_dirs.get(node_id, ()) if text not in taken]
    return left[0] if len(left) == 1 else None
