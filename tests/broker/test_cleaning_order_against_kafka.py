"""kdump explains the log cleaner's queue exactly as Kafka's own ``LogCleanerManager`` has it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace  # noqa: TID251 - not of a struct
from pathlib import Path

import pytest

from builders.batches import batch, record
from builders.cleaner_manager import (
    CleanerManagerServer,
    LogFacts,
    random_topics,
    write_broker,
)
from builders.compactable_logs import NOW_MS
from builders.loading import LoaderServer
from kdump.formats import names
from kdump.formats.checkpoints import (
    OffsetEntry,
    decode_offset_checkpoint,
    encode_offset_checkpoint,
)
from kdump.formats.names import PartitionState
from kdump.jobs.compact.cleaning_queue import CleaningQueue, QueueRequest, cleaning_queues
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.state.metadata.cluster import ClusterImage, ClusterTopic
from kdump.state.metadata.settings import Settings
from kdump.storage.local_disk import local
from kdump.target.refusal import Refusal

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
        if each.view is None:
            is_refused = isinstance(each.outcome, Refusal)
            found[str(each.key)] = LogFacts("refused" if is_refused else "uncleanable")
            continue
        log = each.view.log
        found[str(each.key)] = LogFacts(
            "",
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
            each.problem,
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


@pytest.mark.parametrize("seed", [1, 2])
def test_the_queue_of_a_broker_is_that_of_kafka(
    manager: CleanerManagerServer, loader_server: LoaderServer, quick_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    directories = write_broker(quick_path / "ours", loader_server, rng, 50)

    found = require_equal(manager, directories, random_topics(rng), quick_path / "theirs")

    assert any(each.turn for each in found.values())
    assert any(each.turn is None for each in found.values())


def test_logs_after_a_crash_are_queued_as_after_their_recovery(
    manager: CleanerManagerServer, loader_server: LoaderServer, quick_path: Path
) -> None:
    rng = random.Random(4)
    directories = write_broker(quick_path / "ours", loader_server, rng, 40, is_clean=False)
    for directory in directories:
        for partition in directory.iterdir():
            if partition.is_dir() and rng.random() < 0.5:
                with max(partition.glob("*.log")).open("ab") as log:
                    log.write(rng.choice([b"torn", bytes(30), batch([record(9_999)])[:70]]))

    require_equal(manager, directories, random_topics(rng), quick_path / "theirs")


def test_logs_with_damaged_first_batches_are_uncleanable_where_kafka_fails(
    manager: CleanerManagerServer, loader_server: LoaderServer, quick_path: Path
) -> None:
    rng = random.Random(5)
    directories = write_broker(quick_path / "ours", loader_server, rng, 50)
    for log in sorted(quick_path.glob("ours/*/*/*.log")):
        if rng.random() < 0.3 and log != max(log.parent.glob("*.log")):
            content = bytearray(log.read_bytes())
            start, count = rng.choice([(8, 4), (16, 1), (8, 1)])
            content[start : start + count] = rng.choice([bytes(count), rng.randbytes(count)])
            log.write_bytes(content[: rng.choice([len(content), len(content), 40, 18, 17, 3])])

    found = require_equal(manager, directories, random_topics(rng), quick_path / "theirs")

    assert any(each.problem == "uncleanable" for each in found.values())


@pytest.mark.parametrize("is_repeated", [True, False])
def test_a_line_for_a_log_in_another_directory_ends_the_thread(
    manager: CleanerManagerServer,
    loader_server: LoaderServer,
    quick_path: Path,
    is_repeated: bool,
) -> None:
    rng = random.Random(6)
    directories = write_broker(quick_path / "ours", loader_server, rng, 20)
    topics = {
        topic: configs | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        for topic, configs in random_topics(rng).items()
    }
    queue = kdumps(directories, topics)
    first = next(each for each in queue.partitions if each.position == 1)
    path = directories[str(first.directory.path) == str(directories[0])]
    for directory in directories:
        checkpoint = directory / names.CLEANER_OFFSET_CHECKPOINT
        lines = dict(decode_offset_checkpoint(checkpoint.read_bytes()))
        if directory == path or not is_repeated:
            lines.pop(first.key, None)
        if directory == path:
            lines[first.key] = 3
        elif is_repeated:
            lines.setdefault(first.key, 3)
        entries = (OffsetEntry(*line) for line in lines.items())
        checkpoint.write_bytes(encode_offset_checkpoint(entries))

    found, thread = kafkas(manager, directories, topics, quick_path / "theirs")
    queue = kdumps(directories, topics)

    assert thread == "IllegalStateException"
    assert [(each.key, each.is_repeated) for each in queue.misplaced_lines] == [
        (first.key, is_repeated)
    ]
    if not is_repeated:
        mine = facts(queue, {name: each.bucket for name, each in found.items()})
        key = str(first.key)
        assert replace(mine[key], turn=None) == replace(found[key], turn=None)


@pytest.mark.parametrize(
    "directories", [("clean/d1", "clean/d2"), ("recovered/d1", "recovered/d2")]
)
def test_the_queue_of_a_real_broker_is_that_of_kafka(
    manager: CleanerManagerServer, fixtures: Path, quick_path: Path, directories: Sequence[str]
) -> None:
    adopted = [
        Path(shutil.copytree(fixtures / "out" / each, quick_path / "ours" / str(number)))
        for number, each in enumerate(directories)
        if (fixtures / "out" / each).is_dir()
    ]
    for root in adopted:
        found = read_log_directory(local(root), DirectoryKind.LOG_DIRECTORY)
        for partition in found.partitions:
            if partition.state is not PartitionState.LIVE or partition.is_cluster_metadata:
                shutil.rmtree(partition.path.local_path)
        # All of it is dirty, or most of it was cleaned.
        if root is adopted[0]:
            (root / names.CLEANER_OFFSET_CHECKPOINT).unlink()
    topics = {
        key.topic: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
        for root in adopted
        for key, _ in read_log_directory(local(root), DirectoryKind.LOG_DIRECTORY).identities
    }

    assert require_equal(manager, adopted, topics, quick_path / "theirs")
