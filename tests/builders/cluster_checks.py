"""What has to hold of a cluster that was brought back, and of its disks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from builders.cluster_clients import ClusterClients
from builders.cluster_nodes import Node
from builders.cluster_story import GROUPS, PASSWORD

KEPT: Final = ("acls", "scram", "quotas", "features")
"""Answers of ``Admin`` that only the metadata has."""


def fingerprint(log_dirs: Iterable[Path]) -> dict[str, tuple[int, int, str]]:
    """Return mode, time and content of every file."""
    return {
        str(path): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for log_dir in log_dirs
        for path in (log_dir, *sorted(log_dir.rglob("*")))
    }


def ends(said: dict[str, Any], brokers: set[int]) -> dict[str, dict[str, Any]]:
    """Return id and offsets of topics, where a replica is on one of these brokers.

    Coordinators of groups write: members that were killed are removed after some seconds.
    """
    return {
        name: {
            "id": topic["id"],
            "ends": [
                [row["start"], row["end"], row["stable"]]
                for row in topic["partitions"]
                if brokers & set(row["replicas"]) and name != "__consumer_offsets"
            ],
        }
        for name, topic in said["topics"].items()
    }


def committed(said: dict[str, Any]) -> dict[str, Any]:
    return {name: said["groups"][name]["offsets"] for name in GROUPS}


def goes_on(clients: ClusterClients, before: dict[str, Any]) -> None:
    """Produce, consume, and run transactions."""
    end = before["topics"]["orders"]["partitions"][0]["end"]
    old = clients.producer_ids(("orders", 0))
    clients.open_producer("idempotent")
    assert clients.send("idempotent", ("orders", 0), [("new", "record")]) == [end]
    (new,) = set(clients.producer_ids(("orders", 0))) - set(old)
    assert new > max(*old, *(each["producer_id"] for each in before["transactions"].values()))
    clients.open_producer("ended", transactional_id="ended")
    with clients.transaction("ended"):
        clients.send("ended", ("orders", 0), [("new", "in a transaction")])
    clients.wait_for_markers(("orders", 0))
    rows = clients.read(("orders", 0))["orders-0"]
    assert [row[2:] for row in rows[-2:]] == [["new", "record"], ["new", "in a transaction"]]
    clients.open_producer("open", transactional_id="open")
    clients.wait_for_markers(("payments", 1))


def answers_as_before(
    clients: ClusterClients, before: dict[str, Any], brokers: Iterable[Node]
) -> dict[str, Any]:
    """Require that a cluster answers as before it was killed, and goes on; returns its answers.

    Args:
        clients: of the cluster, all of whose brokers run.
        before: what it said before.
        brokers: all of them.
    """
    nodes = list(brokers)
    ids = {each.node_id for each in nodes}
    after = clients.describe(GROUPS)
    assert ends(after, ids) == ends(before, ids)
    assert committed(after) == committed(before)
    for name in (*KEPT, "configs"):
        assert after[name] == before[name], name
    require_login(clients, nodes[0])
    goes_on(clients, before)
    return after


def require_login(clients: ClusterClients, broker: Node) -> None:
    """Log in with a password of before, and see what the ACLs allow."""
    assert clients.topics_seen_by("alice", PASSWORD, broker) == {"orders", "payments"}
