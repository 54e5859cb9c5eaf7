"""What a cluster's metadata consists of: topics, partitions, ACLs and the rest, as values.

Each follows the class of Kafka that it has the name of. Secrets are in no row and in no text: salt
and keys of a SCRAM credential are kept to be written again, never to be shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace

MIGRATING_DIRECTORY: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""``DirectoryId.MIGRATING``: the log directory of a replica is not known to the cluster."""
NO_LEADER: Final = -1
_NO_LEADER_CHANGE: Final = -2
_NO_RECOVERY_CHANGE: Final = -1
_RECOVERY_STATES: Final = {0: "RECOVERED", 1: "RECOVERING"}
RECOVERY_CODES: Final = {word: code for code, word in _RECOVERY_STATES.items()}
"""Numbers of ``LeaderRecoveryState``."""

Fields = Mapping[str, Any]
"""The fields of a decoded record."""


class ReplayFault(Exception):
    """A record that does not apply to the metadata before it; Kafka's replay skips it, too."""


class MetadataTopic(Struct, frozen=True):
    """A topic. Follows ``TopicImage``."""

    name: str
    topic_id: str

    def record(self) -> Fields:
        """The fields of the TopicRecord that creates the topic."""
        return {"name": self.name, "topicId": self.topic_id}

    def row(self) -> dict[str, Any]:
        """The fields of the topic for output."""
        return {"id": self.topic_id}


class PartitionRegistration(Struct, frozen=True):
    """A partition. Follows ``PartitionRegistration``.

    Attributes:
        replicas: node ids; likewise ``isr``, ``elr``, ``last_known_elr``, ``removing_replicas``
            and ``adding_replicas``.
        directories: ids of the log directories, in the order of ``replicas``.
        leader: node id, or -1.
        leader_recovery_state: ``RECOVERING`` after an unclean election.
    """

    replicas: tuple[int, ...]
    directories: tuple[str, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    leader: int
    leader_recovery_state: str
    leader_epoch: int
    partition_epoch: int

    @property
    def directory_of(self) -> dict[int, str]:
        """The id of the log directory of each replica, by node."""
        return dict(zip(self.replicas, self.directories, strict=True))

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The nodes whose replicas have all committed records, or those last known to have them.

        An election that is not unclean chooses one. Follows ``PartitionChangeBuilder``.
        """
        return self.isr + self.elr or self.last_known_elr

    @classmethod
    def of_record(cls, record: Fields) -> PartitionRegistration:
        """The partition that a PartitionRecord describes.

        Raises:
            ReplayFault: the record contradicts itself.
        """
        replicas = tuple(record["replicas"])
        return cls(
            replicas=replicas,
            directories=_directories(record.get("directories") or (), len(replicas)),
            isr=tuple(record["isr"]),
            elr=tuple(record.get("eligibleLeaderReplicas") or ()),
            last_known_elr=tuple(record.get("lastKnownElr") or ()),
            removing_replicas=tuple(record["removingReplicas"]),
            adding_replicas=tuple(record["addingReplicas"]),
            leader=record["leader"],
            leader_recovery_state=_recovery_state(record["leaderRecoveryState"]),
            leader_epoch=record["leaderEpoch"],
            partition_epoch=record["partitionEpoch"],
        )

    def merged(self, record: Fields) -> PartitionRegistration:
        """The partition after a PartitionChangeRecord, which has only what changes.

        Raises:
            ReplayFault: the record contradicts itself or the partition.
        """

        def changed(name: str, before: tuple[int, ...]) -> tuple[int, ...]:
            value = record.get(name)
            return before if value is None else tuple(value)

        replicas = changed("replicas", self.replicas)
        directories = record.get("directories")
        is_same_leader = record["leader"] == _NO_LEADER_CHANGE
        recovery = record["leaderRecoveryState"]
        return PartitionRegistration(
            replicas=replicas,
            directories=_directories(
                self.directories if directories is None else directories, len(replicas)
            ),
            isr=changed("isr", self.isr),
            elr=changed("eligibleLeaderReplicas", self.elr),
            last_known_elr=changed("lastKnownElr", self.last_known_elr),
            removing_replicas=changed("removingReplicas", self.removing_replicas),
            adding_replicas=changed("addingReplicas", self.adding_replicas),
            leader=self.leader if is_same_leader else record["leader"],
            leader_recovery_state=self.leader_recovery_state
            if recovery == _NO_RECOVERY_CHANGE
            else _recovery_state(recovery),
            leader_epoch=self.leader_epoch + (not is_same_leader),
            partition_epoch=self.partition_epoch + 1,
        )

    def without_elr(self) -> PartitionRegistration:
        """The partition after a ClearElrRecord."""
        if not self.elr and not self.last_known_elr:
            return self
        return replace(self, elr=(), last_known_elr=(), partition_epoch=self.partition_epoch + 1)

    def record(self, topic_id: str, number: int) -> dict[str, Any]:
        """The fields of the PartitionRecord that creates the partition, of its last version."""
        return {
            "partitionId": number,
            "topicId": topic_id,
            "replicas": list(self.replicas),
            "isr": list(self.isr),
            "removingReplicas": list(self.removing_replicas),
            "addingReplicas": list(self.adding_replicas),
            "leader": self.leader,
            "leaderRecoveryState": RECOVERY_CODES[self.leader_recovery_state],
            "leaderEpoch": self.leader_epoch,
            "partitionEpoch": self.partition_epoch,
            "directories": list(self.directories),
            "eligibleLeaderReplicas": list(self.elr) or None,
            "lastKnownElr": list(self.last_known_elr) or None,
        }

    def row(self) -> dict[str, Any]:
        """The fields of the partition for output."""
        return {
            "replicas": list(self.replicas),
            "isr": list(self.isr),
            "elr": list(self.elr),
            "last_known_elr": list(self.last_known_elr),
            "directories": list(self.directories),
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "partition_epoch": self.partition_epoch,
            "leader_recovery_state": self.leader_recovery_state,
            "removing_replicas": list(self.removing_replicas),
            "adding_replicas": list(self.adding_replicas),
        }


def _directories(directories: Sequence[str], replicas: int) -> tuple[str, ...]:
    if all(each == MIGRATING_DIRECTORY for each in directories):
        return (MIGRATING_DIRECTORY,) * replicas
    if len(directories) != replicas:
        raise ReplayFault(f"{replicas} replicas have {len(directories)} directories")
    return tuple(directories)


def _recovery_state(value: int) -> str:
    if value not in _RECOVERY_STATES:
        raise ReplayFault(f"{value} is not a leader recovery state")
    return _RECOVERY_STATES[value]


_RESOURCE_TYPES: Final = (
    *("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN"),
    "USER",
)
_PATTERN_TYPES: Final = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
_OPERATIONS: Final = (
    *("UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE"),
    *("CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"),
    *("CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"),
)
_PERMISSION_TYPES: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")


def _word(words: Sequence[str], code: int) -> str:
    return words[code] if 0 <= code < len(words) else words[0]


class AccessControlEntry(Struct, frozen=True):
    """An ACL. Follows ``StandardAcl``; its words are Kafka's names for the codes."""

    acl_id: str
    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission_type: str

    @classmethod
    def of_record(cls, record: Fields) -> AccessControlEntry:
        """The ACL that an AccessControlEntryRecord adds."""
        return cls(
            record["id"],
            _word(_RESOURCE_TYPES, record["resourceType"]),
            record["resourceName"],
            _word(_PATTERN_TYPES, record["patternType"]),
            record["principal"],
            record["host"],
            _word(_OPERATIONS, record["operation"]),
            _word(_PERMISSION_TYPES, record["permissionType"]),
        )

    def record(self) -> Fields:
        """The fields of the AccessControlEntryRecord that adds the ACL."""
        return {
            "id": self.acl_id,
            "resourceType": _RESOURCE_TYPES.index(self.resource_type),
            "resourceName": self.resource_name,
            "patternType": _PATTERN_TYPES.index(self.pattern_type),
            "principal": self.principal,
            "host": self.host,
            "operation": _OPERATIONS.index(self.operation),
            "permissionType": _PERMISSION_TYPES.index(self.permission_type),
        }

    def row(self) -> dict[str, Any]:
        """The fields of the ACL for output."""
        fields = asdict(self)
        return {"id": fields.pop("acl_id"), **fields}


_MECHANISMS: Final = ("UNKNOWN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def scram_mechanism(code: int) -> str:
    """The name of a SCRAM mechanism. Follows ``ScramMechanism.fromType``."""
    return _word(_MECHANISMS, code)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A user's SCRAM credential. Follows ``ScramCredentialData``.

    Attributes:
        salt: never shown, like ``stored_key`` and ``server_key``.
    """

    user: str
    mechanism: str
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of_record(cls, record: Fields) -> ScramCredential:
        """The credential that a UserScramCredentialRecord sets."""
        return cls(
            record["name"],
            scram_mechanism(record["mechanism"]),
            record["iterations"],
            record["salt"],
            record["storedKey"],
            record["serverKey"],
        )

    def has_same_keys(self, other: ScramCredential) -> bool:
        """Whether salt and keys are equal."""
        ours, theirs = ((each.salt, each.stored_key, each.server_key) for each in (self, other))
        return ours == theirs

    def record(self) -> Fields:
        """The fields of the UserScramCredentialRecord that sets the credential: secrets."""
        return {
            "name": self.user,
            "mechanism": _MECHANISMS.index(self.mechanism),
            "salt": self.salt,
            "storedKey": self.stored_key,
            "serverKey": self.server_key,
            "iterations": self.iterations,
        }

    def row(self) -> dict[str, Any]:
        """The fields of the credential for output."""
        return {"name": self.user, "mechanism": self.mechanism, "iterations": self.iterations}


class DelegationToken(Struct, frozen=True):
    """A delegation token. Follows ``TokenInformation``; the metadata has no secret of it."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int

    @classmethod
    def of_record(cls, record: Fields) -> DelegationToken:
        """The token that a DelegationTokenRecord creates or renews."""
        return cls(
            record["tokenId"],
            record["owner"],
            record["requester"],
            tuple(record["renewers"]),
            record["issueTimestamp"],
            record["maxTimestamp"],
            record["expirationTimestamp"],
        )

    def record(self) -> Fields:
        """The fields of the DelegationTokenRecord that creates the token."""
        return {
            "owner": self.owner,
            "requester": self.requester,
            "renewers": list(self.renewers),
            "issueTimestamp": self.issue_timestamp_ms,
            "maxTimestamp": self.max_timestamp_ms,
            "expirationTimestamp": self.expiration_timestamp_ms,
            "tokenId": self.token_id,
        }

    def row(self) -> dict[str, Any]:
        """The fields of the token for output."""
        return {**asdict(self), "renewers": list(self.renewers)}
