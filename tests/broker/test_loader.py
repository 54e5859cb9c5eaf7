"""How a starting broker recovers a partition, rule by rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders.batches import BASE_TIMESTAMP_MS, batch, batches, record
from builders.log_directories import offset_index, write_partition
from builders.recovery import (
    aborted,
    files_after,
    joined,
    load,
    log_name,
    marker,
    of_producer,
    offset_entries,
    positions,
    producers,
    recovered,
    refused,
    time_entries,
)
from kdump.broker.loader.load_report import LeftoverOutcome
from kdump.formats import producer_snapshot
from kdump.formats.checkpoints import (
    EpochEntry,
    decode_leader_epoch_checkpoint,
    encode_leader_epoch_checkpoint,
)
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.record_batch import CRC_START, MAGIC_START
from kdump.formats.transaction_index import AbortedTxn, encode
from kdump.target.refusal import Refusal
from kdump.target.target_file import CopiedFrom, Gone, Kept, KeptUpTo, NewBytes, RenamedFrom

FIRST, SECOND, THIRD = log_name(0), log_name(12), log_name(24)
EPOCHS = "leader-epoch-checkpoint"


def damaged(log: bytes, position: int = 0) -> bytes:
    """Return ``log`` with a wrong checksum in the batch at ``position``."""
    changed = bytearray(log)
    changed[position + CRC_START] ^= 1
    return bytes(changed)


def snapshot(*entries: ProducerEntry) -> bytes:
    return producer_snapshot.encode(entries)


def three_segments() -> dict[int, bytes]:
    """Make three logs, each with four batches of three records."""
    return {base: joined(batches(4, base_offset=base)) for base in (0, 12, 24)}


def partition(path: Path, logs: dict[int, bytes], **others: Any) -> Path:
    return write_partition(path / "orders-0", logs, **others)


# ---- Truncation ----


def test_a_valid_log_is_kept_after_a_crash(tmp_path: Path) -> None:
    outcome = recovered(partition(tmp_path, three_segments()))

    assert [outcome.files[name] for name in (FIRST, SECOND, THIRD)] == [Kept()] * 3
    assert not outcome.report.loses_data
    assert (outcome.log_end_offset, outcome.recovery_point) == (36, 36)


def test_a_torn_batch_at_the_end_is_truncated(tmp_path: Path) -> None:
    log = joined(batches(4))
    path = partition(tmp_path, {0: log + log[:50]})

    assert recovered(path).files[FIRST] == KeptUpTo(len(log))


def test_zeroes_after_the_last_batch_are_truncated(tmp_path: Path) -> None:
    log = joined(batches(4))
    path = partition(tmp_path, {0: log + bytes(4096)})

    assert recovered(path).files[FIRST] == KeptUpTo(len(log))


def test_a_log_is_truncated_at_the_first_wrong_checksum(tmp_path: Path) -> None:
    each = batches(4)
    at = positions(each)[2]
    path = partition(tmp_path, {0: damaged(joined(each), at)})

    outcome = recovered(path)

    assert outcome.files[FIRST] == KeptUpTo(at)
    assert outcome.log_end_offset == 6


def test_batches_after_a_wrong_checksum_are_counted(tmp_path: Path) -> None:
    each = batches(4)
    at = positions(each)[1]
    path = partition(tmp_path, {0: damaged(joined(each), at)})

    (cut,) = recovered(path).report.cuts

    assert (cut.name, cut.position) == (FIRST, at)
    assert (cut.loss.batches, cut.loss.records) == (2, 6)
    assert (cut.loss.first_offset, cut.loss.last_offset) == (6, 11)
    assert cut.loss.damaged_bytes == len(each[1])


def test_segments_after_a_truncation_are_deleted(tmp_path: Path) -> None:
    logs = three_segments()
    logs[0] = damaged(logs[0])
    outcome = recovered(partition(tmp_path, logs))

    assert [outcome.files[name] for name in (SECOND, THIRD)] == [Gone(), Gone()]
    assert [dropped.name for dropped in outcome.report.dropped] == [SECOND, THIRD]
    assert outcome.report.dropped[0].loss.records == 12


def test_nothing_below_the_recovery_point_is_checked(tmp_path: Path) -> None:
    logs = three_segments()
    logs[0] = damaged(logs[0])
    outcome = recovered(partition(tmp_path, logs), recovery_point=24)

    assert outcome.files[FIRST] == Kept()
    assert [segment.base_offset for segment in outcome.report.recovered] == [24]


def test_the_segment_that_holds_the_recovery_point_is_checked(tmp_path: Path) -> None:
    logs = three_segments()
    logs[12] = damaged(logs[12])
    outcome = recovered(partition(tmp_path, logs), recovery_point=13)

    assert outcome.files[SECOND] == KeptUpTo(0)
    assert outcome.files[THIRD] == Gone()


def test_nothing_is_checked_after_a_clean_shutdown(tmp_path: Path) -> None:
    path = partition(tmp_path, {0: damaged(joined(batches(4)))})

    assert recovered(path, is_clean=True).files[FIRST] == Kept()


def test_a_repeated_batch_at_an_index_entry_empties_its_segment(tmp_path: Path) -> None:
    each = batches(4)
    path = partition(tmp_path, {0: joined(each, each[-1])})

    outcome = recovered(path, interval_bytes=1)

    assert outcome.files[FIRST] == KeptUpTo(0)
    assert outcome.log_end_offset == 0


def test_a_repeated_batch_without_an_index_entry_is_not_detected(tmp_path: Path) -> None:
    each = batches(4)
    path = partition(tmp_path, {0: joined(each, each[-1])})

    assert recovered(path).files[FIRST] == Kept()


def test_a_log_that_ends_before_its_log_start_offset_is_deleted(tmp_path: Path) -> None:
    path = partition(tmp_path, three_segments())
    outcome = recovered(path, log_start_offset=50)

    assert [outcome.files[name] for name in (FIRST, SECOND, THIRD)] == [Gone()] * 3
    assert outcome.files[log_name(50)] == NewBytes(b"")
    assert (outcome.log_start_offset, outcome.log_end_offset) == (50, 50)


def test_a_directory_without_a_log_gets_an_empty_log(tmp_path: Path) -> None:
    files = files_after(partition(tmp_path, {}))

    assert [files[f"{0:020d}{kind}"] for kind in (".log", ".index", ".timeindex")] == [b""] * 3


# ---- Indexes ----


def test_an_offset_index_has_an_entry_whenever_the_interval_is_exceeded(tmp_path: Path) -> None:
    each = batches(6)
    size = len(each[0])
    path = partition(tmp_path, {0: joined(each)})

    files = files_after(path, interval_bytes=2 * size)

    assert offset_entries(files[f"{0:020d}.index"]) == [(11, 3 * size)]


def test_a_time_index_ends_with_the_largest_timestamp(
    tmp_path: Path,
) -> None:
    times = [5, 3, 9, 7]
    each = [batch([record(n, timestamp=time)]) for n, time in enumerate(times)]
    path = partition(tmp_path, {0: joined(each)})

    files = files_after(path, interval_bytes=len(each[0]))

    assert offset_entries(files[f"{0:020d}.index"]) == [(2, positions(each)[2])]
    assert time_entries(files[f"{0:020d}.timeindex"]) == [(9, 2)]


def test_padding_after_valid_entries_is_trimmed(tmp_path: Path) -> None:
    each = batches(2)
    path = partition(
        tmp_path,
        {0: joined(each)},
        offset_indexes={0: offset_index((5, len(each[0])), padding=100)},
    )

    assert recovered(path, interval_bytes=1).files[f"{0:020d}.index"] == KeptUpTo(8)


def test_a_missing_offset_index_is_rebuilt_even_after_a_clean_shutdown(tmp_path: Path) -> None:
    logs = three_segments()
    path = partition(tmp_path, logs)
    (path / f"{0:020d}.index").unlink()

    outcome = recovered(path, is_clean=True, interval_bytes=1)

    assert isinstance(outcome.files[f"{0:020d}.index"], NewBytes)
    assert [segment.base_offset for segment in outcome.report.recovered] == [0]
    assert outcome.report.recovered[0].is_rebuilt


def test_truncating_a_segment_without_an_offset_index_keeps_later_segments(
    tmp_path: Path,
) -> None:
    logs = three_segments()
    logs[0] = damaged(logs[0])
    path = partition(tmp_path, logs)
    (path / f"{0:020d}.index").unlink()

    outcome = recovered(path, is_clean=True)

    assert outcome.files[FIRST] == KeptUpTo(0)
    assert [outcome.files[name] for name in (SECOND, THIRD)] == [Kept(), Kept()]


def test_a_missing_time_index_is_created_empty_after_a_clean_shutdown(tmp_path: Path) -> None:
    path = partition(tmp_path, three_segments())
    (path / f"{0:020d}.timeindex").unlink()

    assert files_after(path, is_clean=True)[f"{0:020d}.timeindex"] == b""


def test_a_wrong_index_below_the_recovery_point_is_left_unchanged(tmp_path: Path) -> None:
    wrong = offset_index((11, 3), (2, 1))
    path = partition(tmp_path, three_segments(), offset_indexes={0: wrong})

    assert recovered(path, recovery_point=24).files[f"{0:020d}.index"] == Kept()


def test_an_index_without_its_log_is_deleted(tmp_path: Path) -> None:
    path = partition(tmp_path, three_segments(), others={f"{5:020d}.timeindex": bytes(12)})

    outcome = recovered(path, is_clean=True)

    assert outcome.files[f"{5:020d}.timeindex"] == Gone()
    assert [leftover.outcome for leftover in outcome.report.leftovers] == [LeftoverOutcome.DELETED]


def test_an_aborted_transaction_is_added_to_the_transaction_index(tmp_path: Path) -> None:
    log = joined(of_producer(0, transactional=True), marker(1), batches(1, base_offset=2))
    files = files_after(partition(tmp_path, {0: log}))

    assert aborted(files[f"{0:020d}.txnindex"]) == (AbortedTxn(7, 0, 1, 2),)


def test_the_last_stable_offset_accounts_for_other_open_transactions(
    tmp_path: Path,
) -> None:
    log = joined(
        of_producer(0, 8, transactional=True), of_producer(1, 7, transactional=True), marker(2, 7)
    )
    files = files_after(partition(tmp_path, {0: log}))

    assert aborted(files[f"{0:020d}.txnindex"]) == (AbortedTxn(7, 1, 2, 0),)


def test_a_committed_transaction_creates_no_transaction_index(tmp_path: Path) -> None:
    log = joined(of_producer(0, transactional=True), marker(1, commit=True))

    assert f"{0:020d}.txnindex" not in files_after(partition(tmp_path, {0: log}))


def test_a_transaction_index_with_offsets_before_its_segment_is_rebuilt(tmp_path: Path) -> None:
    wrong = encode([AbortedTxn(7, 0, 5, 6)])
    path = partition(tmp_path, three_segments(), others={f"{12:020d}.txnindex": wrong})

    assert files_after(path, is_clean=True)[f"{12:020d}.txnindex"] == b""


def test_a_transaction_index_of_an_unknown_version_is_refused(tmp_path: Path) -> None:
    wrong = encode([AbortedTxn(7, 0, 5, 6, version=0x0100)])
    path = partition(tmp_path, three_segments(), others={f"{0:020d}.txnindex": wrong})

    refusal = refused(path, is_clean=True)

    assert (refusal.file, refusal.exception) == (f"{0:020d}.txnindex", "KafkaException")


# ---- Producers ----


def test_the_snapshot_at_the_log_end_has_the_producers(tmp_path: Path) -> None:
    log = joined(of_producer(0, sequence=4, count=3), of_producer(3, 9, epoch=2, count=2))
    files = files_after(partition(tmp_path, {0: log}))

    time = BASE_TIMESTAMP_MS
    assert producers(files[f"{5:020d}.snapshot"]) == (
        ProducerEntry(7, 0, 6, 2, 2, time + 2, -1, -1),
        ProducerEntry(9, 2, 1, 4, 1, time + 4, -1, -1),
    )


def test_an_open_transaction_is_in_the_snapshot(tmp_path: Path) -> None:
    log = joined(of_producer(0, transactional=True), of_producer(1, sequence=1, transactional=True))
    files = files_after(partition(tmp_path, {0: log}))

    assert producers(files[f"{2:020d}.snapshot"])[0].current_txn_first_offset == 0


def test_a_marker_with_a_new_epoch_leaves_the_producer_without_batches(tmp_path: Path) -> None:
    log = joined(
        of_producer(0, transactional=True), marker(1, commit=True, epoch=1, value=b"\0\0\0\0\0\5")
    )
    (entry,) = producers(files_after(partition(tmp_path, {0: log}))[f"{2:020d}.snapshot"])

    assert entry == ProducerEntry(7, 1, -1, -1, 0, BASE_TIMESTAMP_MS + 1, 5, -1)


def test_every_recovered_segment_gets_a_snapshot_at_its_base_offset(tmp_path: Path) -> None:
    files = files_after(partition(tmp_path, three_segments()))

    snapshots = sorted(name for name in files if name.endswith(".snapshot"))
    assert snapshots == [f"{offset:020d}.snapshot" for offset in (12, 24, 36)]


def test_state_before_a_recovered_segment_comes_from_its_snapshot(tmp_path: Path) -> None:
    known = ProducerEntry(5, 3, 10, 11, 0, 1000, -1, -1)
    path = partition(tmp_path, three_segments(), others={f"{24:020d}.snapshot": snapshot(known)})

    files = files_after(path, recovery_point=24)

    assert producers(files[f"{36:020d}.snapshot"]) == (known,)


def test_a_corrupt_snapshot_is_deleted_and_the_log_replayed(tmp_path: Path) -> None:
    logs = {0: of_producer(0), 1: joined(batches(2, base_offset=1))}
    path = partition(tmp_path, logs, others={f"{1:020d}.snapshot": b"\0\1 not one"})

    files = files_after(path, recovery_point=1)

    assert [entry.producer_id for entry in producers(files[f"{1:020d}.snapshot"])] == [7]


def test_snapshots_after_the_log_end_or_without_a_segment_are_deleted(tmp_path: Path) -> None:
    others = {f"{offset:020d}.snapshot": snapshot() for offset in (5, 12, 24, 36, 99)}
    files = files_after(partition(tmp_path, three_segments(), others=others), is_clean=True)

    snapshots = sorted(name for name in files if name.endswith(".snapshot"))
    assert snapshots == [f"{offset:020d}.snapshot" for offset in (12, 24, 36)]


def test_without_any_snapshot_a_clean_log_is_not_replayed(tmp_path: Path) -> None:
    path = partition(tmp_path, {0: of_producer(0), 1: of_producer(1, sequence=1)})
    files = files_after(path, is_clean=True)

    assert producers(files[f"{1:020d}.snapshot"]) == producers(files[f"{2:020d}.snapshot"]) == ()


@pytest.mark.parametrize(("now_ms", "kept"), [(1099, 1), (1100, 0)])
def test_producers_expire_when_a_snapshot_is_read(tmp_path: Path, now_ms: int, kept: int) -> None:
    known = ProducerEntry(5, 3, 10, 11, 0, 1000, -1, -1)
    path = partition(tmp_path, three_segments(), others={f"{24:020d}.snapshot": snapshot(known)})

    files = files_after(path, recovery_point=24, now_ms=now_ms, producer_id_expiration_ms=100)

    assert len(producers(files[f"{36:020d}.snapshot"])) == kept


def test_a_batch_outside_the_open_transaction_of_its_producer_is_refused(tmp_path: Path) -> None:
    log = joined(of_producer(0, transactional=True), of_producer(1, sequence=1))

    assert refused(partition(tmp_path, {0: log})).exception == "InvalidTxnStateException"


def test_a_malformed_marker_is_refused(tmp_path: Path) -> None:
    # Truncation keeps the marker, so that replaying the log fails on it again.
    log = joined(of_producer(0, transactional=True), marker(1, key=b"\0"))

    assert refused(partition(tmp_path, {0: log})).exception == "InvalidRecordException"


def test_an_index_entry_with_a_negative_position_points_to_the_log_start(tmp_path: Path) -> None:
    path = partition(tmp_path, {0: joined(batches(4))}, offset_indexes={0: offset_index((11, -5))})

    assert recovered(path, is_clean=True).log_end_offset == 12


@pytest.mark.parametrize(("attributes", "is_refused"), [(0x50, False), (0x51, True)])
def test_a_negative_magic_is_read_as_an_old_message(
    tmp_path: Path, attributes: int, is_refused: bool
) -> None:
    log = bytearray(joined(batches(4)))
    log[MAGIC_START : MAGIC_START + 2] = bytes([0xC3, attributes])
    outcome = load(partition(tmp_path, {0: bytes(log)}), is_clean=True)

    assert isinstance(outcome, Refusal) is is_refused


# ---- Leader epochs ----


def test_epochs_missing_from_the_checkpoint_come_from_the_batches(tmp_path: Path) -> None:
    log = joined(
        batch([record(0)], partition_leader_epoch=2), batch([record(1)], partition_leader_epoch=5)
    )
    path = partition(tmp_path, {0: log}, others={EPOCHS: b""})

    assert recovered(path).leader_epochs == (EpochEntry(2, 0), EpochEntry(5, 1))


def test_epochs_that_start_after_the_log_end_are_removed(tmp_path: Path) -> None:
    epochs = encode_leader_epoch_checkpoint([EpochEntry(0, 0), EpochEntry(1, 12)])
    files = files_after(partition(tmp_path, {0: joined(batches(4))}, others={EPOCHS: epochs}))

    assert decode_leader_epoch_checkpoint(files[EPOCHS]) == [EpochEntry(0, 0)]


def test_the_first_epoch_starts_at_the_log_start_offset(tmp_path: Path) -> None:
    epochs = encode_leader_epoch_checkpoint([EpochEntry(0, 0), EpochEntry(1, 3), EpochEntry(2, 30)])
    path = partition(tmp_path, three_segments(), others={EPOCHS: epochs})

    outcome = recovered(path, is_clean=True, log_start_offset=20)

    assert outcome.leader_epochs == (EpochEntry(1, 20), EpochEntry(2, 30))
    assert outcome.checkpointed_log_start_offset == 20


def test_writing_the_epoch_checkpoint_removes_its_temporary_file(tmp_path: Path) -> None:
    others = {EPOCHS: b"", f"{EPOCHS}.tmp": b"0\n"}
    path = partition(tmp_path, {0: joined(batches(1))}, others=others)

    assert recovered(path).files[f"{EPOCHS}.tmp"] == Gone()


@pytest.mark.parametrize("content", [b"1\n0\n", b"0\n1\n", b"0\n1\n0 -5\n"])
def test_a_malformed_epoch_checkpoint_is_refused(tmp_path: Path, content: bytes) -> None:
    path = partition(tmp_path, three_segments(), others={EPOCHS: content})

    assert refused(path).file == EPOCHS


# ---- Leftover files ----


def test_cleaned_files_are_deleted(tmp_path: Path) -> None:
    others = {f"{FIRST}.cleaned": b"", f"{0:020d}.index.cleaned": b""}
    outcome = recovered(partition(tmp_path, three_segments(), others=others), is_clean=True)

    assert [outcome.files[name] for name in others] == [Gone(), Gone()]
    assert outcome.files[FIRST] == Kept()


def test_files_marked_deleted_are_deleted(tmp_path: Path) -> None:
    path = partition(tmp_path, three_segments(), others={f"{FIRST}.deleted": b""})

    assert recovered(path, is_clean=True).files[f"{FIRST}.deleted"] == Gone()


def test_a_swap_replaces_the_segments_that_it_covers(tmp_path: Path) -> None:
    logs = three_segments()
    others = {
        f"{FIRST}.swap": logs[0] + logs[12],
        f"{0:020d}.index.swap": b"",
        f"{0:020d}.timeindex.swap": b"",
    }
    outcome = recovered(partition(tmp_path, logs, others=others), is_clean=True)

    assert outcome.files[FIRST] == RenamedFrom(f"{FIRST}.swap", len(logs[0] + logs[12]))
    assert outcome.files[SECOND] == Gone()
    assert outcome.files[THIRD] == Kept()
    assert not outcome.report.loses_data


def test_a_swap_at_or_above_a_cleaned_file_is_deleted(tmp_path: Path) -> None:
    others = {f"{SECOND}.swap": b"", f"{FIRST}.cleaned": b""}
    outcome = recovered(partition(tmp_path, three_segments(), others=others), is_clean=True)

    assert [outcome.files[name] for name in others] == [Gone(), Gone()]
    assert outcome.files[SECOND] == Kept()


def test_a_swap_below_all_cleaned_files_is_renamed(tmp_path: Path) -> None:
    logs = three_segments()
    others = {f"{FIRST}.swap": logs[0], f"{SECOND}.cleaned": b""}
    outcome = recovered(partition(tmp_path, logs, others=others))

    assert outcome.files[FIRST] == RenamedFrom(f"{FIRST}.swap", len(logs[0]))


def test_a_swap_that_kafka_cannot_read_is_refused(tmp_path: Path) -> None:
    path = partition(tmp_path, three_segments(), others={f"{FIRST}.swap": b"\xff" * 100})

    assert refused(path, is_clean=True).file == f"{FIRST}.swap"


def test_unknown_files_are_left_unchanged(tmp_path: Path) -> None:
    path = partition(tmp_path, three_segments(), others={"README": b"hello", ".DS_Store": b""})

    outcome = recovered(path)

    assert (outcome.files["README"], outcome.files[".DS_Store"]) == (Kept(), Kept())


def test_a_log_whose_name_is_not_an_offset_is_refused(tmp_path: Path) -> None:
    path = partition(tmp_path, three_segments(), others={"mine.log": b""})

    assert refused(path).exception == "NumberFormatException"


# ---- Offset overflow ----


def test_a_segment_whose_offsets_do_not_fit_is_split(tmp_path: Path) -> None:
    far = 2**31 + 5
    near_part, far_part = joined(batches(2)), joined(batches(2, base_offset=far))
    outcome = recovered(partition(tmp_path, {0: near_part + far_part}))

    assert outcome.files[FIRST] == KeptUpTo(len(near_part))
    assert outcome.files[log_name(far)] == CopiedFrom(
        FIRST, len(near_part), len(near_part + far_part)
    )
    assert outcome.report.splits[0].base_offsets == (0, far)
    assert outcome.log_end_offset == far + 6


def test_an_offset_below_the_segment_is_refused(tmp_path: Path) -> None:
    path = partition(tmp_path, {12: joined(batches(1), batches(2, base_offset=12))})

    assert refused(path).exception == "IllegalArgumentException"


# ---- The loaded partition ----


def test_a_malformed_partition_metadata_is_refused(tmp_path: Path) -> None:
    path = partition(tmp_path, three_segments(), others={"partition.metadata": b"version: 0\n"})

    assert refused(path).file == "partition.metadata"


def test_a_log_start_inside_the_log_is_checkpointed(tmp_path: Path) -> None:
    outcome = recovered(partition(tmp_path, three_segments()), log_start_offset=20)

    assert (outcome.log_start_offset, outcome.checkpointed_log_start_offset) == (20, 20)


def test_a_log_start_at_the_first_segment_is_not_checkpointed(tmp_path: Path) -> None:
    path = partition(tmp_path, {12: joined(batches(1, base_offset=12))})

    assert recovered(path, log_start_offset=3).checkpointed_log_start_offset is None


def test_loading_writes_nothing(tmp_path: Path) -> None:
    logs = three_segments()
    logs[12] = damaged(logs[12])
    path = partition(tmp_path, logs, others={f"{FIRST}.swap": logs[0]})
    before = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.iterdir()}

    load(path)

    after = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.iterdir()}
    assert after == before


def test_recovering_again_changes_nothing(tmp_path: Path) -> None:
    logs = three_segments()
    logs[12] = damaged(logs[12], positions(batches(4, base_offset=12))[2])
    files = files_after(partition(tmp_path, logs))
    again = tmp_path / "again-0"
    again.mkdir()
    for name, content in files.items():
        (again / name).write_bytes(content)

    outcome = load(again)

    assert not isinstance(outcome, Refusal)
    assert all(target == Kept() for target in outcome.files.values())
