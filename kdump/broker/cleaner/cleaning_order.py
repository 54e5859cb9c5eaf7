"""The order in which the log cleaner takes the logs of a broker.

Follows ``LogCleanerManager.grabFilthiestCompactedLog``: of the logs above their
``min.cleanable.dirty.ratio``, and those past their ``max.compaction.lag.ms``, it takes the one with
the greatest dirty ratio. Being past the lag only makes a log a candidate; it does not come earlier.

Of logs with the same ratio, such as all that were never cleaned, it takes the first one in the
``ConcurrentHashMap`` of all logs of the broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kdump.broker.cleaner.log_to_clean import LogToClean
from kdump.formats.java.java_text import java_string_hash
from kdump.formats.names import TopicPartition

_FIRST_BUCKETS: Final = 16


def cleaning_order(
    logs: Mapping[TopicPartition, LogToClean], broker_logs: int
) -> list[TopicPartition]:
    """The logs that the cleaner takes, the first one first.

    Args:
        logs: the compacted logs of a broker.
        broker_logs: how many logs it has, the others included.

    Of logs with the same ratio in the same bucket of the hash map, the order depends on which one
    was loaded first; here it is that of their names.
    """
    chosen = [key for key, log in logs.items() if log.is_chosen]
    buckets = _bucket_count(broker_logs)

    def rank(key: TopicPartition) -> tuple[float, int, TopicPartition]:
        return -(logs[key].cleanable_ratio or 0), _bucket(key, buckets), key

    return sorted(chosen, key=rank)


def _bucket_count(logs: int) -> int:
    """Size of the table of a ``ConcurrentHashMap`` that has grown to ``logs`` entries."""
    buckets = _FIRST_BUCKETS
    while logs >= buckets - buckets // 4:
        buckets *= 2
    return buckets


def _bucket(key: TopicPartition, buckets: int) -> int:
    """The bucket of ``TopicPartition.hashCode``."""
    code = (31 * (31 + key.partition) + java_string_hash(key.topic)) & 0xFFFFFFFF
    return (code ^ code >> 16) & (buckets - 1)
