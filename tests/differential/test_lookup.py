"""Times are looked up as Kafka's own ``UnifiedLog`` does it, over random logs."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.java_server import JavaServer
from builders.loading import Clock, LoaderServer
from builders.memory import in_memory
from builders.random_partitions import CODECS, Files, random_logs
from builders.samples import seeds
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names
from kdump.formats.checkpoints import encode_offset_checkpoint
from kdump.formats.names import FileKind, OffsetFileName
from kdump.formats.record_batch import LOG_APPEND_TIME_FLAG
from kdump.jobs.lookup import LookupAnswer, LookupRequest, Question, lookup
from kdump.log.directory import read_log_directory
from kdump.log.selection import EVERYTHING
from kdump.log.special_times import SPECIAL_BY_WORD, SpecialTime
from kdump.storage.local_disk import local

PARTITIONS: Final = 40
NOTHING: Final = (-1, -1, -1)
TIMES: Final = 16
HOUR_MS: Final = 3_600_000


@pytest.fixture(scope="module")
def lookup_server(java_classpath: str) -> Iterator[JavaServer]:
    with JavaServer(java_classpath, "LookupServer") as running:
        yield running


def asked_times(rng: random.Random) -> list[int]:
    """Special times, and times from before the records to after them."""
    special = [int(word) for word in SPECIAL_BY_WORD if word.startswith("-")]
    ordinary = [BASE_TIMESTAMP_MS + rng.randrange(-HOUR_MS // 60, HOUR_MS) for _ in range(TIMES)]
    early = [rng.randrange(-6_000, 6_000) for _ in range(5)]
    return [*special, -7, 0, 2**62, *early, *ordinary]


def our_answers(path: Path, time: int) -> Iterator[tuple[str, tuple[int, int, int]]]:
    special = SPECIAL_BY_WORD.get(str(time))
    question = Question(time=time if special is None else special)
    for each in lookup(LookupRequest([read_log_directory(local(path))], EVERYTHING, question)):
        assert isinstance(each.answer, LookupAnswer)
        assert not each.answer.damages
        found = each.answer.found
        when = (
            None if special in OFFSETS_ONLY or found.record is None else found.record.timestamp_ms
        )
        numbers = (
            -1 if number is None else number for number in (found.offset, when, found.leader_epoch)
        )
        offset, timestamp, epoch = numbers
        answer = NOTHING if found.offset is None else (offset, timestamp, epoch)
        yield each.replica.partition.path.name, answer


OFFSETS_ONLY: Final = (SpecialTime.EARLIEST, SpecialTime.EARLIEST_LOCAL, SpecialTime.LATEST)
"""For these a broker gives no time."""


def strange_times(rng: random.Random) -> Files:
    """Logs whose records have times in no order, before 1970, or none."""
    logs: Files = {}
    offset = 0
    ranges = [(-1, -1), (-5_000, 5_000), (BASE_TIMESTAMP_MS, BASE_TIMESTAMP_MS + HOUR_MS)]
    for _ in range(rng.randrange(1, 5)):
        log = bytearray()
        base_offset = offset
        least, most = rng.choice(ranges)
        for _ in range(rng.randrange(1, 40)):
            count = rng.randrange(1, 6)
            records = [
                record(offset + step, timestamp=rng.randint(least, most)) for step in range(count)
            ]
            attributes = LOG_APPEND_TIME_FLAG if rng.random() < 0.3 else 0
            log += batch(records, attributes=attributes, codec=rng.choice(CODECS))
            offset += count
        logs[str(OffsetFileName(base_offset, FileKind.LOG))] = bytes(log)
    return logs


def write_logs(rng: random.Random, path: Path, loader_server: LoaderServer) -> None:
    """Write partitions, let Kafka index them, and let some begin later than their first segment."""
    path.mkdir()
    for number in range(PARTITIONS):
        logs = strange_times(rng) if number % 3 == 0 else random_logs(rng)
        (path / f"case-{number}").mkdir()
        for name, content in logs.items():
            (path / f"case-{number}" / name).write_bytes(content)
    settings = IndexSettings(interval_bytes=rng.choice([0, 500]))
    assert not loader_server.load(path, settings, Clock())
    ends = read_log_directory(local(path)).checkpoints.recovery_points or {}
    starts = {
        name: rng.randrange(end + 2) for name, end in ends.items() if end and rng.random() < 0.4
    }
    (path / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(starts.items()))
    # Segments without times are as old as their files.
    for log in sorted(path.glob("*/*.log")):
        modified_ns = (BASE_TIMESTAMP_MS + rng.randrange(HOUR_MS)) * 1_000_000
        os.utime(log, ns=(modified_ns, modified_ns))


@pytest.mark.parametrize("seed", seeds(0, count=2, in_main=1))
def test_every_time_has_the_offset_that_kafka_finds(
    seed: int, loader_server: LoaderServer, lookup_server: JavaServer, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    with in_memory(tmp_path) as folder:
        write_logs(rng, folder / "ours", loader_server)
        shutil.copytree(folder / "ours", folder / "theirs")
        times = asked_times(rng)

        said = lookup_server.ask_words(
            [str(folder / "theirs"), *(f"time {time}" for time in times)]
        )

        assert len(said) == PARTITIONS * len(times)
        ours = {
            f"{name}/time {time}": answer
            for time in times
            for name, answer in our_answers(folder / "ours", time)
        }
    theirs = {question: tuple(map(int, answer.split())) for question, answer in said.items()}
    assert {each: (ours[each], theirs[each]) for each in theirs if ours[each] != theirs[each]} == {}
