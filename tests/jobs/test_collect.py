"""What the disks of a host know: against the tools' answers, over damaged logs, with few reads."""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from builders.batches import batch, record
from builders.group_records import offset_key, offset_value, streams_group
from builders.log_directories import (
    TOPIC_ID_TEXT,
    offset_checkpoint,
    offset_index,
    write_log_directory,
    write_partition,
)
from builders.memory_storage import MemoryStorage
from builders.metadata_log import remove_topic_record, topic_record, write_metadata_log
from builders.transaction_states import key_of, value_of
from builders.transactional_logs import (
    open_after,
    random_steps,
    snapshot_after,
    write_transactional_log,
)
from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.formats import names, producer_snapshot
from kdump.formats.checkpoints import EpochEntry, encode_leader_epoch_checkpoint
from kdump.formats.internal_topics import encode_cluster_metadata
from kdump.formats.message_encoder import encode
from kdump.formats.names import FileKind, OffsetFileName, PartitionState
from kdump.formats.schemas.remote_storage import RECORD_TYPES
from kdump.jobs.collect.collect import CollectRequest, collect
from kdump.log.directory import read_log_directory
from kdump.state.metadata.disk_collection import (
    ClaimedPartition,
    CollectedDirectory,
    CollectedLoad,
    CollectedPartition,
    DiskCollection,
    TopicClaim,
    decode_collection,
    encode_collection,
)
from kdump.storage.local_disk import LOCAL_DISK, local
from kdump.storage.location import Location, StoredFile
from kdump.storage.metered import MeteredStorage

HERE = EngineOptions(EngineChoice.LOCAL, processes=1)
WORKERS = EngineOptions(EngineChoice.LOCAL, processes=2)
NOW_MS = 1_800_000_000_000
EPOCHS = names.LEADER_EPOCH_CHECKPOINT


def collected(
    *roots: Path | Location, options: EngineOptions = HERE, is_quick: bool = False
) -> DiskCollection:
    places = [root if isinstance(root, Location) else local(root) for root in roots]
    directories = [read_log_directory(place) for place in places]
    found = collect(CollectRequest(directories, NOW_MS, is_quick=is_quick), options)
    # What can be collected can be written and read.
    assert decode_collection(b"".join(encode_collection(found))) == found
    return found


def orders(root: Path | Location, *, is_quick: bool = False) -> CollectedPartition:
    (directory,) = collected(root, is_quick=is_quick).log_directories
    (partition,) = [each for each in directory.partitions if each.topic == "orders"]
    return partition


# ---- A real cluster


@pytest.fixture(scope="module")
def cluster(fixtures: Path) -> Path:
    return fixtures / "states" / "clean"


@pytest.fixture(scope="module")
def of_cluster(cluster: Path) -> DiskCollection:
    return collected(*sorted(cluster.glob("[bc]*")))


@pytest.fixture(scope="module")
def manifest(cluster: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((cluster / "manifest.json").read_text())
    return found


def replicas(
    collection: DiskCollection, topic: str, number: int
) -> Iterator[tuple[CollectedDirectory, CollectedPartition]]:
    for directory in collection.log_directories:
        for each in directory.partitions:
            key = each.topic, each.partition, each.state
            if key == (topic, number, PartitionState.LIVE):
                yield directory, each


def test_every_replica_of_a_real_cluster_is_found_with_its_topic_id(
    of_cluster: DiskCollection, manifest: Mapping[str, Any]
) -> None:
    assert {directory.cluster_id for directory in of_cluster.log_directories} == {
        manifest["cluster"]["clusterId"]
    }
    for topic, told in manifest["topics"].items():
        for number, partition in told["partitions"].items():
            found = list(replicas(of_cluster, topic, int(number)))
            assert {directory.node_id for directory, _ in found} >= set(partition["isr"])
            assert {each.topic_id for _, each in found} == {told["id"]}


def test_offsets_and_epochs_of_leaders_are_what_the_tools_said(
    of_cluster: DiskCollection, manifest: Mapping[str, Any]
) -> None:
    compared = 0
    for topic, told in manifest["topics"].items():
        # These were written to after the tools were asked.
        if topic.startswith(("div-", "__", "lag-prefix", "late-clean", "expanded")):
            continue
        for number, partition in told["partitions"].items():
            (leader,) = [
                each
                for directory, each in replicas(of_cluster, topic, int(number))
                if directory.node_id == partition["leader"]
            ]
            assert leader.log_end_offset == partition["latest"]["offset"], (topic, number)
            assert leader.log_start_offset == partition["earliest"]["offset"]
            assert leader.last_stable_offset == partition["latest_committed"]["offset"]
            epochs = [epoch for _, _, _, epoch in partition.get("for_timestamp", ())]
            assert (leader.highest_epoch or 0) >= max(epochs, default=0)
            ids = [each["producer_id"] for each in partition["producers"]]
            assert (leader.highest_producer_id or -1) >= max(ids, default=-1)
            assert not leader.problems
            compared += 1
    assert compared > 80


def test_producer_ids_of_coordinators_are_above_all_that_the_tools_said(
    of_cluster: DiskCollection, manifest: Mapping[str, Any]
) -> None:
    highest = max(
        each.highest_transactional_producer_id or -1 for each in of_cluster.log_directories
    )
    assert highest >= max(each["producer_id"] for each in manifest["transactions"].values())


def test_committed_offsets_are_claims(
    of_cluster: DiskCollection, manifest: Mapping[str, Any]
) -> None:
    claimed = {
        (claim.topic, each.partition): each.highest_offset
        for directory in of_cluster.log_directories
        for claim in directory.claims
        if claim.source == "__consumer_offsets"
        for each in claim.partitions
    }
    for name, group in manifest["groups"].items():
        if group["type"] == "Share":
            continue
        for partition, told in group["offsets"].items():
            topic, _, number = partition.rpartition("-")
            offset = claimed[topic, int(number)]
            assert offset is not None, (name, partition)
            assert offset >= told["committed_offset"]


@pytest.mark.slow
def test_workers_collect_the_same(cluster: Path, of_cluster: DiskCollection) -> None:
    again = collected(*sorted(cluster.glob("[bc]*")), options=WORKERS)
    assert again == of_cluster
    assert pickle.loads(pickle.dumps(again)) == again


def test_a_storage_that_is_no_local_disk_is_collected_alike(quick_path: Path) -> None:
    root = write_epochs(quick_path / "d1", RISING, None)
    assert orders(MemoryStorage.copied(root)) == orders(root)


# ---- Leader epochs


def write_epochs(
    root: Path,
    segments: Mapping[int, Sequence[int]],
    checkpoint: Sequence[tuple[int, int]] | bytes | None,
) -> Path:
    """Write ``orders-0`` with a batch of one large record for each epoch of each segment."""
    logs = {}
    indexes = {}
    for base, epochs in segments.items():
        parts = [
            batch([record(base + at, value=bytes(5000))], partition_leader_epoch=epoch)
            for at, epoch in enumerate(epochs)
        ]
        logs[base] = b"".join(parts)
        last = len(parts) - 1
        indexes[base] = offset_index((last, last * len(parts[0]))) if last else b""
    others: dict[str, bytes] = {
        str(OffsetFileName(max(segments), FileKind.PRODUCER_SNAPSHOT)): snapshot_after([])
    }
    if checkpoint is not None:
        others[EPOCHS] = (
            checkpoint
            if isinstance(checkpoint, bytes)
            else encode_leader_epoch_checkpoint(EpochEntry(*each) for each in checkpoint)
        )
    last_base = max(segments)
    end = last_base + len(segments[last_base])
    others[str(OffsetFileName(end, FileKind.PRODUCER_SNAPSHOT))] = snapshot_after([])
    write_log_directory(
        root,
        clean=True,
        recovery_points={("orders", 0): end},
        high_watermarks={("orders", 0): end},
    )
    path = write_partition(root / "orders-0", logs, offset_indexes=indexes, others=others)
    if checkpoint is None:
        (path / EPOCHS).unlink()
    return root


RISING = {0: [0] * 20, 20: [0, 0, 3, 3, 3], 25: [3, 4, 4]}
RISING_CHECKPOINT = [(0, 0), (3, 22), (4, 26)]


def test_a_quick_collection_does_not_read_a_log_that_agrees_with_its_checkpoint(
    quick_path: Path,
) -> None:
    root = write_epochs(quick_path / "d1", RISING, RISING_CHECKPOINT)
    metered = MeteredStorage(LOCAL_DISK)
    found = orders(Location(metered, str(root)), is_quick=True)
    assert (found.highest_epoch, found.leader_epochs[-1]) == (4, (4, 26))
    assert found.leader_epochs == tuple(EpochEntry(*each) for each in RISING_CHECKPOINT)
    log_bytes = sum(path.stat().st_size for path in (root / "orders-0").glob("*.log"))
    assert metered.read_bytes < log_bytes / 4


@pytest.mark.parametrize(
    "checkpoint",
    [None, b"0\n2\n0 0\n", [(0, 0), (3, 22)], [(3, 22), (4, 26)], [(0, 0), (4, 20)], b""],
    ids=["missing", "truncated", "stale", "lacks the first", "lacks one", "empty"],
)
def test_where_the_checkpoint_lacks_epochs_all_headers_are_read(
    quick_path: Path, checkpoint: Sequence[tuple[int, int]] | bytes | None
) -> None:
    found = orders(write_epochs(quick_path / "d1", RISING, checkpoint))
    assert (found.highest_epoch, found.leader_epochs[-1]) == (4, (4, 26))


FLIPPED_EPOCHS = {
    "raised": ({0: [0] * 9 + [4] + [0] * 10, 20: [0, 0, 3, 3, 3], 25: [3, 4, 4]}, "falls from 4"),
    "lowered": ({0: [0] * 20, 20: [0, 0, 3, 2, 3], 25: [3, 4, 4]}, "falls from 3 to 2"),
    "rising": ({0: [0] * 20, 20: [0, 2, 3, 3, 3], 25: [3, 4, 4]}, "offset 21: its batch has"),
}


@pytest.mark.parametrize("case", FLIPPED_EPOCHS)
def test_an_epoch_of_one_batch_that_does_not_fit_is_named_and_does_not_count(
    case: str, quick_path: Path
) -> None:
    segments, problem = FLIPPED_EPOCHS[case]
    found = orders(write_epochs(quick_path / "d1", segments, RISING_CHECKPOINT))
    assert problem in " ".join(found.problems)
    assert found.leader_epochs[-1] == (4, 26)
    assert found.highest_epoch == 4


def test_without_a_checkpoint_an_epoch_that_a_lower_one_follows_does_not_count(
    quick_path: Path,
) -> None:
    found = orders(write_epochs(quick_path / "d1", {0: [0, 0, 7, 0, 1, 1]}, None))
    assert found.leader_epochs == ((0, 0), (1, 4))
    assert found.highest_epoch == 7


def test_an_epoch_above_the_last_one_is_found(quick_path: Path) -> None:
    """After a rebuild with too low an epoch, a broker dropped the entries of higher ones."""
    root = write_epochs(quick_path / "d1", {0: [5, 5, 9, 9, 1, 1], 6: [1, 2]}, [(1, 4), (2, 7)])
    found = orders(root)
    assert (found.highest_epoch, found.leader_epochs[-1].epoch) == (9, 2)
    assert any("falls from 9 to 1 at offset 4" in problem for problem in found.problems)


@pytest.mark.parametrize(
    ("cleaned_to", "is_quick", "expected"),
    [
        (0, False, ((range(2), range(4, 6), range(9, 12)), False)),
        (8, False, (None, True)),
        (0, True, (None, False)),
    ],
    ids=["lost", "perhaps compacted", "not read"],
)
def test_offsets_that_no_batch_has_are_named_unless_the_cleaner_may_have_removed_them(
    cleaned_to: int, is_quick: bool, expected: object, quick_path: Path
) -> None:
    root = write_log_directory(
        quick_path / "d1",
        clean=True,
        recovery_points={("orders", 0): 14},
    )
    cleaned = offset_checkpoint({("orders", 0): cleaned_to} if cleaned_to else {})
    (root / names.CLEANER_OFFSET_CHECKPOINT).write_bytes(cleaned)
    logs = {at: batch([record(at), record(at + 1)]) for at in (2, 6, 12)}
    logs[6] += batch([record(8)])
    logs[0] = logs.pop(2)
    partition = write_partition(root / "orders-0", logs)
    (partition / f"{14:020d}.snapshot").write_bytes(producer_snapshot.encode([]))
    found = orders(root, is_quick=is_quick)
    assert (found.missing_offsets, found.is_cleaned) == expected


def test_a_damaged_last_batch_is_missing_although_a_clean_shutdown_vouches_for_it(
    quick_path: Path,
) -> None:
    """A broker loads it, and no consumer gets its records."""
    root = write_log_directory(quick_path / "d1", clean=True, recovery_points={("orders", 0): 5})
    last = bytearray(batch([record(2), record(3), record(4)]))
    last[-1] ^= 1
    write_partition(root / "orders-0", {0: batch([record(0), record(1)]) + bytes(last)})
    found = orders(root)
    assert (found.log_end_offset, found.missing_offsets) == (5, (range(2, 5),))


@pytest.mark.parametrize("cleaned_to", [0, 9])
def test_offsets_that_damage_took_are_named_whether_the_log_is_cleaned_or_not(
    cleaned_to: int, quick_path: Path
) -> None:
    root = write_log_directory(quick_path / "d1", clean=True, recovery_points={("orders", 0): 11})
    cleaned = offset_checkpoint({("orders", 0): cleaned_to} if cleaned_to else {})
    (root / names.CLEANER_OFFSET_CHECKPOINT).write_bytes(cleaned)
    damaged = bytearray(batch([record(4), record(5)]))
    damaged[-1] ^= 1
    logs = [batch([record(0), record(1)]), bytes(damaged), batch([record(6)]), batch([record(10)])]
    write_partition(root / "orders-0", {0: b"".join(logs)})
    assert orders(root).damaged_offsets == (range(2, 6),)


def test_a_quick_collection_names_no_offsets_of_segments_that_it_does_not_read(
    quick_path: Path,
) -> None:
    root = write_epochs(quick_path / "d1", RISING, RISING_CHECKPOINT)
    (root / "orders-0" / f"{28:020d}.snapshot").unlink()
    log = root / "orders-0" / f"{25:020d}.log"
    damaged = bytearray(log.read_bytes())
    damaged[100] ^= 1
    log.write_bytes(damaged)
    assert orders(root, is_quick=True).damaged_offsets == (range(25, 26),)


def test_a_directory_without_a_log_misses_no_offsets(quick_path: Path) -> None:
    root = write_log_directory(quick_path / "d1")
    write_partition(root / "orders-0", {})
    found = orders(root)
    assert (found.missing_offsets, found.is_cleaned) == ((), False)


def test_the_last_batch_after_a_gap_is_in_doubt(quick_path: Path) -> None:
    """No checksum covers its base offset."""
    root = write_log_directory(quick_path / "d1")
    batches = batch([record(0), record(1)]) + batch([record(7), record(8)])
    write_partition(root / "orders-0", {0: batches})
    found = orders(root)
    assert (found.log_end_offset, found.doubtful_offsets) == (2, (range(7, 9),))


def test_records_that_go_with_an_unfinished_swap_are_named(quick_path: Path) -> None:
    """A start deletes the swap, because a cleaned file says that it is not complete."""
    root = write_log_directory(quick_path / "d1")
    partition = write_partition(root / "orders-0", {0: batch([record(0)]) + batch([record(1)])})
    log = partition / f"{0:020d}.log"
    (partition / f"{log.name}.cleaned").write_bytes(log.read_bytes())
    log.rename(partition / f"{log.name}.swap")
    found = orders(root)
    assert (found.log_end_offset, found.dropped_swaps) == (None, (range(2),))
    (problem,) = found.problems
    assert problem.endswith("with offsets 0 to 1, which no log has")


def test_the_log_start_hides_older_epochs_of_the_checkpoint(quick_path: Path) -> None:
    """After records were deleted the checkpoint begins at the log start, within a segment."""
    root = write_epochs(quick_path / "d1", RISING, [(3, 23), (4, 26)])
    write_log_directory(
        root,
        clean=True,
        recovery_points={("orders", 0): 28},
        log_start_offsets={("orders", 0): 23},
        high_watermarks={("orders", 0): 28},
    )
    metered = MeteredStorage(LOCAL_DISK)
    found = orders(Location(metered, str(root)), is_quick=True)
    assert (found.log_start_offset, found.highest_epoch) == (23, 4)
    log_bytes = sum(path.stat().st_size for path in (root / "orders-0").glob("*.log"))
    assert metered.read_bytes < log_bytes / 4


# ---- Transactions and producers


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("seed", range(4))
def test_open_transactions_and_producers_are_those_of_the_whole_log(
    seed: int, clean: bool, quick_path: Path
) -> None:
    steps = random_steps(seed, 30)
    write_transactional_log(quick_path / "d1", steps, bases=(0, 11, 23), clean=clean)
    found = orders(quick_path / "d1")
    firsts = open_after(steps).values()
    assert found.log_end_offset == 30
    assert found.last_stable_offset == min(firsts, default=30)
    assert found.highest_producer_id == max(step.producer_id for step in steps)


# ---- Damage


def test_a_log_cut_anywhere_ends_after_its_last_whole_batch(quick_path: Path) -> None:
    steps = random_steps(5, 12)
    path = write_transactional_log(quick_path / "d1", steps, bases=(0, 7), clean=False)
    log = path / str(OffsetFileName(7, FileKind.LOG))
    whole = log.read_bytes()
    ends = {sum(len(step.data) for step in steps[7:at]): at for at in range(7, 13)}
    for size in range(0, len(whole), 17):
        log.write_bytes(whole[:size])
        found = orders(quick_path / "d1")
        assert found.log_end_offset == max(at for end, at in ends.items() if end <= size)
        if size in ends:
            assert not found.problems


def test_no_byte_of_a_directory_stops_the_collection(quick_path: Path) -> None:
    """Any small file and log may be cut or flipped anywhere; what is read can be written."""
    steps = random_steps(6, 9)
    partition = write_transactional_log(quick_path / "d1", steps, bases=(0, 5), clean=True)
    drawn = random.Random(1)
    files = [*(quick_path / "d1").iterdir(), *partition.iterdir()]
    for path in sorted(path for path in files if path.is_file()):
        content = path.read_bytes()
        for _ in range(12):
            at = drawn.randrange(len(content) + 1)
            flipped = bytearray(content)
            if at < len(content):
                flipped[at] ^= 1 << drawn.randrange(8)
            for damaged in (content[:at], bytes(flipped), content + b"\xff\x00"):
                path.write_bytes(damaged)
                orders(quick_path / "d1")
        path.write_bytes(content)


class FailingStorage(MeteredStorage):
    """A disk that cannot read one segment."""

    def open_file(self, location: Location) -> StoredFile:
        if location.name == str(OffsetFileName(25, FileKind.LOG)):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(location))
        return super().open_file(location)


def test_what_cannot_be_read_is_unknown_and_said(quick_path: Path) -> None:
    root = write_epochs(quick_path / "d1", RISING, RISING_CHECKPOINT)
    os.mkfifo(root / "users-3")
    (root / "__transaction_state-1").mkdir()
    os.mkfifo(root / "__transaction_state-1" / f"{0:020d}.log")
    (root / "no partition").mkdir()
    (root / "meta.properties").write_bytes(b"\xff=version")
    storage = FailingStorage(LOCAL_DISK)
    (directory,) = collected(Location(storage, str(root))).log_directories
    found, unlisted = sorted(directory.partitions, key=lambda each: each.topic, reverse=True)
    assert (found.topic, found.topic_id) == ("orders", TOPIC_ID_TEXT)
    assert (found.log_start_offset, found.log_end_offset) == (0, None)
    assert (found.highest_epoch, found.last_stable_offset) == (4, None)
    assert found.problems == (f"{OffsetFileName(25, FileKind.LOG)}: Input/output error",)
    assert unlisted.topic == "__transaction_state"
    assert (unlisted.log_end_offset, unlisted.size_bytes) == (None, None)
    assert "a FIFO, not a regular file" in unlisted.problems[0]
    assert (directory.node_id, directory.cluster_id) == (None, None)
    assert any("no partition" in problem for problem in directory.problems)


def test_an_end_before_the_log_start_is_said(quick_path: Path) -> None:
    root = write_epochs(quick_path / "d1", RISING, RISING_CHECKPOINT)
    starts = {("orders", 0): 100}
    write_log_directory(root, recovery_points={("orders", 0): 28}, log_start_offsets=starts)
    found = orders(root)
    assert (found.log_start_offset, found.log_end_offset) == (0, 28)
    assert found.loaded == CollectedLoad(100, 100, ())
    assert "deletes all its records" in found.problems[0]


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("orders-0.0123456789abcdef0123456789abcdef-stray", PartitionState.STRAY),
        ("orders-0.0123456789abcdef0123456789abcdef-delete", PartitionState.DELETE),
        ("orders-0.0123456789abcdef0123456789abcdef-future", PartitionState.FUTURE),
    ],
)
def test_stray_deleted_and_future_partitions_are_collected(
    name: str, state: PartitionState, quick_path: Path
) -> None:
    root = write_epochs(quick_path / "d1", RISING, RISING_CHECKPOINT)
    (root / "orders-0").rename(root / name)
    found = orders(root)
    assert (found.directory, found.state) == (name, state)
    assert (found.log_end_offset, found.highest_epoch) == (28, 4)
    assert found.topic_id == TOPIC_ID_TEXT


# ---- Internal topics and metadata


def of_topic(root: Path, name: str, values: Sequence[tuple[bytes | None, bytes | None]]) -> Path:
    """Write a partition of an internal topic, a record in each batch."""
    write_log_directory(root)
    log = b"".join(
        batch([record(at, key=key, value=value)]) for at, (key, value) in enumerate(values)
    )
    write_partition(root / name, {0: log})
    return root


def test_transactions_claim_their_partitions_and_producer_ids(quick_path: Path) -> None:
    value = value_of(partitions=[("orders", [4, 2])], producer_id=40, tags={"next": 1041})
    root = of_topic(quick_path / "d1", "__transaction_state-3", [(key_of("t"), value)])
    (directory,) = collected(root).log_directories
    (claim,) = directory.claims
    assert (claim.source, claim.topic, claim.topic_id) == ("__transaction_state", "orders", None)
    assert claim.partitions == (ClaimedPartition(2), ClaimedPartition(4))
    assert directory.highest_transactional_producer_id == 1041


def test_streams_groups_are_found(quick_path: Path) -> None:
    offset = (offset_key(b"plain"), offset_value(7))
    without = of_topic(quick_path / "d1", "__consumer_offsets-3", [offset])
    root = of_topic(quick_path / "d2", "__consumer_offsets-4", [offset, streams_group(b"app")])
    found = collected(without, root).log_directories
    assert [each.has_streams_groups for each in found] == [False, True]


def test_a_deleted_streams_group_does_not_count(quick_path: Path) -> None:
    key, value = streams_group(b"app")
    root = of_topic(quick_path / "d1", "__consumer_offsets-3", [(key, value), (key, None)])
    (directory,) = collected(root).log_directories
    assert not directory.has_streams_groups


def test_streams_groups_of_a_real_broker_are_found(fixtures: Path) -> None:
    clean = fixtures / "out" / "clean"
    found = collected(clean / "d1", clean / "d2").log_directories
    assert any(each.has_streams_groups for each in found)


def tiered(name: str, number: int, end_offset: int, epochs: Sequence[int]) -> bytes:
    """A record of ``__remote_log_metadata`` about a segment."""
    fields = {
        "remoteLogSegmentId": {
            "topicIdPartition": {"name": name, "id": TOPIC_ID_TEXT, "partition": number},
            "id": "V1dW8O41RR6_pKmks-3sKg",
        },
        "startOffset": 0,
        "endOffset": end_offset,
        "brokerId": 1,
        "maxTimestampMs": 1,
        "eventTimestampMs": 1,
        "segmentLeaderEpochs": [{"leaderEpoch": each, "offset": 0} for each in epochs],
        "segmentSizeInBytes": 9,
        "customMetadata": None,
        "remoteLogSegmentState": 1,
        "txnIndexEmpty": False,
    }
    return bytes([1, 0, 0]) + encode(RECORD_TYPES[0].value, fields, 0)


def test_tiered_segments_claim_offsets_and_epochs(quick_path: Path) -> None:
    values = [(None, tiered("orders", 3, 99, [0, 4])), (None, tiered("orders", 3, 49, [0]))]
    root = of_topic(quick_path / "d1", "__remote_log_metadata-0", [*values, (None, b"\1\0")])
    (directory,) = collected(root).log_directories
    assert directory.claims == (
        TopicClaim(
            "__remote_log_metadata", "orders", TOPIC_ID_TEXT, (ClaimedPartition(3, 4, 100),)
        ),
    )
    (partition,) = directory.partitions
    assert "the record at offset 2" in partition.problems[0]


def test_the_copy_of_the_metadata_is_collected_as_records(
    of_cluster: DiskCollection, manifest: Mapping[str, Any]
) -> None:
    copies = {
        each.node_id: each.metadata
        for each in of_cluster.log_directories
        if each.metadata is not None
    }
    assert sorted(filter(None, copies)) == [1, 2, 3, 1001, 1002, 1003]
    newest = max(copies.values(), key=lambda copy: (copy.epoch, copy.end_offset))
    topics = {
        record.data["name"]: record.data["topicId"]
        for record in newest.records
        if record.type == "TOPIC_RECORD"
    }
    assert topics.items() >= {(name, told["id"]) for name, told in manifest["topics"].items()}
    assert {voter.node_id for voter in newest.voters} == {1001, 1002, 1003}
    assert newest.kraft_version == 1
    for copy in copies.values():
        assert copy.highest_offset >= copy.end_offset
        assert copy.highest_epoch >= copy.epoch


def test_deleted_topics_are_named(quick_path: Path) -> None:
    root = write_log_directory(quick_path / "d1")
    feature = {"name": "metadata.version", "featureLevel": 25}
    values = [encode_cluster_metadata("FEATURE_LEVEL_RECORD", 0, feature)]
    values.append(topic_record("orders", 1))
    write_metadata_log(root, [*values, remove_topic_record(1)], epoch=3)
    (directory,) = collected(root).log_directories
    assert directory.metadata is not None
    (removed,) = directory.metadata.removed_topics
    assert (removed.topic, removed.offset, removed.epoch) == ("orders", 2, 3)
    assert removed.is_committed is None
