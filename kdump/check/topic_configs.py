"""Topic configurations that a broker refuses, and so does not start.

When a broker loads its logs, it reads the configuration of every topic of its cluster; one value
that is not valid ends it (``LogManager.fetchTopicConfigOverrides``). Older brokers accepted some
that Kafka 4.3.1 does not, such as a ``segment.bytes`` below 1 MiB. Properties that Kafka does not
know, ``message.format.version`` among them, are ignored.

Follows ``LogConfig.CONFIG`` and ``ConfigDef`` of Kafka 4.3.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kdump.check import invariants
from kdump.check.findings import Finding, Place
from kdump.formats import names
from kdump.formats.java_numbers import parse_int, parse_long
from kdump.log.cluster import ClusterImage
from kdump.log.directory import LogDirectory

_COMMA: Final = re.compile(r"\s*,\s*", re.ASCII)
_DOUBLE: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?", re.ASCII)
_BLANKS: Final = "".join(map(chr, range(0x21)))
"""What ``String.trim`` removes."""

Rule = Callable[[str], str | None]
"""What would be valid, for a trimmed value that is not; else None."""


def _number(bits: int, least: int | None = None, most: int | None = None) -> Rule:
    parse = parse_int if bits == 32 else parse_long
    expected = f"a number of {bits} bits"
    if least is not None:
        expected = f"at least {least}" if most is None else f"{least} to {most}"

    def problem(text: str) -> str | None:
        value = parse(text)
        is_valid = value is not None and (least is None or value >= least)
        return None if is_valid and (most is None or (value or 0) <= most) else expected

    return problem


def _word(*words: str) -> Rule:
    return lambda text: None if text in words else "one of " + ", ".join(words)


def _boolean(text: str) -> str | None:
    return None if text.lower() in ("true", "false") else "true or false"


def _ratio(text: str) -> str | None:
    # Kafka's comparisons let NaN through.
    is_valid = _DOUBLE.fullmatch(text) and 0 <= float(text.rstrip("fFdD")) <= 1
    return None if is_valid or text.lstrip("+-") == "NaN" else "0 to 1"


def _policies(text: str) -> str | None:
    words = _COMMA.split(text) if text else []
    return None if {*words} <= {"compact", "delete"} else "compact, delete, or both"


RULES: Final[Mapping[str, Rule]] = {
    "cleanup.policy": _policies,
    "compression.gzip.level": lambda text: None if text == "-1" else _number(32, 1, 9)(text),
    "compression.lz4.level": _number(32, 1, 17),
    "compression.type": _word("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "compression.zstd.level": _number(32, -131072, 22),
    "delete.retention.ms": _number(64, 0),
    "file.delete.delay.ms": _number(64, 0),
    "flush.messages": _number(64, 1),
    "flush.ms": _number(64, 0),
    "index.interval.bytes": _number(32, 0),
    "local.retention.bytes": _number(64, -2),
    "local.retention.ms": _number(64, -2),
    "max.compaction.lag.ms": _number(64, 1),
    "max.message.bytes": _number(32, 0),
    "message.timestamp.after.max.ms": _number(64, 0),
    "message.timestamp.before.max.ms": _number(64, 0),
    "message.timestamp.type": _word("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _ratio,
    "min.compaction.lag.ms": _number(64, 0),
    "min.insync.replicas": _number(32, 1),
    "preallocate": _boolean,
    "remote.log.copy.disable": _boolean,
    "remote.log.delete.on.disable": _boolean,
    "remote.storage.enable": _boolean,
    "retention.bytes": _number(64),
    "retention.ms": _number(64, -1),
    "segment.bytes": _number(32, 1 << 20),
    "segment.index.bytes": _number(32, 4),
    "segment.jitter.ms": _number(64, 0),
    "segment.ms": _number(64, 1),
    "unclean.leader.election.enable": _boolean,
}
"""By property, when a value of a topic is valid; lists of throttled replicas are not checked."""


def refused_value(name: str, text: str) -> str | None:
    """What Kafka would accept for a property of a topic, where it refuses ``text``; else None."""
    rule = RULES.get(name)
    return None if rule is None else rule(text.strip(_BLANKS))


def check_topic_configs(directory: LogDirectory, cluster: ClusterImage | None) -> Iterator[Finding]:
    """Check the configurations of all topics of the cluster whose metadata is in ``directory``."""
    metadata = [each for each in directory.partitions if each.is_cluster_metadata]
    if cluster is None or not metadata:
        return
    for topic in cluster.topics.values():
        for name, text in topic.configs.items():
            expected = refused_value(name, text)
            if expected is not None:
                yield invariants.TOPIC_CONFIG_REFUSED.broken(
                    Place(str(directory.path / names.CLUSTER_METADATA_TOPIC) + "-0"),
                    f"{name} of topic {topic.name} has a value that Kafka 4.3.1 refuses:"
                    " a broker of that version does not start;"
                    " change it while an older broker still runs",
                    expected=expected,
                    found=text,
                )
