"""Share groups are where a share coordinator has them after it loaded the same log.

``ShareReplays`` writes random logs, replays them with Kafka's own classes, and writes what the
coordinator has in memory after each batch.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from pathlib import Path
from typing import Final

import pytest

from builders.duel import generate
from builders.replays import State, fail, log_of, states_of
from builders.samples import at_some_or_all, moments_of
from kdump.log.batch_validity import LogPart
from kdump.log.valid_windows import valid_windows
from kdump.scan.batches import Window
from kdump.state.groups.share_groups import (
    UNKNOWN,
    SharePartition,
    ShareRecords,
    read_share_partitions,
)
from kdump.storage.local_disk import local

COUNT: Final = 12
SMALL_BYTES: Final = 1_500
"""Of a log that is cut at every byte."""
PROGRAM: Final = "org.apache.kafka.coordinator.share.ShareReplays"


@pytest.fixture(scope="module")
def replays(java_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replays")
    generate(java_classpath, PROGRAM, folder, 1, COUNT)
    return folder


def records_of(log: Path, start: int = 0, end: int | None = None) -> ShareRecords:
    records = ShareRecords()
    with local(str(log)).open_file() as source:
        for step in valid_windows(source, LogPart(start, end)):
            if isinstance(step, Window):
                records.add(step, fail)
            else:
                records.add_damage()
    return records


def state_of(records: ShareRecords) -> State:
    found = read_share_partitions(records, lambda _: True)
    assert not found.problems
    return {words_of(each) for each in found.partitions}


def words_of(share: SharePartition) -> tuple[str, ...]:
    # Kafka has 0 where nothing is known of an update without a snapshot.
    state_epoch = 0 if share.state_epoch == UNKNOWN else share.state_epoch
    numbers = (
        *(share.partition, share.start_offset, share.delivery_complete_count),
        *(share.snapshot_epoch, state_epoch, share.leader_epoch, share.write_timestamp_ms or 0),
        share.create_timestamp_ms or 0,
    )
    offsets = (
        f"{offset}:{each.state}:{each.count}"
        for each in share.batches
        for offset in range(each.first, each.last + 1)
    )
    return ("share", share.group_id, share.topic_id, *map(str, numbers), " ".join(offsets))


@pytest.mark.parametrize("number", range(COUNT))
def test_a_log_adds_up_to_what_the_coordinator_has_after_each_batch(
    number: int, replays: Path
) -> None:
    log = log_of(replays / str(number))
    for end, state in states_of(replays / str(number)):
        assert state_of(records_of(log, 0, end)) == state


@at_some_or_all
def test_a_log_cut_at_any_byte_adds_up_to_its_whole_batches(
    replays: Path, tmp_path: Path, is_all: bool
) -> None:
    log = Path(shutil.copy(log_of(replays / "0"), tmp_path))
    states = [(0, State()), *states_of(replays / "0")]
    for size in moments_of(range(SMALL_BYTES, -1, -1), is_all=is_all, samples=60):
        os.truncate(log, size)
        expected = next(state for end, state in reversed(states) if end <= size)
        assert state_of(records_of(log)) == expected


@pytest.mark.parametrize("number", range(COUNT))
def test_parts_of_a_log_join_to_the_whole_wherever_it_is_cut(number: int, replays: Path) -> None:
    rng = random.Random(number)
    log = log_of(replays / str(number))
    states = list(states_of(replays / str(number)))
    ends = [end for end, _ in states]
    for _ in range(6):
        cuts = [0, *sorted(rng.sample(ends[:-1], 3)), ends[-1]]
        whole = ShareRecords()
        for edge in itertools.pairwise(cuts):
            whole.extend(records_of(log, *edge))
        assert state_of(whole) == states[-1][1]
