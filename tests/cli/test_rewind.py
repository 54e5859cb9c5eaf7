"""What ``kdump rewind`` leaves on disks, and what it refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Final

import pytest

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.group_records import offset_key, offset_value, streams_group
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.log_dir_trees import original_of
from builders.log_directories import (
    META_PROPERTIES,
    begin_epochs_at,
    write_log_directory,
    write_partition,
)
from builders.message_sets import message, wrapped_values, wrapper
from builders.metadata_log import (
    partition_record,
    remove_topic_record,
    topic_record,
    write_metadata_log,
)
from builders.recovery import marker, of_producer
from builders.rewindable_clusters import (
    DATA,
    LOGS,
    OFFSETS,
    START_MS,
    TICK_MS,
    RandomCluster,
    broken_promises,
)
from builders.samples import seeds
from builders.transaction_states import key_of, value_of
from builders.trees import contents_of
from kdump.formats import names
from kdump.formats.checkpoints import (
    EpochEntry,
    decode_leader_epoch_checkpoint,
    decode_offset_checkpoint,
)
from kdump.formats.names import TopicPartition
from kdump.formats.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG
from kdump.jobs.rewind import rewind
from kdump.scan.batches import read_windows
from kdump.scan.window_records import read_records
from kdump.target.virtual_directory import BytesSource

ORDERS: Final = TopicPartition("orders", 0)
USAGE: Final = 16
LINE: Final = '{"topic": "a", "partition": 0, "offset": 1}'


def kdump(*words: str | Path, status: int = 1) -> list[dict[str, Any]]:
    outcome = run_kdump([*map(str, words), "--output", "jsonl"], Path.cwd())
    assert outcome.exit_status == status, (outcome.stderr, outcome.stdout[-2000:])
    return objects(outcome.stdout)


def rows(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in found if each["type"] == kind]


def refusal(*words: str | Path, status: int) -> str:
    outcome = run_kdump([*map(str, words)], Path.cwd())
    assert outcome.exit_status == status, outcome.stderr
    return outcome.stderr.decode()


def log_of(partition: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(partition.glob("*.log")))


def end_of(partition: Path) -> int:
    end = int(min(partition.glob("*.log")).stem)
    for window in read_windows(BytesSource(log_of(partition))):
        if window.batches.count:
            end = int(window.batches.last_offset[-1]) + 1
    return end


def checkpoint(log_dir: Path, name: str) -> dict[TopicPartition, int]:
    return {
        each.topic_partition: each.offset for each in decode_offset_checkpoint_of(log_dir, name)
    }


def decode_offset_checkpoint_of(log_dir: Path, name: str) -> Any:
    return decode_offset_checkpoint((log_dir / name).read_bytes())


def orders(
    root: Path, *times: int, log_start: int = 0, segments: int = 1, **root_options: Any
) -> Path:
    """A log directory with one record in each batch, at these times after the base."""
    log_dir = write_log_directory(
        root,
        recovery_points={ORDERS: len(times)},
        high_watermarks={ORDERS: len(times)},
        log_start_offsets={ORDERS: log_start} if log_start else {},
        **root_options,
    )
    if root.name.isdigit():
        of_node = META_PROPERTIES.replace(b"node.id=7", b"node.id=" + root.name.encode())
        (log_dir / names.META_PROPERTIES).write_bytes(
            of_node.replace(b"V1dW8O41RR6", b"V1dW8O41RR" + root.name.encode())
        )
    data = [
        batch([record(offset, timestamp=BASE_TIMESTAMP_MS + time)])
        for offset, time in enumerate(times)
    ]
    each = -(-len(data) // segments) if data else 1
    logs = {at: b"".join(data[at : at + each]) for at in range(0, len(data), each)} or {0: b""}
    begin_epochs_at(write_partition(log_dir / str(ORDERS), logs), log_start)
    return log_dir


def to(offset_ms: int) -> str:
    return f"--to={BASE_TIMESTAMP_MS + offset_ms}"


@pytest.mark.parametrize("seed", seeds(0, count=80, in_main=8))
def test_disks_are_as_they_were_at_the_moment(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(seed)
    # Transactions that ended long before are left out, which must not show.
    monkeypatch.setattr(rewind, "LOOKBACK_MS", drawn.choice([400, rewind.LOOKBACK_MS]))
    cluster = RandomCluster(seed)
    log_dirs = cluster.write(tmp_path, brokers=drawn.randint(1, 3))
    if drawn.random() < 0.5:
        for each in log_dirs:
            kdump("recover", "--no-undo", each, status=0)
    time_ms = START_MS + drawn.randint(-3, 122) * TICK_MS
    before = [original_of(each) for each in log_dirs]
    outcome = run_kdump(
        ["rewind", f"--to={time_ms}", "--output=jsonl", *map(str, log_dirs)], Path.cwd()
    )
    assert outcome.exit_status in (0, 1), outcome.stderr
    found = rows(objects(outcome.stdout), "partition")
    cuts = {
        TopicPartition(each["topic"], each["partition"]): each["cut_offset"]
        for each in found
        if each["is_cut"]
    }
    assert [*broken_promises(cluster, cuts)] == []
    ends = {log: end_of(log_dirs[0] / str(log)) for log in LOGS}
    by_time = cluster.cuts_at(time_ms)
    for log in LOGS:
        kept = log_of(log_dirs[0] / str(log))
        original = b"".join(each.data for each in cluster.of(log))
        cut = cuts.get(log, cluster.end(log))
        assert cut <= by_time.get(log, cut)
        expected = kept_of(cluster, log, cuts)
        assert kept.startswith(expected)
        if cuts:
            assert open_producers(kept) == producers_to_abort(cluster, log, cuts)
        else:
            assert kept == expected
        assert original.startswith(expected)
        assert {log_of(each / str(log)) for each in log_dirs} == {kept}
    if cuts:
        assert prepared_ids(log_dirs) == set()
    appended = log_of(log_dirs[0] / str(OFFSETS))[len(kept_of(cluster, OFFSETS, cuts)) :]
    for (group, partition), committed in {
        **offsets_to_come(cluster, cuts),
        **offsets_in(appended),
    }.items():
        assert committed <= ends[partition], (group, partition)
    for each in log_dirs:
        verified = run_kdump(["verify", str(each)], Path.cwd())
        assert verified.exit_status == 0, verified.stdout
    if outcome.exit_status:
        for log_dir, old in zip(log_dirs, before, strict=True):
            run_kdump(["undo", str(log_dir)], Path.cwd())
            run_kdump(["undo", "--discard", str(log_dir)], Path.cwd())
            new = original_of(log_dir)
            new.pop(names.LOCK_FILE, None)
            old.pop(names.LOCK_FILE, None)
            assert new == old


def kept_of(cluster: RandomCluster, log: TopicPartition, cuts: dict[TopicPartition, int]) -> bytes:
    cut = cuts.get(log, cluster.end(log))
    return b"".join(each.data for each in cluster.of(log) if each.offset < cut)


def open_producers(data: bytes) -> set[int]:
    """The producers with an open transaction in a log."""
    found = set[int]()
    for window in read_windows(BytesSource(data)):
        batches = window.batches
        for attributes, producer_id in zip(batches.attributes, batches.producer_id, strict=True):
            if attributes & CONTROL_FLAG:
                found.discard(int(producer_id))
            elif attributes & TRANSACTIONAL_FLAG:
                found.add(int(producer_id))
    return found


def producers_to_abort(
    cluster: RandomCluster, log: TopicPartition, cuts: dict[TopicPartition, int]
) -> set[int]:
    """The producers that have records in a log, and whose coordinator has not decided."""
    kept = [each for each in cluster.steps if each.offset < cuts.get(each.log, each.end_offset)]
    decided = {each.transaction for each in kept if each.kind == "decided"}
    return {
        cluster.stories[each.transaction].producer_id
        for each in kept
        if each.log == log and each.kind == "data" and each.transaction not in decided
    }


def prepared_ids(log_dirs: list[Path]) -> set[str]:
    """The transactional ids whose transactions are decided and not completed."""
    states = kdump("txns", *log_dirs, status=0)
    return {
        each["transactional_id"]
        for each in states
        if each["type"] == "transaction" and each["state"].startswith("Prepare")
    }


def offsets_to_come(
    cluster: RandomCluster, cuts: dict[TopicPartition, int]
) -> dict[tuple[bytes, TopicPartition], int]:
    """What groups have committed once coordinators have ended every transaction."""
    decided = {
        each.transaction
        for each in cluster.steps
        if each.kind == "decided" and each.offset < cuts.get(each.log, each.end_offset)
    }
    found = {}
    for step in cluster.of(OFFSETS):
        is_data = step.kind in ("plain", "data") and step.offset < cuts.get(
            OFFSETS, step.end_offset
        )
        is_committed = step.transaction < 0 or (
            step.transaction in decided and cluster.stories[step.transaction].commits
        )
        if is_data and is_committed:
            found.update(offsets_in(step.data))
    return found


def committed_offsets(partition: Path) -> dict[tuple[bytes, TopicPartition], int]:
    """What groups have committed, if there are no transactions."""
    return offsets_in(log_of(partition))


def offsets_in(data: bytes) -> dict[tuple[bytes, TopicPartition], int]:
    """The last committed offset of each key."""
    found = {}
    for window in read_windows(BytesSource(data)):
        for columns in read_records(window):
            for row in range(columns.count):
                key, value = columns.key(row), columns.value(row)
                assert key is not None
                assert value is not None
                group = key[4:-12]
                number = int.from_bytes(key[-4:], "big")
                committed = int.from_bytes(value[2:10], "big")
                found[group, DATA[number]] = committed
    return found


# ---- Where logs end


def test_a_log_ends_before_the_first_batch_that_is_later(tmp_path: Path) -> None:
    log_dir = orders(tmp_path, 0, 10, 20, 30)
    (row,) = rows(kdump("rewind", to(20), log_dir), "partition")
    assert (row["log_end_offset"], row["cut_offset"], row["removed_records"]) == (4, 3, 1)
    assert end_of(log_dir / str(ORDERS)) == 3


def test_records_on_time_after_a_later_one_are_counted(tmp_path: Path) -> None:
    log_dir = orders(tmp_path, 0, 99, 10, 20)
    (row,) = rows(kdump("rewind", to(50), log_dir), "partition")
    assert (row["cut_offset"], row["removed_records"], row["removed_on_time"]) == (1, 3, 2)


def test_records_on_time_in_a_batch_with_a_later_one_are_counted(tmp_path: Path) -> None:
    log_dir = orders(tmp_path)
    times = (10, 99, 20)
    mixed = [record(at, timestamp=BASE_TIMESTAMP_MS + time) for at, time in enumerate(times)]
    (log_dir / str(ORDERS) / "00000000000000000000.log").write_bytes(batch(mixed))
    (row,) = rows(kdump("rewind", to(50), log_dir, "--dry-run"), "partition")
    assert (row["cut_offset"], row["removed_records"], row["removed_on_time"]) == (0, 3, 2)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_in_compressed_sets_are_counted(tmp_path: Path, magic: int) -> None:
    log_dir = orders(tmp_path)
    data = wrapped_values([b"a", b"b", b"c"], magic=magic) + message(3, None, b"d", magic=magic)
    (log_dir / str(ORDERS) / "00000000000000000000.log").write_bytes(data)
    given = offsets_file(tmp_path / "f", ("orders", 0, 0))
    (row,) = rows(kdump("rewind", "--offsets", given, log_dir, "--dry-run"), "partition")
    assert row["removed_records"] == 4


def test_messages_on_time_in_a_compressed_set_are_counted(tmp_path: Path) -> None:
    log_dir = orders(tmp_path)
    entries = [
        message(at, None, b"v", magic=1, timestamp=BASE_TIMESTAMP_MS + time)
        for at, time in enumerate((10, 99, 20))
    ]
    data = wrapper(entries, offset=2, timestamp=BASE_TIMESTAMP_MS + 99)
    (log_dir / str(ORDERS) / "00000000000000000000.log").write_bytes(data)
    (row,) = rows(kdump("rewind", to(50), log_dir, "--dry-run"), "partition")
    assert (row["removed_records"], row["removed_on_time"]) == (3, 2)


def test_nothing_later_changes_nothing(tmp_path: Path) -> None:
    log_dir = orders(tmp_path, 0, 10)
    before = original_of(log_dir)
    kdump("rewind", to(10), log_dir, status=0)
    after = original_of(log_dir)
    after.pop(names.LOCK_FILE, None)
    assert after == before


def test_a_log_that_is_all_later_is_empty_at_its_start(tmp_path: Path) -> None:
    log_dir = orders(tmp_path, 50, 60, 70)
    kdump("rewind", to(10), log_dir)
    assert [each.name for each in sorted((log_dir / str(ORDERS)).glob("*.log"))] == [
        "00000000000000000000.log"
    ]
    assert checkpoint(log_dir, names.RECOVERY_POINT_CHECKPOINT) == {ORDERS: 0}


def test_a_log_does_not_end_before_its_start(tmp_path: Path) -> None:
    log_dir = orders(tmp_path, 50, 60, 70, 80, log_start=2)
    (row,) = rows(kdump("rewind", to(10), log_dir), "partition")
    assert (row["log_start_offset"], row["cut_offset"]) == (2, 2)
    assert end_of(log_dir / str(ORDERS)) == 2
    assert checkpoint(log_dir, names.LOG_START_OFFSET_CHECKPOINT) == {}


def test_segments_after_the_cut_are_removed_with_their_files(tmp_path: Path) -> None:
    log_dir = orders(tmp_path, *range(0, 60, 10), segments=3)
    kdump("rewind", to(20), log_dir)
    found = {each.name for each in (log_dir / str(ORDERS)).iterdir()}
    assert {each for each in found if each.endswith(".log")} == {
        "00000000000000000000.log",
        "00000000000000000002.log",
    }
    assert "00000000000000000003.snapshot" in found
    assert not any(each.startswith("00000000000000000004") for each in found)


@pytest.mark.parametrize("segments", [1, 3])
def test_epochs_of_deleted_records_that_came_back_are_known(segments: int, tmp_path: Path) -> None:
    log_dir = orders(tmp_path / "1", 0, 0, 0, 5000, 5000, 5000, segments=segments)
    begin_epochs_at(log_dir / str(ORDERS), 4)  # and the log start offset was not written
    kdump("rewind", f"--to={BASE_TIMESTAMP_MS}", log_dir)
    epochs = decode_leader_epoch_checkpoint(
        (log_dir / str(ORDERS) / names.LEADER_EPOCH_CHECKPOINT).read_bytes()
    )
    assert [*epochs] == [EpochEntry(0, 0)]


def test_checkpoints_do_not_go_past_the_cut(tmp_path: Path) -> None:
    log_dir = orders(tmp_path, *range(0, 60, 10))
    (log_dir / names.CLEANER_OFFSET_CHECKPOINT).write_bytes(b"0\n2\norders 0 5\nother 0 9\n")
    kdump("rewind", to(20), log_dir)
    assert checkpoint(log_dir, names.RECOVERY_POINT_CHECKPOINT) == {ORDERS: 3}
    assert checkpoint(log_dir, names.REPLICATION_OFFSET_CHECKPOINT) == {ORDERS: 3}
    other = TopicPartition("other", 0)
    assert checkpoint(log_dir, names.CLEANER_OFFSET_CHECKPOINT) == {ORDERS: 3, other: 9}
    assert (log_dir / names.CLEAN_SHUTDOWN_MARKER).exists()


# ---- Offsets


def offsets_file(path: Path, *lines: tuple[str, int, int]) -> Path:
    partitions = [{"topic": a, "partition": b, "offset": c} for a, b, c in lines]
    path.write_text(json.dumps({"partitions": partitions, "version": 1}))
    return path


def test_offsets_are_written_and_taken_on_each_broker_alike(tmp_path: Path) -> None:
    one, other = orders(tmp_path / "1", 0, 10, 20, 30), orders(tmp_path / "2", 0, 10, 20, 30)
    out = tmp_path / "offsets.json"
    kdump("rewind", to(15), one, "--dry-run", "--out", out)
    assert json.loads(out.read_text()) == {
        "partitions": [{"topic": "orders", "partition": 0, "offset": 2}],
        "version": 1,
    }
    for log_dir in (one, other):
        kdump("rewind", "--offsets", out, log_dir)
        assert end_of(log_dir / str(ORDERS)) == 2


def test_an_offset_inside_a_batch_ends_the_log_before_it(tmp_path: Path) -> None:
    log_dir = orders(tmp_path / "d")
    data = batch([record(0), record(1)]) + batch([record(2), record(3)])
    (log_dir / str(ORDERS) / "00000000000000000000.log").write_bytes(data)
    kdump("rewind", "--offsets", offsets_file(tmp_path / "f", ("orders", 0, 3)), log_dir)
    assert end_of(log_dir / str(ORDERS)) == 2


def test_partitions_that_are_not_in_the_file_are_left(tmp_path: Path) -> None:
    log_dir = orders(tmp_path / "d", 0, 10)
    given = offsets_file(tmp_path / "f", ("users", 0, 0))
    kdump("rewind", "--offsets", given, log_dir, status=0)
    assert end_of(log_dir / str(ORDERS)) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("ordesr", 0), "these log directories have no such topic: ordesr-0; check the name"),
        (("orders", 7), "not in these log directories: orders-7"),
    ],
)
def test_lines_of_the_file_that_match_no_partition_are_named(
    tmp_path: Path, line: tuple[str, int], said: str
) -> None:
    log_dir = orders(tmp_path / "d", 0, 10)
    given = offsets_file(tmp_path / "f", ("orders", 0, 1), (*line, 1))
    found = refusal("rewind", "--offsets", given, log_dir, status=1)
    assert found == f"kdump: {given}: {said}\n"


def test_a_file_that_matches_no_partition_is_named(tmp_path: Path) -> None:
    log_dir = orders(tmp_path / "d", 0, 10)
    given = offsets_file(tmp_path / "f", ("ordesr", 0, 1))
    found = refusal("rewind", "--offsets", given, log_dir, status=0)
    assert f"kdump: {given}: none of its partitions is in these log directories\n" in found


def test_the_metadata_says_which_partitions_of_the_file_do_not_exist(tmp_path: Path) -> None:
    log_dir = orders(tmp_path / "1", 0, 10)
    values = [topic_record("orders", 1), partition_record(1, 1, [2], [2])]
    write_metadata_log(log_dir, values)
    lines = [("orders", number, 1) for number in range(3)]
    given = offsets_file(tmp_path / "f", *lines)
    found = refusal("rewind", "--offsets", given, log_dir, status=1)
    assert f"{given}: not in these log directories: orders-1\n" in found
    assert f"{given}: the cluster's metadata has no such partition: orders-2" in found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not an object"),
        ('{"partitions": [{"topic": "a", "partition": 0}]}', "partitions[0].offset: missing"),
        ('{"partitions": [{"topic": "a", "partition": 0, "offset": -1}]}', "not a number from 0"),
        ('{"partitions": [], "version": 2}', "version: not a number from 1 to 1"),
        (
            f'{{"partitions": [{LINE}, {LINE}]}}',
            "a-0 is there twice",
        ),
    ],
)
def test_a_file_that_is_not_one_is_refused(tmp_path: Path, text: str, said: str) -> None:
    log_dir = orders(tmp_path / "d", 0)
    (tmp_path / "f").write_text(text)
    assert said in refusal("rewind", "--offsets", tmp_path / "f", log_dir, status=USAGE)


def test_an_offset_inside_an_ended_transaction_is_refused(tmp_path: Path) -> None:
    cluster = RandomCluster(5, most_skew_ms=0)
    (log_dir,) = cluster.write(tmp_path / "c")
    log, part = next(
        (log, part)
        for log, parts in cluster.parts().items()
        for part in parts
        if part.marker is not None and not part.is_empty
    )
    given = offsets_file(tmp_path / "f", (log.topic, log.partition, part.marker or 0))
    said = refusal("rewind", "--offsets", given, log_dir, status=4)
    assert f"give {part.first} or {(part.marker or 0) + 1}" in said


# ---- Replicas


def test_replicas_that_differ_before_the_cut_are_refused_unless_one_is_excluded(
    tmp_path: Path,
) -> None:
    one, other = orders(tmp_path / "1", 0, 10, 20), orders(tmp_path / "2", 0, 11, 20)
    said = refusal("rewind", to(15), one, other, status=4)
    assert str(one / "orders-0") in said
    assert str(other / "orders-0") in said
    kdump("rewind", to(15), one, other, "--exclude", other / "orders-0")
    assert [end_of(each / "orders-0") for each in (one, other)] == [2, 3]


def test_replicas_may_differ_after_the_cut(tmp_path: Path) -> None:
    one, other = orders(tmp_path / "1", 0, 10, 20), orders(tmp_path / "2", 0, 10, 21, 30)
    kdump("rewind", to(15), one, other)
    assert [end_of(each / "orders-0") for each in (one, other)] == [2, 2]


def test_the_earliest_of_the_replicas_cuts_decides(tmp_path: Path) -> None:
    one, other = orders(tmp_path / "1", 0, 10, 12), orders(tmp_path / "2", 0, 10, 99)
    found = kdump("rewind", to(15), one, other)
    assert {each["cut_offset"] for each in rows(found, "partition")} == {2}


def test_a_replica_that_is_behind_stays_so(tmp_path: Path) -> None:
    one, other = orders(tmp_path / "1", 0, 10, 20, 30), orders(tmp_path / "2", 0, 10)
    kdump("rewind", to(25), one, other)
    assert [end_of(each / "orders-0") for each in (one, other)] == [3, 2]


def test_a_replica_that_begins_after_the_cut_is_named(tmp_path: Path) -> None:
    one = orders(tmp_path / "1", *range(0, 60, 10))
    other = orders(tmp_path / "2", *range(0, 60, 10), log_start=4)
    assert "would not be the same" in refusal("rewind", to(15), one, other, status=4)


def test_a_replica_that_is_excluded_has_to_be_there(tmp_path: Path) -> None:
    log_dir = orders(tmp_path, 0)
    words = ("rewind", to(0), log_dir, "--exclude", tmp_path / "users-0")
    assert "not a partition in one of the log directories" in refusal(*words, status=USAGE)


def test_a_damaged_log_is_refused(tmp_path: Path) -> None:
    log_dir = orders(tmp_path, 0, 10, 20)
    path = log_dir / str(ORDERS) / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert "wrong checksum" in refusal("rewind", to(0), log_dir, status=4)
    assert path.read_bytes() == data


@pytest.mark.parametrize(("later", "status"), [(99, 4), (5, 0)])
def test_a_log_with_remote_storage_is_never_cut(tmp_path: Path, later: int, status: int) -> None:
    log_dir = orders(tmp_path, 0, later)
    remote = "--config=remote.storage.enable=true"
    outcome = run_kdump(["rewind", to(50), remote, str(log_dir)], Path.cwd())
    assert outcome.exit_status == status
    assert end_of(log_dir / str(ORDERS)) == 2


# ---- Groups


def with_offsets(log_dir: Path, *commits: tuple[bytes, int, int]) -> Path:
    data = b"".join(
        batch(
            [record(at, offset_key(group), offset_value(offset), timestamp=BASE_TIMESTAMP_MS + ms)]
        )
        for at, (group, offset, ms) in enumerate(commits)
    )
    return write_partition(log_dir / str(OFFSETS), {0: data})


def test_offsets_beyond_the_end_are_set_to_it(tmp_path: Path) -> None:
    log_dir = orders(tmp_path, 0, 10, 99, 99)
    partition = with_offsets(log_dir, (b"ahead", 4, 12), (b"fine", 1, 13), (b"late", 3, 60))
    found = rows(kdump("rewind", to(50), log_dir), "offset")
    assert [(each["group"], each["committed_offset"], each["new_offset"]) for each in found] == [
        ("ahead", 4, 2)
    ]
    assert committed_offsets(partition) == {(b"ahead", ORDERS): 2, (b"fine", ORDERS): 1}
    assert end_of(partition) == 3


def test_offsets_are_set_the_same_on_every_replica(tmp_path: Path) -> None:
    log_dirs = [orders(tmp_path / str(each), 0, 10, 99) for each in range(2)]
    partitions = [with_offsets(each, (b"ahead", 3, 12)) for each in log_dirs]
    kdump("rewind", to(50), *log_dirs)
    assert log_of(partitions[0]) == log_of(partitions[1])
    assert committed_offsets(partitions[0]) == {(b"ahead", ORDERS): 2}


def test_offsets_are_set_the_same_wherever_segments_begin(tmp_path: Path) -> None:
    log_dirs = [orders(tmp_path / str(each), 0, 10, 99) for each in range(2)]
    with_offsets(log_dirs[0], (b"ahead", 3, 40), (b"later", 1, 12))  # another leader's clock
    one, other = (each / str(OFFSETS) for each in log_dirs)
    whole = log_of(one)
    first = len(whole) // 2
    write_partition(other, {0: whole[:first], 1: whole[first:]})
    kdump("rewind", to(50), *log_dirs)
    assert log_of(one) == log_of(other)


def test_a_replica_of_the_offsets_that_is_behind_gets_no_record(tmp_path: Path) -> None:
    log_dirs = [orders(tmp_path / str(each), 0, 10, 99) for each in range(2)]
    with_offsets(log_dirs[0], (b"a", 3, 12), (b"b", 1, 13))
    behind = with_offsets(log_dirs[1], (b"a", 3, 12))
    before = log_of(behind)
    kdump("rewind", to(50), *log_dirs)
    assert log_of(behind) == before


def test_offsets_of_a_streams_group_are_set_like_those_of_any_other(tmp_path: Path) -> None:
    log_dir = orders(tmp_path, 0, 10, 99)
    pairs = [streams_group(b"app"), (offset_key(b"app"), offset_value(3))]
    data = [
        batch([record(at, *pair, timestamp=BASE_TIMESTAMP_MS + 12)])
        for at, pair in enumerate(pairs)
    ]
    write_partition(log_dir / str(OFFSETS), {0: b"".join(data)})
    (lowered,) = rows(kdump("rewind", to(50), log_dir), "offset")
    assert (lowered["group"], lowered["new_offset"]) == ("app", 2)


def test_offsets_beyond_a_log_that_is_not_cut_stay(tmp_path: Path) -> None:
    log_dir = orders(tmp_path, 0, 10)
    partition = with_offsets(log_dir, (b"ahead", 9, 12), (b"late", 1, 60))
    kdump("rewind", to(50), log_dir)
    assert committed_offsets(partition) == {(b"ahead", ORDERS): 9}


def test_offsets_of_partitions_elsewhere_are_set_by_the_file(tmp_path: Path) -> None:
    log_dir = write_log_directory(tmp_path / "d")
    partition = with_offsets(log_dir, (b"ahead", 9, 12))
    given = offsets_file(tmp_path / "f", ("orders", 0, 5), ("__consumer_offsets", 0, 1))
    kdump("rewind", "--offsets", given, log_dir)
    assert committed_offsets(partition) == {(b"ahead", ORDERS): 5}


def test_an_offset_that_will_be_committed_is_set_and_one_that_will_not_stays(
    tmp_path: Path,
) -> None:
    log_dir = orders(tmp_path, 0, 10, 99)
    pending = [
        batch(
            [record(at, offset_key(group), offset_value(3), timestamp=BASE_TIMESTAMP_MS)],
            attributes=TRANSACTIONAL_FLAG,
            producer_id=producer_id,
            producer_epoch=0,
        )
        for at, (group, producer_id) in enumerate([(b"committing", 7), (b"open", 8)])
    ]
    partition = write_partition(log_dir / str(OFFSETS), {0: b"".join(pending)})
    states = [("a", 7, 1), ("b", 8, 1), ("a", 7, 2)]
    coordinator = [
        batch(
            [
                record(
                    at,
                    key_of(transactional_id),
                    value_of(
                        producer_id=producer_id, state=state, partitions=[(OFFSETS.topic, [0])]
                    ),
                )
            ]
        )
        for at, (transactional_id, producer_id, state) in enumerate(states)
    ]
    write_partition(log_dir / "__transaction_state-0", {0: b"".join(coordinator)})
    (log_dir / names.CLEAN_SHUTDOWN_MARKER).unlink()
    found = kdump("rewind", to(50), log_dir)
    assert [(each["group"], each["new_offset"]) for each in rows(found, "offset")] == [
        ("committing", 2)
    ]
    assert {each["transactional_id"]: each["outcome"] for each in rows(found, "transaction")} == {
        "a": "committed",
        "b": "open",
    }
    assert open_producers(log_of(partition)) == {8}
    marked = len(b"".join(pending)) + len(marker(2, commit=True))
    assert offsets_in(log_of(partition)[marked:]) == {(b"committing", ORDERS): 2}


@pytest.mark.parametrize(("nodes", "outcome"), [([7, 8], "committing"), ([7], "committed")])
def test_a_decided_transaction_is_left_to_its_coordinator_where_a_replica_is_elsewhere(
    tmp_path: Path, nodes: list[int], outcome: str
) -> None:
    log_dir = write_log_directory(tmp_path / "d", clean=False)
    state = value_of(producer_id=7, state=2, partitions=[(ORDERS.topic, [0])])
    states = batch([record(0, key_of("a"), state)]) + batch([record(1, key_of("b"), None)])
    write_partition(log_dir / "__transaction_state-0", {0: states})
    partition = write_partition(log_dir / str(ORDERS), {0: of_producer(0, transactional=True)})
    before = log_of(partition)
    values = [
        topic_record("orders", 1),
        partition_record(1, 0, nodes, [4, 5][: len(nodes)]),
        topic_record("__transaction_state", 2),
        partition_record(2, 0, [7], [4]),
    ]
    write_metadata_log(log_dir, values)
    given = offsets_file(tmp_path / "f", ("__transaction_state", 0, 1))
    found = rows(kdump("rewind", "--offsets", given, log_dir), "transaction")
    assert [(each["transactional_id"], each["outcome"]) for each in found] == [("a", outcome)]
    assert (log_of(partition) == before) == (outcome == "committing")


def test_a_decided_transaction_is_left_to_its_coordinator_where_a_disk_was_not_given(
    tmp_path: Path,
) -> None:
    """Another broker has a replica, and is given; but not the disk with the replica."""
    log_dir = write_log_directory(tmp_path / "d", clean=False)
    state = value_of(producer_id=7, state=2, partitions=[(ORDERS.topic, [0])])
    states = batch([record(0, key_of("a"), state)]) + batch([record(1, key_of("b"), None)])
    write_partition(log_dir / "__transaction_state-0", {0: states})
    write_partition(log_dir / str(ORDERS), {0: of_producer(0, transactional=True)})
    values = [
        topic_record("orders", 1),
        partition_record(1, 0, [7, 8], [4, 5]),
        topic_record("__transaction_state", 2),
        partition_record(2, 0, [7], [4]),
    ]
    write_metadata_log(log_dir, values)
    other = write_log_directory(tmp_path / "other", clean=False)
    properties = META_PROPERTIES.replace(b"node.id=7", b"node.id=8")
    properties = properties.replace(b"V1dW8O41RR6", b"V1dW8O41RR7")
    (other / names.META_PROPERTIES).write_bytes(properties)
    given = offsets_file(tmp_path / "f", ("__transaction_state", 0, 1))
    found = rows(kdump("rewind", "--offsets", given, log_dir, other), "transaction")
    assert [(each["transactional_id"], each["outcome"]) for each in found] == [("a", "committing")]


def test_running_it_again_changes_nothing(tmp_path: Path) -> None:
    log_dir = orders(tmp_path, 0, 10, 99, 99)
    with_offsets(log_dir, (b"ahead", 4, 12), (b"late", 3, 60))
    kdump("rewind", to(50), log_dir)
    kdump("rewind", to(50), log_dir, status=0)


# ---- Metadata


def test_topics_that_were_created_or_deleted_later_are_listed(tmp_path: Path) -> None:
    log_dir = orders(tmp_path, 0, 99)
    values = [
        topic_record("orders", 1),
        topic_record("gone", 2),
        topic_record("again", 3),
        remove_topic_record(2),
        topic_record("new", 4),
        remove_topic_record(3),
        topic_record("again", 5),
    ]
    write_metadata_log(log_dir, values)  # a millisecond after each other
    found = rows(kdump("rewind", to(2), "--dry-run", log_dir), "topic")
    assert {each["topic"]: each["change"] for each in found} == {
        "gone": "deleted",
        "new": "created",
        "again": "recreated",
    }


def test_a_topic_that_was_created_later_keeps_records_that_are_not_later(tmp_path: Path) -> None:
    log_dir = orders(tmp_path, 0, 99)
    write_partition(log_dir / "late-0", {0: batch([record(0, timestamp=BASE_TIMESTAMP_MS + 99)])})
    values = [topic_record("first", 1), topic_record("orders", 2), topic_record("late", 3)]
    write_metadata_log(log_dir, values)  # a millisecond after each other
    said = run_kdump(["rewind", to(0), str(log_dir)], Path.cwd()).stdout.decode()
    created = "created after the time: it stays"
    assert f"orders: {created}, with its records that are not later\n" in said
    assert f"late: {created}, without records\n" in said


def test_a_controllers_directory_tells_of_topics_and_stays_as_it_is(tmp_path: Path) -> None:
    log_dir = orders(tmp_path / "broker", 0, 99)
    controller = tmp_path / "controller"
    controller.mkdir()
    write_metadata_log(controller, [topic_record("orders", 1), topic_record("new", 2)])
    before = contents_of(controller)
    found = rows(kdump("rewind", to(0), log_dir, controller), "topic")
    assert [(each["topic"], each["change"]) for each in found] == [("new", "created")]
    assert end_of(log_dir / str(ORDERS)) == 1
    assert contents_of(controller) == before


def test_brokers_that_were_not_given_are_named_and_nothing_is_cut(tmp_path: Path) -> None:
    log_dir = orders(tmp_path / "1", 0, 99)
    values = [topic_record("orders", 1), partition_record(1, 0, [1, 2, 3], [4, 5, 6])]
    write_metadata_log(log_dir, values)
    said = refusal("rewind", to(50), log_dir, status=8)
    assert "brokers whose log directories were not given: 2, 3" in said
    out = tmp_path / "offsets.json"
    kdump("rewind", to(50), log_dir, "--dry-run", "--out", out)
    found = rows(kdump("rewind", "--offsets", out, log_dir), "absent_broker")
    assert [(each["node_id"], each["partitions"]) for each in found] == [(2, 1), (3, 1)]
    assert end_of(log_dir / str(ORDERS)) == 1


# ---- Options


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give --to TIME or --offsets FILE"),
        (("--to=2020-01-01", "--offsets=f"), "mutually exclusive"),
        (("--to=2020-01-01", "--out=f"), "--out requires --dry-run"),
        (("--to=noon",), "is not a time"),
        (("--to=1764482400",), "'1764482400' is 1970-01-21T10:08:02.400Z, before the first"),
        (("--to=-1",), "give ISO 8601, or epoch milliseconds (not seconds)"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    assert said in refusal("rewind", orders(tmp_path, 0), *words, status=USAGE)


def test_the_disks_of_each_broker_are_verified_by_themselves(tmp_path: Path) -> None:
    one, other = orders(tmp_path / "1", 0, 10, 20), orders(tmp_path / "2", 0, 10, 20)
    said = run_kdump(["rewind", to(15), str(one), str(other)], tmp_path).stdout.decode()
    lines = [line for line in said.splitlines() if line.startswith("next: ")]
    assert lines == [f"next: kdump verify {one}", f"next: kdump verify {other}"]
