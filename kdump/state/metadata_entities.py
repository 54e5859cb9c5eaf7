"""What a cluster's metadata consists of: partitions, brokers, ACLs and the rest, as values.

Each follows the class of Kafka that it has the name of. Secrets are not kept: of a SCRAM
credential there is only a fingerprint, to tell whether it changed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

MIGRATING_DIRECTORY: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""``DirectoryId.MIGRATING``: the log directory of a replica is not known to the cluster."""
NO_LEADER: Final = -1
_NO_LEADER_CHANGE: Final = -2
_NO_RECOVERY_CHANGE: Final = -1
_RECOVERY_STATES: Final = {0: "RECOVERED", 1: "RECOVERING"}

Fields = Mapping[str, Any]
"""The fields of a decoded record."""


class ReplayFault(Exception):
    """A record that does not apply to the metadata before it; Kafka's replay skips it, too."""


@dataclass(frozen=True, slots=True)
class MetadataTopic:
    """A topic. Follows ``TopicImage``."""

    name: str
    topic_id: str

    def row(self) -> dict[str, Any]:
        """The fields of the topic for output."""
        return {"id": self.topic_id}


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
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


def _endpoints(record: Fields) -> tuple[str, ...]:
    """The listeners of a node; of two with one name the last counts."""
    by_name = {each["name"]: f"{each['host']}:{each['port']}" for each in record["endPoints"]}
    return tuple(f"{name}://{by_name[name]}" for name in sorted(by_name))


def _features(record: Fields) -> tuple[tuple[str, int, int], ...]:
    by_name = {
        each["name"]: (each["minSupportedVersion"], each["maxSupportedVersion"])
        for each in record["features"]
    }
    return tuple((name, *by_name[name]) for name in sorted(by_name))


def _features_row(features: tuple[tuple[str, int, int], ...]) -> dict[str, Any]:
    return {name: {"min": lowest, "max": highest} for name, lowest, highest in features}


def _in_order(directories: Sequence[str]) -> tuple[str, ...]:
    """Sort ids of directories as ``Uuid.compareTo`` does: by two signed longs."""

    def longs(text: str) -> tuple[int, int]:
        data = base64.urlsafe_b64decode(text + "==")
        return int.from_bytes(data[:8], signed=True), int.from_bytes(data[8:], signed=True)

    return tuple(sorted(directories, key=longs))


_FENCING: Final = {0: None, 1: True, -1: False}
_SHUTDOWN: Final = {0: None, 1: True}
"""``BrokerRegistrationFencingChange`` and ``BrokerRegistrationInControlledShutdownChange``."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A registered broker. Follows ``BrokerRegistration``.

    Attributes:
        endpoints: ``NAME://HOST:PORT`` for each listener.
        features: name, lowest and highest supported version.
        directories: ids of its log directories.
        cordoned_directories: those that get no new replicas; None if the broker does not say.
    """

    node_id: int
    epoch: int
    incarnation_id: str
    endpoints: tuple[str, ...]
    features: tuple[tuple[str, int, int], ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    is_migrating_zk_broker: bool
    directories: tuple[str, ...]
    cordoned_directories: tuple[str, ...] | None

    @classmethod
    def of_record(cls, record: Fields) -> BrokerRegistration:
        """The broker that a RegisterBrokerRecord registers."""
        cordoned = record.get("cordonedLogDirs")
        return cls(
            node_id=record["brokerId"],
            epoch=record["brokerEpoch"],
            incarnation_id=record["incarnationId"],
            endpoints=_endpoints(record),
            features=_features(record),
            rack=record["rack"],
            fenced=record["fenced"],
            in_controlled_shutdown=record.get("inControlledShutdown", False),
            is_migrating_zk_broker=record.get("isMigratingZkBroker", False),
            directories=_in_order(record.get("logDirs") or ()),
            cordoned_directories=None if cordoned is None else tuple(cordoned),
        )

    def changed(self, record: Fields) -> BrokerRegistration:
        """The broker after a BrokerRegistrationChangeRecord.

        Raises:
            ReplayFault: a field of the record has an unknown value.
        """
        fenced, shutdown = record["fenced"], record.get("inControlledShutdown", 0)
        if fenced not in _FENCING or shutdown not in _SHUTDOWN:
            raise ReplayFault(f"unknown change of broker {self.node_id}: {fenced}, {shutdown}")
        is_fenced, is_in_shutdown = _FENCING[fenced], _SHUTDOWN[shutdown]
        directories, cordoned = record.get("logDirs"), record.get("cordonedLogDirs")
        return replace(
            self,
            fenced=self.fenced if is_fenced is None else is_fenced,
            in_controlled_shutdown=self.in_controlled_shutdown
            if is_in_shutdown is None
            else is_in_shutdown,
            directories=_in_order(directories) if directories else self.directories,
            cordoned_directories=self.cordoned_directories if cordoned is None else tuple(cordoned),
        )

    def row(self) -> dict[str, Any]:
        """The fields of the broker for output."""
        cordoned = self.cordoned_directories
        return {
            "id": self.node_id,
            "epoch": self.epoch,
            "fenced": self.fenced,
            "in_controlled_shutdown": self.in_controlled_shutdown,
            "directories": list(self.directories),
            "cordoned_directories": None if cordoned is None else list(cordoned),
            "endpoints": list(self.endpoints),
            "rack": self.rack,
            "incarnation_id": self.incarnation_id,
            "is_migrating_zk_broker": self.is_migrating_zk_broker,
            "features": _features_row(self.features),
        }


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """A registered controller. Follows ``ControllerRegistration``."""

    node_id: int
    incarnation_id: str
    zk_migration_ready: bool
    endpoints: tuple[str, ...]
    features: tuple[tuple[str, int, int], ...]

    @classmethod
    def of_record(cls, record: Fields) -> ControllerRegistration:
        """The controller that a RegisterControllerRecord registers."""
        return cls(
            record["controllerId"],
            record["incarnationId"],
            record["zkMigrationReady"],
            _endpoints(record),
            _features(record),
        )

    def row(self) -> dict[str, Any]:
        """The fields of the controller for output."""
        return {
            "id": self.node_id,
            "incarnation_id": self.incarnation_id,
            "zk_migration_ready": self.zk_migration_ready,
            "endpoints": list(self.endpoints),
            "features": _features_row(self.features),
        }


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


@dataclass(frozen=True, slots=True)
class AccessControlEntry:
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

    def row(self) -> dict[str, Any]:
        """The fields of the ACL for output."""
        return {
            "id": self.acl_id,
            "resource_type": self.resource_type,
            "resource_name": self.resource_name,
            "pattern_type": self.pattern_type,
            "principal": self.principal,
            "host": self.host,
            "operation": self.operation,
            "permission_type": self.permission_type,
        }


_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


def scram_mechanism(code: int) -> str:
    """The name of a SCRAM mechanism. Follows ``ScramMechanism.fromType``."""
    return _MECHANISMS.get(code, "UNKNOWN")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A user's SCRAM credential, without salt and keys.

    Attributes:
        fingerprint: a hash of salt and keys, which is never shown.
    """

    user: str
    mechanism: str
    iterations: int
    fingerprint: bytes = field(repr=False)

    @classmethod
    def of_record(cls, record: Fields) -> ScramCredential:
        """The credential that a UserScramCredentialRecord sets."""
        digest = hashlib.sha256()
        for name in ("salt", "storedKey", "serverKey"):
            digest.update(len(record[name]).to_bytes(4))
            digest.update(record[name])
        return cls(
            record["name"],
            scram_mechanism(record["mechanism"]),
            record["iterations"],
            digest.digest(),
        )

    def row(self) -> dict[str, Any]:
        """The fields of the credential for output."""
        return {"name": self.user, "mechanism": self.mechanism, "iterations": self.iterations}


@dataclass(frozen=True, slots=True)
class DelegationToken:
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

    def row(self) -> dict[str, Any]:
        """The fields of the token for output."""
        return {
            "token_id": self.token_id,
            "owner": self.owner,
            "requester": self.requester,
            "renewers": list(self.renewers),
            "issue_timestamp_ms": self.issue_timestamp_ms,
            "max_timestamp_ms": self.max_timestamp_ms,
            "expiration_timestamp_ms": self.expiration_timestamp_ms,
        }


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter of the controllers' quorum.

    Attributes:
        directory_id: of its metadata directory; None with kraft.version 0, where the metadata
            names voters only when a leader was elected.
        endpoints: ``NAME://HOST:PORT`` for each listener; none with kraft.version 0.
    """

    node_id: int
    directory_id: str | None = None
    endpoints: tuple[str, ...] = ()

    @classmethod
    def of_record(cls, voter: Fields) -> Voter:
        """One of the voters in a VotersRecord."""
        endpoints = {each["name"]: f"{each['host']}:{each['port']}" for each in voter["endpoints"]}
        return cls(
            voter["voterId"],
            voter["voterDirectoryId"],
            tuple(f"{name}://{endpoints[name]}" for name in sorted(endpoints)),
        )

    def row(self) -> dict[str, Any]:
        """The fields of the voter for output."""
        return {
            "id": self.node_id,
            "directory_id": self.directory_id,
            "endpoints": list(self.endpoints),
        }
