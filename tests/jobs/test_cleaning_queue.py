"""The log cleaner's queue is the same on every engine, and asks little of the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builders.compactable_directories import NOW_MS, plain_directory
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions
from kdump.formats import names
from kdump.jobs.compact.cleaning_queue import (
    CleaningQueue,
    CleaningState,
    QueueRequest,
    cleaning_queues,
    list_compacted,
)
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.log.selection import EVERYTHING
from kdump.state.metadata.cluster import ClusterImage, ClusterTopic
from kdump.state.metadata.settings import Settings
from kdump.storage.local_disk import local


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a clean log directory of two topics."""
    return plain_directory(tmp_path / "logs", ("orders", "users"))


def listed(*roots: Path, **policies: str) -> tuple[list[LogDirectory], Settings]:
    """List the compacted partitions of directories whose topics have these cleanup policies."""
    topics = {
        topic: ClusterTopic(topic, "id", {"cleanup.policy": policy})
        for topic, policy in policies.items()
    }
    settings = Settings(cluster=ClusterImage(topics, {}))
    found = [read_log_directory(local(each), select=lambda *_: False) for each in roots]
    return list_compacted(found, {each.path: settings for each in found}, EVERYTHING), settings


def queue(*roots: Path, options: EngineOptions = DEFAULT_OPTIONS, **policies: str) -> CleaningQueue:
    directories, settings = listed(*roots, **policies)
    every = {each.path: settings for each in directories}
    (found,) = cleaning_queues(QueueRequest(directories, every, now_ms=NOW_MS), options)
    return found


def test_workers_find_the_queue_of_this_process(root: Path) -> None:
    two = EngineOptions(processes=2)

    here = queue(root, orders="compact", users="compact,delete")
    workers = queue(root, options=two, orders="compact", users="compact,delete")

    assert [each.outcome for each in workers.partitions] == [
        each.outcome for each in here.partitions
    ]
    assert [each.position for each in workers.partitions] == [1, 2]


def test_only_compacted_partitions_are_listed(root: Path) -> None:
    (directory,), _ = listed(root, orders="delete", users="compact")

    assert [each.path.name for each in directory.partitions] == ["users-0"]
    assert sorted(str(key) for key, _ in directory.identities) == ["orders-0", "users-0"]


def test_old_segments_of_a_compacted_topic_count_as_deletable_if_it_also_deletes(
    root: Path,
) -> None:
    directories, _ = listed(root, orders="compact", users="compact,delete")
    given = {"retention.ms": "1000"}
    topics = {
        topic: ClusterTopic(topic, "id", {"cleanup.policy": policy} | given)
        for topic, policy in {"orders": "compact", "users": "compact,delete"}.items()
    }
    settings = {each.path: Settings(cluster=ClusterImage(topics, {})) for each in directories}

    (found,) = cleaning_queues(QueueRequest(directories, settings, now_ms=NOW_MS))

    deletable = {
        each.key.topic: each.view.deletable_segments for each in found.partitions if each.view
    }
    assert deletable == {"orders": 0, "users": 4}


def test_a_partition_in_two_directories_has_no_turn(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(root / "users-0", other / "users-0")
    (other / names.CLEAN_SHUTDOWN_MARKER).touch()

    found = queue(root, other, orders="compact", users="compact")

    states = {(each.key.topic, each.state) for each in found.partitions}
    assert states == {
        ("orders", CleaningState.QUEUED),
        ("users", CleaningState.NOT_LOADED),
    }


def test_a_partition_that_cannot_be_read_does_not_stop_the_others(root: Path) -> None:
    directories, settings = listed(root, orders="compact", users="compact")
    shutil.rmtree(root / "users-0")

    every = {each.path: settings for each in directories}
    (found,) = cleaning_queues(QueueRequest(directories, every, now_ms=NOW_MS))

    orders, users = found.partitions
    assert orders.state is CleaningState.QUEUED
    assert isinstance(users.outcome, Unreadable)


def test_an_empty_directory_of_a_partition_is_an_empty_log(root: Path) -> None:
    (root / "fresh-0").mkdir()

    found = queue(root, fresh="compact")

    assert [(each.key.topic, each.state) for each in found.partitions] == [
        ("fresh", CleaningState.EMPTY)
    ]
