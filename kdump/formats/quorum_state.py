"""``quorum-state``: a KRaft node's state of elections, one line of JSON.

Version 0 also names cluster and voters; version 1, for clusters whose voters are in the log
itself, adds the directory id of the node that it voted for. Follows ``FileQuorumStateStore`` and
the message ``QuorumStateData``.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

from msgspec import Struct

from kdump.formats.errors import FormatError
from kdump.formats.java.json_object import decode_json_object, integer_field
from kdump.formats.names import QUORUM_STATE
from kdump.formats.uuids import ZERO_UUID, parse_uuid

VERSIONS: Final = (0, 1)


class QuorumState(Struct, frozen=True):
    """The content of ``quorum-state``.

    Attributes:
        data_version: 0 or 1.
        leader_id: node that leads, or -1.
        leader_epoch: the epoch of this state.
        voted_id: node that this one voted for, or -1.
        voted_directory_id: of that node; None where there is none.
        cluster_id: version 0 only; empty where it was never known.
        current_voters: version 0 only; None for null.
    """

    data_version: int
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: uuid.UUID | None
    cluster_id: str | None
    current_voters: tuple[int, ...] | None


def decode_quorum_state(data: bytes) -> QuorumState:
    """Read the file; only its first line counts.

    Raises:
        FormatError: where Kafka's reader fails.
    """
    line = data.splitlines()[0] if data else b""
    fields = decode_json_object(line, QUORUM_STATE)
    version = integer_field(fields, "data_version", QUORUM_STATE, 16)
    if version not in VERSIONS:
        raise FormatError(
            "quorum-state has an unknown data_version", expected="0 or 1", found=version
        )
    return QuorumState(
        data_version=version,
        leader_id=integer_field(fields, "leaderId", QUORUM_STATE, 32),
        leader_epoch=integer_field(fields, "leaderEpoch", QUORUM_STATE, 32),
        voted_id=integer_field(fields, "votedId", QUORUM_STATE, 32),
        voted_directory_id=_voted_directory_id(fields, version),
        cluster_id=_cluster_id(fields, version),
        current_voters=_current_voters(fields, version),
    )


def _cluster_id(fields: dict[str, Any], version: int) -> str | None:
    value = fields.get("clusterId")
    if isinstance(value, str) or ("clusterId" not in fields and version >= 1):
        return value
    raise _invalid("clusterId", "text", value)


def _voted_directory_id(fields: dict[str, Any], version: int) -> uuid.UUID | None:
    value = fields.get("votedDirectoryId")
    if "votedDirectoryId" not in fields and version == 0:
        return None
    directory_id = parse_uuid(value) if isinstance(value, str) else None
    if directory_id is None:
        raise _invalid("votedDirectoryId", "a UUID in base64", value)
    return None if directory_id == ZERO_UUID else directory_id


def _current_voters(fields: dict[str, Any], version: int) -> tuple[int, ...] | None:
    value = fields.get("currentVoters")
    if value is None and ("currentVoters" in fields or version >= 1):
        return None
    if not isinstance(value, list):
        raise _invalid("currentVoters", "a list", value)
    voters = []
    for voter in value:
        if not isinstance(voter, dict):
            raise _invalid("currentVoters", "voters with a voterId", voter)
        voters.append(integer_field(voter, "voterId", QUORUM_STATE, 32))
    return tuple(voters)


def _invalid(key: str, expected: str, found: object) -> FormatError:
    return FormatError(
        f"quorum-state has no valid {key}", expected=expected, found=repr(found)[:80]
    )
