"""Kafka's brokers tell of configurations what kdump tells of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.kafka_configs import DEFINITIONS, ConfigsOfKafka, definitions_text
from kdump.formats.configs.config_definitions import (
    ConfigDefinition,
    ConfigScope,
    ConfigType,
    ConfigUpdate,
    config_definitions,
)
from kdump.formats.kafka_versions import KAFKA_4_3_1, KAFKA_4_4, KafkaVersion
from kdump.state.metadata.cluster import Configs
from kdump.state.metadata.described_configs import DescribedConfig, NodeConfigs

pytestmark = pytest.mark.differential

STARTABLE = {
    "node.id": "1",
    "broker.id": "1",
    "process.roles": "broker",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}
"""What ``ClusterConfigs`` has in its file, to be a broker."""
ALMOST = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
NUMBERS = ["{}", "+{}", " {} ", "00{}", "{}1"]
TEXTS = {
    ConfigType.BOOLEAN: ["true", "FALSE", " True "],
    ConfigType.INT: NUMBERS,
    ConfigType.LONG: NUMBERS,
    ConfigType.SHORT: NUMBERS,
    ConfigType.DOUBLE: ["0.5", "1e-1", ".25", "1", " 0.50d"],
    ConfigType.PASSWORD: ["a secret"],
}
"""Values by type, with the default of a property within."""
ODD_TEXTS = {
    ".throttled.replicas": ["1:1, 1:1", "*", ""],
    ".protocols": ["classic,classic", "consumer , classic"],
    "cleanup.policy": ["compact", "delete , compact", "delete", "compact,compact"],
    "compression.type": ["gzip", " zstd "],
    "message.timestamp.type": ["LogAppendTime"],
    "share.isolation.level": ["read_committed"],
    "streams.rack.aware.assignment.tags": ["a , b"],
    "share.auto.offset.reset": ["earliest"],
    "metrics": ["a, b"],
    "match": ["client_id=x,client_software_name=y"],
}
OTHER_NAMES = [
    "listener.name.odd.ssl.keystore.location",
    "listener.name.odd.ssl.keystore.password",
    "listener.name.odd.scram-sha-256.sasl.jaas.config",
    "listener.name.odd.max.connections",
    "of.a.plugin",
    "message.format.version",
]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("java_classpath", KAFKA_4_3_1), id="4.3.1"),
        pytest.param(("newest_classpath", KAFKA_4_4), id="4.4.0"),
    ],
)
def kafka(request: pytest.FixtureRequest) -> Iterator[tuple[ConfigsOfKafka, KafkaVersion]]:
    """Return a broker's configurations as a server, and its version."""
    classpath, version = request.param
    with ConfigsOfKafka(request.getfixturevalue(classpath)) as running:
        yield running, version


def test_the_definitions_are_those_of_kafkas_classes(
    java_classpath: str, newest_classpath: str
) -> None:
    text = definitions_text(java_classpath, newest_classpath)
    assert DEFINITIONS.read_text() == text, "run ./dev kafka-definitions"


def some_of(names: Mapping[str, ConfigDefinition]) -> st.SearchStrategy[dict[str, str]]:
    """Some properties with values that most brokers accept."""

    def texts(name: str) -> list[str]:
        default = (names[name].default or "1").removeprefix("-")
        odd = next((each for end, each in ODD_TEXTS.items() if name.endswith(end)), ["{}", " {}"])
        known = TEXTS.get(names[name].type, odd)
        if name.startswith("group."):
            # A broker does not apply a number of these with blanks: its reconfiguration fails.
            known = [each for each in known if each == each.strip()]
        return [each.format(default) for each in known]

    entry = st.sampled_from(sorted(names)).flatmap(
        lambda name: st.tuples(st.just(name), st.sampled_from(texts(name)))
    )
    odd = st.tuples(st.sampled_from(OTHER_NAMES), st.just("odd"))
    return st.lists(st.one_of(entry, entry, entry, odd), max_size=5).map(dict)


NEWEST = config_definitions(KAFKA_4_4)
OF_TOPICS = {
    synonym.name: NEWEST[ConfigScope.BROKER][synonym.name]
    for scope in (ConfigScope.TOPIC, ConfigScope.GROUP)
    for each in NEWEST[scope].values()
    for synonym in each.synonyms
}
DYNAMIC = {
    name: each
    for name, each in NEWEST[ConfigScope.BROKER].items()
    if each.update is not ConfigUpdate.READ_ONLY
}


@ALMOST
@given(
    resource=st.sampled_from(list(ConfigScope)).flatmap(
        lambda scope: st.tuples(
            st.just(scope), st.just({}) if scope is ConfigScope.BROKER else some_of(NEWEST[scope])
        )
    ),
    file=some_of(OF_TOPICS),
    every_broker=some_of(DYNAMIC),
    broker=some_of(DYNAMIC),
)
def test_a_broker_tells_the_same(
    kafka: tuple[ConfigsOfKafka, KafkaVersion],
    resource: tuple[ConfigScope, Configs],
    file: Configs,
    every_broker: Configs,
    broker: Configs,
) -> None:
    server, version = kafka
    scope, own = resource
    name = "1" if scope is ConfigScope.BROKER else "x"
    said = server.describe(
        scope, own, file=file, every_broker=every_broker, broker=broker, name=name
    )
    if "refused" in said:
        return  # no broker runs with that
    node = NodeConfigs(version, {**STARTABLE, **file}, every_broker, broker)
    found = node.broker() if scope is ConfigScope.BROKER else node.resource(scope, own)
    assert rows(found) == said


@ALMOST
@given(every_broker=some_of(DYNAMIC), broker=some_of(DYNAMIC))
def test_a_broker_tells_the_same_of_all_brokers(
    kafka: tuple[ConfigsOfKafka, KafkaVersion], every_broker: Configs, broker: Configs
) -> None:
    server, version = kafka
    said = server.describe(
        ConfigScope.BROKER, {}, file={}, every_broker=every_broker, broker=broker, name=""
    )
    if "refused" in said:
        return
    node = NodeConfigs(version, STARTABLE, every_broker, broker)
    assert rows(node.every_broker()) == said


def rows(found: list[DescribedConfig]) -> dict[str, Any]:
    return {
        each.name: {
            "value": each.value,
            "source": each.source,
            "sensitive": each.is_secret,
            "read_only": each.is_read_only,
            "type": each.type.value,
            "synonyms": [[one.name, one.value, one.source] for one in each.synonyms],
        }
        for each in found
    }
