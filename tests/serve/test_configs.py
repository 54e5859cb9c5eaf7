"""Configurations, as the living cluster told of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from builders.serving import CLUSTER, RunningServer, exactly, framed, opened
from kdump.formats.configs.config_definitions import ConfigScope, config_definitions
from kdump.formats.kafka_versions import KAFKA_4_3_1, KAFKA_4_4
from kdump.serve.answering import ReadingThreads, Serving
from kdump.serve.config_answers import ConfigAnswers
from kdump.serve.messages import decode_request
from kdump.serve.served_cluster import ServedCluster
from kdump.state.metadata.cluster import cluster_view
from kdump.state.metadata.described_configs import NodeConfigs
from kdump.state.metadata.metadata_image import EntityKind
from kdump.state.metadata.settings import Settings

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
OF_TOPIC, OF_BROKER, OF_EVERY_BROKER, OF_FILE, DEFAULT = 1, 2, 3, 4, 5


@pytest.fixture(scope="module")
def said(fixtures: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (fixtures / "states" / "clean" / "manifest.json").read_text()
    )
    return found


def asked(kind: int, name: str, *keys: str) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}


def described(
    server: RunningServer,
    kind: int,
    name: str,
    *keys: str,
    version: int = 4,
    synonyms: bool = True,
) -> dict[str, Any]:
    """The answer for one resource, by the names of properties."""
    fields: dict[str, Any] = {"include_synonyms": synonyms}
    if version >= 3:
        fields["include_documentation"] = True
    answer = server.ask(32, version, resources=[asked(kind, name, *keys)], **fields)
    (found,) = answer.results
    assert found.error_code is ErrorCode.none, found
    return {each.name: each for each in found.configs}


def served_with(server: RunningServer, **configs: dict[str, str]) -> RunningServer:
    """The same cluster with other configurations; ``broker_1`` stands for ``broker:1``."""
    cluster = server.cluster
    assert cluster.image is not None
    named = {name.replace("_", ":", 1): values for name, values in configs.items()}
    known = {**cluster.image.entities, EntityKind.CONFIG: named}
    image = replace(cluster.image, entities=known)
    return RunningServer(with_image(cluster, image), server.notices, [])


def with_image(cluster: ServedCluster, image: Any) -> ServedCluster:
    settings = Settings(cluster=cluster_view(image), node_id=cluster.node_id)
    return dataclasses.replace(cluster, image=image, settings=settings)  # noqa: TID251 - no struct


def test_what_was_set_of_topics_is_told(dead_cluster: RunningServer, said: dict[str, Any]) -> None:
    for name, topic in said["topics"].items():
        found = described(dead_cluster, TOPIC, name)
        own = {key: each.value for key, each in found.items() if each.config_source == OF_TOPIC}
        assert own == topic["configs"], name


def test_what_was_not_set_of_topics_has_its_default(dead_cluster: RunningServer) -> None:
    found = described(dead_cluster, TOPIC, "users", "retention.ms", "min.insync.replicas")
    assert {key: (each.value, each.config_source) for key, each in found.items()} == {
        "retention.ms": ("604800000", DEFAULT),
        # Where the controllers know eligible leader replicas, it is set of all brokers.
        "min.insync.replicas": ("1", OF_EVERY_BROKER),
    }


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_property_of_a_topic_is_described(version: int, dead_cluster: RunningServer) -> None:
    found = described(dead_cluster, TOPIC, "users", version=version)
    known = config_definitions(KAFKA_4_3_1)[ConfigScope.TOPIC]
    # It is described where it is set.
    assert found.keys() - {"internal.segment.bytes"} == {
        name for name, each in known.items() if each.is_listed
    }
    assert found["cleanup.policy"].value is not None


def test_synonyms_are_told_if_asked_for(dead_cluster: RunningServer) -> None:
    (bare,) = described(dead_cluster, TOPIC, "orders", "segment.bytes", synonyms=False).values()
    assert bare.synonyms == ()
    (whole,) = described(dead_cluster, TOPIC, "orders", "segment.bytes").values()
    assert [each.name for each in whole.synonyms][-1] == "log.segment.bytes"
    assert whole.documentation is None


def test_topics_have_what_was_set_of_brokers(dead_cluster: RunningServer) -> None:
    configs = {
        "broker_": {"log.retention.ms": "900", "log.cleaner.threads": "2"},
        "broker_1": {"log.segment.bytes": " 2097152"},
    }
    with served_with(dead_cluster, **configs) as server:
        found = described(server, TOPIC, "users", "retention.ms", "segment.bytes")
        node = described(server, BROKER, "1", "log.cleaner.threads")
    assert {key: (each.value, each.config_source) for key, each in found.items()} == {
        "retention.ms": ("900", OF_EVERY_BROKER),
        "segment.bytes": ("2097152", OF_BROKER),
    }
    (threads,) = node.values()
    assert [(each.value, each.source) for each in threads.synonyms] == [
        ("2", OF_EVERY_BROKER),
        ("1", DEFAULT),
    ]


def test_the_file_of_a_broker_tells_what_the_metadata_does_not(fixtures: Path) -> None:
    disks = (fixtures / "states" / "clean" / name for name in CLUSTER)
    properties = {"node.id": "7", "log.retention.hours": "1", "ssl.key.password": "secret"}
    with opened(*disks, server_properties=properties) as server:
        topic = described(server, TOPIC, "users", "retention.ms")["retention.ms"]
        node = described(server, BROKER, "1")
    assert topic.value == "3600000"
    assert (node["node.id"].value, node["broker.id"].value) == ("1", "1")
    hours = node["log.retention.hours"]
    assert (hours.value, hours.config_source, hours.read_only) == ("1", OF_FILE, True)
    password = node["ssl.key.password"]
    assert (password.value, password.is_sensitive) == (None, True)
    assert [each.value for each in password.synonyms] == [None]


def test_secrets_and_what_nobody_knows_are_not_told(dead_cluster: RunningServer) -> None:
    own = {"listener.name.x.ssl.keystore.password": "a", "of.a.plugin": "b"}
    with served_with(dead_cluster, broker_1=own) as server:
        found = described(server, BROKER, "1")
        data = raw(server, BROKER, "1")
    for name in own:
        assert (found[name].value, found[name].is_sensitive) == (None, True)
    assert all(f"\x02{each}".encode() not in data for each in own.values())


def raw(server: RunningServer, kind: int, name: str) -> bytes:
    with server.connect() as connection:
        connection.sendall(
            framed(
                32,
                4,
                resources=[asked(kind, name)],
                include_synonyms=True,
                include_documentation=False,
            )
        )
        return exactly(connection, int.from_bytes(exactly(connection, 4), "big"))


def test_groups_and_client_metrics_have_defaults(dead_cluster: RunningServer) -> None:
    with served_with(dead_cluster, group_g={"share.auto.offset.reset": "earliest"}) as server:
        group = described(server, GROUP, "g")
        other = described(server, GROUP, "nobody", "consumer.session.timeout.ms")
        metrics = described(server, CLIENT_METRICS, "nothing")
    assert group["share.auto.offset.reset"].value == "earliest"
    assert other["consumer.session.timeout.ms"].value == "45000"
    assert {key: each.value for key, each in metrics.items()} == {
        "interval.ms": "300000",
        "match": "",
        "metrics": "",
    }


def test_the_version_decides_which_properties_there_are(dead_cluster: RunningServer) -> None:
    settings = dataclasses.replace(dead_cluster.cluster.settings, given_version=KAFKA_4_4)  # noqa: TID251
    cluster = dataclasses.replace(dead_cluster.cluster, settings=settings)  # noqa: TID251
    newer = "remote.copy.lag.ms"
    assert newer not in described(dead_cluster, TOPIC, "orders")
    with RunningServer(cluster, dead_cluster.notices, []) as server:
        assert newer in described(server, TOPIC, "orders")


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "nothing", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "no name", ErrorCode.invalid_topic_exception),
        (BROKER, "2", ErrorCode.invalid_request),
        (BROKER, "one", ErrorCode.invalid_request),
        (GROUP, "", ErrorCode.invalid_request),
        (CLIENT_METRICS, "", ErrorCode.invalid_request),
        (LOGGER, "1", ErrorCode.invalid_request),
        (99, "1", ErrorCode.invalid_request),
    ],
)
def test_other_resources_are_refused(
    kind: int, name: str, error: ErrorCode, dead_cluster: RunningServer
) -> None:
    resources = [asked(kind, name), asked(TOPIC, "orders")]
    found = dead_cluster.ask(
        32, 4, resources=resources, include_synonyms=False, include_documentation=False
    ).results
    assert [each.error_code for each in found] == [error, ErrorCode.none]
    assert found[0].configs == ()


def test_a_request_for_too_many_configurations_ends_its_connection(
    dead_cluster_of_a_test: RunningServer,
) -> None:
    resources = [asked(BROKER, "1")] * 10_000
    with dead_cluster_of_a_test.connect() as connection:
        connection.sendall(
            framed(32, 4, resources=resources, include_synonyms=True, include_documentation=True)
        )
        assert exactly(connection, 1) == b""
    assert any("10000 configurations" in each for each in dead_cluster_of_a_test.lines)


def test_long_values_count_for_the_size_of_an_answer(dead_cluster_of_a_test: RunningServer) -> None:
    long = ",".join(f"{number}:1" for number in range(20_000))
    resources = [asked(TOPIC, "orders")] * 1000
    with (
        served_with(
            dead_cluster_of_a_test, topic_orders={"leader.replication.throttled.replicas": long}
        ) as server,
        server.connect() as connection,
    ):
        connection.sendall(
            framed(32, 4, resources=resources, include_synonyms=False, include_documentation=False)
        )
        assert exactly(connection, 1) == b""


def test_a_number_that_only_a_config_provider_knows_is_told_as_it_is() -> None:
    node = NodeConfigs(KAFKA_4_3_1, {"log.retention.hours": "${env:HOURS}"}, {}, {})
    found = {each.name: each.value for each in node.resource(ConfigScope.TOPIC, {})}
    assert found["retention.ms"] == "${env:HOURS}"


def test_an_answer_is_about_as_large_as_was_held_for_it(dead_cluster: RunningServer) -> None:
    cluster = dead_cluster.cluster
    assert cluster.image is not None
    serving = Serving(cluster, dead_cluster.notices, ReadingThreads())
    answers = ConfigAnswers(serving, cluster.image)
    for kind, name in ((TOPIC, "orders"), (BROKER, "1"), (GROUP, "g")):
        for whole in (False, True):
            data = framed(
                32,
                4,
                resources=[asked(kind, name)],
                include_synonyms=whole,
                include_documentation=whole,
            )
            held = answers.size_bytes(decode_request(data[4:], frozenset({32})))
            with dead_cluster.connect() as connection:
                connection.sendall(data)
                assert int.from_bytes(exactly(connection, 4), "big") <= held


def test_resources_with_configurations_are_listed(dead_cluster: RunningServer) -> None:
    found = dead_cluster.ask(74, 1, resource_types=[TOPIC, BROKER]).config_resources
    topics = {each.resource_name for each in found if each.resource_type == TOPIC}
    assert topics == dead_cluster.cluster.topics.keys()
    assert [each.resource_name for each in found if each.resource_type == BROKER] == ["1"]
    odd = dead_cluster.ask(74, 1, resource_types=[99])
    assert odd.error_code is ErrorCode.unsupported_version
