"""What is collected of a cluster's metadata as of a moment, from a real controller's copy."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from builders.batches import batch, record
from builders.log_directories import write_partition
from builders.metadata_log import topic_record
from kdump.formats.internal_topics import encode_cluster_metadata
from kdump.formats.snapshot_writer import SnapshotHead, encode_snapshot
from kdump.jobs.collect.metadata_copy import collect_metadata
from kdump.jobs.metadata.metadata_copies import read_copies
from kdump.jobs.metadata.metadata_questions import HistoryReading
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.state.metadata.collected_image import image_of_records
from kdump.state.metadata.disk_collection import CollectedMetadata, RewoundMetadata
from kdump.state.metadata.metadata_image import (
    METADATA_VERSION,
    EntityKind,
    LogEnd,
    MetadataImage,
    MetadataRecord,
    MetadataReplay,
)
from kdump.state.metadata.metadata_replay import END, CopyReplay, MetadataPoint
from kdump.state.metadata.rewound_image import rewound_image
from kdump.storage.local_disk import local

OF_THE_MOMENT: Final = (
    EntityKind.TOPIC,
    EntityKind.CONFIG,
    EntityKind.QUOTA,
    EntityKind.ACL,
    EntityKind.SCRAM,
)
OF_NOW: Final = (EntityKind.BROKER, EntityKind.CONTROLLER)
METADATA: Final = "__cluster_metadata-0"
BROKER: Final = encode_cluster_metadata(
    "REGISTER_BROKER_RECORD",
    0,
    {
        "brokerId": 1,
        "incarnationId": "AAAAAAAAAAAAAAAAAAAAAQ",
        "brokerEpoch": 0,
        "endPoints": [],
        "features": [],
        "rack": None,
        "fenced": False,
    },
)


@pytest.fixture
def controller(fixtures: Path) -> LogDirectory:
    return read_log_directory(local(fixtures / "states" / "clean" / "c1001"))


def image_at(directory: LogDirectory, point: MetadataPoint) -> MetadataImage:
    (copy,) = read_copies([directory])
    return CopyReplay(copy.partition, lambda _: None).image_at(point)


def moments(directory: LogDirectory) -> list[int]:
    """When something changed, without repetition."""
    (copy,) = read_copies([directory])
    events = HistoryReading.of(copy, END, lambda _: None).events()
    records = [each.change.record for each in events]
    return sorted({each.timestamp_ms for each in records if each is not None})


def later_than(directory: LogDirectory, time_ms: int) -> set[str]:
    """The ids of topics that were created after a moment, whether they are still there or not."""
    (copy,) = read_copies([directory])
    found = set()
    for event in HistoryReading.of(copy, END, lambda _: None).events():
        change = event.change
        is_created = change.kind is EntityKind.TOPIC and change.new is not None
        if is_created and change.record is not None and change.record.timestamp_ms > time_ms:
            found.add(change.new.topic_id)
    return found


def test_what_people_decide_is_of_the_moment_and_the_rest_of_the_end(
    controller: LogDirectory,
) -> None:
    now = image_at(controller, END)
    changed = set()
    for time_ms in moments(controller)[::8]:
        then = image_at(controller, MetadataPoint(time_ms=time_ms))
        if not then.of(EntityKind.BROKER):
            continue
        collected = collect_metadata(controller, time_ms)
        assert collected is not None
        assert collected.rewound is not None
        assert (collected.epoch, collected.end_offset) == now.end
        found = image_of_records(collected.records, now.end)
        for kind in OF_THE_MOMENT:
            assert found.of(kind) == then.of(kind)
            changed |= {kind} if then.of(kind) != now.of(kind) else set()
        for kind in OF_NOW:
            assert found.of(kind) == now.of(kind)
        level = found.of(EntityKind.FEATURE)[METADATA_VERSION]
        assert level == now.of(EntityKind.FEATURE)[METADATA_VERSION]
        topics = then.of(EntityKind.TOPIC)
        assert {topic_id for topic_id, _ in found.of(EntityKind.PARTITION)} == {*topics}
        later = {*collected.rewound.later_topics}
        assert later == later_than(controller, time_ms)
        before = then.of(EntityKind.PARTITION)
        assert {(each.topic_id, each.partition) for each in collected.rewound.later_partitions} == {
            key for key in now.of(EntityKind.PARTITION) if key[0] in topics and key not in before
        }
        for key, registration in now.of(EntityKind.PARTITION).items():
            if key[0] in topics:
                assert found.of(EntityKind.PARTITION)[key] == registration
    assert changed == {*OF_THE_MOMENT}


def of_the_end(directory: LogDirectory, time_ms: int) -> CollectedMetadata:
    """What is collected where the copy does not say what the metadata were: those of its end."""
    collected = collect_metadata(directory, time_ms)
    assert collected is not None
    assert collected.rewound is not None
    assert collected.rewound.problem in collected.problems
    assert collected.rewound.later_topics == ()
    end = LogEnd(collected.epoch, collected.end_offset)
    assert image_of_records(collected.records, end).entities[EntityKind.TOPIC]
    return collected


def problem(directory: LogDirectory, time_ms: int) -> str:
    """Why the copy does not say what the metadata were."""
    rewound = of_the_end(directory, time_ms).rewound
    assert rewound is not None
    return str(rewound.problem)


def test_a_moment_before_the_first_broker_is_said(controller: LogDirectory) -> None:
    what = problem(controller, moments(controller)[0] - 1)
    assert what == f"{METADATA}: no broker had registered at that time"


@pytest.fixture
def own_controller(controller: LogDirectory, quick_path: Path) -> Path:
    """A copy of the controller's directory."""
    path = quick_path / "c1001"
    shutil.copytree(str(controller.path), path)
    return path


def read(path: Path) -> LogDirectory:
    return read_log_directory(local(path))


def test_a_copy_whose_log_begins_after_the_moment_is_collected_as_of_its_end(
    controller: LogDirectory, own_controller: Path
) -> None:
    """As on a node that has fetched a snapshot: its log directory may have partitions."""
    time_ms = moments(controller)[40]
    folder = own_controller / METADATA
    *earlier, last = sorted(folder.glob("*.checkpoint"))
    for each in (*earlier, *folder.glob("0*0.*")):
        each.unlink(missing_ok=True)
    (folder / f"{last.name.partition('-')[0]}.log").touch()
    what = problem(read(own_controller), time_ms)
    assert "that time is before the oldest metadata on this disk" in what


def test_a_copy_without_what_begins_it_is_damaged_and_not_late(
    controller: LogDirectory, own_controller: Path
) -> None:
    """Its only snapshot before the moment cannot be read."""
    folder = own_controller / METADATA
    first = sorted(folder.glob("*.checkpoint"))[1]
    for each in folder.glob("0*0.*"):
        each.unlink()
    (folder / f"{first.name.partition('-')[0]}.log").touch()
    first.write_bytes(b"\0" * 100)
    collected = collect_metadata(read(own_controller), moments(controller)[40])
    assert collected is not None
    assert collected.rewound is not None
    assert "is unknown: what begins it is missing" in str(collected.rewound.problem)
    assert any(first.name in each for each in collected.problems)


def test_a_directory_that_was_only_formatted_says_nothing_of_a_moment(
    controller: LogDirectory, own_controller: Path
) -> None:
    for each in (own_controller / METADATA).iterdir():
        if not each.name.startswith("0" * 20 + "-"):
            each.unlink()
    collected = collect_metadata(read(own_controller), moments(controller)[40])
    assert collected is not None
    assert collected.rewound == RewoundMetadata(moments(controller)[40], ())
    assert not collected.problems


# --- clocks

HOUR_MS: Final = 3_600_000


def write_clocks(folder: Path, times_ms: Sequence[int]) -> LogDirectory:
    """A copy in which each batch creates a topic of its number, at a time."""
    values = [BROKER, *(topic_record(f"t{at}", at) for at in range(1, len(times_ms)))]
    log = b"".join(
        batch([record(at, None, value, timestamp=time_ms)])
        for at, (time_ms, value) in enumerate(zip(times_ms, values, strict=True))
    )
    write_partition(folder / METADATA, {0: log})
    return read(folder)


@pytest.mark.parametrize(
    ("times_ms", "moment_ms", "count", "first_later"),
    [
        ((10, 20, 30), 20, 1, None),
        ((10, 20, 30), 29, 1, None),
        ((10, 20, 90, 30, 40), 35, 1, 3),
        ((10, 20, 90, 30, 40), 90, 4, None),
        ((10, 20, 90, 30, 40), 15, 0, None),
    ],
)
def test_what_a_clock_that_was_set_back_leaves_out_is_said(
    tmp_path: Path,
    times_ms: Sequence[int],
    moment_ms: int,
    count: int,
    first_later: int | None,
) -> None:
    collected = collect_metadata(write_clocks(tmp_path, times_ms), moment_ms)
    assert collected is not None
    names = [each.data["name"] for each in collected.records if each.type == "TOPIC_RECORD"]
    assert names == [f"t{at}" for at in range(1, count + 1)]
    said = [each for each in collected.problems if "clocks" in each]
    assert len(said) == (first_later is not None)
    assert all(f"the record at offset {first_later} is not later" in each for each in said)


def test_all_copies_of_one_log_end_at_the_same_record_whatever_snapshots_they_have(
    tmp_path: Path,
) -> None:
    """By its own time the snapshot is before the moment, and has a record that is after it."""
    directory = write_clocks(tmp_path, (10, 20, 90, 30, 40))
    head = SnapshotHead(epoch=0, last_timestamp_ms=30, created_ms=30)
    snapshot = b"".join(encode_snapshot(head, [BROKER, topic_record("t1", 1)]))
    (tmp_path / METADATA / f"{4:020d}-{0:010d}.checkpoint").write_bytes(snapshot)
    with_snapshot = collect_metadata(read(tmp_path), 35)
    without = collect_metadata(directory, 35)
    assert with_snapshot is not None
    assert without is not None
    assert with_snapshot.records == without.records


# --- eligible leader replicas


def image_of(level: int, configs: Mapping[str, str]) -> MetadataImage:
    """An image with a level of the feature, and values of a property by broker; "" is for all."""
    replay = MetadataReplay()
    feature = {"name": "eligible.leader.replicas.version", "featureLevel": level}
    replay.take(MetadataRecord(0, 0, 0, "FEATURE_LEVEL_RECORD", feature))
    for name, value in configs.items():
        config = {"resourceType": 4, "resourceName": name, "name": MIN_INSYNC, "value": value}
        replay.take(MetadataRecord(0, 0, 0, "CONFIG_RECORD", config))
    return replay.image()


MIN_INSYNC: Final = "min.insync.replicas"


@pytest.mark.parametrize(
    ("level", "then", "wanted"),
    [
        (0, {"1": "3"}, {"1": "3"}),
        (1, {"1": "3"}, {"": "2"}),
        (1, {}, {"": "2"}),
        (1, {"": "4"}, {"": "4"}),
    ],
)
def test_where_eligible_leader_replicas_are_on_all_brokers_have_one_minimum(
    level: int, then: Mapping[str, str], wanted: Mapping[str, str]
) -> None:
    """They were switched on after the moment; Kafka sets it for all then, and none for one."""
    image = rewound_image(image_of(level, {"": "2"}), image_of(0, then))
    assert image.of(EntityKind.CONFIG) == {
        f"broker:{name}": {MIN_INSYNC: value} for name, value in wanted.items()
    }


@pytest.mark.parametrize(
    ("before", "since", "wanted"),
    [(None, "true", "true"), ("false", "true", "true"), ("true", None, "true"), (None, None, None)],
)
def test_a_topic_that_got_tiered_storage_after_the_moment_keeps_it(
    before: str | None, since: str | None, wanted: str | None
) -> None:
    """Its first records may only be remote by now."""
    then, now = (image_of_topic(each) for each in (before, since))
    configs = rewound_image(now, then).of(EntityKind.CONFIG)
    assert configs == ({} if wanted is None else {"topic:orders": {REMOTE: wanted}})


REMOTE: Final = "remote.storage.enable"


def image_of_topic(remote: str | None) -> MetadataImage:
    replay = MetadataReplay()
    topic = {"name": "orders", "topicId": "AAAAAAAAAAAAAAAAAAAAAQ"}
    config = {"resourceType": 2, "resourceName": "orders", "name": REMOTE, "value": remote}
    replay.take(MetadataRecord(0, 0, 0, "TOPIC_RECORD", topic))
    replay.take(MetadataRecord(0, 0, 0, "CONFIG_RECORD", config))
    return replay.image()
