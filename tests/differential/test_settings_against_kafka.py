"""Kafka accepts and resolves the configuration of topics and brokers as kdump does."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.java_server import JavaServer
from kdump.errors import UsageProblem
from kdump.state.metadata.cluster import ClusterImage, ClusterTopic, Configs
from kdump.state.metadata.config_keys import PRODUCER_ID_EXPIRATION_MS, PROPERTIES, Value
from kdump.state.metadata.settings import Settings, require_accepted

pytestmark = pytest.mark.differential

NODE_ID = 1
TOPIC_NAMES = sorted(each.name for each in PROPERTIES)
BROKER_NAMES = sorted(
    {PRODUCER_ID_EXPIRATION_MS} | {key.name for each in PROPERTIES for key in each.synonyms}
)
DYNAMIC_NAMES = sorted(each.synonyms[0].name for each in PROPERTIES if each.synonyms)
BOUNDS = (0, 1, 4, 1 << 20, 2**31, 2**63)
NUMBERS = st.sampled_from(
    sorted({sign * bound + step for bound in BOUNDS for step in (-1, 0, 1) for sign in (1, -1)})
)
BLANKS = st.sampled_from(["", " ", "\t", "\x00", "\x1f", "\xa0", "\u2003", "\n"])
ODD = st.sampled_from(
    [
        *("", "+5", "-0", "007", "1_000", "1e3", "1.0", "0x10", "1L", "\u0661\u0662", "\uff15"),
        *("\U0001d7d7", "5\x00", "None", "9" * 30, "0" * 30 + "5", "--1", "+", "-"),
        *("true", "FALSE", "True", "yes", "1", "tru\u0065", "fal\u017fe", "falsch"),
        *("compact", "delete", "compact,delete", "delete ,\tcompact", "DELETE", "compact,"),
        *("0.5", ".5", "1.", "0.5d", "1e-1", "0x1p-1", "0x1.8", "NaN", "NaNd", "-0.0", "Infinity"),
        *(",", "delete,delete", "compact;delete", "compact, ,delete", "compact\xa0,delete"),
    ]
)
VALUES = st.builds(
    lambda before, text, after: before + text + after,
    BLANKS,
    st.one_of(NUMBERS.map(str), ODD, st.text("0123456789-+_ ,\u0663", max_size=6)),
    BLANKS,
)
LEGAL = st.one_of(st.integers(1, 5).map(str), st.just(str(1 << 20)), st.just("delete"))
FREELY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture(scope="module")
def server(java_classpath: str) -> Iterator[JavaServer]:
    """Return Kafka's configuration as a server."""
    with JavaServer(java_classpath, "ConfigServer") as running:
        yield running


def ask(server: JavaServer, **places: Configs) -> dict[str, str]:
    """Return Kafka's result for properties of several sources; ``refused`` is its reason."""
    return server.ask_words(
        f"{place}:{base64.b64encode(f'{name}={value}'.encode()).decode()}"
        for place, configs in places.items()
        for name, value in configs.items()
    )


def is_accepted(given: Configs, broker: Configs) -> bool:
    try:
        require_accepted(given, broker)
    except UsageProblem:
        return False
    return True


def text_of(value: Value | None) -> str:
    """Format a value as Kafka does."""
    if value is None:
        return "null"
    if isinstance(value, frozenset):
        return ",".join(sorted(each.value for each in value))
    if isinstance(value, float):
        return repr(value)
    return str(value).lower()


def known_to_kafka(said: Mapping[str, str]) -> dict[str, str]:
    """Return the values that kdump reads; all negative limits are the same."""
    found = {}
    for name in TOPIC_NAMES:
        value = said[name]
        if name.startswith("retention.") and value.startswith("-"):
            value = "-1"
        if name.endswith(".ratio"):
            value = repr(float(value))
        found[name] = ",".join(sorted(value.split(","))) if name == "cleanup.policy" else value
    return found


def known_to_kdump(settings: Settings) -> dict[str, str]:
    topic = settings.topic("t")
    return {each.name: text_of(getattr(topic, each.attribute)) for each in PROPERTIES}


@pytest.mark.parametrize("name", TOPIC_NAMES)
@FREELY
@given(value=VALUES)
def test_a_topics_value_is_refused_if_kafka_refuses_it(
    server: JavaServer, name: str, value: str
) -> None:
    said = ask(server, topic={name: value})

    # Kafka also accepts digits of other scripts; on a command line they are a mistake.
    assert is_accepted({name: value}, {}) is ("refused" not in said and value.isascii())


@pytest.mark.parametrize("name", BROKER_NAMES)
@FREELY
@given(value=VALUES)
def test_a_brokers_value_is_refused_if_no_broker_starts_with_it(
    server: JavaServer, name: str, value: str
) -> None:
    said = ask(server, file={name: value})

    assert is_accepted({}, {name: value}) is ("refused" not in said)
    if "refused" not in said:
        found = Settings(broker={name: value}, cluster=cluster({}, {}, {}), node_id=NODE_ID)
        assert known_to_kdump(found) == known_to_kafka(said)


@FREELY
@given(file=st.dictionaries(st.sampled_from(BROKER_NAMES), VALUES, max_size=5))
def test_a_whole_file_is_refused_if_no_broker_starts_with_it(
    server: JavaServer, file: dict[str, str]
) -> None:
    assert is_accepted({}, file) is ("refused" not in ask(server, file=file))


@FREELY
@given(
    topic=st.dictionaries(st.sampled_from(TOPIC_NAMES), LEGAL, max_size=6),
    broker=st.dictionaries(st.sampled_from(DYNAMIC_NAMES), LEGAL, max_size=6),
    every=st.dictionaries(st.sampled_from(DYNAMIC_NAMES), LEGAL, max_size=6),
    file=st.dictionaries(st.sampled_from(BROKER_NAMES), LEGAL, max_size=8),
)
def test_sources_have_the_same_precedence_as_in_kafka(
    server: JavaServer,
    topic: dict[str, str],
    broker: dict[str, str],
    every: dict[str, str],
    file: dict[str, str],
) -> None:
    for place in (broker, every):
        # A broker never stores a value that it refuses.
        for name in [name for name in place if not is_accepted({}, {name: place[name]})]:
            del place[name]
    if not is_accepted({}, every | broker):
        return
    said = ask(server, topic=topic, broker=broker, cluster=every, file=file)
    if "refused" in said:
        return
    found = Settings(broker=file, cluster=cluster(topic, broker, every), node_id=NODE_ID)
    assert known_to_kdump(found) == known_to_kafka(said)


def cluster(topic: Configs, broker: Configs, every: Configs) -> ClusterImage:
    return ClusterImage({"t": ClusterTopic("t", "id", topic)}, {str(NODE_ID): broker, "": every})
