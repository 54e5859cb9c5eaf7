"""A cluster that was cut at a moment says what it said then, and goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from builders.cluster_checks import KEPT, committed, ends, require_login
from builders.cluster_clients import ClusterClients
from builders.cluster_disks import CLEAN, ClusterDisks
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_story import GROUPS
from builders.json_answers import asked
from builders.kraft_cluster import KraftCluster
from builders.log_dir_trees import original_of
from builders.waiting import a_moment
from kdump.formats import names
from kdump.scan.batches import read_windows
from kdump.target.virtual_directory import BytesSource

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

TOPIC: Final = "rewound"
PARTITIONS: Final = [(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)]
GROUP: Final = "rewound-group"


def values(*texts: str) -> list[tuple[str | None, str | None]]:
    return [("key", text) for text in texts]


def live_until_the_moment(clients: ClusterClients) -> None:
    clients.create_topic(TOPIC, 3)
    clients.wait_for_replicas(TOPIC)
    clients.open_producer("plain")
    for partition in PARTITIONS:
        clients.send("plain", partition, values("before"))
    clients.open_producer("whole", transactional_id="whole")
    with clients.transaction("whole"):
        for partition in PARTITIONS:
            clients.send("whole", partition, values("committed"))
    for partition in PARTITIONS:
        clients.wait_for_markers(partition)
    clients.commit_offsets(GROUP, {PARTITIONS[0]: 1, PARTITIONS[1]: 2})
    clients.open_producer("half", transactional_id="half", transaction_timeout_ms="4000")
    clients.ask("begin", producer="half")
    for partition in PARTITIONS:
        clients.send("half", partition, values("open at the moment"))


def live_on(clients: ClusterClients) -> None:
    clients.send("half", PARTITIONS[0], values("later"))
    clients.ask("commit", producer="half")
    with clients.transaction("whole"):
        for partition in PARTITIONS:
            clients.send("whole", partition, values("later, committed"))
    for partition in PARTITIONS:
        clients.wait_for_markers(partition)
        clients.send("plain", partition, values("later", "later"))
    clients.commit_offsets(GROUP, dict.fromkeys(PARTITIONS, 6))


def read(clients: ClusterClients) -> dict[str, list[str]]:
    found = clients.read(*PARTITIONS)
    return {name: [row[3] for row in rows] for name, rows in found.items()}


@ON_BOTH_KAFKAS
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_cluster_says_what_it_said_at_the_moment(
    cluster_disks: ClusterDisks, cluster_jvms: ClusterJvms, case_folder: Path, is_killed: bool
) -> None:
    folder = cluster_disks.copy(CLEAN, case_folder / "case")
    cluster = KraftCluster(cluster_jvms, folder, cluster_disks.nodes)
    log_dirs = cluster.log_dirs()
    try:
        cluster.start()
        clients = cluster.clients
        clients.wait_for_replicas()
        live_until_the_moment(clients)
        said = clients.describe([*GROUPS, GROUP])
        moment_ms = a_moment()
        live_on(clients)
        if not is_killed:
            cluster.stop()
    finally:
        cluster.kill()
    if is_killed:
        for each in log_dirs:
            (each / names.LOCK_FILE).unlink(missing_ok=True)
    before = [original_of(each) for each in log_dirs]
    found = asked("rewind", f"--to={moment_ms}", *log_dirs, status=1)
    opened = [each for each in found if each["type"] == "transaction"]
    assert ("half", "open") in [(each["transactional_id"], each["outcome"]) for each in opened]
    undo_and_repeat(log_dirs, before, moment_ms)
    for each in log_dirs:
        asked("verify", each, status=0)
    # Not before: the transaction is open for as long as it takes to ask for the state.
    # By then, all partitions have a leader: a coordinator leaves out those that have none.
    aborts = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "8000"}
    cluster = KraftCluster(cluster_jvms, folder, cluster_disks.nodes, properties=aborts)
    with cluster.running() as clients:
        clients.wait_for_replicas()
        after = clients.describe([*GROUPS, GROUP])
        assert committed(after) == committed(said)
        assert after["groups"][GROUP]["offsets"] == said["groups"][GROUP]["offsets"]
        assert {name: after[name] for name in (*KEPT, "configs")} == {
            name: said[name] for name in (*KEPT, "configs")
        }
        for partition in PARTITIONS:
            clients.wait_for_markers(partition)  # the coordinator aborts it at its timeout
        assert read(clients) == {f"{TOPIC}-{n}": ["before", "committed"] for n in range(3)}
        others = {name for name in said["topics"] if not name.startswith(("__", TOPIC))}
        is_same = {name: ends(after, {1, 2, 3})[name] for name in others}
        assert is_same == {name: ends(said, {1, 2, 3})[name] for name in others}
        require_login(clients, cluster.brokers[0])
        clients.open_producer("half again", transactional_id="half")
        with clients.transaction("half again"):
            for partition in PARTITIONS:
                clients.send("half again", partition, values("new"))
        for partition in PARTITIONS:
            clients.wait_for_markers(partition)
        clients.commit_offsets(GROUP, dict.fromkeys(PARTITIONS, 3))
        assert read(clients) == {f"{TOPIC}-{n}": ["before", "committed", "new"] for n in range(3)}


def undo_and_repeat(log_dirs: list[Path], before: list[Any], moment_ms: int) -> None:
    """Undo gives every byte back; then cut again."""
    for log_dir, old in zip(log_dirs, before, strict=True):
        if any(each.name.startswith(names.KDUMP_PREFIX) for each in log_dir.iterdir()):
            asked("undo", log_dir, status=0)
            asked("undo", "--discard", log_dir, status=0)
        new = original_of(log_dir)
        for each in (old, new):
            each.pop(names.LOCK_FILE, None)
        assert new == old
    asked("rewind", f"--to={moment_ms}", *log_dirs, status=1)


def last_batch(log_dirs: list[Path], partition: str) -> int:
    """Where the last batch of a partition begins."""
    return max(
        int(offset)
        for log_dir in log_dirs
        for log in log_dir.glob(f"{partition}/*.log")
        for window in read_windows(BytesSource(log.read_bytes()))
        for offset in window.batches.base_offset
    )


@ON_BOTH_KAFKAS
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_that_was_being_ended_is_ended(
    cluster_disks: ClusterDisks, cluster_jvms: ClusterJvms, case_folder: Path, is_commit: bool
) -> None:
    folder = cluster_disks.copy(CLEAN, case_folder / "case")
    cluster = KraftCluster(cluster_jvms, folder, cluster_disks.nodes)
    log_dirs = cluster.log_dirs()
    state_then = "CompleteCommit" if is_commit else "CompleteAbort"
    with cluster.running() as clients:
        clients.create_topic(TOPIC, 3)
        clients.wait_for_replicas()
        clients.open_producer("whole", transactional_id="whole")
        with clients.transaction("whole", commits=is_commit):
            for partition in PARTITIONS:
                clients.send("whole", partition, values("in it"))
        clients.wait_for_transaction("whole", state_then)
    (state,) = {
        each["coordinator_partition"]
        for each in asked("txns", *log_dirs, status=0)
        if each.get("transactional_id") == "whole" and "coordinator_partition" in each
    }
    completed = last_batch(log_dirs, f"__transaction_state-{state}")
    given = case_folder / "offsets.json"
    cuts = [("__transaction_state", state, completed), (TOPIC, 0, 1), (TOPIC, 2, 1)]
    lines = [{"topic": a, "partition": b, "offset": c} for a, b, c in cuts]
    given.write_text(json.dumps({"partitions": lines}))
    found = asked("rewind", "--offsets", given, *log_dirs, status=1)
    outcomes = {
        each["transactional_id"]: each["outcome"] for each in found if each["type"] == "transaction"
    }
    assert outcomes["whole"] == ("committed" if is_commit else "aborted")
    for each in log_dirs:
        asked("verify", each, status=0)
    with cluster.running() as clients:
        clients.wait_for_replicas()
        clients.wait_for_transaction("whole", state_then)
        before = ["in it"] if is_commit else []
        assert read(clients) == {f"{TOPIC}-{n}": before for n in range(3)}
        clients.open_producer("whole again", transactional_id="whole")
        with clients.transaction("whole again"):
            for partition in PARTITIONS:
                clients.send("whole again", partition, values("new"))
        for partition in PARTITIONS:
            clients.wait_for_markers(partition)
        assert read(clients) == {f"{TOPIC}-{n}": [*before, "new"] for n in range(3)}


@ON_BOTH_KAFKAS
def test_transactions_are_whole_at_a_moment_amid_commits(
    cluster_disks: ClusterDisks, cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    folder = cluster_disks.copy(CLEAN, case_folder / "case")
    cluster = KraftCluster(cluster_jvms, folder, cluster_disks.nodes)
    log_dirs = cluster.log_dirs()
    try:
        cluster.start()
        clients = cluster.clients
        clients.wait_for_replicas()
        clients.create_topic(TOPIC, 3)
        clients.wait_for_replicas(TOPIC)
        for name in ("one", "other"):
            clients.open_producer(name, transactional_id=name)
        for number in range(20):
            for name in ("one", "other"):
                with clients.transaction(name, commits=number % 5 != 3):
                    for partition in PARTITIONS:
                        clients.send(name, partition, values(f"{name} {number}"))
        for partition in PARTITIONS:
            clients.wait_for_markers(partition)
    finally:
        cluster.kill()
    for each in log_dirs:
        (each / names.LOCK_FILE).unlink(missing_ok=True)
    found = rewound_amid_commits(log_dirs)
    ended = {each["transactional_id"] for each in found if each["outcome"] == "committed"}
    assert ended
    for each in log_dirs:
        asked("verify", each, status=0)
    with cluster.running() as clients:
        clients.wait_for_replicas()
        for name in ("one", "other"):
            clients.open_producer(name, transactional_id=name)  # which ends what is open
        for partition in PARTITIONS:
            clients.wait_for_markers(partition)
        kept = [set(each) for each in read(clients).values()]
        assert kept[0] == kept[1] == kept[2]
        assert kept[0]
        for name in ("one", "other"):
            with clients.transaction(name):
                for partition in PARTITIONS:
                    clients.send(name, partition, values("new"))
        for partition in PARTITIONS:
            clients.wait_for_markers(partition)
        assert [set(each) for each in read(clients).values()] == [kept[0] | {"new"}] * 3


def rewound_amid_commits(log_dirs: list[Path]) -> list[dict[str, Any]]:
    """Rewind to the latest moment at which a transaction was being committed; its transactions."""
    for moment_ms in decisions_ms(log_dirs):
        found = asked("rewind", f"--to={moment_ms}", "--dry-run", *log_dirs, status=1)
        if any(each.get("outcome") == "committed" for each in found):
            done = asked("rewind", f"--to={moment_ms}", *log_dirs, status=1)
            return [each for each in done if each["type"] == "transaction"]
    raise AssertionError("no marker has a later time than its decision")


def decisions_ms(log_dirs: list[Path]) -> list[int]:
    """When coordinators wrote something, the latest first."""
    logs = [log for each in log_dirs for log in each.glob("__transaction_state-*/*.log")]
    return sorted(
        {
            int(time_ms)
            for log in logs
            for window in read_windows(BytesSource(log.read_bytes()))
            for time_ms in window.batches.max_timestamp[window.batches.is_valid]
        },
        reverse=True,
    )
