"""The recipes of ``docs/serve.md``, as somebody would copy them from it."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import Any, Final

import kafka

from builders.mirror_maker import PROPERTIES
from builders.serving import RunningServer
from builders.serving_securely import client_properties

ELSEWHERE: Final = {
    "pip install": "packages are installed from the clone, not from an index",
    "kdump serve": "cli/test_serve.py runs it",
    "kafka-configs": "differential/test_described_configs.py compares what it would print",
    "kafka-": "test_kafka_clients.py runs them: they take a JVM",
    "kcat ": "it is not installed here; the other tests read with its library",
    "spark.read": "test_spark_kafka_source.py reads with these options: it takes a JVM",
    "ssh ": "it takes another machine",
}
"""Recipes that no test here runs, by their beginning, with the reason."""
HERE: Final = ("kafka.KafkaConsumer(", "clusters = ", "bootstrap.servers=")
PAGE: Final = Path(__file__).parents[2] / "docs" / "serve.md"


def recipes() -> list[list[str]]:
    """The blocks of code of the page, without what the commands print."""
    grouped = itertools.groupby(
        PAGE.read_text(encoding="utf-8").splitlines(), lambda line: line.startswith("    ")
    )
    blocks = [[line.strip() for line in lines] for is_code, lines in grouped if is_code]
    return [each for each in blocks if not each[0].startswith("Serving")]


def recipe(beginning: str) -> list[str]:
    (found,) = [each for each in recipes() if each[0].startswith(beginning)]
    return found


def tool_recipes() -> list[str]:
    """The commands of Kafka's tools that tests run."""
    lines = (line for block in recipes() for line in block)
    return [each for each in lines if each.startswith("kafka-") and "kafka-configs" not in each]


def test_each_recipe_is_run_or_named() -> None:
    known = (*ELSEWHERE, *HERE)
    lines = [line for block in recipes() for line in (block[:1] if "=" in block[0] else block)]
    assert [line for line in lines if not line.startswith(known)] == []
    assert [each for each in known if not any(line.startswith(each) for line in lines)] == []


def test_the_consumer_of_python_reads_every_record(dead_cluster: RunningServer) -> None:
    (line,) = recipe("kafka.KafkaConsumer(")
    consumer = eval(line.replace("127.0.0.1:9092", dead_cluster.address), {"kafka": kafka})
    every = [("orders", number) for number in dead_cluster.cluster.topics["orders"].partitions]
    wanted = sum(map(len, dead_cluster.read(every).values()))
    try:
        assert len([*itertools.islice(consumer, wanted)]) == wanted
    finally:
        consumer.close()


def test_mirror_maker_is_tested_with_the_properties_of_the_page() -> None:
    given = dict(line.split(" = ") for line in recipe("clusters = "))
    other = {name for name in given if name.endswith((".servers", ".topics", ".groups"))}
    assert {name: given[name] for name in given.keys() - other} == {
        name: PROPERTIES.get(name) for name in given.keys() - other
    }


def test_clients_are_tested_with_the_properties_of_the_page(
    dead_cluster: RunningServer, tmp_path: Path
) -> None:
    given: dict[str, Any] = dict(line.split("=", 1) for line in recipe("bootstrap.servers="))
    used = client_properties(dead_cluster, tmp_path, "alice")
    own = {"bootstrap.servers", "ssl.truststore.location", "sasl.jaas.config"}
    assert given.keys() == used.keys()
    assert all(given[name] == used[name] for name in used.keys() - own)
    login = [shlex.split(each["sasl.jaas.config"])[:3] for each in (given, used)]
    assert login[0] == login[1]
