"""A swap file loses records unless a split or the cleaner could have written it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from builders.apply_target import apply_target
from builders.batches import batch, batches, record
from builders.log_directories import write_partition
from builders.message_sets import message
from builders.recovery import joined, load, log_name, marker, positions, recovered
from builders.valid_batches import valid_batches_of
from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.load_report import HandledLeftover, LeftoverOutcome
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats.record_batch import TRANSACTIONAL_FLAG
from kdump.log.directory import read_lone_partition
from kdump.repair.partition_repair import repair_partition
from kdump.repair.policies import Policy
from kdump.repair.rebuild.leftovers import resolve_leftovers
from kdump.repair.verdict.outcome_verdict import verdict
from kdump.repair.verdict.verdict import VerdictKind
from kdump.storage.local_disk import local

FIRST, SECOND = log_name(0), log_name(12)


def keyed(offset: int, key: bytes | None, value: bytes | None = b"v", **others: Any) -> bytes:
    return batch([record(offset, key=key, value=value)], **others)


def partition(path: Path, logs: dict[int, bytes], swaps: dict[int, bytes]) -> Path:
    directory = write_partition(path / "orders-0", logs)
    for base_offset, content in swaps.items():
        (directory / f"{log_name(base_offset)}.swap").write_bytes(content)
    return directory


def lost(path: Path, **context: Any) -> list[tuple[str, int | None, int | None, int | None]]:
    """List what a broker would lose: log, first and last offset, records."""
    return [
        (each.name, each.loss.first_offset, each.loss.last_offset, each.loss.records)
        for each in recovered(path, **context).report.swap_losses
    ]


def salvaged(path: Path, **context: Any) -> dict[str, bytes]:
    outcome = repair_partition(
        read_lone_partition(local(path), path.name), LoadContext(**context), Policy.SALVAGE
    )
    assert isinstance(outcome, Recovered), outcome
    apply_target(path, outcome.files)
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("is_compacted", [True, False, None])
def test_an_empty_swap_loses_the_whole_log(tmp_path: Path, is_compacted: bool | None) -> None:
    log = joined(*(keyed(offset, b"k%d" % offset) for offset in range(4)))
    path = partition(tmp_path, {0: log}, {0: b""})

    outcome = recovered(path, is_compacted=is_compacted)

    found = verdict(outcome)
    assert found.kind is VerdictKind.LOSS
    assert "(offsets 0–3)" in found.sentence  # noqa: RUF001 - a range
    assert found.swap_losses == outcome.report.swap_losses != ()


def test_salvage_keeps_the_log_beside_an_empty_swap(tmp_path: Path) -> None:
    logs = {0: joined(keyed(0, b"a"), keyed(1, b"b")), 12: keyed(12, b"c")}
    path = partition(tmp_path, logs, {0: b""})

    files = salvaged(path)

    assert (files[FIRST], files[SECOND]) == (logs[0], logs[12])
    assert f"{FIRST}.swap" not in files


@pytest.mark.slow
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("cut", [0, 1, 17, -70, -17, -1, None])
def test_a_swap_truncated_anywhere_loses_nothing_when_salvaged(
    tmp_path: Path, is_clean: bool, cut: int | None
) -> None:
    each = [keyed(offset, b"k%d" % (offset % 2), b"v%d" % offset) for offset in range(8)]
    path = partition(
        tmp_path,
        {0: joined(each[:4]), 4: joined(each[4:])},
        {0: joined(each[6:])[:cut]},
    )
    context: dict[str, Any] = {"is_clean": is_clean, "is_compacted": True}
    broker = repair_partition(read_lone_partition(local(path), path.name), LoadContext(**context))
    assert isinstance(broker, Recovered)
    copy = tmp_path / "copy-0"
    shutil.copytree(path, copy)
    apply_target(copy, broker.files)
    remaining = valid_batches_of({file.name: file.read_bytes() for file in copy.iterdir()})

    is_lost = not {each[6], each[7]} <= set(remaining)
    assert (verdict(broker).kind is VerdictKind.LOSS) == is_lost
    assert set(valid_batches_of(salvaged(path, **context))) >= {each[6], each[7]}


def test_a_split_keeps_every_batch(tmp_path: Path) -> None:
    each = batches(4)
    whole = {0: joined(each)}

    assert lost(partition(tmp_path / "a", whole, {0: joined(each[:2]), 6: joined(each[2:])})) == []
    assert lost(
        partition(tmp_path / "b", whole, {0: joined(each[:2]), 6: joined(each[3:])}),
        is_compacted=False,
    ) == [(FIRST, 6, 8, 3)]


def test_a_record_may_be_missing_if_a_later_record_has_its_key(tmp_path: Path) -> None:
    each = [keyed(0, b"a", b"1"), keyed(1, b"b", b"1"), keyed(2, b"a", b"2")]
    later = keyed(12, b"b", b"2")
    logs = {0: joined(each), 12: later}
    path = partition(tmp_path, logs, {0: each[2]})

    assert lost(path) == []
    assert lost(path, is_compacted=False) == [(FIRST, 0, 1, 2)]


def test_a_record_may_not_be_missing_if_only_an_aborted_record_has_its_key(tmp_path: Path) -> None:
    aborted = keyed(12, b"b", b"2", attributes=TRANSACTIONAL_FLAG, producer_id=7, producer_epoch=0)
    logs = {0: joined(keyed(0, b"a"), keyed(1, b"b")), 12: joined(aborted, marker(13))}
    path = partition(tmp_path, logs, {0: keyed(0, b"a")})

    assert lost(path, is_compacted=True) == [(FIRST, 1, 1, 1)]


@pytest.mark.parametrize("commit", [True, False])
def test_aborted_records_may_be_missing(tmp_path: Path, commit: bool) -> None:
    data = keyed(0, b"a", attributes=TRANSACTIONAL_FLAG, producer_id=7, producer_epoch=0)
    logs = {0: joined(data, marker(1, commit=commit)), 12: keyed(12, b"c")}
    path = partition(tmp_path, logs, {0: b""})

    assert lost(path) == ([(FIRST, 0, 0, 1)] if commit else [])


def test_records_without_a_key_may_be_missing_only_from_a_compacted_log(tmp_path: Path) -> None:
    path = partition(tmp_path, {0: joined(keyed(0, None), keyed(1, b"a"))}, {0: keyed(1, b"a")})

    assert lost(path, is_compacted=True) == []
    assert lost(path) == [(FIRST, 0, 0, 1)]


def test_a_tombstone_may_be_missing_unless_an_earlier_value_is_kept(tmp_path: Path) -> None:
    logs = {0: keyed(0, b"a"), 12: joined(keyed(12, b"a", None), keyed(13, b"b"))}

    gone = partition(tmp_path / "gone", logs, {12: keyed(13, b"b")})
    both = partition(tmp_path / "both", {12: logs[12]}, {12: keyed(13, b"b")})

    assert lost(gone) == [(SECOND, 12, 12, 1)]
    assert lost(both) == []


def test_a_swap_with_the_same_offsets_but_other_records_loses_the_log(tmp_path: Path) -> None:
    log = joined(*(keyed(offset, b"k%d" % offset, b"own") for offset in range(4)))
    other = joined(*(keyed(offset, b"k%d" % offset, b"foreign") for offset in range(4)))
    path = partition(tmp_path, {0: log}, {0: other})

    assert lost(path) == [(FIRST, 0, 3, 4)]
    files = salvaged(path)
    assert files[FIRST] == log
    assert other in files.values()  # Moved aside: no other file has these records.


def test_records_before_the_log_start_are_not_lost(tmp_path: Path) -> None:
    each = batches(4)
    path = partition(tmp_path, {0: joined(each)}, {0: joined(each[2:])})

    assert lost(path, is_compacted=False, log_start_offset=6) == []


def test_legacy_messages_that_were_rewritten_are_kept(tmp_path: Path) -> None:
    old = joined(*(message(offset, b"k%d" % offset, b"v") for offset in range(3)))
    new = batch([record(offset, key=b"k%d" % offset, value=b"v") for offset in range(3)])
    path = partition(tmp_path, {0: old}, {0: new})

    assert lost(path, is_compacted=False) == []


def test_nothing_is_lost_if_the_old_log_is_already_deleted(tmp_path: Path) -> None:
    path = partition(tmp_path, {12: joined(batches(4, base_offset=12))}, {0: b""})

    assert lost(path) == []


def test_damaged_batches_of_the_old_log_are_not_counted_as_lost(tmp_path: Path) -> None:
    each = batches(4)
    log = bytearray(joined(each))
    log[positions(each)[1] + 70] ^= 1
    path = partition(tmp_path, {0: bytes(log)}, {0: joined(each[0], each[2:])})

    assert lost(path, is_compacted=False) == []


def test_resolving_leftover_files_refuses_a_swap_that_would_lose_records(tmp_path: Path) -> None:
    path = partition(tmp_path, {0: joined(batches(4))}, {0: b""})

    repaired = resolve_leftovers(read_lone_partition(local(path), path.name), LoadContext())

    assert dict(repaired.files) == {}
    assert "12 records" in str(repaired.refusals[0])


def test_a_broker_replaces_the_log_although_records_are_lost(tmp_path: Path) -> None:
    path = partition(tmp_path, {0: joined(batches(4))}, {0: b""})

    outcome = load(path)

    assert isinstance(outcome, Recovered)
    apply_target(path, outcome.files)
    assert (path / FIRST).read_bytes() == b""
    assert (
        HandledLeftover(f"{FIRST}.swap", LeftoverOutcome.PUT_IN_PLACE) in outcome.report.leftovers
    )


def dropped(path: Path, logs: dict[int, bytes], swap: bytes) -> Path:
    """Write a partition with a ``.swap`` at 4, which a broker deletes for a ``.cleaned`` at 0."""
    directory = partition(path, logs, {4: swap})
    (directory / f"{FIRST}.cleaned").write_bytes(b"")
    return directory


def test_records_that_only_a_deleted_swap_holds_are_lost(tmp_path: Path) -> None:
    logs = {0: keyed(0, b"a"), 12: keyed(12, b"c")}
    path = dropped(tmp_path, logs, joined(keyed(4, b"x"), keyed(5, b"y")))

    outcome = recovered(path, is_compacted=False)

    assert lost(path, is_compacted=False) == [(f"{log_name(4)}.swap", 4, 5, 2)]
    assert verdict(outcome).kind is VerdictKind.LOSS


def test_a_deleted_swap_loses_nothing_while_the_old_logs_exist(
    tmp_path: Path,
) -> None:
    log = joined(*(keyed(offset, b"k") for offset in range(6)))
    path = dropped(tmp_path, {0: log, 12: keyed(12, b"c")}, keyed(5, b"k"))

    assert lost(path) == []


def test_records_in_both_a_swap_and_a_cleaned_file_are_counted_once(tmp_path: Path) -> None:
    path = dropped(tmp_path, {0: keyed(0, b"a")}, keyed(4, b"x"))
    (path / f"{log_name(4)}.cleaned").write_bytes(keyed(4, b"x"))

    assert [each[1:] for each in lost(path, is_compacted=False)] == [(4, 4, 1)]


def test_salvage_keeps_records_that_only_a_deleted_swap_holds(tmp_path: Path) -> None:
    swap = keyed(4, b"x")
    path = dropped(tmp_path, {0: keyed(0, b"a"), 12: keyed(12, b"c")}, swap)

    assert salvaged(path)[log_name(4)] == swap


def test_leftover_files_are_not_resolved_if_records_would_be_lost(tmp_path: Path) -> None:
    path = dropped(tmp_path, {0: keyed(0, b"a")}, keyed(4, b"x"))

    found = resolve_leftovers(read_lone_partition(local(path), path.name), LoadContext())

    assert not found.files
    assert "--policy salvage" in str(found.refusals[0])
