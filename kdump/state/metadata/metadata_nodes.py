"""The nodes that a cluster's metadata knows: brokers, controllers and voters, as values."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from kdump.state.metadata.metadata_entities import Fields, ReplayFault


class Listener(NamedTuple):
    """Where a node listens. Follows ``Endpoint``.

    Attributes:
        security_protocol: the number of a ``SecurityProtocol``; -1 where the record has none.
    """

    name: str
    host: str
    port: int
    security_protocol: int = -1

    def record(self) -> dict[str, Any]:
        """The fields of an endpoint in a record that registers a broker or a controller."""
        return {**self.voter_record(), "securityProtocol": self.security_protocol}

    def voter_record(self) -> dict[str, Any]:
        """The fields of an endpoint in a VotersRecord."""
        return {"name": self.name, "host": self.host, "port": self.port}

    def __str__(self) -> str:
        return f"{self.name}://{self.host}:{self.port}"


def _listeners(endpoints: Iterable[Fields]) -> tuple[Listener, ...]:
    """The listeners of a node in the order of names; of two with one name the last counts."""
    by_name = {
        each["name"]: Listener(
            each["name"], each["host"], each["port"], each.get("securityProtocol", -1)
        )
        for each in endpoints
    }
    return tuple(by_name[name] for name in sorted(by_name))


_SECURITY_PROTOCOLS: Final = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


def _listeners_row(listeners: Iterable[Listener]) -> dict[str, Any]:
    return {
        "endpoints": [str(each) for each in listeners],
        "security_protocols": {
            each.name: _SECURITY_PROTOCOLS.get(each.security_protocol) for each in listeners
        },
    }


def _features(record: Fields) -> tuple[tuple[str, int, int], ...]:
    by_name = {
        each["name"]: (each["minSupportedVersion"], each["maxSupportedVersion"])
        for each in record["features"]
    }
    return tuple((name, *by_name[name]) for name in sorted(by_name))


def _features_record(features: tuple[tuple[str, int, int], ...]) -> list[dict[str, Any]]:
    return [
        {"name": name, "minSupportedVersion": lowest, "maxSupportedVersion": highest}
        for name, lowest, highest in features
    ]


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


class BrokerRegistration(Struct, frozen=True):
    """A registered broker. Follows ``BrokerRegistration``.

    Attributes:
        features: name, lowest and highest supported version.
        directories: ids of its log directories.
        cordoned_directories: those that get no new replicas; None if the broker does not say.
    """

    node_id: int
    epoch: int
    incarnation_id: str
    listeners: tuple[Listener, ...]
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
            listeners=_listeners(record["endPoints"]),
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

    def record(self) -> dict[str, Any]:
        """The fields of the RegisterBrokerRecord, of its last version."""
        cordoned = self.cordoned_directories
        return {
            "brokerId": self.node_id,
            "isMigratingZkBroker": self.is_migrating_zk_broker,
            "incarnationId": self.incarnation_id,
            "brokerEpoch": self.epoch,
            "endPoints": [each.record() for each in self.listeners],
            "features": _features_record(self.features),
            "rack": self.rack,
            "fenced": self.fenced,
            "inControlledShutdown": self.in_controlled_shutdown,
            "logDirs": list(self.directories),
            "cordonedLogDirs": None if cordoned is None else list(cordoned),
        }

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
            **_listeners_row(self.listeners),
            "rack": self.rack,
            "incarnation_id": self.incarnation_id,
            "is_migrating_zk_broker": self.is_migrating_zk_broker,
            "features": _features_row(self.features),
        }


class ControllerRegistration(Struct, frozen=True):
    """A registered controller. Follows ``ControllerRegistration``."""

    node_id: int
    incarnation_id: str
    zk_migration_ready: bool
    listeners: tuple[Listener, ...]
    features: tuple[tuple[str, int, int], ...]

    @classmethod
    def of_record(cls, record: Fields) -> ControllerRegistration:
        """The controller that a RegisterControllerRecord registers."""
        return cls(
            record["controllerId"],
            record["incarnationId"],
            record["zkMigrationReady"],
            _listeners(record["endPoints"]),
            _features(record),
        )

    def record(self) -> Fields:
        """The fields of the RegisterControllerRecord."""
        return {
            "controllerId": self.node_id,
            "incarnationId": self.incarnation_id,
            "zkMigrationReady": self.zk_migration_ready,
            "endPoints": [each.record() for each in self.listeners],
            "features": _features_record(self.features),
        }

    def row(self) -> dict[str, Any]:
        """The fields of the controller for output."""
        return {
            "id": self.node_id,
            "incarnation_id": self.incarnation_id,
            "zk_migration_ready": self.zk_migration_ready,
            **_listeners_row(self.listeners),
            "features": _features_row(self.features),
        }


SUPPORTED_KRAFT_VERSIONS: Final = (0, 1)
"""What Kafka 4 supports, for a new voter; it writes its own range when it starts."""


class Voter(Struct, frozen=True):
    """A voter of the controllers' quorum.

    Attributes:
        directory_id: of its metadata directory; None with kraft.version 0, where the metadata
            names voters only when a leader was elected.
        listeners: none with kraft.version 0.
        kraft_versions: the lowest and highest ``kraft.version`` that the voter supports; None
            with kraft.version 0.
    """

    node_id: int
    directory_id: str | None = None
    listeners: tuple[Listener, ...] = ()
    kraft_versions: tuple[int, int] | None = None

    @classmethod
    def of_record(cls, voter: Fields) -> Voter:
        """One of the voters in a VotersRecord."""
        feature = voter["kRaftVersionFeature"]
        return cls(
            voter["voterId"],
            voter["voterDirectoryId"],
            _listeners(voter["endpoints"]),
            (feature["minSupportedVersion"], feature["maxSupportedVersion"]),
        )

    def is_at(self, node_id: int | None, directory_id: str | None) -> bool:
        """Whether a directory of a node is the voter's metadata directory."""
        return node_id == self.node_id and self.directory_id in (None, directory_id)

    def record(self) -> Fields:
        """The fields of the voter in a VotersRecord. Follows ``VoterSet.toVotersRecord``."""
        lowest, highest = self.kraft_versions or (0, 0)
        return {
            "voterId": self.node_id,
            "voterDirectoryId": self.directory_id,
            "endpoints": [each.voter_record() for each in self.listeners],
            "kRaftVersionFeature": {
                "minSupportedVersion": lowest,
                "maxSupportedVersion": highest,
            },
        }

    def row(self) -> dict[str, Any]:
        """The fields of the voter for output."""
        versions = self.kraft_versions
        return {
            "id": self.node_id,
            "directory_id": self.directory_id,
            "endpoints": [str(each) for each in self.listeners],
            "kraft_versions": None
            if versions is None
            else {"min": versions[0], "max": versions[1]},
        }
