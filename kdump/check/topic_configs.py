"""Check topic configurations for values with which a broker does not start.

When a broker loads its logs, it reads the configuration of every topic of the cluster, and stops at
an invalid value (``LogManager.fetchTopicConfigOverrides``). Older brokers accepted some values that
Kafka 4 refuses, such as a ``segment.bytes`` below 1 MiB: where such a broker will start, that is no
damage, but has to be changed before an upgrade. Unknown properties, such as
``message.format.version``, are ignored.

Follows ``LogConfig.CONFIG`` and ``ConfigDef`` of Kafka 4.4.0, and of 4.3.1 and 3.9 where they
differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from kdump.check import invariants
from kdump.check.findings import Finding, Place
from kdump.formats import names
from kdump.formats.java.java_numbers import parse_int, parse_long
from kdump.formats.kafka_versions import KAFKA_4_4, NEWEST, ChangedRule, KafkaVersion
from kdump.log.directory import LogDirectory
from kdump.state.metadata.cluster import ClusterImage
from kdump.state.metadata.config_keys import (
    A_BOOLEAN,
    BLANKS,
    TOPIC_KEYS,
    number_parser,
    parse_boolean,
    whole_number,
)

_DOUBLE: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?", re.ASCII)


class ConfigRule(Struct, frozen=True):
    """The values that Kafka accepts for a property.

    Attributes:
        parse: raises ValueError if Kafka refuses the value, which is trimmed.
        expected: what is accepted, in words.
    """

    parse: Callable[[str], object]
    expected: str


def _int(least: int, most: int | None = None) -> ConfigRule:
    return ConfigRule(number_parser(parse_int, least, most), whole_number("32", least, most))


def _long(least: int) -> ConfigRule:
    return ConfigRule(number_parser(parse_long, least), whole_number("64", least))


def _word(*words: str) -> ConfigRule:
    return ConfigRule(words.index, "one of " + ", ".join(words))


def _parse_ratio(text: str) -> None:
    # Kafka's comparisons let NaN through.
    if text.lstrip("+-") == "NaN":
        return
    if not _DOUBLE.fullmatch(text) or not 0 <= float(text.rstrip("fFdD")) <= 1:
        raise ValueError(text)


def _parse_gzip_level(text: str) -> None:
    if text != "-1":
        number_parser(parse_int, 1, 9)(text)


_BOOLEAN: Final = ConfigRule(parse_boolean, A_BOOLEAN)
RULES: Final[Mapping[str, ConfigRule]] = {
    **{
        name: ConfigRule(key.parse, key.expected)
        for name, key in TOPIC_KEYS.items()
        if not name.startswith("internal.")
    },
    "compression.gzip.level": ConfigRule(_parse_gzip_level, "-1, or " + whole_number("32", 1, 9)),
    "compression.lz4.level": _int(1, 17),
    "compression.type": _word("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "compression.zstd.level": _int(-131072, 22),
    "file.delete.delay.ms": _long(0),
    "flush.messages": _long(1),
    "flush.ms": _long(0),
    "local.retention.bytes": _long(-2),
    "local.retention.ms": _long(-2),
    "message.timestamp.after.max.ms": _long(0),
    "message.timestamp.before.max.ms": _long(0),
    "message.timestamp.type": _word("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": ConfigRule(_parse_ratio, "a number from 0 to 1"),
    "min.insync.replicas": _int(1),
    "preallocate": _BOOLEAN,
    "remote.log.copy.disable": _BOOLEAN,
    "remote.log.delete.on.disable": _BOOLEAN,
    "segment.jitter.ms": _long(0),
    "unclean.leader.election.enable": _BOOLEAN,
}
"""The rules by property of a topic; lists of throttled replicas are not checked."""

NEW_IN_4_4: Final[Mapping[str, ConfigRule]] = {
    "errors.deadletterqueue.group.enable": _BOOLEAN,
    "max.decompressed.message.bytes": _int(1, 2147483639),
    "remote.copy.lag.bytes": _long(-1),
    "remote.copy.lag.ms": _long(-1),
}
"""Properties that brokers before 4.4 ignore."""
SEGMENT_BYTES: Final = "segment.bytes"
SEGMENTS_OF_A_MEBIBYTE: Final = ChangedRule(
    KafkaVersion(4, 1), "KAFKA-19080", "segment.bytes is at least 1 MiB; before, 14 bytes"
)
_SMALL_SEGMENTS: Final = _int(14)


def rule_of(name: str, kafka: KafkaVersion) -> ConfigRule | None:
    """The rule of a Kafka for a property of a topic; None if it takes any value."""
    if name == SEGMENT_BYTES and not SEGMENTS_OF_A_MEBIBYTE.holds_in(kafka):
        return _SMALL_SEGMENTS
    if name in NEW_IN_4_4:
        return NEW_IN_4_4[name] if kafka >= KAFKA_4_4 else None
    return RULES.get(name)


def refused_value(name: str, text: str, kafka: KafkaVersion) -> str | None:
    """What a Kafka accepts for a property of a topic, if it refuses ``text``; else None."""
    rule = rule_of(name, kafka)
    if rule is None:
        return None
    try:
        rule.parse(text.strip(BLANKS))
    except ValueError:
        return rule.expected
    return None


def check_topic_configs(
    directory: LogDirectory, cluster: ClusterImage | None, kafka: KafkaVersion
) -> Iterator[Finding]:
    """Check the configurations of all topics of the cluster whose metadata is in ``directory``.

    Args:
        directory: with the cluster's metadata; nothing is checked without.
        cluster: the cluster's metadata; None if unknown.
        kafka: the version of the broker that will start.
    """
    metadata = [each for each in directory.partitions if each.is_cluster_metadata]
    if cluster is None or not metadata:
        return
    for topic in cluster.topics.values():
        for name, text in topic.configs.items():
            place = Place(str(directory.path / names.CLUSTER_METADATA_TOPIC) + "-0")
            expected = refused_value(name, text, kafka)
            if expected is not None:
                yield invariants.TOPIC_CONFIG_REFUSED.finding(
                    place,
                    f"{name} of topic {topic.name} has a value that Kafka {kafka} refuses:"
                    " a broker of that version does not start;"
                    " change it while an older broker still runs",
                    expected=expected,
                    found=text,
                )
                continue
            expected = refused_value(name, text, NEWEST)
            if expected is not None:
                yield invariants.UPGRADE_TOPIC_CONFIG.finding(
                    place,
                    f"{name} of topic {topic.name} has a value that Kafka {kafka} accepts, and"
                    f" {NEWEST} refuses: change it before an upgrade",
                    expected=expected,
                    found=text,
                )
