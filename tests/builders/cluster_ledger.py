"""What a cluster was asked to do and when, so that it can say later what it should have.

Every fact has a key, as (``topic``, NAME) or (``record``, TOPIC, CREATION, PARTITION, OFFSET), and
a value, which is None before it is first noted. A creation is a number by which topics of the same
name are told from each other: the topic's ``max.message.bytes`` has it.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from builders.cluster_clients import ClusterClients
from builders.cluster_nodes import Partition
from builders.waiting import until

ORDERS: Final = [("orders", number) for number in range(3)]
TRIMMED: Final = ORDERS[2]
"""Loses its first records from time to time."""
LONELY: Final = ("lonely", 0)
"""Has a single replica, on broker 2."""
AGAIN: Final = "again"
"""Is deleted and created again all the time."""
COMMITTED: Final = "committed"
IN_TRANSACTIONS: Final = "in-transactions"
GROUPS: Final = (COMMITTED, IN_TRANSACTIONS)
OPEN: Final = "open"
ENDED: Final = "ended"
TRANSACTIONAL_IDS: Final = (ENDED, OPEN)
_CREATION_BYTES: Final = 1 << 20
"""What a creation is added to in the topic's configuration."""
_OF_RECORDS: Final = ("record", "offset", "transaction")
"""The kinds of facts that are in logs of brokers; others are in the metadata."""

Key = tuple[Any, ...]
Said = dict[Key, Any]


def now_ms() -> int:
    """The time as Kafka has it."""
    return time.time_ns() // 1_000_000


class Fact(NamedTuple):
    """A value that a key has from a moment on, between a request and its answer."""

    value: Any
    asked_ms: int
    answered_ms: int


@dataclass(frozen=True, slots=True)
class Window:
    """When a state may be from, first and last moment."""

    first_ms: int
    last_ms: int


@dataclass(slots=True)
class Ledger:
    """The facts of each key, one after another."""

    facts: defaultdict[Key, list[Fact]] = field(default_factory=lambda: defaultdict(list))

    @contextlib.contextmanager
    def request(self, facts: Said) -> Iterator[None]:
        """Note facts that are asked for within a context, and are so at its end."""
        asked_ms = now_ms()
        yield
        answered_ms = now_ms()
        for key, value in facts.items():
            self.facts[key].append(Fact(value, asked_ms, answered_ms))

    def possible(self, key: Key, window: Window) -> list[Any]:
        """The values that a key may have in a state from a window."""
        known = self.facts.get(key, [])
        settled = [each for each in known if each.answered_ms <= window.first_ms]
        moving = [each for each in known[len(settled) :] if each.asked_ms <= window.last_ms]
        return [settled[-1].value if settled else None, *(each.value for each in moving)]

    def contradictions(
        self,
        said: Said,
        *,
        records: Window,
        starts: Window,
        metadata: Window,
        partitions: Window,
        emptied: Collection[str] = (),
    ) -> list[str]:
        """What a cluster says that cannot be.

        Args:
            said: what it says.
            records: when its records, committed offsets and transactions are from.
            starts: when the starts of its logs are from.
            metadata: when its metadata are from.
            partitions: when the numbers of partitions are from.
            emptied: topics that may have lost their records, because they were deleted meanwhile.
        """
        windows = defaultdict(
            lambda: metadata,
            dict.fromkeys(_OF_RECORDS, records),
            start=starts,
            partitions=partitions,
        )
        found = []
        for key in sorted({*self.facts, *said}, key=str):
            if key[0] == "record" and key[1] in emptied and key not in said:
                continue
            possible = self.possible(key, windows[key[0]])
            if said.get(key) not in possible and not _is_deleted(key, said):
                found.append(f"{key}: {said.get(key)}, not one of {possible}")
        return found

    def amid_commits(self, first_ms: int, last_ms: int) -> list[int]:
        """The moments in the middle of commits and aborts."""
        return [
            (each.asked_ms + each.answered_ms) // 2
            for each in self.facts["transaction", ENDED]
            if first_ms <= each.asked_ms and each.answered_ms <= last_ms
        ]


def _is_deleted(key: Key, said: Said) -> bool:
    """Whether records are of a topic that was deleted, or are before the start of their log."""
    if key[0] != "record":
        return False
    _, topic, creation, number, offset = key
    if said.get(("topic", topic)) != creation:
        return True
    return bool(offset < (said["start", topic, number] or 0))


def said_by(clients: ClusterClients) -> Said:
    """Return what ``Admin`` and consumers say, by keys.

    Transactions that are open are aborted in between: otherwise consumers wait for them.
    """
    ids = {*TRANSACTIONAL_IDS}
    until(lambda: ids <= clients.describe()["transactions"].keys(), "coordinators have loaded")
    described = clients.describe(GROUPS)
    found = dict(_said_of_metadata(described))
    for group in GROUPS:
        for name, committed in described["groups"].get(group, {"offsets": {}})["offsets"].items():
            topic, _, number = name.rpartition("-")
            found["offset", group, topic, int(number)] = committed[0]
    for name, each in described["transactions"].items():
        # A coordinator may still be completing it.
        found["transaction", name] = each["state"].replace("Prepare", "Complete")
        with opened(clients, f"{name} again", transactional_id=name):
            pass
    partitions = [key[1:] for key in found if key[0] == "start"]
    for partition in partitions:
        clients.wait_for_markers(partition)
    rows = clients.read(*partitions)
    for name, number in partitions:
        for offset, _, _, value in rows[f"{name}-{number}"]:
            found["record", name, found["topic", name], number, offset] = value
    return found


def _said_of_metadata(described: dict[str, Any]) -> Iterator[tuple[Key, Any]]:
    for name, topic in described["topics"].items():
        if name.startswith("__"):
            continue
        configs = described["configs"][f"TOPIC {name}"]
        yield ("topic", name), int(configs["max.message.bytes"]) - _CREATION_BYTES
        yield ("retention", name), configs.get("retention.ms")
        yield ("partitions", name), len(topic["partitions"])
        for row in topic["partitions"]:
            yield ("start", name, row["partition"]), row["start"] or None
    for each in described["acls"]:
        yield ("acl", each.split("principal=User:")[1].split(",")[0]), True
    for user in described["scram"]:
        yield ("scram", user), True
    for entity, quotas in described["quotas"].items():
        yield ("quota", entity), quotas


@contextlib.contextmanager
def opened(clients: ClusterClients, producer: str, **configs: str) -> Iterator[None]:
    """Open a producer for a context."""
    clients.open_producer(producer, **configs)
    yield
    clients.ask("close", producer=producer)


class Story:
    """Clients that do a bit of everything again and again, and note it."""

    def __init__(self, clients: ClusterClients) -> None:
        self.clients = clients
        self.ledger = Ledger()
        self._number = itertools.count(1)
        self._creations: dict[str, int] = {}
        self._expanded = 1
        self._open: Said = {}
        self._written: Said = {}

    def begin(self) -> None:
        """Create topics and producers."""
        self._create("orders", partitions=3)
        self._create("grown")
        self._create(AGAIN)
        self._create(LONELY[0], assignment=[[2]])
        self.clients.wait_for_replicas()
        self.clients.open_producer("plain")
        for name in TRANSACTIONAL_IDS:
            with self.ledger.request({("transaction", name): "Empty"}):
                self.clients.open_producer(name, transactional_id=name)

    def live(self, rounds: int, *, is_whole: bool = True) -> None:
        """Write, commit and change metadata.

        Args:
            is_whole: whether broker 2 is running.
        """
        for _ in range(rounds):
            self._write(is_whole=is_whole)
            self._transact(commits=True)
            self._transact(commits=False)
            self._administer()
            if is_whole:
                self._trim()

    def open(self) -> None:
        """Begin a transaction that stays open."""
        with self.ledger.request({("transaction", OPEN): "Ongoing"}):
            self.clients.ask("begin", producer=OPEN)
            self._open = self._sent(OPEN, *ORDERS[:2], ("grown", 0))

    def commit(self) -> None:
        """Commit the transaction that is open."""
        with self.ledger.request(self._open | {("transaction", OPEN): "CompleteCommit"}):
            self.clients.ask("commit", producer=OPEN)
            self.clients.wait_for_transaction(OPEN, "CompleteCommit")

    def quiet(self) -> dict[str, Any]:
        """Wait until nothing moves, and return what ``Admin`` says."""
        self.clients.wait_for_transaction(ENDED, "CompleteAbort")
        return self.clients.describe(GROUPS)

    def _sent(self, producer: str, *partitions: Partition) -> Said:
        """Write two records to each partition; returns facts that are not noted yet."""
        facts: Said = {}
        for topic, number in partitions:
            values = [f"{producer} {next(self._number)}" for _ in range(2)]
            pairs = [("key", each) for each in values]
            offsets = self.clients.send(producer, (topic, number), pairs)
            for offset, value in zip(offsets, values, strict=True):
                facts["record", topic, self._creations[topic], number, offset] = value
        return facts

    def _write(self, *, is_whole: bool) -> None:
        """Write to every topic, and commit the ends of one."""
        latest: Said = {}
        for each in [*ORDERS, ("grown", 0), (AGAIN, 0), *([LONELY] if is_whole else [])]:
            facts: Said = {}
            with self.ledger.request(facts):
                facts |= self._sent("plain", each)
            latest |= facts
        offsets = _ends(COMMITTED, latest)
        with self.ledger.request(offsets):
            self.clients.commit_offsets(
                COMMITTED, {key[2:]: offset for key, offset in offsets.items()}
            )

    def _transact(self, *, commits: bool) -> None:
        """Write to a topic and commit its ends in one transaction."""
        with self.ledger.request({("transaction", ENDED): "Ongoing"}):
            self.clients.ask("begin", producer=ENDED)
            facts = self._sent(ENDED, *ORDERS)
            offsets = _ends(IN_TRANSACTIONS, facts)
            self.clients.ask(
                "transactional_offsets",
                producer=ENDED,
                group=IN_TRANSACTIONS,
                offsets=[[*key[2:], offset, ""] for key, offset in offsets.items()],
            )
        what, state = ("commit", "CompleteCommit") if commits else ("abort", "CompleteAbort")
        ended = facts | offsets if commits else {}
        with self.ledger.request(ended | {("transaction", ENDED): state}):
            self.clients.ask(what, producer=ENDED)
        self._written = facts

    def _administer(self) -> None:
        """Change a bit of all that is in the metadata."""
        clients, request, number = self.clients, self.ledger.request, next(self._number)
        user, retention_ms = f"user-{number}", str(number << 40)
        with request({("topic", AGAIN): None, ("partitions", AGAIN): None}):
            clients.ask("delete", topic=AGAIN)
        self._expanded += 1
        with request({("partitions", "grown"): self._expanded}):
            clients.ask("expand", topic="grown", partitions=self._expanded)
        with request({("retention", "orders"): retention_ms}):
            clients.configure("TOPIC", "orders", retention_ms=retention_ms)
        with request({("acl", user): True}):
            clients.allow(f"User:{user}", "READ", "orders")
        with request({("scram", user): True}):
            clients.set_password(user, user)
        with request({("quota", "{user=all}"): {"producer_byte_rate": 1e9 + number}}):
            clients.ask("quota", user="all", name="producer_byte_rate", value=1e9 + number)
        self._create(AGAIN)

    def _trim(self) -> None:
        """Delete records.

        A broker that is stopped meanwhile would have nothing left that its leader has, and
        rewind refuses moments from before that.
        """
        start = min(key[4] for key in self._written if (key[1], key[3]) == TRIMMED)
        with self.ledger.request({("start", *TRIMMED): start}):
            self.clients.ask("delete_records", partition=TRIMMED, offset=start)

    def _create(self, name: str, partitions: int = 1, **more: Any) -> None:
        """Create a topic, with its creation in its configuration."""
        creation = self._creations[name] = next(self._number)
        size = str(_CREATION_BYTES + creation)
        with self.ledger.request({("topic", name): creation, ("partitions", name): partitions}):
            self.clients.create_topic(name, partitions, max_message_bytes=size, **more)


def _ends(group: str, facts: Said) -> Said:
    """The offsets that a group commits after it has read what is in some facts."""
    found: Said = {}
    for _, topic, _, number, offset in sorted(facts):
        if (topic, number) in ORDERS:
            found["offset", group, topic, number] = offset + 1
    return found
