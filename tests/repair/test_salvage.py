"""Salvage keeps every valid batch, quarantines the rest, and leaves logs that Kafka loads."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from builders import random_partitions
from builders.apply_target import apply_target
from builders.batches import batches
from builders.log_directories import write_partition
from builders.malformed_batches import LAST_OFFSET_DELTA_START, rechecked, with_field
from builders.recovery import joined, log_name, marker, of_producer, positions
from builders.valid_batches import offsets_of, valid_batches_of
from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.load_report import AddedMarker, Cause, SplitSegment
from kdump.broker.loader.loader import load_directory, recover_partition
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats.record_batch import CRC_START, LENGTH_START
from kdump.log.directory import read_lone_partition
from kdump.repair.partition_repair import repair_partition
from kdump.repair.policies import Policy
from kdump.repair.salvage import salvage
from kdump.repair.verdict.outcome_verdict import verdict
from kdump.repair.verdict.verdict import VerdictKind
from kdump.storage.local_disk import local
from kdump.target.refusal import Refusal
from kdump.target.target_file import CopiedFrom, Gone, JoinedFrom, Kept, KeptUpTo
from kdump.target.virtual_directory import VirtualDirectory

FIRST, SECOND, THIRD = log_name(0), log_name(12), log_name(24)


def partition(path: Path, logs: dict[int, bytes], **others: Any) -> Path:
    return write_partition(path / "orders-0", logs, **others)


def three_segments() -> dict[int, list[bytes]]:
    """Four batches of three records in each."""
    return {base: batches(4, base_offset=base) for base in (0, 12, 24)}


def changed(log: bytes, position: int) -> bytes:
    """``log`` with one bit flipped."""
    data = bytearray(log)
    data[position] ^= 1
    return bytes(data)


def salvaged(path: Path, policy: Policy = Policy.SALVAGE, **context: Any) -> Recovered:
    outcome = repair_partition(
        read_lone_partition(local(path), path.name), LoadContext(**context), policy
    )
    assert isinstance(outcome, Recovered), outcome
    return outcome


def applied(path: Path, outcome: Recovered) -> dict[str, bytes]:
    apply_target(path, outcome.files)
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("context", [{}, {"recovery_point": 36}, {"is_clean": True}])
def test_only_the_damaged_batch_is_removed_at_any_position(
    tmp_path: Path, context: dict[str, Any]
) -> None:
    logs = three_segments()
    first, second = positions(logs[0])[1:3]
    path = partition(
        tmp_path,
        {0: changed(joined(logs[0]), first + 70), 12: joined(logs[12]), 24: joined(logs[24])},
    )
    damaged = (path / FIRST).read_bytes()[first:second]

    outcome = salvaged(path, **context)
    files = applied(path, outcome)

    (aside,) = outcome.report.quarantined
    assert files[FIRST] == joined(logs[0][:1], logs[0][2:])
    assert (files[SECOND], files[THIRD]) == (joined(logs[12]), joined(logs[24]))
    assert aside.file == f"damaged-{FIRST}-{first}-{second}"
    assert files[aside.file] == damaged
    assert (aside.cause, aside.first_offset, aside.last_offset, aside.records) == (
        Cause.DAMAGED,
        3,
        5,
        3,
    )
    assert outcome.log_end_offset == 36


def test_a_wrong_length_loses_only_its_own_batch(tmp_path: Path) -> None:
    each = batches(6)
    starts = positions(each)
    for shift, bit in ((3, 0x40), (2, 0x01), (0, 0x40)):
        log = bytearray(joined(each))
        log[starts[1] + LENGTH_START + shift] ^= bit
        path = partition(tmp_path / f"{shift}", {0: bytes(log)})

        files = applied(path, salvaged(path))

        assert files[FIRST] == joined(each[:1], each[2:])


def test_a_length_past_other_batches_hides_none_of_them(tmp_path: Path) -> None:
    each = batches(6)
    log = bytearray(joined(each))
    at = positions(each)[1]
    length = len(joined(each[1:4])) - 12
    log[at + LENGTH_START : at + LENGTH_START + 4] = length.to_bytes(4)
    path = partition(tmp_path, {0: bytes(log)})

    assert applied(path, salvaged(path))[FIRST] == joined(each[:1], each[2:])


def test_zeroes_at_the_end_are_truncated_even_after_a_clean_shutdown(tmp_path: Path) -> None:
    log = joined(batches(4))
    path = partition(tmp_path, {0: log + bytes(17)})

    outcome = salvaged(path, is_clean=True, recovery_point=12)

    assert outcome.files[FIRST] == KeptUpTo(len(log))
    assert verdict(outcome, Policy.SALVAGE).kind is VerdictKind.UNCLEAN


def test_zeroes_are_truncated_and_not_quarantined(tmp_path: Path) -> None:
    each = batches(4)
    log = joined(each[:2], bytes(3000), each[2:])
    path = partition(tmp_path, {0: log + bytes(4096)})

    outcome = salvaged(path)

    assert applied(path, outcome)[FIRST] == joined(each)
    assert [aside.file for aside in outcome.report.quarantined] == [None, None]


def test_preallocated_space_is_truncated_as_by_a_broker(tmp_path: Path) -> None:
    path = partition(tmp_path, {0: joined(batches(4)) + bytes(4096)})
    listed = read_lone_partition(local(path), path.name)

    assert salvaged(path) == recover_partition(listed, LoadContext())


def test_a_torn_batch_at_the_end_is_quarantined(tmp_path: Path) -> None:
    log = joined(batches(4))
    path = partition(tmp_path, {0: log + log[:50]})

    outcome = salvaged(path)

    assert outcome.files[f"damaged-{FIRST}-{len(log)}-{len(log) + 50}"] == CopiedFrom(
        FIRST, len(log), len(log) + 50
    )


def test_a_valid_partition_is_left_as_a_broker_leaves_it(tmp_path: Path) -> None:
    path = partition(tmp_path, {base: joined(log) for base, log in three_segments().items()})
    context = LoadContext(recovery_point=20)
    listed = read_lone_partition(local(path), path.name)

    assert repair_partition(listed, context, Policy.SALVAGE) == recover_partition(listed, context)


def test_a_batch_that_occurs_twice_is_kept_once(tmp_path: Path) -> None:
    each = batches(4)
    path = partition(tmp_path, {0: joined(each[:2], each[1:])})

    outcome = salvaged(path)

    assert applied(path, outcome)[FIRST] == joined(each)
    (aside,) = outcome.report.quarantined
    assert (aside.cause, aside.records) == (Cause.DUPLICATE, 0)


@pytest.mark.parametrize("claimed", [0, 2, 7, 1000, 2**40])
def test_a_batch_with_a_wrong_offset_is_removed_and_not_its_neighbours(
    tmp_path: Path, claimed: int
) -> None:
    each = batches(8)
    lying = claimed.to_bytes(8) + each[2][8:]
    path = partition(tmp_path, {0: joined(each[:2], lying, each[3:])})

    outcome = salvaged(path)

    assert applied(path, outcome)[FIRST] == joined(each[:2], each[3:])
    assert [aside.cause for aside in outcome.report.quarantined] == [Cause.OUT_OF_ORDER]


@pytest.mark.parametrize("claimed", [3, 50, 2000])
def test_a_batch_that_claims_later_offsets_is_left_as_a_broker_leaves_it(
    tmp_path: Path, claimed: int
) -> None:
    each = batches(30)
    each[5] = rechecked(with_field(each[5], LAST_OFFSET_DELTA_START, claimed, 4))
    path = partition(tmp_path, {0: joined(each)})

    outcome = salvaged(path)

    assert applied(path, outcome)[FIRST] == joined(each)
    assert not outcome.report.quarantined


def test_logs_with_swapped_names_are_renamed(tmp_path: Path) -> None:
    logs = three_segments()
    path = partition(tmp_path, {0: joined(logs[12]), 12: joined(logs[0]), 24: joined(logs[24])})

    files = applied(path, salvaged(path))

    assert valid_batches_of(files) == [*logs[0], *logs[12], *logs[24]]


def test_a_log_with_a_start_offset_past_its_end_is_kept(tmp_path: Path) -> None:
    path = partition(tmp_path, {0: joined(batches(4))})

    outcome = salvaged(path, log_start_offset=50)

    assert outcome.files[FIRST] == Kept()
    assert (outcome.log_start_offset, outcome.checkpointed_log_start_offset) == (0, None)
    assert outcome.report.ignored_log_start_offset == 50


def test_a_damaged_swap_does_not_replace_an_existing_log(tmp_path: Path) -> None:
    each = batches(4)
    path = partition(tmp_path, {0: joined(each)})
    (path / f"{FIRST}.swap").write_bytes(changed(joined(each), 80))

    files = applied(path, salvaged(path))

    assert files[FIRST] == joined(each)
    assert f"{FIRST}.swap" not in files


def test_a_swap_that_a_broker_deletes_is_kept_if_no_log_has_its_batches(
    tmp_path: Path,
) -> None:
    logs = three_segments()
    path = partition(tmp_path, {0: joined(logs[0]), 24: joined(logs[24])})
    (path / f"{SECOND}.swap").write_bytes(joined(logs[12]))
    (path / f"{FIRST}.cleaned").write_bytes(joined(logs[0][:2]))

    files = applied(path, salvaged(path))

    assert valid_batches_of(files) == [*logs[0], *logs[12], *logs[24]]
    assert f"{FIRST}.cleaned" not in files


def test_a_lost_marker_is_inserted_if_its_producer_continued_outside(tmp_path: Path) -> None:
    each = [
        of_producer(0, transactional=True),
        marker(1),
        of_producer(2, sequence=1),
        of_producer(3, sequence=2),
    ]
    at = positions(each)[1]
    path = partition(tmp_path, {0: changed(joined(each), at + CRC_START)})

    outcome = salvaged(path)
    kept = valid_batches_of(applied(path, outcome))

    assert [batch for batch in kept if batch in each] == [each[0], *each[2:]]
    assert [offsets_of(batch) for batch in kept] == [(n, n) for n in range(4)]
    assert outcome.report.added_markers == (AddedMarker(log_name(1), 7, 1),)


def test_many_lost_markers_cost_no_more_loads_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each: list[bytes] = []
    for at in range(0, 120, 3):
        producer_id = 7 + at % 2
        begun = of_producer(at, producer_id, sequence=at, transactional=True)
        continued = of_producer(at + 2, producer_id, sequence=at + 1)
        each += [begun, marker(at + 1, producer_id), continued]
    lost = {at for at in range(1, 120, 3) if at % 5}
    log = joined([changed(one, CRC_START) if at in lost else one for at, one in enumerate(each)])
    path = partition(tmp_path, {0: log})
    loads: list[LoadContext] = []

    def counted(directory: VirtualDirectory, context: LoadContext) -> Recovered | Refusal:
        loads.append(context)
        return load_directory(directory, context)

    monkeypatch.setattr(salvage, "load_directory", counted)
    outcome = salvaged(path)
    kept = valid_batches_of(applied(path, outcome))

    assert [one for one in kept if one in each] == [
        one for at, one in enumerate(each) if at not in lost
    ]
    assert {added.offset for added in outcome.report.added_markers} == lost
    assert len(loads) == 1


def test_a_batch_that_cannot_be_loaded_is_removed_if_no_marker_fits(tmp_path: Path) -> None:
    each = [
        of_producer(0, transactional=True),
        of_producer(1, sequence=1),
        *batches(2, base_offset=2),
    ]
    path = partition(tmp_path, {0: joined(each)})

    outcome = salvaged(path)

    assert applied(path, outcome)[FIRST] == joined(each[:1], each[2:])
    assert [aside.cause for aside in outcome.report.quarantined] == [Cause.NOT_LOADABLE]


def test_a_new_log_begins_where_offsets_span_more_than_an_index_holds(tmp_path: Path) -> None:
    far = 2**31 + 100
    each = [*batches(2), *batches(2, base_offset=far)]
    path = partition(tmp_path, {0: joined(each, b"x" * 20)})

    outcome = salvaged(path)
    files = applied(path, outcome)

    assert (files[FIRST], files[log_name(far)]) == (joined(each[:2]), joined(each[2:]))
    assert outcome.report.splits == (SplitSegment(FIRST, (0, far)),)


def test_a_batch_after_a_large_gap_that_cannot_be_loaded_is_removed(tmp_path: Path) -> None:
    far = 2**31 + 100
    each = [
        *batches(2),
        of_producer(far, transactional=True),
        of_producer(far + 1, sequence=1),
        *batches(2, base_offset=far + 2),
    ]
    path = partition(tmp_path, {0: joined(each)})

    files = applied(path, salvaged(path))

    assert valid_batches_of(files) == [*each[:3], *each[4:]]


def test_logs_inside_a_gap_of_another_are_kept(tmp_path: Path) -> None:
    logs = three_segments()
    far = batches(3, base_offset=1000)
    path = partition(
        tmp_path,
        {0: joined(logs[0][:1], far), 12: joined(logs[12]), 24: joined(logs[24])},
    )

    outcome = salvaged(path)

    assert valid_batches_of(applied(path, outcome)) == [*logs[0][:1], *logs[12], *logs[24], *far]
    assert outcome.report.quarantined == ()


def test_a_batch_is_kept_when_the_other_with_its_offsets_is_removed(tmp_path: Path) -> None:
    each = [
        of_producer(0, transactional=True),
        of_producer(1, sequence=1),  # preferred, as it touches the one before it, and not loadable
        *batches(1, base_offset=1),
        *batches(2, base_offset=10),
    ]
    path = partition(tmp_path, {0: joined(each)})

    kept = valid_batches_of(applied(path, salvaged(path)))

    assert kept == [each[0], *each[2:]]


def test_quarantined_files_are_not_overwritten(tmp_path: Path) -> None:
    each = batches(4)
    log = joined(each)
    path = partition(tmp_path, {0: log + b"x" * 20})
    name = f"damaged-{FIRST}-{len(log)}-{len(log) + 20}"
    (path / name).write_bytes(b"from before")

    files = applied(path, salvaged(path))

    assert files[name] == b"from before"
    assert files[f"{name}.2"] == b"x" * 20


def test_a_log_is_joined_from_its_valid_ranges(tmp_path: Path) -> None:
    each = batches(4)
    starts = positions(each)
    path = partition(tmp_path, {0: changed(joined(each), starts[1] + CRC_START)})

    target = salvaged(path).files[FIRST]

    assert target == JoinedFrom(
        (CopiedFrom(FIRST, 0, starts[1]), CopiedFrom(FIRST, starts[2], len(joined(each))))
    )


def test_policy_truncate_also_truncates_flushed_data(tmp_path: Path) -> None:
    logs = three_segments()
    at = positions(logs[0])[1]
    path = partition(tmp_path, {0: changed(joined(logs[0]), at + CRC_START), 12: joined(logs[12])})

    outcome = salvaged(path, Policy.TRUNCATE, recovery_point=24, is_clean=True)

    assert (outcome.files[FIRST], outcome.files[SECOND]) == (KeptUpTo(at), Gone())


@pytest.mark.parametrize("seed", range(60))
def test_no_valid_batch_is_lost(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    files = random_partitions.random_logs(rng)
    for _ in range(rng.randrange(1, 4)):
        random_partitions.log_damaged(rng, files)
    path = tmp_path / "orders-0"
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)

    outcome = salvaged(path)
    after = applied(path, outcome)

    kept = valid_batches_of(after)
    spans = [offsets_of(batch) for batch in kept]
    assert all(before[1] < behind[0] for before, behind in itertools.pairwise(spans))
    reported = [files[aside.name][aside.start : aside.end] for aside in outcome.report.quarantined]
    for batch in valid_batches_of(files):
        assert batch in kept or any(batch in lost for lost in reported)
    went = sum(map(len, reported)) + sum(cut.loss.size_bytes for cut in outcome.report.cuts)
    assert not any(cut.loss.batches for cut in outcome.report.cuts)
    made = sum(len(batch) for batch in kept if batch not in b"".join(files.values()))
    assert sum(map(len, files.values())) == sum(map(len, kept)) - made + went
    again = repair_partition(read_lone_partition(local(path), path.name), LoadContext())
    assert isinstance(again, Recovered)
    assert not again.report.loses_data


@pytest.mark.parametrize("name", ["12.log", "00000000000000000012.bak.log", "12.log.swap"])
def test_a_log_with_a_wrong_name_gets_its_right_name(tmp_path: Path, name: str) -> None:
    logs = three_segments()
    path = partition(tmp_path, {0: joined(logs[0]), 24: joined(logs[24])})
    (path / name).write_bytes(joined(logs[12]))

    files = applied(path, salvaged(path, is_clean=True))

    assert files[SECOND] == joined(logs[12])
    assert name not in files


@pytest.mark.parametrize("content", [b"", b"hello", joined(batches(2, base_offset=3))])
def test_a_wrong_name_hides_nothing_and_its_bytes_stay(tmp_path: Path, content: bytes) -> None:
    logs = three_segments()
    path = partition(tmp_path, {base: joined(each) for base, each in logs.items()})
    (path / "7.log").write_bytes(content)

    outcome = salvaged(path, is_clean=True)
    files = applied(path, outcome)

    assert sorted(name for name in files if name.endswith(".log")) == [FIRST, SECOND, THIRD]
    assert outcome.log_end_offset == 36
    aside = {each.file: files[each.file] for each in outcome.report.quarantined if each.file}
    assert [*aside.values()] == [content] * bool(content)
