"""The effective properties of brokers and topics."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
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
from kdump.errors import KdumpError, UsageProblem
from kdump.formats import names
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.state.metadata.cluster import ClusterImage, ClusterTopic, Configs
from kdump.state.metadata.config_keys import (
    CLEANUP_POLICY,
    DELETE_RETENTION_MS,
    MIN_COMPACTION_LAG_MS,
    REMOTE_STORAGE_ENABLE,
    RETENTION_BYTES,
    RETENTION_MS,
    CleanupPolicy,
    InvalidSettingError,
)
from kdump.state.metadata.settings import (
    Settings,
    TopicSettings,
    read_cluster_metadata,
    read_settings,
    require_accepted,
)
from kdump.storage.local_disk import local

NOTHING: Configs = {}


def cluster(
    topic: Configs = NOTHING, *, broker: Configs = NOTHING, every_broker: Configs = NOTHING
) -> ClusterImage:
    """Make a cluster with the topic ``t`` and broker 7."""
    return ClusterImage({"t": ClusterTopic("t", "id", topic)}, {"7": broker, "": every_broker})


def test_without_any_source_kafkas_defaults_apply() -> None:
    assert Settings().topic("t") == TopicSettings()


def test_sources_have_kafkas_precedence() -> None:
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


def test_dynamic_properties_of_another_broker_are_ignored() -> None:
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
def test_among_synonymous_broker_properties_the_smallest_unit_wins(
    broker: Configs, retention_ms: int
) -> None:
    assert Settings(broker=broker).topic("t").retention_ms == retention_ms


def test_a_topic_can_have_both_cleanup_policies() -> None:
    found = Settings({"cleanup.policy": "compact, DELETE"}).topic("t")
    assert found.is_compacted
    assert found.is_deleted


def test_the_offsets_topic_is_compacted_whatever_the_default_is() -> None:
    settings = Settings(broker={"log.cleanup.policy": "delete", "log.segment.bytes": "9"})
    found = settings.topic("__consumer_offsets")
    assert found.cleanup_policy == {CleanupPolicy.COMPACT}
    assert found.segment_bytes == 9


GUARDED = (
    CLEANUP_POLICY,
    DELETE_RETENTION_MS,
    MIN_COMPACTION_LAG_MS,
    REMOTE_STORAGE_ENABLE,
    RETENTION_BYTES,
    RETENTION_MS,
)
"""Properties whose Kafka defaults must not delete anything."""


def test_only_a_topic_of_the_metadata_is_listed() -> None:
    assert Settings(cluster=cluster()).is_listed("t")
    assert not Settings(cluster=cluster()).is_listed("u")
    assert not Settings({"cleanup.policy": "delete"}).is_listed("t")


def known(settings: Settings) -> set[str]:
    return set(GUARDED) & settings.topic("t").origins.keys()


def test_nothing_is_known_about_a_topic_without_any_source() -> None:
    assert known(Settings()) == set()


def test_a_listed_topic_without_configuration_has_only_known_topic_defaults() -> None:
    assert known(Settings(cluster=cluster())) == {REMOTE_STORAGE_ENABLE}
    assert Settings(cluster=cluster()).topic("t").retention_ms == -1


def test_defaults_of_a_listed_topic_are_known_with_the_brokers_file() -> None:
    found = Settings(broker={}, cluster=cluster()).topic("t")

    assert set(GUARDED) <= found.origins.keys()
    assert found.retention_ms == 604_800_000
    assert found.cleanup_policy == {CleanupPolicy.DELETE}
    assert "Kafka's default" in str(found.origins[RETENTION_MS])


def test_the_brokers_file_alone_does_not_determine_a_topics_policy() -> None:
    settings = Settings(broker={"log.cleanup.policy": "compact", "log.retention.ms": "5"})
    assert known(settings) == {RETENTION_MS}


def test_a_given_broker_policy_applies_to_topics_without_their_own() -> None:
    given = {"log.cleanup.policy": "compact"}
    assert known(Settings(given)) == set()
    assert CLEANUP_POLICY in known(Settings(given, cluster=cluster()))
    own = Settings(given, cluster=cluster({"cleanup.policy": "delete"})).topic("t")
    assert own.cleanup_policy == {CleanupPolicy.DELETE}


@pytest.mark.parametrize(
    ("settings", "origin"),
    [
        (Settings({"retention.ms": "1"}), "retention.ms in --config"),
        (Settings({"log.retention.hours": "1"}), "log.retention.hours in --config"),
        (
            Settings(cluster=cluster({"retention.ms": "1"})),
            "retention.ms in the topic's configuration in the metadata",
        ),
        (
            Settings(cluster=cluster(broker={"log.retention.ms": "1"}), node_id=7),
            "log.retention.ms in the broker's dynamic configuration in the metadata",
        ),
        (
            Settings(cluster=cluster(every_broker={"log.retention.ms": "1"})),
            "log.retention.ms in the cluster-wide dynamic configuration in the metadata",
        ),
        (
            Settings(broker={"log.retention.minutes": "1"}),
            "log.retention.minutes in --server-properties",
        ),
    ],
)
def test_each_value_has_its_origin(settings: Settings, origin: str) -> None:
    assert str(settings.topic("t").origins[RETENTION_MS]) == origin


def test_precedence_does_not_depend_on_the_unit() -> None:
    file = {"log.retention.ms": "5"}
    assert Settings({"log.retention.hours": "1"}, file).topic("t").retention_ms == 3_600_000


def test_dynamic_configurations_use_only_dynamic_names() -> None:
    image = cluster(broker={"log.retention.hours": "1", "log.roll.hours": "1"})
    found = Settings(cluster=image, node_id=7).topic("t")
    assert (found.retention_ms, found.segment_ms) == (-1, 604_800_000)


def test_the_internal_segment_size_takes_precedence() -> None:
    found = Settings({"segment.bytes": "99", "internal.segment.bytes": "9"}).topic("t")
    assert found.largest_segment_bytes == 9


def test_producers_do_not_expire_unless_configured() -> None:
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
def test_a_value_that_kafka_rejects_is_quoted_in_the_error(key: str, value: str) -> None:
    with pytest.raises(InvalidSettingError, match=f"--config: {key}={value} is not"):
        Settings({key: value}).topic("t")


@pytest.mark.parametrize(
    "given",
    [
        {"retention.ms": "1_000"},
        {"retention.ms": "٣"},
        {"retention.ms": "1.0"},
        {"retention.bytes": str(2**63)},
        {"index.interval.bytes": str(2**31)},
        {"segment.bytes": "1048575"},
        {"cleanup.policy": "DELETE"},
        {"cleanup.policy": "compact,"},
        {"log.retention.hours": "0"},
        {"log.retention.minutes": "0", "log.retention.hours": "1"},
        {"log.roll.hours": "0"},
        {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
    ],
    ids=str,
)
def test_properties_that_a_broker_rejects_are_rejected(given: Configs) -> None:
    with pytest.raises(UsageProblem):
        require_accepted(given, None)


@pytest.mark.parametrize(
    "given",
    [
        {"retention.ms": " 1000\t"},
        {"retention.bytes": "-5"},
        {"cleanup.policy": ""},
        {"cleanup.policy": "compact , delete"},
        {"cleanup.policy": "delete,delete"},
        {"remote.storage.enable": "FALSE"},
        {"log.retention.hours": "0", "log.retention.ms": "1"},
        {"log.retention.hours": "-7"},
    ],
    ids=str,
)
def test_properties_that_a_broker_accepts_are_accepted(given: Configs) -> None:
    require_accepted(given, None)
    require_accepted({}, given)


def test_unknown_properties_in_the_brokers_file_are_ignored() -> None:
    require_accepted({}, {"listeners": "PLAINTEXT://:9092", "log.retention.ms": "1"})


def test_a_file_that_no_broker_starts_with_is_rejected() -> None:
    with pytest.raises(UsageProblem, match=r"--server-properties: log\.retention\.hours=0"):
        require_accepted({}, {"log.retention.hours": "0"})


def test_stored_values_of_an_older_broker_are_read() -> None:
    stored = cluster({"segment.bytes": "16384", "cleanup.policy": "compact,compact"})
    found = Settings(cluster=stored).topic("t")
    assert found.segment_bytes == 16384
    assert found.cleanup_policy == {CleanupPolicy.COMPACT}


def test_a_misspelt_property_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(UsageProblem, match=r"did you mean retention\.ms"):
        require_accepted({"retension.ms": "1"}, None)


def test_topic_and_broker_names_of_properties_are_known() -> None:
    require_accepted(
        {"retention.ms": "1", "log.retention.hours": "1", "message.max.bytes": "1"}, None
    )


def directory(
    path: Path,
    cluster_id: str | None,
    retention_ms: int | None = None,
    *,
    node_id: int = 7,
    epoch: int = 0,
    more: Sequence[bytes] = (),
) -> LogDirectory:
    """Write a log directory, with a cluster metadata log if ``retention_ms`` is given."""
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
                *more,
            ],
            epoch=epoch,
        )
    return read_log_directory(local(path))


def retention_by_name(*directories: LogDirectory) -> dict[str, int]:
    """Return the retention of ``t`` in each log directory."""
    found = read_settings(directories)
    return {path.name: settings.topic("t").retention_ms for path, settings in found.items()}


def test_metadata_applies_to_all_directories_of_its_cluster(tmp_path: Path) -> None:
    found = [
        directory(tmp_path / "a", "one"),
        directory(tmp_path / "b", "two", 22),
        directory(tmp_path / "c", "one", 11),
        directory(tmp_path / "d", "two"),
    ]
    expected = {"a": 11, "b": 22, "c": 11, "d": 22}
    assert retention_by_name(*found) == retention_by_name(*reversed(found)) == expected


def test_a_directory_without_a_cluster_id_uses_only_its_own_metadata(tmp_path: Path) -> None:
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


def test_a_damaged_copy_of_the_metadata_does_not_hide_another(tmp_path: Path) -> None:
    valid, damaged = (directory(tmp_path / name, "one", 11) for name in "ab")
    (log,) = (damaged.path / "__cluster_metadata-0").local_path.glob("*.log")
    log.write_bytes(log.read_bytes().replace(b"retention.ms", b"retention.mS"))
    assert retention_by_name(damaged, valid) == retention_by_name(valid, damaged)
    assert retention_by_name(damaged, valid) == {"a": 11, "b": 11}


def test_the_newest_copy_of_the_metadata_is_used(tmp_path: Path) -> None:
    more = [topic_record("u", 2)]
    found = [
        directory(tmp_path / "old", "one", 11, epoch=3, more=more),
        directory(tmp_path / "shorter", "one", 22, epoch=5),
        directory(tmp_path / "newest", "one", 33, epoch=5, more=more),
        directory(tmp_path / "oldest", "one", 44),
    ]
    for order in itertools.permutations(found):
        assert set(retention_by_name(*order).values()) == {33}


def test_a_damaged_newest_copy_of_the_metadata_is_ignored(tmp_path: Path) -> None:
    old, damaged = (
        directory(tmp_path / "a", "one", 11),
        directory(tmp_path / "b", "one", 22, epoch=1),
    )
    (log,) = (damaged.path / "__cluster_metadata-0").local_path.glob("*.log")
    log.write_bytes(log.read_bytes().replace(b"retention.ms", b"retention.mS"))
    assert retention_by_name(damaged, old) == {"a": 11, "b": 11}


def test_each_directory_uses_the_dynamic_configuration_of_its_node(tmp_path: Path) -> None:
    found = read_settings(
        [directory(tmp_path / "a", "one", 11, node_id=8), directory(tmp_path / "b", "one")]
    )
    assert [each.topic("t").segment_bytes for each in found.values()] == [888, 1 << 30]


def test_given_properties_apply_to_every_directory(tmp_path: Path) -> None:
    found = [directory(tmp_path / "a", "one", 11), directory(tmp_path / "b", "two", 22)]
    settings = read_settings(found, {"retention.ms": "5"}, {"log.segment.bytes": "6"}).values()
    topics = [each.topic("t") for each in settings]
    assert [(each.retention_ms, each.segment_bytes) for each in topics] == [(5, 6), (5, 6)]


def test_given_metadata_applies_to_all_directories(tmp_path: Path) -> None:
    metadata_dir = directory(tmp_path / "metadata_dir", "one", 11)
    found = [directory(tmp_path / "a", "one"), directory(tmp_path / "b", "one")]
    for named in (metadata_dir.path, metadata_dir.path / "__cluster_metadata-0"):
        settings = read_settings(found, metadata=read_cluster_metadata(named))
        assert [each.topic("t").retention_ms for each in settings.values()] == [11, 11]


def test_metadata_of_another_cluster_is_rejected(tmp_path: Path) -> None:
    metadata_dir = read_cluster_metadata(directory(tmp_path / "metadata_dir", "two", 11).path)
    with pytest.raises(UsageProblem, match=r"of cluster two, but .*/a belongs to cluster one"):
        read_settings([directory(tmp_path / "a", "one")], metadata=metadata_dir)


def test_a_directory_without_metadata_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="it contains no __cluster_metadata-0"):
        read_cluster_metadata(directory(tmp_path / "a", "one").path)


def test_damaged_given_metadata_is_an_error(tmp_path: Path) -> None:
    damaged = directory(tmp_path / "a", "one", 11)
    (log,) = (damaged.path / "__cluster_metadata-0").local_path.glob("*.log")
    log.write_bytes(log.read_bytes().replace(b"retention.ms", b"retention.mS"))
    with pytest.raises(KdumpError, match="damaged or incomplete"):
        read_cluster_metadata(damaged.path)


@pytest.mark.parametrize("key", ["node.id", "broker.id"])
def test_the_file_of_another_broker_is_rejected(tmp_path: Path, key: str) -> None:
    found = [directory(tmp_path / "a", "one", node_id=8)]
    with pytest.raises(
        UsageProblem, match=f"{key}=7, but .*/a belongs to node 8: .* does not start"
    ):
        read_settings(found, broker={key: "7"})
    read_settings(found, broker={key: "8"})
