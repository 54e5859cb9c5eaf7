"""A segment checked in parts has the same result as a whole."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import batch, batches
from builders.verified import NOW_MS, LogModel, file, forged, records, write_segment
from kdump.check.batches import SegmentScope
from kdump.check.collector import MOST_OF_A_CODE
from kdump.check.findings import Finding
from kdump.check.log_map import RunKind
from kdump.check.part import Level, SegmentPart
from kdump.check.partition import PartitionCheck
from kdump.check.scope import PartitionScope
from kdump.check.segment_check import check_part
from kdump.formats.names import FileKind, TopicPartition
from kdump.log.partition import read_partition
from kdump.storage.local_disk import local


def checked(path: Path, cuts: Sequence[int]) -> tuple[list[Finding], PartitionCheck]:
    """Return the findings of a partition whose first segment is checked in parts."""
    partition = read_partition(local(path), TopicPartition("orders", 0))
    scope = PartitionScope(partition, is_clean=True)
    check = PartitionCheck(scope, Level.DEEP)
    findings: list[Finding] = []
    for segment, segment_scope in scope.segment_scopes():
        edges = [0, *(cuts if segment.base_offset == 0 else ()), None]
        for start, end in itertools.pairwise(edges):
            assert start is not None
            part = check_part(segment_scope, start, end, Level.DEEP, NOW_MS, with_statistics=True)
            findings += check.take(segment, part)
    findings += check.finish()
    return findings, check


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("second", range(4))
def test_parts_have_the_findings_of_the_whole(first: int, second: int, tmp_path: Path) -> None:
    model = LogModel()
    model.aborted[0] = []
    del model.segments[0][1]
    model.segments[0].insert(1, batch(records(3, 1)))
    model.segments[0][3] = forged(model.segments[0][3], partition_leader_epoch=-1)
    path = model.write(tmp_path / "logs")
    edges = [sum(map(len, model.segments[0][:count])) for count in range(1, 5)]
    cuts = sorted({edges[first], edges[second]})
    whole, whole_check = checked(path, [])
    parts, parts_check = checked(path, cuts)
    assert whole
    assert set(parts) == set(whole)
    assert parts_check.account == whole_check.account
    assert parts_check.statistics() == whole_check.statistics()
    assert (parts_check.batches, parts_check.records) == (
        whole_check.batches,
        whole_check.records,
    )


@pytest.mark.parametrize("code", ["batch-offset-order", "producer-sequence-repeat"])
def test_offsets_and_epochs_that_decrease_between_two_parts_are_found(
    code: str, tmp_path: Path
) -> None:
    model = LogModel()
    model.segments[0].insert(2, model.segments[0][1])
    path = model.write(tmp_path / "logs")
    findings, _ = checked(path, [sum(map(len, model.segments[0][:2]))])
    assert code in {finding.code for finding in findings}


def scope_of(path: Path) -> SegmentScope:
    return SegmentScope(local(path), 0, is_clean=True)


@pytest.mark.slow
@given(st.integers(0, 2**32), st.sampled_from(Level))
def test_every_byte_of_a_damaged_log_is_accounted_for(
    tmp_path_factory: pytest.TempPathFactory, seed: int, level: Level
) -> None:
    rng = random.Random(seed)
    partition = tmp_path_factory.mktemp("logs")
    content = batches(rng.randrange(1, 8))
    write_segment(partition, 0, content)
    log = file(partition, 0, FileKind.LOG)
    data = bytearray(log.read_bytes())
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(data))
        size = rng.choice([1, 4, 40])
        data[at : at + size] = rng.choice([b"", bytes(size), rng.randbytes(size)])
    log.write_bytes(data)
    part = check_part(scope_of(log), 0, None, level, NOW_MS)
    assert (part.end, part.account.total_bytes) == (len(data), len(data))
    mapped = check_part(scope_of(log), 0, None, level, NOW_MS, with_statistics=True).statistics
    assert mapped is not None
    edges = [edge for run in mapped.runs for edge in (run.start, run.end)]
    assert edges == sorted(edges)
    assert edges[1:-1:2] == edges[2::2]
    damaged = sum(run.end - run.start for run in mapped.runs if run.kind is RunKind.DAMAGED)
    assert damaged == part.account.damaged_bytes
    assert mapped.batches.total.batches == part.batches
    is_whole = bytes(data) == b"".join(content)
    assert not (is_whole and part.findings)


@pytest.mark.slow
@given(st.data())
def test_a_part_begins_where_the_previous_one_ended(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    partition = tmp_path_factory.mktemp("logs")
    content = batches(12)
    write_segment(partition, 0, content)
    log = file(partition, 0, FileKind.LOG)
    size = sum(map(len, content))
    cut = data.draw(st.integers(0, size))
    first = check_part(scope_of(log), 0, cut, Level.DEFAULT, NOW_MS)
    # A part always ends with a batch.
    assert first.end >= cut
    second = check_part(scope_of(log), first.end, None, Level.DEFAULT, NOW_MS)
    parts: list[SegmentPart] = [first, second]
    assert sum(part.batches for part in parts) == len(content)
    assert not [finding for part in parts for finding in part.findings]


@pytest.mark.slow
def test_the_result_of_a_part_is_small_even_with_many_findings(tmp_path: Path) -> None:
    damaged = [bytes([*content[:-1], content[-1] ^ 1]) for content in batches(500)]
    # A valid batch is between them, so that each is a damaged range of its own.
    sound = batches(500)
    content = [each for pair in zip(damaged, sound, strict=True) for each in pair]
    (tmp_path / "00000000000000000000.log").write_bytes(b"".join(content))
    part = check_part(
        scope_of(tmp_path / "00000000000000000000.log"), 0, None, Level.DEFAULT, NOW_MS
    )
    assert len([each for each in part.findings if each.code == "batch-checksum"]) == (
        MOST_OF_A_CODE + 1
    )
    assert "479 more" in part.findings[-1].what


def test_a_part_can_be_sent_to_another_process(tmp_path: Path) -> None:
    import pickle

    path = LogModel().write(tmp_path / "logs")
    part = check_part(scope_of(file(path, 0, FileKind.LOG)), 0, None, Level.DEEP, NOW_MS)
    assert pickle.loads(pickle.dumps(part)) == part
