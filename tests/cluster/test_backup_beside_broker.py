"""Snapshots that are made beside a busy broker: a broker starts on each as after a crash."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from builders import busy_broker
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_nodes import ALONE, Node
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.kraft_cluster import KraftCluster
from builders.lock_holder import complaints
from builders.memory import in_memory
from builders.ports import HOST
from kdump.errors import ExitStatus
from kdump.formats import names

pytestmark = [ON_BOTH_KAFKAS, pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

ROUNDS: Final = 4
STARTED: Final = (0, 3)
"""Snapshots on which a broker is started."""
CUT: Final = 2
"""The snapshot that is cut at a moment before it."""
PATIENCE_S: Final = 120
PARTITIONS: Final = [(topic, number) for topic in busy_broker.TOPICS for number in range(3)]

Records = dict[tuple[str, int], dict[int, tuple[bytes | None, bytes | None]]]


def consumer(address: str, **more: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "watcher",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
            "log_level": 0,
            **more,
        }
    )


@contextlib.contextmanager
def watched(address: str) -> Iterator[Records]:
    """Note all records that a consumer gets meanwhile, by partition and offset."""
    found: Records = defaultdict(dict)
    stop = threading.Event()

    def watch() -> None:
        reader = consumer(address)
        reader.assign([TopicPartition(*each, 0) for each in PARTITIONS])
        while not stop.is_set():
            note(reader, found)
        reader.close()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def note(reader: Consumer, found: Records) -> set[tuple[str, int]]:
    """Note the next records; returns the partitions whose end was reached."""
    ended = set()
    for message in reader.consume(1000, 0.5):
        place = (str(message.topic()), int(message.partition() or 0))
        failure = message.error()
        if failure is None:
            found[place][int(message.offset() or 0)] = (message.key(), message.value())
        elif failure.code() == KafkaError._PARTITION_EOF:
            ended.add(place)
    return ended


def ends(address: str) -> dict[tuple[str, int], int]:
    """Return the high watermarks: what is before them was acknowledged."""
    reader = consumer(address)
    found = {
        each: reader.get_watermark_offsets(TopicPartition(*each), timeout=PATIENCE_S)[1]
        for each in PARTITIONS
    }
    reader.close()
    return found


def read(address: str) -> Records:
    """Read all records that a broker has."""
    found: Records = defaultdict(dict)
    reader = consumer(address)
    reader.assign([TopicPartition(*each, 0) for each in PARTITIONS])
    ended: set[tuple[str, int]] = set()
    until = time.monotonic() + PATIENCE_S
    while len(ended) < len(PARTITIONS):
        assert time.monotonic() < until
        ended |= note(reader, found)
    reader.close()
    return found


def test_a_broker_starts_on_every_snapshot_as_after_a_crash(
    cluster_jvms: ClusterJvms, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    node = Node(1, ("d1", "d2"), "broker,controller")
    address = f"{HOST}:{node.client_port}"
    with in_memory(tmp_path_factory.mktemp("busy")) as folder:
        cluster = KraftCluster(
            cluster_jvms, folder / "disks", [node], properties=ALONE | busy_broker.PROPERTIES
        )
        cluster.format()
        disks = list(map(str, cluster.log_dirs()))
        acknowledged = []
        with cluster.running(), busy_broker.busy(address), watched(address) as written:
            time.sleep(3)
            moment_ms = 0
            for number in range(ROUNDS):
                time.sleep(0.5)
                if number == CUT:
                    moment_ms = round(time.time() * 1000)
                    time.sleep(0.5)
                acknowledged.append(ends(address))
                outcome = run_kdump(["backup", "create", str(folder / "repo"), *disks], tmp_path)
                assert complaints(outcome) == []
                assert outcome.exit_status == 0, outcome.stdout
            time.sleep(1)
        snapshots = objects(
            run_kdump(["backup", "list", "--output=jsonl", str(folder / "repo")], tmp_path).stdout
        )
        named = sorted({row["snapshot"] for row in snapshots if row["type"] == "log_directory"})
        assert len(named) == ROUNDS
        assert run_kdump(["backup", "check", str(folder / "repo")], tmp_path).exit_status == 0
        for number, snapshot in enumerate(named):
            place = f"{folder / 'repo'}!{snapshot}"
            require_sound(run_kdump(["verify", "--output=jsonl", place], tmp_path))
            restore(folder, disks, "--snapshot", snapshot)
            require_sound(run_kdump(["verify", "--output=jsonl", *disks], tmp_path))
            if number in STARTED:
                with cluster.running():
                    stored, reached = read(address), ends(address)
                for each in PARTITIONS:
                    assert reached[each] >= acknowledged[number][each]
                    assert stored[each].items() <= written[each].items()
                assert sum(map(len, stored.values())) > 100
        restore(folder, disks, "--to", str(moment_ms))
        require_sound(run_kdump(["verify", "--output=jsonl", *disks], tmp_path))
        with cluster.running():
            stored, reached = read(address), ends(address)
        for each in PARTITIONS:
            assert reached[each] <= acknowledged[CUT][each]
            if each[0] == "events":  # from the others, the cleaner has removed what was replaced
                assert reached[each] >= acknowledged[CUT - 1][each]
            assert stored[each].items() <= written[each].items()


def restore(folder: Path, disks: list[str], *words: str) -> None:
    """Restore the disks of the broker instead of those that it has."""
    shutil.rmtree(folder / "disks")
    (folder / "disks").mkdir()
    targets = [word for disk in disks for word in ("--into", disk)]
    outcome = run_kdump(["backup", "restore", str(folder / "repo"), *words, *targets], folder)
    assert outcome.exit_status & ~ExitStatus.REPAIRED == 0, (outcome.stdout, outcome.stderr)
    for disk in disks:
        has_marker = Path(disk, names.CLEAN_SHUTDOWN_MARKER).exists()
        assert has_marker == ("--to" in words)


def require_sound(outcome: Outcome) -> None:
    """Require that nothing is found but what a broker recovers."""
    findings = [row for row in objects(outcome.stdout) if row["type"] == "finding"]
    assert [row for row in findings if row["severity"] != "info"] == []
    assert outcome.exit_status == 0
