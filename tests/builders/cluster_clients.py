"""Clients of a real cluster: what they write, read and ask."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from builders.broker import RequestFailed
from builders.cluster_jvms import CLIENTS, ClusterJvms
from builders.cluster_nodes import SESSION_MS, Node, Partition
from builders.ports import HOST
from builders.waiting import a_moment, until


class ClusterClients:
    """Clients of a cluster. Keys and values are texts; a partition is (topic, number)."""

    def __init__(self, jvms: ClusterJvms) -> None:
        self._jvms = jvms

    def ask(self, request: str, **fields: Any) -> Any:
        """Send a request to the JVM of all clients."""
        return self._jvms[CLIENTS].ask(request, **fields)

    # ---- The cluster -----------------------------------------------------------------------------

    def describe(self, groups: Iterable[str] = ()) -> dict[str, Any]:
        """Return everything that ``Admin`` says (see ``ClusterDescription.java``).

        Coordinators of ``groups`` are waited for; groups of others may be missing soon after a
        start.
        """
        found: dict[str, Any] = self.ask("describe", wait_for=list(groups))
        return found

    def a_moment(self) -> int:
        """Return the time now, in milliseconds; metadata that change from now on are later.

        A controller collects changes in a batch, which has the time of the first of them: a batch
        that is begun by now has to be in the log before this returns.
        """
        moment_ms = a_moment()
        for _ in range(2):  # one batch may be on its way to the log, another may be open
            self._wait_for_metadata()
        return moment_ms

    def _wait_for_metadata(self) -> None:
        """Wait until more metadata are committed; controllers write something twice a second."""
        before = self._committed()
        until(lambda: self._committed() > before, "metadata are committed")

    def _committed(self) -> int:
        """Where the committed metadata end."""
        return int(self.describe()["quorum"]["high_watermark"])

    def wait_for_replicas(self, *topics: str) -> None:
        """Wait until all replicas of topics are in sync; of all topics if none is named."""
        self.ask("wait", replicas="all", topics=list(topics) or None)

    def wait_for_leaders(self, *topics: str) -> None:
        """Wait until all partitions of topics have a leader; of all topics if none is named."""
        self.ask("wait", replicas="leader", topics=list(topics) or None)

    def wait_for_leader(self, partition: Partition, leader: int) -> None:
        """Wait until a broker leads a partition; -1 is none."""
        self.ask("leads", partition=partition, leader=leader)

    def wait_for_markers(self, partition: Partition) -> None:
        """Wait until no transaction is open: a commit returns before its markers are written."""
        self.ask("ends", partition=partition)

    def wait_for_transaction(self, transactional_id: str, state: str) -> None:
        """Wait until the coordinator of a transactional id has it in a state."""
        self.ask("transaction", transactional_id=transactional_id, state=state)

    def wait_for_state(self, state: str, *groups: str) -> None:
        """Wait until groups are in a state."""
        self.ask("state", state=state, groups=groups)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replicas: int = 3,
        assignment: Sequence[Sequence[int]] | None = None,
        **configs: str,
    ) -> None:
        """Create a topic; the names of ``configs`` have ``_`` for the dot."""
        named = {each.replace("_", "."): value for each, value in configs.items()}
        topic = {
            "name": name,
            "partitions": partitions,
            "replicas": replicas,
            "assignment": assignment,
            "configs": named,
        }
        self.ask("create", topics=[topic])

    def create_topics(self, names: Iterable[str], partitions: int, *, replicas: int = 3) -> None:
        """Create many topics at once."""
        common: dict[str, Any] = {"partitions": partitions, "replicas": replicas}
        common |= {"assignment": None, "configs": {}}
        self.ask("create", topics=[common | {"name": name} for name in names])

    def configure(self, kind: str, name: str, **configs: str) -> None:
        """Set the configuration of a ``TOPIC``, ``BROKER`` (empty: all brokers) or ``GROUP``."""
        named = {each.replace("_", "."): value for each, value in configs.items()}
        self.ask("configure", type=kind, name=name, set=named)

    def elect(self, leader: Node, *partitions: Partition) -> None:
        """Elect the only broker that runs for partitions, even if it is not in sync."""
        self.ask("elect", leader=leader.node_id, partitions=partitions)

    def allow(self, principal: str, operation: str, topic: str, pattern: str = "LITERAL") -> None:
        """Create an ACL that allows an operation on topics."""
        self.ask(
            "acl",
            principal=principal,
            operation=operation,
            resource_type="TOPIC",
            name=topic,
            pattern=pattern,
        )

    def set_password(self, user: str, password: str) -> None:
        """Set the SCRAM-SHA-256 credential of a user."""
        self.ask("scram", user=user, mechanism="SCRAM-SHA-256", password=password)

    def topics_seen_by(self, user: str, password: str, broker: Node) -> set[str]:
        """Log in as a user, and list the topics that it may see.

        Raises:
            RequestFailed: the password is wrong, or unknown to the broker.
        """
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        configs = {
            "bootstrap.servers": f"{HOST}:{broker.sasl_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
        }
        return set(self.ask("topics", configs=configs))

    def list_offsets(
        self, rounds: Sequence[Sequence[tuple[str, int, int | str]]], isolation: str
    ) -> list[list[tuple[int, int, int | None]]]:
        """Ask ``Admin.listOffsets`` for times or special timestamps.

        A round asks a partition once. Answers are offset, time and leader epoch.
        """
        found = self.ask("offsets", rounds=rounds, isolation=isolation)
        return [[(row[0], row[1], row[2]) for row in answers] for answers in found]

    def producer_ids(self, partition: Partition) -> list[int]:
        """Return the producers that the leader of a partition knows."""
        return sorted(row[0] for row in self.ask("producers", partition=partition))

    def run_tool(self, name: str, *args: str) -> list[str]:
        """Run an official tool in the JVM of clients; return the lines that it prints.

        Raises:
            RequestFailed: its exit status is not 0.
        """
        answer = self.ask("tool", name=name, args=args)
        if answer["status"]:
            raise RequestFailed(f"{name}: status {answer['status']}: {answer['lines']}")
        return list(answer["lines"])

    # ---- Producers -------------------------------------------------------------------------------

    def open_producer(self, producer: str, **configs: str) -> None:
        """Open a producer; the names of ``configs`` have ``_`` for the dot."""
        named = {each.replace("_", "."): value for each, value in configs.items()}
        self.ask("open", producer=producer, configs=named)

    def send(
        self,
        producer: str,
        partition: Partition,
        pairs: Iterable[tuple[str | None, str | None]],
        timestamp_ms: int | None = None,
    ) -> list[int]:
        """Write keys and values; return their offsets when all are acknowledged."""
        records = [[*partition, timestamp_ms, *pair] for pair in pairs]
        offsets: list[int] = self.ask("send", producer=producer, records=records)
        return offsets

    @contextlib.contextmanager
    def transaction(self, producer: str, *, commits: bool = True) -> Iterator[None]:
        """Begin a transaction, and commit or abort it at the end."""
        self.ask("begin", producer=producer)
        yield
        self.ask("commit" if commits else "abort", producer=producer)

    # ---- Consumers -------------------------------------------------------------------------------

    def read(self, *partitions: Partition, isolation: str = "read_committed") -> dict[str, Any]:
        """Consume partitions whole; return rows of offset, time, key and value by TOPIC-NUMBER."""
        found: dict[str, Any] = self.ask("read", partitions=partitions, isolation=isolation)
        return found

    def join(
        self, member: str, group: str, topics: Iterable[str], records: int, protocol: str
    ) -> None:
        """Let a member join a group, read at least so many records, and commit; it stays.

        ``protocol`` is ``classic`` or ``consumer``.
        """
        configs = {"group.id": group, "group.protocol": protocol}
        if protocol == "classic":
            configs |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": "1000"}
        self.ask("join", member=member, topics=list(topics), records=records, configs=configs)

    def share(
        self, group: str, topics: Iterable[str], records: int, left: Iterable[str] = ()
    ) -> list[str]:
        """Let a member of a share group accept at least so many records, and leave.

        It releases those whose values are in ``left``. Returns the values that it accepted.
        """
        configs = {"group.id": group}
        accepted: list[str] = self.ask(
            "share", topics=list(topics), records=records, left=list(left), configs=configs
        )
        return accepted

    def commit_offsets(self, group: str, offsets: Mapping[Partition, int], text: str = "") -> None:
        """Commit offsets of a group without members."""
        rows = [[*partition, offset, text] for partition, offset in offsets.items()]
        self.ask("commit_offsets", group=group, offsets=rows)
