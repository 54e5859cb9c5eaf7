"""Which of a broker's and a topic's properties count."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.log_directories import META_PROPERTIES
from builders.metadata_log import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    config_record,
    topic_record,
    write_metadata_log,
)
from kdump.errors import UsageProblem
from kdump.formats import names
from kdump.log.cluster import ClusterImage, ClusterTopic, Configs
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.log.settings import (
    CleanupPolicy,
    InvalidSettingError,
    Settings,
    TopicSettings,
    read_settings,
    require_known,
)

NOTHING: Configs = {}


def cluster(
    topic: Configs = NOTHING, *, broker: Configs = NOTHING, every_broker: Configs = NOTHING
) -> ClusterImage:
    """A cluster with the topic ``t``, and broker 7."""
    return ClusterImage({"t": ClusterTopic("t", "id", topic)}, {"7": broker, "": every_broker})


def test_where_nothing_is_said_kafkas_defaults_hold() -> None:
    assert Settings().topic("t") == TopicSettings()


def test_places_count_from_the_hand_to_the_brokers_file() -> None:
    said = [
        ({"retention.ms": "1"}, NOTHING, NOTHING, NOTHING, NOTHING),
        (NOTHING, {"retention.ms": "2"}, NOTHING, NOTHING, NOTHING),
        ({"log.retention.ms": "3"}, NOTHING, NOTHING, NOTHING, NOTHING),
        (NOTHING, NOTHING, {"log.retention.ms": "4"}, NOTHING, NOTHING),
        (NOTHING, NOTHING, NOTHING, {"log.retention.ms": "5"}, NOTHING),
        (NOTHING, NOTHING, NOTHING, NOTHING, {"log.retention.ms": "6"}),
    ]
    for first in range(len(said)):
        given: dict[str, str] = {}
        topic: dict[str, str] = {}
        broker: dict[str, str] = {}
        every_broker: dict[str, str] = {}
        file: dict[str, str] = {}
        for place in said[first:]:
            for into, configs in zip(
                (given, topic, broker, every_broker, file), place, strict=True
            ):
                into.update(configs)
        image = cluster(topic, broker=broker, every_broker=every_broker)
        found = Settings(given, file, image, node_id=7).topic("t")
        assert found.retention_ms == first + 1


def test_another_brokers_properties_do_not_count() -> None:
    image = cluster(broker={"log.segment.bytes": "5"})
    assert Settings(cluster=image, node_id=8).topic("t").segment_bytes == 1 << 30


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_of_a_brokers_names_for_one_thing_the_finest_unit_counts(
    broker: Configs, retention_ms: int
) -> None:
    assert Settings(broker=broker).topic("t").retention_ms == retention_ms


def test_a_topic_can_be_compacted_and_deleted() -> None:
    found = Settings({"cleanup.policy": "compact, DELETE"}).topic("t")
    assert found.is_compacted
    assert found.is_deleted


def test_committed_offsets_are_compacted_whatever_is_the_default() -> None:
    settings = Settings(broker={"log.cleanup.policy": "delete", "log.segment.bytes": "9"})
    found = settings.topic("__consumer_offsets")
    assert found.cleanup_policy == {CleanupPolicy.COMPACT}
    assert found.segment_bytes == 9


@pytest.mark.parametrize(
    ("settings", "is_known"),
    [
        (Settings(), False),
        (Settings(broker={"log.cleanup.policy": "compact"}), False),
        (Settings({"cleanup.policy": "compact"}), True),
        (Settings(cluster=cluster()), True),
    ],
)
def test_a_policy_is_known_if_it_was_said_of_the_topic(settings: Settings, is_known: bool) -> None:
    assert settings.topic("t").is_policy_known is is_known


def test_a_segment_is_as_large_as_tests_of_kafka_want_it() -> None:
    found = Settings({"segment.bytes": "99", "internal.segment.bytes": "9"}).topic("t")
    assert found.largest_segment_bytes == 9


def test_producers_are_kept_unless_their_expiration_was_said() -> None:
    assert Settings().producer_id_expiration_ms is None
    assert Settings(broker={"producer.id.expiration.ms": "5"}).producer_id_expiration_ms == 5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "a week"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "remove"),
        ("remote.storage.enable", "yes"),
    ],
)
def test_a_value_that_kafka_does_not_take_is_named(key: str, value: str) -> None:
    with pytest.raises(InvalidSettingError, match=f"--config: {key}={value} is not"):
        Settings({key: value}).topic("t")


def test_a_misspelt_property_is_refused_with_what_may_have_been_meant() -> None:
    with pytest.raises(UsageProblem, match=r"retention\.ms was meant"):
        require_known({"retension.ms": "1"})


def test_names_of_topics_and_of_brokers_are_known() -> None:
    require_known({"retention.ms": "1", "log.retention.hours": "1", "message.max.bytes": "1"})


def directory(
    path: Path, cluster_id: str | None, retention_ms: int | None = None, *, node_id: int = 7
) -> LogDirectory:
    """Write a log directory, with the cluster's metadata if that says something of ``t``."""
    path.mkdir()
    (path / names.CLEAN_SHUTDOWN_MARKER).touch()
    if cluster_id is not None:
        properties = META_PROPERTIES.replace(b"a-cluster", cluster_id.encode())
        properties = properties.replace(b"node.id=7", b"node.id=%d" % node_id)
        (path / names.META_PROPERTIES).write_bytes(properties)
    if retention_ms is not None:
        write_metadata_log(
            path,
            [
                topic_record("t", 1),
                config_record(TOPIC_RESOURCE, "t", "retention.ms", str(retention_ms)),
                config_record(BROKER_RESOURCE, "8", "log.segment.bytes", "888"),
            ],
        )
    return read_log_directory(path)


def retention_by_name(*directories: LogDirectory) -> dict[str, int]:
    """Give the retention of ``t`` in each log directory."""
    found = read_settings(directories)
    return {path.name: settings.topic("t").retention_ms for path, settings in found.items()}


def test_a_clusters_metadata_counts_for_all_directories_of_that_cluster(tmp_path: Path) -> None:
    found = [
        directory(tmp_path / "a", "one"),
        directory(tmp_path / "b", "two", 22),
        directory(tmp_path / "c", "one", 11),
        directory(tmp_path / "d", "two"),
    ]
    expected = {"a": 11, "b": 22, "c": 11, "d": 22}
    assert retention_by_name(*found) == retention_by_name(*reversed(found)) == expected


def test_a_directory_of_no_cluster_has_nothing_but_its_own_metadata(tmp_path: Path) -> None:
    found = [
        directory(tmp_path / "a", None, 11),
        directory(tmp_path / "b", None),
        directory(tmp_path / "c", "one", 33),
    ]
    assert retention_by_name(*found) == {
        "a": 11,
        "b": TopicSettings().retention_ms,
        "c": 33,
    }


def test_damaged_metadata_does_not_hide_another_copy_of_it(tmp_path: Path) -> None:
    sound, damaged = (directory(tmp_path / name, "one", 11) for name in "ab")
    (log,) = (damaged.path / "__cluster_metadata-0").glob("*.log")
    log.write_bytes(log.read_bytes().replace(b"retention.ms", b"retention.mS"))
    assert retention_by_name(damaged, sound) == retention_by_name(sound, damaged)
    assert retention_by_name(damaged, sound) == {"a": 11, "b": 11}


def test_each_directory_has_what_was_set_for_its_own_node(tmp_path: Path) -> None:
    found = read_settings(
        [directory(tmp_path / "a", "one", 11, node_id=8), directory(tmp_path / "b", "one")]
    )
    assert [each.topic("t").segment_bytes for each in found.values()] == [888, 1 << 30]


def test_what_was_given_by_hand_holds_in_every_directory(tmp_path: Path) -> None:
    found = [directory(tmp_path / "a", "one", 11), directory(tmp_path / "b", "two", 22)]
    settings = read_settings(found, {"retention.ms": "5"}, {"log.segment.bytes": "6"}).values()
    topics = [each.topic("t") for each in settings]
    assert [(each.retention_ms, each.segment_bytes) for each in topics] == [(5, 6), (5, 6)]
