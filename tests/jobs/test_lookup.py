"""The answers of a lookup are those that real brokers gave before they were stopped."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.jobs.lookup import (
    LookupAnswer,
    LookupJob,
    LookupRequest,
    Question,
    ReplicaAnswer,
    lookup,
)
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.log.selection import EVERYTHING, PartitionSelection
from kdump.log.special_times import IsolationLevel, SpecialTime
from kdump.storage.local_disk import local

CLUSTER: Final = ("b1-d1", "b2-d1", "b2-d2", "b3-d1")
CHANGED_LATER: Final = ("div-", "lag-prefix", "__consumer_offsets", "__transaction_state")
"""Topics that have other records than when the brokers were asked."""
COMMITTED: Final = IsolationLevel.READ_COMMITTED


def directories_of(paths: Sequence[Path]) -> list[LogDirectory]:
    return [read_log_directory(local(path)) for path in paths]


def answers(
    directories: Sequence[LogDirectory], partition: str, question: Question
) -> list[ReplicaAnswer]:
    selection = PartitionSelection(partitions=(partition,))
    found = lookup(LookupRequest(directories, selection, question))
    assert found, partition
    return found


def offset_time_and_epoch(answer: ReplicaAnswer) -> tuple[int, int, int]:
    """As a client shows them: -1 for what there is not."""
    assert isinstance(answer.answer, LookupAnswer)
    found = answer.answer.found
    if found.offset is None or found.record is None:
        return -1, -1, -1
    time, epoch = found.record.timestamp_ms, found.leader_epoch
    return found.offset, -1 if time is None else time, -1 if epoch is None else epoch


def offsets(found: Sequence[ReplicaAnswer]) -> set[int | None]:
    return {each.answer.found.offset for each in found if isinstance(each.answer, LookupAnswer)}


def listed_in(manifest: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and answers of each partition whose log is still as it was then."""
    for topic, described in json.loads(manifest.read_text())["topics"].items():
        if not topic.startswith(CHANGED_LATER):
            for number, partition in described["partitions"].items():
                yield f"{topic}-{number}", partition


@pytest.mark.slow
def test_every_replica_of_a_cluster_answers_as_its_leader_did(fixtures: Path) -> None:
    state = fixtures / "states" / "clean"
    directories = directories_of([state / name for name in CLUSTER])
    rng = random.Random(1)
    for name, said in listed_in(state / "manifest.json"):
        times = said.get("for_timestamp", [])
        for time, *expected in rng.sample(times, min(3, len(times))):
            for each in answers(directories, name, Question(time=time)):
                offset, found_time, epoch = offset_time_and_epoch(each)
                assert [offset, found_time, epoch] == expected, (name, time)
        largest = said["max_timestamp"]
        for each in answers(directories, name, Question(time=SpecialTime.MAX)):
            assert offset_time_and_epoch(each)[:2] == (largest["offset"], largest["timestamp"])
        latest = answers(directories, name, Question(time=SpecialTime.LATEST))
        assert offsets(latest) == {said["latest"]["offset"]}, name
        committed = answers(directories, name, Question(None, SpecialTime.LATEST, COMMITTED))
        assert offsets(committed) == {said["latest_committed"]["offset"]}, name
        earliest = answers(directories, name, Question(time=SpecialTime.EARLIEST))
        assert offsets(earliest) == {said["earliest"]["offset"]}, name


@pytest.mark.slow
def test_a_broker_of_two_disks_answers_as_it_did(fixtures: Path) -> None:
    clean = fixtures / "out" / "clean"
    directories = directories_of([clean / "d1", clean / "d2"])
    rng = random.Random(1)
    here = {each.path.name for found in directories for each in found.partitions}
    for name, said in listed_in(fixtures / "out" / "manifest.clean.json"):
        if name not in here:
            continue
        times = said.get("listOffsets.forTimestamp", {})
        for time, expected in rng.sample(sorted(times.items()), min(3, len(times))):
            (found,) = answers(directories, name, Question(time=int(time)))
            assert [*offset_time_and_epoch(found)[:2]] == (expected or [-1, -1]), (name, time)
        for words, time, level in (
            ("maxTimestamp", SpecialTime.MAX, IsolationLevel.READ_UNCOMMITTED),
            ("earliest", SpecialTime.EARLIEST, IsolationLevel.READ_UNCOMMITTED),
            ("latest", SpecialTime.LATEST, IsolationLevel.READ_UNCOMMITTED),
            ("latest.read_committed", SpecialTime.LATEST, COMMITTED),
        ):
            expected = said[f"listOffsets.{words}"]
            (found,) = answers(directories, name, Question(None, time, level))
            assert isinstance(found.answer, LookupAnswer)
            offset, epoch = found.answer.found.offset, found.answer.found.leader_epoch
            assert (-1 if offset is None else offset) == expected["offset"], (name, words)
            assert epoch == expected["leaderEpoch"] or offset is None, (name, words)


@pytest.mark.slow
def test_every_engine_has_the_same_answers(fixtures: Path) -> None:
    state = fixtures / "states" / "clean"
    request = LookupRequest(
        directories_of([state / "b2-d2"]),
        EVERYTHING,
        Question(time=SpecialTime.MAX),
    )
    here, in_workers = (
        lookup(request, EngineOptions(EngineChoice.LOCAL, processes=count)) for count in (1, 2)
    )
    assert here == in_workers
    assert pickle.loads(pickle.dumps(LookupJob(request.question))) == LookupJob(request.question)


@pytest.mark.parametrize("version", ["0.9.0.1", "0.10.2.2", "1.1.1", "2.0.1"])
def test_what_a_consumer_of_an_old_broker_read_is_found(version: str, fixtures: Path) -> None:
    """Indexes of these brokers differ, and the first ones have no time index."""
    root = fixtures / "old" / version
    state = "recovered"
    rng = random.Random(2)
    consumed: dict[str, list[dict[str, Any]]] = {}
    for line in (root / f"expected-{state}.read_uncommitted.jsonl").read_text().splitlines():
        said = json.loads(line)
        if "o" in said:
            consumed.setdefault(f"{said['t']}-{said['p']}", []).append(said)
    directories = directories_of([root / state])
    for name, records in consumed.items():
        said = rng.choice(records)
        (found,) = answers(directories, name, Question(offset=said["o"]))
        time = -1 if said["ts"] is None else said["ts"]
        assert offset_time_and_epoch(found)[:2] == (said["o"], time), name
