"""A topic's configuration is refused if and only if Kafka's own class refuses it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.metadata_log import (
    TOPIC_RESOURCE,
    config_record,
    feature_record,
    topic_record,
    write_metadata_log,
)
from builders.verified import LogModel
from kdump.check.topic_configs import NEW_IN_4_4, RULES, ConfigRule, refused_value
from kdump.formats.kafka_versions import KAFKA_4_3_1, KAFKA_4_4, KafkaVersion

pytestmark = pytest.mark.differential

NOT_CHECKED = {
    "follower.replication.throttled.replicas",
    "internal.segment.bytes",
    "leader.replication.throttled.replicas",
}
VALUES = (
    *("", " ", "0", "1", "2", "3", "4", "9", "10", "17", "18", "22", "23", "-1", "-2", "-3", "+5"),
    *("1048575", "1048576", " 1048576 ", "6000", "2147483647", "2147483648", "-131072", "-131073"),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "0.5",
        "1.01",
        ".5",
        "5e-1",
        "1d",
        "NaN",
        "1_0",
    ),
    *("true", "TRUE", "False", "yes", "compact", "delete", "compact,delete", "delete , compact"),
    *("compact,compact", "compact,", "Compact", "CreateTime", "LogAppendTime", "createtime"),
    *("producer", "gzip", "zstd", "none", "uncompressed", "0x10", "1.", "Infinity"),
)


Judge = tuple[set[str], Callable[[str, str], bool]]
CASES = ((KAFKA_4_3_1, RULES), (KAFKA_4_4, {**RULES, **NEW_IN_4_4}))
BOTH = pytest.mark.parametrize(("kafka", "rules"), CASES, ids=["4.3.1", "4.4.0"])
PROGRAM = Path(__file__).resolve().parents[1] / "java" / "src" / "TopicConfigs.java"


@pytest.fixture
def refused_by_kafka(kafka: KafkaVersion, kafka_classpath: str, newest_kafka_jars: Path) -> Judge:
    """Return the properties that a Kafka knows, and what it refuses of ``VALUES``."""
    classpath = kafka_classpath if kafka < KAFKA_4_4 else f"{newest_kafka_jars}{os.sep}*"
    asked = [(name, value) for name in {**RULES, **NEW_IN_4_4} for value in VALUES]
    done = subprocess.run(
        ["java", "-cp", classpath, str(PROGRAM)],
        input="".join(f"{name}={value}\n" for name, value in asked),
        capture_output=True,
        text=True,
        check=True,
    )
    names, *answers = done.stdout.splitlines()
    refused = dict(zip(asked, (answer == "false" for answer in answers), strict=True))
    return set(names.split()) - NOT_CHECKED, lambda name, value: refused[name, value]


@BOTH
def test_a_value_is_refused_if_and_only_if_kafka_refuses_it(
    kafka: KafkaVersion, rules: Mapping[str, ConfigRule], refused_by_kafka: Judge
) -> None:
    names, is_refused = refused_by_kafka
    assert names == set(rules)
    wrong = [
        (name, value)
        for name in rules
        for value in VALUES
        if (refused_value(name, value, kafka) is not None) != is_refused(name, value)
    ]
    assert wrong == []


@pytest.mark.parametrize("kafka", [KAFKA_4_4], ids=["4.4.0"])
@pytest.mark.parametrize(
    ("given", "code"),
    [("4.4", "topic-config-refused"), ("3.9.1", "upgrade-topic-config")],
    ids=["before an upgrade", "for the old broker"],
)
def test_verify_names_what_the_newest_kafka_refuses_of_an_old_cluster(
    given: str, code: str, refused_by_kafka: Judge, tmp_path: Path
) -> None:
    """The cluster is of 3.9, and has a topic for each value that 3.9 accepts."""
    _, is_refused = refused_by_kafka
    topics = [
        (f"{name}.{number}", name, value)
        for name in {**RULES, **NEW_IN_4_4}
        for number, value in enumerate(VALUES)
        if refused_value(name, value, KafkaVersion(3, 9, 1)) is None
    ]
    records = [feature_record("metadata.version", 21)]
    for number, (topic, name, value) in enumerate(topics):
        records.append(topic_record(topic, number + 1))
        records.append(config_record(TOPIC_RESOURCE, topic, name, value))
    log_dir = LogModel().write(tmp_path / "logs").parent
    write_metadata_log(log_dir, records)
    outcome = run_kdump(
        ["verify", f"--kafka-version={given}", "--output=jsonl", str(log_dir)], tmp_path
    )
    named = {
        each["what"].split()[3] for each in objects(outcome.stdout) if each.get("code") == code
    }
    assert named == {topic for topic, name, value in topics if is_refused(name, value)}
    assert named
