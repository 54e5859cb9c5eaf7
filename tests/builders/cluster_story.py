"""What the clients of a cluster do in the tests: topics, records, transactions, groups, users."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from builders.cluster_clients import ClusterClients
from builders.streams_groups import commit_in_streams_group

STREAMS: Final = "streams"
GROUPS: Final = ("classic", "consumer", "offsets-only", "in-transactions", STREAMS)
"""Groups with offsets in ``__consumer_offsets``; there is also the share group ``shared``."""
PASSWORD: Final = "secret of alice"
BASE_MS: Final = 1_750_000_000_000
SPAN_MS: Final = 3_600_000

Pair = tuple[str | None, str | None]


def pairs(rng: random.Random, count: int, *, keys: int = 1_000, size: int = 20) -> list[Pair]:
    """Make records; a few have no value, which deletes their key when the topic is compacted."""
    return [
        (f"key-{rng.randrange(keys)}", None if rng.random() < 0.05 else rng.randbytes(size).hex())
        for _ in range(count)
    ]


def tell(clients: ClusterClients, seed: int, port: int) -> None:
    """Let clients do everything once, in an order that does not matter.

    Args:
        port: of a broker.
    """
    rng = random.Random(seed)
    _create(clients)
    _produce(clients, rng)
    _produce_in_transactions(clients, rng)
    _consume(clients, rng)
    offsets = {("expanded", number): rng.randrange(10) for number in range(4)}
    commit_in_streams_group(port, STREAMS, offsets)
    _administer(clients)
    clients.wait_for_replicas()


def tell_the_latest(clients: ClusterClients, seed: int) -> None:
    """Let clients go on while broker 3 is down: its disk and its metadata know nothing of this."""
    rng = random.Random(seed)
    clients.create_topic("younger", assignment=[[1, 2], [2, 1]], cleanup_policy="compact")
    clients.ask("expand", topic="pairs", partitions=5)
    clients.open_producer("late")
    changed = ("younger", 0), ("younger", 1), ("pairs", 4), ("orders", 0), ("unclean", 1)
    for partition in changed:
        clients.send("late", partition, pairs(rng, 12))
    clients.commit_offsets("offsets-only", {("younger", 1): 5, ("pairs", 4): 2})
    clients.configure("TOPIC", "orders", retention_ms="-1", max_message_bytes="3000000")


def _create(clients: ClusterClients) -> None:
    clients.create_topic("orders", 3, retention_ms="-1")
    clients.create_topic("times", 2, segment_bytes="1048576", retention_ms="-1")
    clients.create_topic("appended", message_timestamp_type="LogAppendTime")
    clients.create_topic("compacted", 2, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    clients.create_topic("payments", 2, min_insync_replicas="2", max_message_bytes="2000000")
    clients.create_topic("lonely", assignment=[[2], [2], [3]])
    clients.create_topic("pairs", assignment=[[1, 2], [2, 3], [3, 1]])
    clients.create_topic("unclean", 2, unclean_leader_election_enable="true")
    clients.create_topic("trimmed", retention_bytes="-1")
    clients.create_topic("empty", 2)
    for name in ("deleted", "recreated"):
        clients.create_topic(name)
    clients.create_topic("expanded")
    clients.ask("expand", topic="expanded", partitions=4)


def _produce(clients: ClusterClients, rng: random.Random) -> None:
    clients.open_producer("plain", enable_idempotence="false", compression_type="lz4")
    clients.open_producer("idempotent", batch_size="4000")
    for topic, count in (("orders", 3), ("pairs", 3), ("expanded", 4), ("unclean", 2)):
        for number in range(count):
            clients.send("plain", (topic, number), pairs(rng, rng.randrange(1, 60)))
            clients.send("idempotent", (topic, number), pairs(rng, rng.randrange(1, 60)))
    for number in range(3):
        clients.send("idempotent", ("lonely", number), pairs(rng, 10 + number))
    for number in range(2):
        clients.send("idempotent", ("compacted", number), pairs(rng, 400, keys=30))
        for _ in range(30):
            time_ms = BASE_MS + rng.randrange(SPAN_MS)
            clients.send("idempotent", ("times", number), pairs(rng, 10, size=4_000), time_ms)
    for topic in ("appended", "trimmed", "deleted", "recreated"):
        clients.send("plain", (topic, 0), pairs(rng, 40))
    clients.ask("delete_records", partition=("trimmed", 0), offset=rng.randrange(1, 40))


def _produce_in_transactions(clients: ClusterClients, rng: random.Random) -> None:
    clients.open_producer("ended", transactional_id="ended")
    for commits in (True, False, True):
        with clients.transaction("ended", commits=commits):
            clients.send("ended", ("payments", 0), pairs(rng, 8))
            clients.send("ended", ("orders", 1), pairs(rng, 3))
            clients.ask(
                "transactional_offsets",
                producer="ended",
                group="in-transactions",
                offsets=[["orders", 0, rng.randrange(9), ""], ["orders", 2, 1, "kept"]],
            )
    clients.open_producer("open", transactional_id="open", transaction_timeout_ms="800000")
    clients.ask("begin", producer="open")
    clients.send("open", ("payments", 1), pairs(rng, 5))
    clients.ask(
        "transactional_offsets",
        producer="open",
        group="in-transactions",
        offsets=[["orders", 0, 77, "pending"]],
    )
    clients.send("idempotent", ("payments", 1), pairs(rng, 5))


def _consume(clients: ClusterClients, rng: random.Random) -> None:
    clients.commit_offsets("offsets-only", dict(_some_offsets(rng)), "text")
    clients.commit_offsets("offsets-only", {("deleted", 0): 3, ("recreated", 0): 5})
    clients.join("member 1", "classic", ["orders", "pairs"], 25, "classic")
    clients.join("member 2", "consumer", ["orders", "expanded"], 25, "consumer")
    clients.configure("GROUP", "shared", share_auto_offset_reset="earliest")
    clients.share("shared", ["pairs"], 10)
    for topic in ("deleted", "recreated"):
        clients.ask("delete", topic=topic)
    clients.create_topic("recreated", 2)


def _some_offsets(rng: random.Random) -> Iterator[tuple[tuple[str, int], int]]:
    for topic, number in (("orders", 0), ("orders", 2), ("lonely", 1), ("trimmed", 0)):
        yield (topic, number), rng.randrange(40)


def _administer(clients: ClusterClients) -> None:
    clients.set_password("alice", PASSWORD)
    clients.set_password("bob", "secret of bob")
    clients.allow("User:alice", "READ", "orders")
    clients.allow("User:alice", "WRITE", "pay", "PREFIXED")
    clients.ask("quota", user="alice", name="producer_byte_rate", value=1_000_000.0)
    clients.configure("BROKER", "", log_retention_ms="900000000")
    clients.configure("BROKER", "2", log_cleaner_threads="1", max_connections_per_ip="500")
