"""A real broker continues with log directories that kdump changed.

A broker without a cleaner writes to directories of an earlier broker and stops. The clean shutdown
marker is removed, and one partition damaged. kdump recovers, compacts and applies retention. A
broker is started on the result and stopped, and another broker continues to write.
"""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from builders.broker import PROPERTIES, BrokerHost, Consumed, Key, ProducerSeen, Value
from builders.freeing import lines_of, of_type, rows_of
from builders.trees import contents_of
from kdump.formats import names

pytestmark = [pytest.mark.differential, pytest.mark.slow]

COMPACTED: Final = "compacted"
RETAINED: Final = "retained"
SHORTENED: Final = "shortened"
DAMAGED: Final = "damaged"
REAL_COMPACTED: Final = (
    "compact-left-deleted",
    "compact-txn",
    "compact-txn.purge",
    "compact-zstd",
    "compact.basic",
    "compact.purge",
    "compact_and_delete",
)
"""Topics of the real directories that a broker's cleaner has compacted."""
READ: Final = (COMPACTED, RETAINED, SHORTENED, DAMAGED, *REAL_COMPACTED)

KEYS: Final = [b"key-%d" % number for number in range(100)]
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
DAY_MS: Final = 86_400_000
SHORTENED_TO: Final = 135
WORK_AT_START: Final = re.compile(
    r" (kafka\.log|org\.apache\.kafka\.storage)\."
    r".*(Recovering|interrupted swap|[Cc]orrupt|orphaned|Deleting|invalid|stray|uncleanable)"
    r"|(WARN|ERROR) (kafka\.log|org\.apache\.kafka\.storage)\."
)
"""Log messages of a broker's storage when it repairs something."""
CLEANING: Final = re.compile(r"Beginning cleaning of log|Resetting first dirty offset")


@dataclass(frozen=True, slots=True)
class Glance:
    """Clients' view of a running broker: records by topic, producers of `COMPACTED`."""

    consumed: dict[str, Consumed]
    producers: dict[int, ProducerSeen]


@dataclass(frozen=True, slots=True)
class Story:
    """Observations, in the order in which they were made.

    ``said`` is what kdump told of partitions, by command; ``left`` and ``stopped`` are the files
    after kdump's work, and after a broker, which logged ``logged``, was started on it and stopped.
    """

    overwritten_producer: int
    before: Glance
    said: dict[str, list[dict[str, Any]]]
    cleaner_offsets: dict[str, int]
    left: dict[str, bytes]
    after: Glance
    max_dirty_percent: int
    logged: list[str]
    stopped: dict[str, bytes]
    in_the_end: Glance

    def told(self, command: str, topic: str) -> dict[str, Any]:
        """Return a command's output about the partition of a topic."""
        (row,) = [row for row in self.said[command] if row["topic"] == topic]
        return row


@pytest.fixture(scope="module")
def story(broker_host: BrokerHost, broker_log_dirs: list[Path]) -> Story:
    """Run the scenario."""
    host, log_dirs = broker_host, broker_log_dirs
    folder = log_dirs[0].parent
    with host.broker(log_dirs, "log.cleaner.enable=false"):
        overwritten_producer = write(host)
        before = glance(host)
    said = work(log_dirs)
    left = contents_of(folder)
    offsets = [lines_of(path, names.CLEANER_OFFSET_CHECKPOINT) for path in log_dirs]
    with host.broker(log_dirs):
        after = glance(host)
        max_dirty_percent = host.wait_for_cleaner()
    logged = host.logged()
    stopped = contents_of(folder)
    with host.broker(log_dirs):
        go_on(host)
        in_the_end = glance(host)
    return Story(
        overwritten_producer=overwritten_producer,
        before=before,
        said=said,
        cleaner_offsets=offsets[0] | offsets[1],
        left=left,
        after=after,
        max_dirty_percent=max_dirty_percent,
        logged=logged,
        stopped=stopped,
        in_the_end=in_the_end,
    )


def glance(host: BrokerHost) -> Glance:
    return Glance({topic: host.read(topic) for topic in READ}, host.producers_of(COMPACTED))


def write(host: BrokerHost) -> int:
    """Let clients write; return the producer whose records are all overwritten later."""
    now_ms = now()
    drawn = random.Random(1)
    small = {"internal_segment_bytes": "8192", "index_interval_bytes": "400"}
    host.create_topic(COMPACTED, cleanup_policy="compact", **small)
    host.create_topic(RETAINED, retention_ms=str(3 * DAY_MS), **small)
    for topic in (SHORTENED, DAMAGED):
        host.create_topic(topic, retention_ms="-1", **small)
    host.open_producer("overwritten")
    host.send("overwritten", COMPACTED, now_ms, [(key, b"first") for key in KEYS])
    (overwritten,) = host.producers_of(COMPACTED)
    for codec in CODECS:
        host.open_producer(codec, f"compression.type={codec}", "linger.ms=1000", "batch.size=2000")
        host.send(codec, COMPACTED, now_ms, values_of(drawn, drawn.choices(KEYS, k=500)))
    host.open_producer("transactional", "transactional.id=transactional")
    for commits in (True, False):
        with host.transaction("transactional", commits=commits):
            host.send("transactional", COMPACTED, now_ms, values_of(drawn, KEYS[::3]))
    host.send("none", COMPACTED, now_ms, [(key, None) for key in KEYS[::7]])
    # The segment of the tombstones is not the active segment.
    host.send("none", COMPACTED, now_ms, values_of(drawn, KEYS[1::7] * 8))
    for topic in REAL_COMPACTED:
        keys = sorted(key for key in host.read(topic).latest() if key is not None)
        host.send("zstd", topic, now_ms, values_of(drawn, keys * 3))
        host.send("lz4", topic, now_ms, [(key, None) for key in keys[::3]])
        host.send("none", topic, now_ms, values_of(drawn, keys[1::3] * 20))
    for days in range(10, 0, -1):
        for topic in (RETAINED, SHORTENED, DAMAGED):
            host.send("none", topic, now_ms - days * DAY_MS, values_of(drawn, KEYS[:30]))
    return overwritten


def now() -> int:
    """Return the current time in epoch milliseconds, since brokers use the clock."""
    return time.time_ns() // 1_000_000


def values_of(drawn: random.Random, keys: list[bytes]) -> list[tuple[Key, Value]]:
    return [(key, drawn.randbytes(50).hex().encode()) for key in keys]


def work(log_dirs: list[Path]) -> dict[str, list[dict[str, Any]]]:
    """Damage the directories and run kdump; return its output about partitions, by command."""
    damage(partition_path(log_dirs, DAMAGED))
    for path in log_dirs:
        (path / names.CLEAN_SHUTDOWN_MARKER).unlink()
    file = log_dirs[0].parents[1] / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in PROPERTIES.items()))
    broker: tuple[str | Path, ...] = (*log_dirs, "--server-properties", file)
    shorten = (f"--partition={SHORTENED}-0", f"--before={SHORTENED_TO}")
    commands: dict[str, tuple[str | Path, ...]] = {
        "recover": (*log_dirs, "--policy=salvage"),
        "compact": (*broker, "--all-compacted"),
        "retain": (*broker, f"--topic={RETAINED}", "--topic=compact_and_delete"),
        "delete-records": (*broker, *shorten),
    }
    return {
        command: of_type(rows_of(command, *args), "partition") for command, args in commands.items()
    }


def partition_path(log_dirs: list[Path], topic: str) -> Path:
    (path,) = [path for log_dir in log_dirs for path in log_dir.glob(f"{topic}-0")]
    return path


def damage(partition: Path) -> None:
    """Flip a byte in the middle of a segment that is neither the first nor the last."""
    log = sorted(partition.glob("*.log"))[2]
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)


def go_on(host: BrokerHost) -> None:
    """Let the producers from before continue."""
    now_ms = now()
    host.send("overwritten", COMPACTED, now_ms, [(key, b"last") for key in KEYS])
    with host.transaction("transactional", commits=True):
        host.send("transactional", COMPACTED, now_ms, [(key, b"in the end") for key in KEYS])
    for topic in READ:
        if topic != COMPACTED:
            host.send("none", topic, now_ms, [(b"new", b"last")])


def test_a_start_after_kdump_recovers_nothing(story: Story) -> None:
    skipped = [line for line in story.logged if "clean shutdown file was found" in line]
    at_work = [line for line in story.logged if WORK_AT_START.search(line)]

    assert len(skipped) == 2
    assert [line for line in at_work if names.CLUSTER_METADATA_TOPIC not in line] == []


@pytest.mark.parametrize("topic", [COMPACTED, *REAL_COMPACTED[:-1]])
def test_a_consumer_gets_the_latest_value_of_each_key_after_compaction(
    story: Story, topic: str
) -> None:
    assert story.told("compact", topic)["freed_bytes"] > 0
    assert len(story.after.consumed[topic].records) < len(story.before.consumed[topic].records)
    assert story.after.consumed[topic].latest() == story.before.consumed[topic].latest()
    assert story.after.consumed[topic].end_offset == story.before.consumed[topic].end_offset


def test_a_consumer_gets_only_the_latest_values_of_compacted_partitions(story: Story) -> None:
    before = story.before.consumed[COMPACTED].records
    bound = story.cleaner_offsets[f"{COMPACTED}-0"]
    last = {before[offset][0]: offset for offset in sorted(before) if offset < bound}

    assert any(before[offset][1] is None for offset in last.values())
    assert story.after.consumed[COMPACTED].records == {
        offset: record
        for offset, record in before.items()
        if offset >= bound or offset == last[record[0]]
    }


def test_a_brokers_own_cleaner_has_nothing_to_clean(story: Story) -> None:
    assert [line for line in story.logged if CLEANING.search(line)] == []
    assert story.max_dirty_percent == 0


def test_a_start_and_a_shutdown_do_not_change_kdumps_files(story: Story) -> None:
    left, stopped = (compared(story, contents) for contents in (story.left, story.stopped))

    assert stopped.keys() == left.keys()
    assert [path for path in left if stopped[path] != left[path]] == []


def compared(story: Story, contents: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files of the topics that are read; without what any start changes.

    A broker begins an epoch where it leads, and drops the snapshots at or before a log's start.
    """
    starts = {f"{topic}-0": story.after.consumed[topic].start_offset for topic in READ}
    chosen = {}
    for path, content in contents.items():
        _, directory, *rest = path.split("/")
        if directory not in starts or rest == [names.LEADER_EPOCH_CHECKPOINT]:
            continue
        stem, _, suffix = rest[0].partition(".")
        if suffix != "snapshot" or int(stem) > starts[directory]:
            chosen[path] = content
    return chosen


def test_a_consumer_gets_the_records_that_retention_kept(story: Story) -> None:
    for command, topic in (("retain", RETAINED), ("delete-records", SHORTENED)):
        start_offset = story.told(command, topic)["log_start_offset"]
        before, after = story.before.consumed[topic], story.after.consumed[topic]

        assert after.start_offset == start_offset > before.start_offset
        assert after.records == {
            offset: record for offset, record in before.records.items() if offset >= start_offset
        }
    assert story.after.consumed[SHORTENED].start_offset == SHORTENED_TO


def test_a_consumer_gets_every_record_that_salvage_kept(story: Story) -> None:
    ranges = story.told("recover", DAMAGED)["quarantined"]
    lost = {
        offset for each in ranges for offset in range(each["first_offset"], each["last_offset"] + 1)
    }
    before, after = story.before.consumed[DAMAGED], story.after.consumed[DAMAGED]

    assert len(ranges) == 1
    assert 0 < len(lost) < 60
    assert after.records == {
        offset: record for offset, record in before.records.items() if offset not in lost
    }


@pytest.mark.parametrize("topic", READ)
def test_new_records_continue_at_the_log_end(story: Story, topic: str) -> None:
    end_offset = story.before.consumed[topic].end_offset
    new = [offset for offset in story.in_the_end.consumed[topic].records if offset >= end_offset]

    assert min(new) == end_offset
    assert len(new) == (2 * len(KEYS) if topic == COMPACTED else 1)


def test_a_producer_without_remaining_records_continues_its_sequence(
    story: Story,
) -> None:
    producer = story.overwritten_producer
    before = story.before.producers[producer]
    values = {value for _, value in story.after.consumed[COMPACTED].records.values()}

    assert b"first" not in values
    assert story.in_the_end.producers[producer] == ProducerSeen(
        before.epoch, before.last_sequence + len(KEYS)
    )


def test_a_broker_has_the_same_producer_state(story: Story) -> None:
    assert story.after.producers == story.before.producers
    assert len(story.after.producers) == len(CODECS) + 2


def test_no_producer_loses_its_sequence(story: Story) -> None:
    assert story.in_the_end.producers.keys() == story.before.producers.keys()
    assert story.in_the_end.consumed[COMPACTED].latest() == dict.fromkeys(KEYS, b"in the end")
