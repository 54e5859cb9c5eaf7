"""A partition to load, as a split: what the job in :mod:`kdump.jobs.loading.load_partition` takes.

Apart from that job, because verification predicts the outcome of most partitions from their checks:
it needs the context of a load, and the loader only for what is not as usual.
"""

from __future__ import annotations

import itertools

from kdump.broker.loader.load_context import LoadContext, configured_context
from kdump.engine.job import Split
from kdump.formats.names import TopicPartition
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.repair.policies import Policy
from kdump.state.metadata.settings import Settings


class LoadSplit(Split, frozen=True, kw_only=True):
    """A partition to load.

    Attributes:
        name: the name of its directory, which tells which partition it is.
        is_preview: whether the result is only shown, so that large content of files is left out.
    """

    name: str
    policy: Policy = Policy.BROKER
    context: LoadContext
    is_preview: bool = False


def load_split(
    partition: Partition,
    directory: LogDirectory,
    settings: Settings,
    *,
    policy: Policy = Policy.BROKER,
    now_ms: int = 0,
) -> LoadSplit:
    """The split for a partition of ``directory``; its size is how much has to be read.

    Raises:
        InvalidSettingError: a property of its topic has a value that Kafka does not take.
    """
    name = partition.path.name
    if name in ("", ".."):
        name = partition.path.as_absolute().name
    # A copy may have any name; then no line of the checkpoints is about it.
    key = partition.topic_partition or TopicPartition(name, 0)
    context = configured_context(
        directory,
        key,
        settings,
        now_ms=now_ms,
        is_compacted=is_topic_compacted(settings, key.topic),
    )
    return LoadSplit(
        partition.path,
        size_bytes=_read_bytes(partition, context, policy),
        label=name,
        name=name,
        policy=policy,
        context=context,
    )


def is_topic_compacted(settings: Settings, topic: str) -> bool | None:
    """Whether the configuration says that a topic is compacted; None if unknown.

    A topic in the metadata without a policy of its own has the broker's. If that is compact and was
    ever applied, the cleaner's checkpoint has a line, which the caller looks at first.

    Raises:
        InvalidSettingError: a property of the topic has a value that Kafka does not take.
    """
    found = settings.topic(topic)
    if found.is_policy_known:
        return found.is_compacted
    return False if settings.is_listed(topic) else None


def _read_bytes(partition: Partition, context: LoadContext, policy: Policy) -> int:
    """How many bytes of logs loading reads completely."""
    if policy is not Policy.BROKER or partition.is_cluster_metadata:
        return partition.data_bytes
    if context.is_clean:
        return 0
    flushed = {
        segment.base_offset
        for segment, following in itertools.pairwise(partition.segments)
        if following.base_offset <= context.recovery_point
    }
    return sum(
        segment.data_bytes for segment in partition.segments if segment.base_offset not in flushed
    )
