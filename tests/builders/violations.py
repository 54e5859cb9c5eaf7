"""Ways to violate each invariant, in a partition as :class:`~builders.verified.LogModel` has it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.log_directories import TOPIC_ID, offset_checkpoint
from builders.metadata_log import topic_record, write_metadata_log
from builders.verified import (
    END_OFFSET,
    PARTITION,
    LogModel,
    file,
    forged,
    idempotent,
    records,
    with_body,
)
from kdump.check.part import Level
from kdump.formats import names, producer_snapshot, record_batch
from kdump.formats.checkpoints import EpochEntry
from kdump.formats.compression import Codec
from kdump.formats.names import FileKind
from kdump.formats.snapshot_writer import SnapshotHead, encode_snapshot
from kdump.formats.transaction_index import AbortedTxn

ModelChange = Callable[[LogModel], None]
FileChange = Callable[[Path], None]


@dataclass(frozen=True)
class Case:
    """One way to violate an invariant.

    Attributes:
        code: of the invariant.
        name: of the function that breaks it.
        level: the least level that finds it.
        also: codes above info that come with it.
        change_model: what is done before the directory is written.
        change_files: what is done to it afterwards.
    """

    code: str
    name: str
    level: Level
    also: frozenset[str]
    change_model: ModelChange | None = None
    change_files: FileChange | None = None

    def write(self, root: Path, model: LogModel | None = None) -> Path:
        model = LogModel() if model is None else model
        if self.change_model is not None:
            self.change_model(model)
        partition = model.write(root)
        if self.change_files is not None:
            self.change_files(partition)
        return partition


CASES: list[Case] = []


def by_batches(
    code: str, *also: str, level: Level = Level.QUICK
) -> Callable[[ModelChange], ModelChange]:
    """Register a function that changes the partition before it is written."""

    def add(change: ModelChange) -> ModelChange:
        CASES.append(Case(code, change.__name__, level, frozenset(also), change_model=change))
        return change

    return add


def by_files(
    code: str, *also: str, level: Level = Level.QUICK
) -> Callable[[FileChange], FileChange]:
    """Register a function that changes files of the partition."""

    def add(change: FileChange) -> FileChange:
        CASES.append(Case(code, change.__name__, level, frozenset(also), change_files=change))
        return change

    return add


# ---- Batches ----


@by_batches("torn-tail", "recovery-point-beyond-end")
def the_last_batch_is_cut(model: LogModel) -> None:
    model.segments[12][-1] = model.segments[12][-1][:-1]
    del model.snapshots[END_OFFSET]


@by_batches("torn-tail")
def a_few_bytes_follow_the_last_batch(model: LogModel) -> None:
    model.segments[12].append(b"\x01\x02\x03")


@by_batches("zero-fill", "load-refused")
def zeroes_follow_the_last_batch(model: LogModel) -> None:
    model.segments[12].append(bytes(100))


@by_batches("batch-length")
def a_length_is_too_small(model: LogModel) -> None:
    content = bytearray(model.segments[0][1])
    struct.pack_into(">i", content, record_batch.LENGTH_START, 13)
    model.segments[0][1] = bytes(content)


@by_batches("batch-checksum", level=Level.DEFAULT)
def a_byte_of_a_value_is_changed(model: LogModel) -> None:
    content = bytearray(model.segments[0][0])
    content[-3] ^= 1
    model.segments[0][0] = bytes(content)


@by_batches("batch-magic")
def the_magic_is_three(model: LogModel) -> None:
    content = bytearray(model.segments[0][0])
    content[record_batch.MAGIC_START] = 3
    model.segments[0][0] = bytes(content)


@by_batches("batch-header")
def a_batch_has_fewer_records_than_its_header_counts(model: LogModel) -> None:
    model.segments[0][0] = forged(model.segments[0][0], records_count=4)


@by_batches("batch-few-offsets")
def a_batch_has_fewer_offsets_than_records(model: LogModel) -> None:
    model.segments[0][0] = forged(model.segments[0][0], last_offset_delta=1)


@by_batches("batch-header")
def a_batch_ends_before_it_begins(model: LogModel) -> None:
    model.segments[0][0] = forged(model.segments[0][0], last_offset_delta=-1)


@by_batches("batch-header")
def a_batch_begins_at_the_lowest_number(model: LogModel) -> None:
    model.segments[0][0] = forged(model.segments[0][0], base_offset=-(2**63))


@by_batches("batch-offset-order", "producer-sequence-repeat", "offset-index-order")
def a_batch_occurs_twice(model: LogModel) -> None:
    model.segments[0].insert(2, model.segments[0][1])


@by_batches("batch-outside-segment")
def a_batch_belongs_to_the_next_segment(model: LogModel) -> None:
    model.segments[0].append(batch(records(12, 1)))


@by_batches(
    "batch-offset-overflow",
    "offset-gap",
    "time-index-last",
    "snapshot-missing",
    "recovery-point-before-end",
)
def an_offset_is_too_far_from_the_base(model: LogModel) -> None:
    last = model.segments[12][-1]
    model.segments[12][-1] = forged(last, base_offset=12 + 2**31)


@by_batches("offset-gap")
def a_batch_in_the_middle_is_missing(model: LogModel) -> None:
    del model.segments[12][0]
    model.segments[12].insert(0, batch(records(12, 1), partition_leader_epoch=1))


@by_batches("batch-codec")
def the_codec_is_unknown(model: LogModel) -> None:
    model.segments[0][0] = forged(model.segments[0][0], attributes=7)


@by_batches("batch-codec", level=Level.DEEP)
def records_do_not_decompress(model: LogModel) -> None:
    model.segments[0][0] = forged(model.segments[0][0], attributes=int(Codec.ZSTD))


@by_batches("batch-fill", level=Level.DEEP)
def bytes_follow_the_last_record(model: LogModel) -> None:
    body = model.segments[0][0][record_batch.HEADER_BYTES :]
    model.segments[0][0] = with_body(model.segments[0][0], body + b"\0\0")


@by_batches("record-malformed", level=Level.DEEP)
def a_record_is_longer_than_its_batch(model: LogModel) -> None:
    body = bytearray(model.segments[0][0][record_batch.HEADER_BYTES :])
    body[0] = 0x7E
    model.segments[0][0] = with_body(model.segments[0][0], bytes(body))


@by_batches("record-offsets", level=Level.DEEP)
def a_record_has_an_offset_past_its_batch(model: LogModel) -> None:
    model.segments[0][0] = forged(batch([record(0), record(1), record(5)]), last_offset_delta=2)


@by_batches("batch-max-timestamp", level=Level.DEEP)
def no_record_has_the_maximum_timestamp(model: LogModel) -> None:
    model.segments[12][0] = batch(
        records(12, 3), partition_leader_epoch=1, max_timestamp=BASE_TIMESTAMP_MS + 15
    )


@by_batches("future-timestamp")
def a_timestamp_is_in_the_future(model: LogModel) -> None:
    late = BASE_TIMESTAMP_MS + 10**9
    model.segments[12][0] = batch([record(12, timestamp=late), *records(13, 2)])
    model.segments[12][0] = forged(model.segments[12][0], partition_leader_epoch=1)


@by_batches("leader-epoch-order")
def a_leader_epoch_goes_back(model: LogModel) -> None:
    model.segments[12][1] = forged(model.segments[12][1], partition_leader_epoch=0)


@by_batches("control-record", "snapshot-state", "transaction-index-mismatch", level=Level.DEFAULT)
def a_marker_has_no_key(model: LogModel) -> None:
    flags = record_batch.CONTROL_FLAG | record_batch.TRANSACTIONAL_FLAG
    model.segments[0][-1] = batch(
        [record(11, None)], attributes=flags, producer_id=9, producer_epoch=0
    )


@by_batches("producer-sequence-repeat", "snapshot-state", level=Level.DEFAULT)
def a_sequence_is_repeated(model: LogModel) -> None:
    model.segments[0][2] = idempotent(6, 0)
    model.segments[12][1] = idempotent(15, 3, partition_leader_epoch=1)


@by_batches("producer-sequence-gap", level=Level.DEFAULT)
def a_sequence_is_missing(model: LogModel) -> None:
    model.segments[12][1] = idempotent(15, 7, partition_leader_epoch=1)
    producer = model.snapshots[END_OFFSET][0]
    model.snapshots[END_OFFSET][0] = replace(producer, last_sequence=9)


# ---- Indexes ----


def change(path: Path, edit: Callable[[bytearray], bytearray | None]) -> None:
    content = bytearray(path.read_bytes())
    edited = edit(content)
    path.write_bytes(content if edited is None else edited)


def put(path: Path, layout: str, at: int, *values: int) -> None:
    change(path, lambda content: struct.pack_into(layout, content, at, *values))


@by_files("index-missing")
def the_offset_index_is_missing(partition: Path) -> None:
    file(partition, 0, FileKind.OFFSET_INDEX).unlink()


@by_files("index-missing")
def the_time_index_is_missing(partition: Path) -> None:
    file(partition, 0, FileKind.TIME_INDEX).unlink()


@by_files("index-size")
def an_index_has_a_byte_too_many(partition: Path) -> None:
    change(file(partition, 0, FileKind.OFFSET_INDEX), lambda content: content + b"\1")


@by_files("index-padding")
def a_full_index_is_padded(partition: Path) -> None:
    change(file(partition, 0, FileKind.TIME_INDEX), lambda content: content + bytes(24))


@by_files("offset-index-order")
def an_entry_of_the_offset_index_occurs_twice(partition: Path) -> None:
    change(file(partition, 0, FileKind.OFFSET_INDEX), lambda content: content[:8] + content)


@by_files("offset-index-position")
def an_entry_points_into_a_batch(partition: Path) -> None:
    path = file(partition, 0, FileKind.OFFSET_INDEX)
    position = struct.unpack_from(">i", path.read_bytes(), 4)[0]
    put(path, ">i", 4, position + 1)


@by_files("offset-index-position")
def an_entry_points_past_the_end(partition: Path) -> None:
    path = file(partition, 12, FileKind.OFFSET_INDEX)
    put(path, ">i", 4, 10**6)


@by_files("offset-index-offset")
def an_entry_points_past_the_batch_with_its_offset(partition: Path) -> None:
    put(file(partition, 0, FileKind.OFFSET_INDEX), ">i", 0, 2)


@by_files("offset-index-offset")
def an_entry_is_above_the_last_offset(partition: Path) -> None:
    put(file(partition, 12, FileKind.OFFSET_INDEX), ">i", 0, END_OFFSET - 12)


@by_files("time-index-order")
def an_entry_of_the_time_index_occurs_twice(partition: Path) -> None:
    change(file(partition, 0, FileKind.TIME_INDEX), lambda content: content[:12] + content)


@by_files("time-index-entry")
def an_entry_points_past_a_batch_of_its_time(partition: Path) -> None:
    path = file(partition, 0, FileKind.TIME_INDEX)
    change(path, lambda content: content[12:])
    put(path, ">q", 0, BASE_TIMESTAMP_MS + 2)


@by_files("time-index-entry")
def the_time_index_ends_above_all_timestamps(partition: Path) -> None:
    path = file(partition, 0, FileKind.TIME_INDEX)
    put(path, ">q", path.stat().st_size - 12, BASE_TIMESTAMP_MS + 10**6)


@by_files("time-index-entry")
def an_entry_of_the_time_index_is_past_the_log(partition: Path) -> None:
    entry = struct.pack(">qi", BASE_TIMESTAMP_MS + 1000, 500)
    change(file(partition, 12, FileKind.TIME_INDEX), lambda content: content + entry)


@by_files("time-index-last")
def the_last_entry_of_the_time_index_is_missing(partition: Path) -> None:
    change(file(partition, 0, FileKind.TIME_INDEX), lambda content: content[:-12])


@by_files("transaction-index-version", "load-refused")
def an_entry_of_the_transaction_index_has_a_later_version(partition: Path) -> None:
    put(file(partition, 0, FileKind.TRANSACTION_INDEX), ">b", 0, 1)


@by_batches("transaction-index-missing", level=Level.DEFAULT)
def the_transaction_index_is_missing(model: LogModel) -> None:
    model.aborted.clear()


@by_batches("transaction-index-mismatch", level=Level.DEFAULT)
def an_entry_of_the_transaction_index_has_a_wrong_first_offset(model: LogModel) -> None:
    model.aborted[0] = [AbortedTxn(9, 10, 11, 12)]


@by_batches("transaction-index-mismatch", level=Level.DEFAULT)
def an_aborted_transaction_is_not_in_the_index(model: LogModel) -> None:
    model.aborted[0] = []


# ---- Producer snapshots and leader epochs ----


@by_files("snapshot-checksum")
def a_byte_of_a_snapshot_is_changed(partition: Path) -> None:
    path = file(partition, 12, FileKind.PRODUCER_SNAPSHOT)
    put(path, ">b", producer_snapshot.HEADER_BYTES + 3, 1)


@by_files("snapshot-malformed")
def a_snapshot_has_another_version(partition: Path) -> None:
    put(file(partition, 12, FileKind.PRODUCER_SNAPSHOT), ">h", 0, 2)


@by_batches("snapshot-state", level=Level.DEFAULT)
def a_snapshot_has_another_sequence(model: LogModel) -> None:
    model.snapshots[12][0] = replace(model.snapshots[12][0], last_sequence=4)


@by_batches("snapshot-state", level=Level.DEFAULT)
def a_snapshot_lacks_the_producer_that_wrote_last(model: LogModel) -> None:
    del model.snapshots[END_OFFSET][0]


@by_batches("snapshot-stray")
def a_snapshot_is_inside_a_segment(model: LogModel) -> None:
    model.snapshots[6] = []


@by_batches("snapshot-missing", level=Level.DEFAULT)
def the_log_ends_without_a_snapshot(model: LogModel) -> None:
    del model.snapshots[END_OFFSET]


@by_files("epochs-malformed", "load-refused")
def the_epoch_checkpoint_is_not_text(partition: Path) -> None:
    (partition / names.LEADER_EPOCH_CHECKPOINT).write_bytes(b"0\nmany\n")


@by_batches("epochs-malformed", "load-refused")
def an_epoch_begins_below_zero(model: LogModel) -> None:
    model.epochs[0] = EpochEntry(0, -1)


@by_files("epochs-missing")
def the_epoch_checkpoint_is_missing(partition: Path) -> None:
    (partition / names.LEADER_EPOCH_CHECKPOINT).unlink()


@by_batches("epochs-mismatch")
def an_epoch_begins_too_late(model: LogModel) -> None:
    model.epochs[1] = EpochEntry(1, 15)


# ---- Partitions ----


@by_batches("segment-gap")
def offsets_between_segments_are_missing(model: LogModel) -> None:
    model.segments[0].pop()
    model.segments[0].pop()
    model.aborted.clear()
    del model.snapshots[12]


@by_files("leftover-swap")
def a_swap_is_left_over(partition: Path) -> None:
    (partition / "00000000000000000000.log.swap").write_bytes(b"x")


@by_files("swap-incomplete", "leftover-swap")
def a_swap_is_empty(partition: Path) -> None:
    log = file(partition, 12, FileKind.LOG)
    log.with_name(f"{log.name}.swap").write_bytes(b"")


@by_files("leftover-cleaned")
def a_cleaned_file_is_left_over(partition: Path) -> None:
    (partition / "00000000000000000000.log.cleaned").write_bytes(b"x")


@by_files("swap-dropped", "leftover-cleaned")
def a_cleaned_file_has_records_that_no_segment_has(partition: Path) -> None:
    (partition / "00000000000000000900.log.cleaned").write_bytes(batch([record(900)]))


@by_files("leftover-deleted")
def a_deleted_file_is_left_over(partition: Path) -> None:
    (partition / "00000000000000000000.log.deleted").write_bytes(b"x")


@by_files("leftover-temporary")
def a_temporary_file_is_left_over(partition: Path) -> None:
    (partition / "leader-epoch-checkpoint.tmp").write_bytes(b"x")


@by_files("index-orphan")
def an_index_has_no_log(partition: Path) -> None:
    (partition / "00000000000000000003.index").write_bytes(b"")


@by_files("partition-metadata-missing")
def the_topic_id_is_missing(partition: Path) -> None:
    (partition / names.PARTITION_METADATA).unlink()


@by_files("partition-metadata-malformed", "load-refused")
def the_topic_id_is_not_a_uuid(partition: Path) -> None:
    (partition / names.PARTITION_METADATA).write_bytes(b"version: 0\ntopic_id: !")


@by_batches(
    "load-refused",
    "batch-outside-segment",
    "batch-offset-order",
    "recovery-point-beyond-end",
)
def an_unclean_batch_has_an_offset_below_its_segment(model: LogModel) -> None:
    model.is_clean = False
    model.segments[12][1] = forged(model.segments[12][1], base_offset=0)


@by_files("foreign-file")
def a_foreign_file_is_in_the_partition(partition: Path) -> None:
    (partition / "README").write_bytes(b"do not touch")


@by_files("log-misnamed")
def a_log_is_named_without_twenty_digits(partition: Path) -> None:
    (partition / "7.log").write_bytes(b"")


@by_files("log-misnamed")
def a_replacement_is_named_without_twenty_digits(partition: Path) -> None:
    (partition / "7.log.swap").write_bytes(b"")


@by_files("foreign-file")
def an_index_is_named_without_twenty_digits(partition: Path) -> None:
    (partition / "7.index").write_bytes(b"")


@by_files("foreign-file")
def a_copy_of_a_log_is_beside_it(partition: Path) -> None:
    (partition / "00000000000000000000.bak.log").write_bytes(b"")


@by_files("foreign-file")
def a_foreign_file_is_in_the_log_directory(partition: Path) -> None:
    (partition.parent / "README").write_bytes(b"do not touch")


@by_files("kdump-file")
def damaged_bytes_were_quarantined(partition: Path) -> None:
    (partition / "damaged-00000000000000000000.log-120-360").write_bytes(bytes(240))


# ---- Log directories ----


@by_files("kdump-file")
def a_repair_can_be_undone(partition: Path) -> None:
    (partition.parent / ".kdump-undo-20261121T050000Z-1").write_bytes(b"{}")


@by_files("checkpoint-malformed")
def a_checkpoint_is_cut(partition: Path) -> None:
    (partition.parent / names.RECOVERY_POINT_CHECKPOINT).write_bytes(b"0\n1\norders 0\n")


@by_files("checkpoint-empty")
def a_checkpoint_is_empty(partition: Path) -> None:
    (partition.parent / names.RECOVERY_POINT_CHECKPOINT).write_bytes(b"")


@by_files("checkpoint-without-partition")
def a_checkpoint_names_a_missing_partition(partition: Path) -> None:
    (partition.parent / names.REPLICATION_OFFSET_CHECKPOINT).write_bytes(
        offset_checkpoint({PARTITION: 18, ("gone", 3): 7})
    )


@by_files("recovery-point-beyond-end")
def a_recovery_point_is_past_the_end(partition: Path) -> None:
    (partition.parent / names.RECOVERY_POINT_CHECKPOINT).write_bytes(
        offset_checkpoint({PARTITION: 19})
    )


@by_files("recovery-point-before-end")
def a_log_goes_on_after_a_clean_shutdown(partition: Path) -> None:
    (partition.parent / names.RECOVERY_POINT_CHECKPOINT).write_bytes(
        offset_checkpoint({PARTITION: 17})
    )


@by_files("log-start-beyond-end")
def a_log_starts_past_its_end(partition: Path) -> None:
    (partition.parent / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(
        offset_checkpoint({PARTITION: 19})
    )


@by_files("log-start-contradiction")
def a_log_starts_after_its_first_epoch(partition: Path) -> None:
    (partition.parent / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(
        offset_checkpoint({PARTITION: 7})
    )


@by_files("log-start-lost", "epochs-missing")
def the_log_start_is_lost(partition: Path) -> None:
    (partition.parent / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(b"")
    (partition / names.LEADER_EPOCH_CHECKPOINT).write_bytes(b"0\n1\n0 7\n")


@by_files("first-segment-missing")
def the_first_segment_is_lost(partition: Path) -> None:
    for path in partition.glob(f"{0:020d}.*"):
        path.unlink()


@by_files("meta-properties-malformed")
def the_node_id_is_not_a_number(partition: Path) -> None:
    (partition.parent / names.META_PROPERTIES).write_bytes(b"version=1\nnode.id=x\n")


@by_files("meta-properties-incomplete")
def meta_properties_are_empty(partition: Path) -> None:
    (partition.parent / names.META_PROPERTIES).write_bytes(b"")


@by_files("directory-id-reserved")
def the_directory_has_a_reserved_id(partition: Path) -> None:
    path = partition.parent / names.META_PROPERTIES
    content = path.read_bytes().replace(b"V1dW8O41RR6_pKmks-3sKg", b"AAAAAAAAAAAAAAAAAAAAAQ")
    path.write_bytes(content)


@by_files("bootstrap-malformed")
def the_first_metadata_is_empty(partition: Path) -> None:
    write_metadata_log(partition.parent, [topic_record("orders", TOPIC_ID.int)])
    (partition.parent / names.BOOTSTRAP_CHECKPOINT).write_bytes(b"")


@by_files("quorum-state-malformed")
def the_state_of_elections_is_empty(partition: Path) -> None:
    metadata = write_metadata_log(partition.parent, [topic_record("orders", TOPIC_ID.int)])
    (metadata.path.local_path / names.QUORUM_STATE).write_bytes(b"")


@by_files("quorum-state-malformed")
def the_state_of_elections_is_a_directory(partition: Path) -> None:
    metadata = write_metadata_log(partition.parent, [topic_record("orders", TOPIC_ID.int)])
    path = metadata.path.local_path / names.QUORUM_STATE
    path.unlink(missing_ok=True)
    path.mkdir()


@by_files("metadata-snapshot-damaged", level=Level.DEFAULT)
def the_end_of_a_metadata_snapshot_is_missing(partition: Path) -> None:
    values = [topic_record("orders", TOPIC_ID.int)]
    metadata = write_metadata_log(partition.parent, values)
    *batches, _ = encode_snapshot(SnapshotHead(0, 0, 0), values)
    path = metadata.path.local_path / "00000000000000000001-0000000000.checkpoint"
    path.write_bytes(b"".join(batches))


@by_files("clean-shutdown-malformed")
def the_marker_is_not_json(partition: Path) -> None:
    (partition.parent / names.CLEAN_SHUTDOWN_MARKER).write_bytes(b"{")


@by_files("directory-refused")
def a_directory_has_no_partition_name(partition: Path) -> None:
    (partition.parent / "lost+found").mkdir()


@by_files("directory-misnamed")
def a_directory_has_an_impossible_partition_name(partition: Path) -> None:
    (partition.parent / "old topic-0").mkdir()


@by_files("directory-delete")
def a_partition_waits_for_deletion(partition: Path) -> None:
    (partition.parent / "gone-0.184f5a4c945d4277a4671794019b3c74-delete").mkdir()


@by_files("directory-future", "directory-future-alone")
def a_partition_is_being_moved(partition: Path) -> None:
    path = partition.parent / "moving-0.184f5a4c945d4277a4671794019b3c74-future"
    path.mkdir()
    (path / names.PARTITION_METADATA).write_bytes(
        (partition / names.PARTITION_METADATA).read_bytes()
    )


@by_files("directory-stray")
def a_partition_is_stray(partition: Path) -> None:
    (partition.parent / "lost-0.184f5a4c945d4277a4671794019b3c74-stray").mkdir()


@by_files("symbolic-link")
def a_log_is_a_link(partition: Path) -> None:
    log = file(partition, 0, FileKind.LOG)
    real = partition.parent.parent / "elsewhere.log"
    log.rename(real)
    log.symlink_to(real)


@by_files("file-unreadable")
def a_link_points_nowhere(partition: Path) -> None:
    (partition / "nowhere").symlink_to("nothing")


OF_TRANSACTIONS = {
    "control-record",
    "transaction-index-missing",
    "transaction-index-mismatch",
    "transaction-index-version",
}
"""Codes that a partition without transactions cannot have."""
