"""Groups and offsets are those that a group coordinator has after it loaded the same log.

``GroupReplays`` writes random logs, replays them with Kafka's own classes, and writes what the
coordinator has in memory after each batch.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from builders.duel import generate
from builders.replays import State, canonical, fail, log_of, states_of
from builders.samples import at_some_or_all, moments_of, seeds
from kdump.formats.uuids import ZERO_UUID, format_uuid
from kdump.log.batch_validity import LogPart
from kdump.log.valid_windows import valid_windows
from kdump.scan.batches import Window
from kdump.serve.streams_descriptions import described_streams
from kdump.state.compacted.latest_records import LatestRecords, joined
from kdump.state.groups.consumer_groups import GroupsFound, read_groups
from kdump.state.groups.group_image import CommittedOffset, Group, GroupType
from kdump.storage.local_disk import local

COUNT: Final = 12
SMALL_BYTES: Final = 2_500
"""Of a log that is cut at every byte."""
PROGRAM: Final = "org.apache.kafka.coordinator.group.GroupReplays"


@pytest.fixture(scope="module")
def replays(java_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replays")
    generate(java_classpath, PROGRAM, folder, 1, COUNT)
    return folder


def records_of(log: Path, start: int = 0, end: int | None = None) -> LatestRecords:
    records = LatestRecords()
    with local(str(log)).open_file() as source:
        for step in valid_windows(source, LogPart(start, end)):
            if isinstance(step, Window):
                records.add(step, fail)
            else:
                records.add_damage()
    return records


def state_of(records: LatestRecords) -> State:
    found = read_groups(records, lambda _: True)
    assert not found.problems
    return words_in(found)


def words_in(found: GroupsFound) -> State:
    return {words for group in found.groups for words in words_of(group)}


def words_of(group: Group) -> Iterator[tuple[str, ...]]:
    assert group.state is not None
    if group.type is not None:
        is_classic = group.type is GroupType.CLASSIC
        epoch = group.generation if is_classic else group.epoch
        shown = "" if epoch is None else str(epoch)
        kind, state = group.type.value, group.state.value
        yield "group", group.group_id, kind, state, shown, str(len(group.members))
    if group.topology is not None:
        yield "streams", canonical(description_of(group))
    for key, offsets in group.offsets.items():
        where = (group.group_id, key.topic, str(key.partition))
        if offsets.committed is not None:
            yield ("offset", *where, *words_of_offset(offsets.committed))
        for each in offsets.pending:
            yield ("pending", str(each.producer_id), *where, *words_of_offset(each.committed))


def description_of(group: Group) -> dict[str, Any]:
    """The description of a group of Kafka Streams, with the names that Kafka's JSON has."""
    assert group.state is not None
    return {
        "errorCode": 0,
        "errorMessage": None,
        "authorizedOperations": -(2**31),
        "groupId": group.group_id,
        "groupState": group.state.value,
        "groupEpoch": group.epoch,
        "assignmentEpoch": group.assignment_epoch,
        **in_camel_case(described_streams(group)),
    }


def in_camel_case(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {camel_case(name): in_camel_case(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [in_camel_case(each) for each in value]
    return value


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def words_of_offset(offset: CommittedOffset) -> tuple[str, ...]:
    return (
        str(offset.offset),
        str(-1 if offset.leader_epoch is None else offset.leader_epoch),
        offset.metadata,
        str(offset.commit_timestamp_ms),
        str(-1 if offset.expire_timestamp_ms is None else offset.expire_timestamp_ms),
        offset.topic_id or format_uuid(ZERO_UUID),
        str(offset.record_offset),
    )


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
        parts = [records_of(log, *edge) for edge in itertools.pairwise(cuts)]
        assert state_of(joined(parts)) == states[-1][1]


def without_place(words: tuple[str, ...]) -> tuple[str, ...]:
    """An offset without that of its record, which no checksum covers."""
    return words[1:-1]


@pytest.mark.parametrize("number", seeds(0, count=COUNT // 2, in_main=2))
def test_damage_never_makes_up_an_offset_that_was_never_committed(
    number: int, replays: Path, tmp_path: Path
) -> None:
    rng = random.Random(number)
    replay = replays / str(number)
    content = log_of(replay).read_bytes()
    lines = [tuple(line.split("\t")) for line in (replay / "states").read_text().splitlines()]
    ever = {without_place(words) for words in lines if words[0] in ("offset", "committed")}
    for _ in range(40):
        damaged = bytearray(content)
        damaged[rng.randrange(len(damaged))] ^= 0xFF
        log = tmp_path / f"{0:020d}.log"
        log.write_bytes(damaged)
        groups = read_groups(records_of(log), lambda _: True)
        # The tombstone of the group before may be damaged.
        assert all(each.endswith("after that of a classic group") for each in groups.problems)
        found = words_in(groups)
        assert {without_place(words) for words in found if words[0] == "offset"} <= ever
