"""Records of tiered topics are those that a consumer of the real cluster read."""

from __future__ import annotations

import shutil

import pytest

from builders.tiered_fixture import TieredFixture, records_by_partition

LEVELS = ("read_uncommitted", "read_committed")
TOPICS = ("cut", "kept", "moved", "orders", "plain", "tx")


def read(
    tiered: TieredFixture, level: str = LEVELS[0], topics: tuple[str, ...] = TOPICS
) -> dict[str, list[tuple[int, int, str | None, str | None]]]:
    options = {"remote": str(tiered.remote), "kafka.isolation.level": level}
    return records_by_partition(topics, tiered.leader, **options)


@pytest.mark.parametrize("level", LEVELS)
def test_the_disk_of_the_leader_and_its_remote_segments_have_what_a_consumer_read(
    tiered: TieredFixture, level: str
) -> None:
    assert read(tiered, level) == tiered.consumed(level)


def test_without_remote_segments_only_the_local_log_is_read(tiered: TieredFixture) -> None:
    found = records_by_partition(("orders",), tiered.leader)
    for name, records in found.items():
        consumed = tiered.consumed(LEVELS[0])[name]
        local_start = tiered.offsets[name]["earliest-local"]
        assert local_start > 0
        assert records == [each for each in consumed if each[0] >= local_start]


def test_a_replica_that_lost_its_beginning_has_the_rest(tiered: TieredFixture) -> None:
    """Broker 1 truncated below its local log, and began a new one at that offset."""
    found = records_by_partition(("tx",), tiered.follower, remote=str(tiered.remote))
    consumed = tiered.consumed(LEVELS[0])["tx-0"]
    start = found["tx-0"][0][0]
    assert 0 < start < tiered.offsets["tx-0"]["earliest-local"]
    assert found["tx-0"] == [each for each in consumed if each[0] >= start]


def test_the_segments_of_another_lineage_are_not_read(tiered: TieredFixture) -> None:
    """Broker 1 had copied segments with offsets that broker 2 wrote again, in a later epoch."""
    (folder,) = tiered.remote.glob("kafka-tiered-storage/moved-0-*")
    starts = [name.name[:20] for name in folder.glob("*.log")]
    assert len(starts) > len(set(starts))
    assert read(tiered, topics=("moved",)) == {"moved-0": tiered.consumed(LEVELS[0])["moved-0"]}


def test_without_remote_log_metadata_the_files_of_segments_say_the_same(
    tiered_copy: TieredFixture,
) -> None:
    for folder in tiered_copy.leader.glob("__remote_log_metadata-*"):
        shutil.rmtree(folder)
    topics = ("cut", "kept", "orders", "tx")
    consumed = tiered_copy.consumed(LEVELS[0])
    wanted = {name: each for name, each in consumed.items() if name.rpartition("-")[0] in topics}
    assert read(tiered_copy, topics=topics) == wanted


def test_a_partition_without_a_local_log_is_read_from_its_remote_segments(
    tiered_copy: TieredFixture,
) -> None:
    for file in (tiered_copy.leader / "tx-0").iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    consumed = tiered_copy.consumed(LEVELS[0])["tx-0"]
    end = tiered_copy.offsets["tx-0"]["latest-tiered"]
    assert read(tiered_copy, topics=("tx",))["tx-0"] == [
        each for each in consumed if each[0] <= end
    ]


def test_a_missing_remote_log_stops_the_reading(tiered_copy: TieredFixture) -> None:
    (folder,) = tiered_copy.remote.glob("kafka-tiered-storage/orders-0-*")
    gone = min(folder.glob("*.log"))
    gone.unlink()
    with pytest.raises(FileNotFoundError, match=gone.name):
        read(tiered_copy, topics=("orders",))
