"""``meta.properties``: the cluster and node that a log directory belongs to.

Version 0 (no version line) was written before KRaft, and any property may be missing; version 1 has
cluster and node. Follows ``MetaProperties``.
"""

from __future__ import annotations

import uuid

from msgspec import Struct

from kdump.formats.errors import FormatError
from kdump.formats.java.java_numbers import parse_int
from kdump.formats.java.properties import decode_properties, encode_properties
from kdump.formats.uuids import format_uuid, parse_uuid


class MetaProperties(Struct, frozen=True):
    """The content of ``meta.properties``; None for missing properties.

    Attributes:
        version: of the file: 0 or 1.
        cluster_id: any text; Kafka generates a UUID.
        node_id: in version 0 the property ``broker.id``.
        directory_id: of this log directory.
    """

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: uuid.UUID | None

    @property
    def directory_id_text(self) -> str | None:
        """The id of the directory in Kafka's form."""
        return None if self.directory_id is None else format_uuid(self.directory_id)


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Read the file.

    Raises:
        FormatError: where a broker refuses it: an unknown version, an invalid number or UUID, or a
            missing property that the version requires.
    """
    properties = decode_properties(data)
    version_text = properties.get("version", "0")
    version = parse_int(version_text.strip())
    if version not in (0, 1):
        raise FormatError(
            "meta.properties has an unknown version", expected="0 or 1", found=repr(version_text)
        )
    node_property = "broker.id" if version == 0 else "node.id"
    node_text = properties.get(node_property)
    node_id = None if node_text is None else parse_int(node_text)
    if node_id is None and (node_text is not None or version == 1):
        raise FormatError(
            f"meta.properties has no valid {node_property}",
            expected="a number",
            found="nothing" if node_text is None else repr(node_text),
        )
    cluster_id = properties.get("cluster.id")
    if cluster_id is None and version == 1:
        raise FormatError("meta.properties has no cluster.id", expected="one in version 1")
    directory_text = properties.get("directory.id")
    directory_id = None if directory_text is None else parse_uuid(directory_text)
    if directory_text is not None and directory_id is None:
        raise FormatError(
            "meta.properties has no valid directory.id",
            expected="a UUID in base64",
            found=repr(directory_text),
        )
    return MetaProperties(version, cluster_id, node_id, directory_id)


def encode_meta_properties(properties: MetaProperties) -> bytes:
    """Encode the file; properties that are None are left out."""
    node_property = "broker.id" if properties.version == 0 else "node.id"
    found = {
        "version": str(properties.version),
        "cluster.id": properties.cluster_id,
        node_property: None if properties.node_id is None else str(properties.node_id),
        "directory.id": properties.directory_id_text,
    }
    return encode_properties({key: value for key, value in found.items() if value is not None})
