"""kdump explains the log cleaner's queue exactly as Kafka's own ``LogCleanerManager`` has it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from builders.cleaner_manager import (
    CleanerManagerServer,
    LogFacts,
    random_topics,
    write_broker,
)
from builders.compactable_logs import NOW_MS
from builders.loading import LoaderServer
from kdump.jobs.compact.cleaner_view import Uncleanable
from kdump.jobs.compact.cleaning_queue import CleaningQueue, QueueRequest, cleaning_queues
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.state.cluster import ClusterImage, ClusterTopic
from kdump.state.settings import Settings
from kdump.storage.local_disk import local

pytestmark = pytest.mark.differential

Topics = Mapping[str, Mapping[str, str]]


@pytest.fixture(scope="module")
def manager(java_classpath: str) -> Iterator[CleanerManagerServer]:
    """Give Kafka's manager, ready to be asked again and again."""
    with CleanerManagerServer(java_classpath) as running:
        yield running


def kdumps(directories: Sequence[Path], topics: Topics) -> CleaningQueue:
    """Give the queue that kdump finds."""
    found = [read_log_directory(local(each), DirectoryKind.LOG_DIRECTORY) for each in directories]
    image = ClusterImage({name: ClusterTopic(name, "id", own) for name, own in topics.items()}, {})
    settings = {each.path: Settings(cluster=image) for each in found}
    (queue,) = cleaning_queues(QueueRequest(found, settings, now_ms=NOW_MS))
    return queue


def kafkas(
    manager: CleanerManagerServer, directories: Sequence[Path], topics: Topics, copies: Path
) -> tuple[dict[str, LogFacts], str | None]:
    """Give what Kafka finds in copies of the directories."""
    copied = [Path(shutil.copytree(each, copies / each.name)) for each in directories]
    return manager.ask(copied, NOW_MS, topics)


def facts(queue: CleaningQueue, buckets: Mapping[str, int]) -> dict[str, LogFacts]:
    """Give kdump's queue as Kafka's facts; the buckets are not kdump's to say."""
    found = {}
    for each in queue.partitions:
        if isinstance(each.outcome, Uncleanable):
            found[str(each.key)] = LogFacts(is_uncleanable=True)
            continue
        assert each.view is not None, each.outcome
        log = each.view.log
        found[str(each.key)] = LogFacts(
            False,
            log.cleanable.first_dirty_offset,
            log.cleanable.first_uncleanable_offset,
            log.cleanable.end_offset,
            log.clean_bytes,
            log.cleanable_bytes,
            log.compaction_delay_ms,
            buckets[str(each.key)],
            each.position,
        )
    return found


def in_order(found: Mapping[str, LogFacts]) -> list[str]:
    """Give the names in the order of their turns, those that the hash map does not order by name.

    Logs with the same ratio in the same bucket come in the order in which they were loaded.
    """
    queued = [(each.turn, name) for name, each in found.items() if each.turn is not None]
    runs: list[list[str]] = []
    for _, name in sorted(queued):
        before = found[runs[-1][0]] if runs else LogFacts()
        same = _ratio(before) == _ratio(found[name]) and before.bucket == found[name].bucket
        runs = [*runs[:-1], [*runs[-1], name]] if same else [*runs, [name]]
    return [name for run in runs for name in sorted(run)]


def _ratio(each: LogFacts) -> float | None:
    total = each.clean_bytes + each.cleanable_bytes
    return each.cleanable_bytes / total if total else None


def without_turns(found: Mapping[str, LogFacts]) -> dict[str, tuple[object, ...]]:
    return {
        name: (
            each.is_uncleanable,
            each.first_dirty_offset,
            each.first_uncleanable_offset,
            each.end_offset,
            each.clean_bytes,
            each.cleanable_bytes,
            each.compaction_delay_ms,
            each.turn is not None,
        )
        for name, each in found.items()
    }


def require_equal(
    manager: CleanerManagerServer, directories: Sequence[Path], topics: Topics, copies: Path
) -> dict[str, LogFacts]:
    """Compare both; gives what they found."""
    expected, thread = kafkas(manager, directories, topics, copies)
    assert thread is None
    buckets = {name: each.bucket for name, each in expected.items()}
    found = facts(kdumps(directories, topics), buckets)
    assert without_turns(found) == without_turns(expected)
    assert in_order(found) == in_order(expected)
    return expected


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_queue_of_a_broker_is_that_of_kafka(
    manager: CleanerManagerServer, loader_server: LoaderServer, quick_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    directories = write_broker(quick_path / "ours", loader_server, rng, 60)

    found = require_equal(manager, directories, random_topics(rng), quick_path / "theirs")

    assert any(each.turn for each in found.values())
    assert any(each.turn is None for each in found.values())
