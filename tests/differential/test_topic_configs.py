"""A topic's configuration is refused if and only if Kafka's own class refuses it."""

from __future__ import annotations

import subprocess

import pytest

from kdump.check.topic_configs import RULES, refused_value
from kdump.formats.kafka_versions import KAFKA_4_3_1

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


def test_a_value_is_refused_if_and_only_if_kafka_refuses_it(java_classpath: str) -> None:
    asked = [(name, value) for name in RULES for value in VALUES]
    done = subprocess.run(
        ["java", "-cp", java_classpath, "TopicConfigs"],
        input="".join(f"{name}={value}\n" for name, value in asked),
        capture_output=True,
        text=True,
        check=True,
    )
    names, *answers = done.stdout.splitlines()
    assert set(names.split()) - NOT_CHECKED == set(RULES)
    wrong = [
        (name, value, answer)
        for (name, value), answer in zip(asked, answers, strict=True)
        if (refused_value(name, value, KAFKA_4_3_1) is None) != (answer == "true")
    ]
    assert wrong == []
