"""The verdict describes what loading would do."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import batches
from builders.log_directories import write_partition
from builders.recovery import joined, load, log_name, of_producer, positions
from kdump.broker.loader.load_context import LoadContext
from kdump.formats.record_batch import CRC_START
from kdump.log.directory import read_lone_partition
from kdump.repair.partition_repair import repair_partition
from kdump.repair.policies import Policy
from kdump.repair.verdict.outcome_verdict import verdict
from kdump.repair.verdict.verdict import Verdict, VerdictKind, lasting_verdict
from kdump.storage.local_disk import local

TWO_SEGMENTS = {base: joined(batches(4, base_offset=base)) for base in (0, 12)}


def with_damage(base_offset: int, batch: int) -> dict[int, bytes]:
    """Two segments, one batch of one of them with a wrong checksum."""
    log = bytearray(TWO_SEGMENTS[base_offset])
    log[positions(batches(4))[batch] + CRC_START] ^= 1
    return {**TWO_SEGMENTS, base_offset: bytes(log)}


def judged(path: Path, logs: dict[int, bytes]) -> Verdict:
    return verdict(load(write_partition(path / "orders-0", logs)))


def test_a_sentence_counts_many_quarantined_ranges_and_the_details_name_each(
    tmp_path: Path,
) -> None:
    log = bytearray(joined(each := batches(40)))
    for at in positions(each)[1:36:3]:
        log[at + CRC_START] ^= 1
    path = write_partition(tmp_path / "orders-0", {0: bytes(log)})

    listed = read_lone_partition(local(path), path.name)
    found = verdict(repair_partition(listed, LoadContext(), Policy.SALVAGE), Policy.SALVAGE)

    assert "would quarantine 12 ranges of 1 segment (" in found.sentence
    assert "losing at most 36 records, and rebuild the indexes" in found.sentence
    assert len(found.sentence) < 200
    assert len(found.details) == 12
    assert f"quarantine 106 bytes of segment {log_name(0)} at byte 106, " in found.details[0]


def test_a_clean_partition_is_valid(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "orders-0", TWO_SEGMENTS)

    assert verdict(load(path, is_clean=True)) == lasting_verdict(VerdictKind.VALID, "valid")


def test_after_a_crash_only_the_active_segment_is_unclean(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "orders-0", TWO_SEGMENTS)

    assert verdict(load(path, recovery_point=12)) == lasting_verdict(
        VerdictKind.UNCLEAN, "only the active segment is unclean, as after any crash"
    )


def test_several_unflushed_segments_are_counted(tmp_path: Path) -> None:
    found = judged(tmp_path, TWO_SEGMENTS)

    assert found.kind is VerdictKind.UNCLEAN
    assert found.sentence.startswith("a broker would recover 2 segments")


def test_a_truncation_names_the_lost_batches_and_the_byte(tmp_path: Path) -> None:
    found = judged(tmp_path, with_damage(12, 1))

    at = positions(batches(4))[1]
    what = (
        f"truncate segment {log_name(12)} at byte {at},"
        " losing 2 batches (offsets 18–23, 6 records)"  # noqa: RUF001
    )
    assert found == Verdict(VerdictKind.LOSS, f"a broker would {what}", f"done: {what}")


def test_a_truncation_without_a_valid_batch_is_counted_in_bytes(tmp_path: Path) -> None:
    found = judged(tmp_path, {0: TWO_SEGMENTS[0] + b"\xff" * 100})

    assert found.kind is VerdictKind.LOSS
    assert found.sentence.endswith(", losing 100 bytes without a valid batch")


@pytest.mark.parametrize("size_bytes", [1, 100, 100_000])
def test_zeroes_after_the_last_batch_are_not_a_loss(tmp_path: Path, size_bytes: int) -> None:
    log = TWO_SEGMENTS[12]
    found = judged(tmp_path, {**TWO_SEGMENTS, 12: log + bytes(size_bytes)})

    size = "1 byte" if size_bytes == 1 else f"{size_bytes} bytes"
    recovery = "recover 2 segments that may not have been flushed, and all are valid"
    truncation = (
        f"truncate segment {log_name(12)} at byte {len(log)}, removing {size} of unwritten zeroes"
    )
    assert found == Verdict(
        VerdictKind.UNCLEAN,
        f"a broker would {recovery}; a broker would {truncation}",
        f"done: {recovery}; done: {truncation}",
        cuts_padding=True,
    )


def test_zeroes_are_not_a_loss_beside_repairs(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "orders-0", {0: TWO_SEGMENTS[0] + bytes(100)})
    (path / f"{0:020d}.index").unlink()

    found = verdict(load(path, is_clean=True))

    assert found.kind is VerdictKind.REBUILT
    assert "removing 100 bytes of unwritten zeroes" in found.sentence
    assert found.sentence.endswith("; no batch is lost")


@pytest.mark.parametrize("checkpointed", ["recovery_point", "high_watermark"])
@pytest.mark.parametrize(("offset", "kind"), [(12, VerdictKind.UNCLEAN), (13, VerdictKind.LOSS)])
def test_zeroes_where_the_log_was_longer_before_are_a_loss(
    tmp_path: Path, checkpointed: str, offset: int, kind: VerdictKind
) -> None:
    path = write_partition(tmp_path / "orders-0", {0: TWO_SEGMENTS[0] + bytes(100)})

    assert verdict(load(path, **{checkpointed: offset})).kind is kind


def test_zeroes_between_batches_are_a_loss(tmp_path: Path) -> None:
    each = batches(4)
    log = joined(each[:1], bytes(len(each[1])), each[2:])

    assert judged(tmp_path, {0: log}).kind is VerdictKind.LOSS


def test_zeroes_before_a_later_segment_are_a_loss(tmp_path: Path) -> None:
    logs = {**TWO_SEGMENTS, 0: joined(batches(3)) + bytes(100)}

    assert judged(tmp_path, logs).kind is VerdictKind.LOSS


def test_deleted_segments_are_named_with_the_reason(tmp_path: Path) -> None:
    found = judged(tmp_path, with_damage(0, 3))

    assert f"delete 1 segment ({log_name(12)}) with 4 batches" in found.sentence
    assert found.sentence.endswith("because it follows the truncated bytes")


def test_leftover_files_lose_nothing(tmp_path: Path) -> None:
    path = write_partition(
        tmp_path / "orders-0", TWO_SEGMENTS, others={f"{log_name(0)}.cleaned": b""}
    )

    assert verdict(load(path)) == Verdict(
        VerdictKind.REBUILT,
        "a broker would delete 1 leftover file; no batch is lost",
        "done: delete 1 leftover file; no batch is lost",
    )


def test_indexes_that_are_rebuilt_are_named(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "orders-0", TWO_SEGMENTS)
    (path / f"{0:020d}.index").unlink()

    what = "rebuild the indexes of segment 0: its offset index is missing; no batch is lost"
    assert verdict(load(path, is_clean=True)) == Verdict(
        VerdictKind.REBUILT,
        f"a broker would {what}",
        f"done: {what}",
    )


def test_a_refusal_has_its_reason_and_location(tmp_path: Path) -> None:
    path = write_partition(
        tmp_path / "orders-0", TWO_SEGMENTS, others={"leader-epoch-checkpoint": b"1\n0\n"}
    )
    found = verdict(load(path))

    assert found.kind is VerdictKind.REFUSED
    offline = "a broker would take the log directory offline, or refuse to start: "
    assert found.sentence.startswith(offline)
    assert found.sentence.endswith("(KafkaStorageException, leader-epoch-checkpoint)")


def test_zeroes_in_place_of_records_are_a_loss(tmp_path: Path) -> None:
    each = batches(4)
    log = joined(each[:1], bytes(len(each[1])), each[2:])
    path = write_partition(tmp_path / "orders-0", {0: log})
    listed = read_lone_partition(local(path), path.name)
    outcome = repair_partition(listed, LoadContext(), Policy.SALVAGE)

    assert verdict(outcome, Policy.SALVAGE).kind is VerdictKind.LOSS


def test_what_salvage_inserts_and_ignores_is_reported(tmp_path: Path) -> None:
    each = [of_producer(0, transactional=True), of_producer(2, sequence=1)]
    path = write_partition(tmp_path / "orders-0", {0: joined(each)})
    listed = read_lone_partition(local(path), path.name)
    outcome = repair_partition(listed, LoadContext(log_start_offset=50), Policy.SALVAGE)

    sentence = verdict(outcome, Policy.SALVAGE).sentence

    assert "abort the transaction of producer 7 at offset 1, whose marker is lost" in sentence
    assert "ignore the log start offset 50" in sentence
