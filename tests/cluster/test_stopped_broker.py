"""Nothing is wrong with the disks of a broker that was stopped, whatever its clients did before."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaException

from builders import busy_broker
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_nodes import ALONE, Node
from builders.json_answers import asked
from builders.kraft_cluster import KraftCluster
from builders.memory import in_memory
from builders.ports import HOST

pytestmark = [ON_BOTH_KAFKAS, pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

LIVES: Final = 5
BUSY_S: Final = 2.0
DELETED: Final = ("events", "ledger")
"""Topics whose records may be deleted."""


def delete_records(address: str, rng: random.Random) -> None:
    """Delete all records of some partitions, and some of others."""
    admin = AdminClient(busy_broker.connection(address))
    for topic in DELETED:
        for number in range(3):
            before = rng.choice([-1, -1, rng.randrange(200), None])
            if before is None:
                continue
            try:
                for each in admin.delete_records([TopicPartition(topic, number, before)]).values():
                    each.result()
            except KafkaException:
                pass  # it has no such offset, or no longer


def test_nothing_is_wrong_after_clean_stops(cluster_jvms: ClusterJvms, tmp_path: Path) -> None:
    rng = random.Random(1)
    node = Node(1, ("d1", "d2"), "broker,controller")
    address = f"{HOST}:{node.client_port}"
    with in_memory(tmp_path) as folder:
        broker = KraftCluster(
            cluster_jvms, folder / "disks", [node], properties=ALONE | busy_broker.PROPERTIES
        )
        broker.format()
        for _ in range(LIVES):
            with broker.running():
                with busy_broker.busy(address):
                    time.sleep(BUSY_S)
                    delete_records(address, rng)
                delete_records(address, rng)
            require_sound(broker)
            with broker.running():
                pass
            require_sound(broker)


def require_sound(broker: KraftCluster) -> None:
    found = asked("verify", *broker.log_dirs())
    assert [each for each in found if each.get("severity", "info") != "info"] == []
