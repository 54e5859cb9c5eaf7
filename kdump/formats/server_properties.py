"""What the properties file of a node says about its identity: ids, directories, voters.

Follows ``AbstractKafkaConfig``, ``KafkaConfig`` and ``QuorumConfig``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from kdump.formats.java.java_numbers import parse_int

_DEFAULT_LOG_DIR: Final = "/tmp/kafka-logs"  # noqa: S108 - Kafka's own default
_SEPARATOR: Final = re.compile(r"\s*,\s*")
NODE_IDS: Final = ("node.id", "broker.id")

BROKER_ROLE: Final = "broker"
CONTROLLER_ROLE: Final = "controller"


class ServerProperties(Struct, frozen=True):
    """The identity of a node by its properties file.

    Attributes:
        node_id: None if it is missing or no number.
        roles: of ``process.roles``.
        log_dirs: as written in the file.
        metadata_log_dir: as written; the first log directory by default.
        voters: node ids in ``controller.quorum.voters``; empty with dynamic voters.
    """

    node_id: int | None
    roles: frozenset[str]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    voters: tuple[int, ...]

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> ServerProperties:
        """Take what belongs to the identity from the properties of a file."""
        log_dirs = _items(
            properties.get("log.dirs", properties.get("log.dir", _DEFAULT_LOG_DIR))
        ) or ("",)
        given = next((properties[name] for name in NODE_IDS if name in properties), "")
        voters = (
            parse_int(each.partition("@")[0])
            for each in _items(properties.get("controller.quorum.voters", ""))
        )
        return cls(
            node_id=parse_int(given.strip()),
            roles=frozenset(_items(properties.get("process.roles", ""))),
            log_dirs=log_dirs,
            metadata_log_dir=properties.get("metadata.log.dir", log_dirs[0]).strip(),
            voters=tuple(voter for voter in voters if voter is not None),
        )


def _items(text: str) -> tuple[str, ...]:
    """The items of a list, as ``ConfigDef`` splits it."""
    trimmed = text.strip()
    return tuple(_SEPARATOR.split(trimmed)) if trimmed else ()
