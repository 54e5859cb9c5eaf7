"""The job that computes what a partition becomes when a broker loads it, or kdump salvages it.

A task reads one partition and returns its target state; it writes nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from kdump.broker.loader.checkpoints import load_context
from kdump.broker.loader.loaded_segment import IndexSettings
from kdump.broker.loader.loader import LoadContext, Recovered, recover_usual
from kdump.check.findings import Finding, Place, Severity
from kdump.check.invariants import (
    LOAD_REFUSED,
    PARTITION_METADATA_MALFORMED,
    PARTITION_METADATA_MISMATCH,
    PARTITION_METADATA_MISSING,
    PARTITION_METADATA_OTHER_TOPIC,
    PARTITION_NOT_ASSIGNED,
    PARTITION_TWICE,
    SWAP_DROPPED,
    SWAP_INCOMPLETE,
    TORN_TAIL,
)
from kdump.engine.job import Split
from kdump.formats import names
from kdump.formats.names import PartitionState, TopicPartition
from kdump.jobs.unreadable import Unreadable
from kdump.log.directory import LogDirectory, read_lone_partition
from kdump.log.partition import Partition
from kdump.repair.policies import Policy, repair_partition
from kdump.repair.salvage.recover_0_7 import Recovered07, repair_0_7
from kdump.repair.verdict import Verdict, VerdictKind, lost_with
from kdump.state.metadata.settings import Settings
from kdump.target.content_store import without_content
from kdump.target.refusal import OFFLINE, Refusal
from kdump.target.target_file import TargetFile

STATE_VERDICTS: Final = {
    PartitionState.DELETE: ("deleted", "a broker would delete it: its topic was deleted"),
    PartitionState.STRAY: ("stray", "a broker would leave it alone"),
}
"""The verdicts on partitions that no longer belong to the broker's logs: a word and a sentence."""

STRAY_CODES: Final = frozenset(
    {
        PARTITION_METADATA_MISSING.code,
        PARTITION_METADATA_MISMATCH.code,
        PARTITION_NOT_ASSIGNED.code,
    }
)
"""Codes of findings that make a broker rename a partition to ``-stray``."""

NOT_SERVED_CODES: Final = STRAY_CODES | {PARTITION_METADATA_OTHER_TOPIC.code}
"""Codes of findings that keep a broker from serving a log that it can load."""

_REFUSED: Final = {
    PARTITION_TWICE.code: "refuse to start: the partition has two directories",
    PARTITION_METADATA_MALFORMED.code: f"{OFFLINE}: its partition.metadata cannot be read",
}
"""What a broker does with a partition, whatever its log contains, and why; by code."""

_AFTER_LOADING: Final = (
    (STRAY_CODES, "stray", "rename it to -stray and start an empty log"),
    (
        frozenset({PARTITION_METADATA_OTHER_TOPIC.code}),
        "offline",
        "load it but not serve it: it has the ID of another topic",
    ),
)
"""What a broker does with a log after loading it: codes, the verdict's word, the action."""


class VerdictWords(NamedTuple):
    """The verdict on a partition.

    Attributes:
        kind: the verdict in one word.
        sentence: what would be done.
        done: what a run reports once it has been done.
        details: the parts of it that both sentences only count.
    """

    kind: str
    sentence: str
    done: str
    details: tuple[str, ...] = ()

    def followed_by(self, more: str) -> VerdictWords:
        """Add ``more`` to both sentences."""
        return VerdictWords(self.kind, self.sentence + more, self.done + more, self.details)


REMOTE_STORAGE: Final = (
    "remote.storage.enable is set for its topic: remote storage also decides where its log begins"
    " and ends"
)
"""Why partitions of such topics are never changed."""

TWICE: Final = "it has two directories, and only you can decide which one is right"
"""Why partitions that a broker finds on two disks are never changed."""


Outcome = Recovered | Recovered07 | Refusal | Unreadable


@dataclass(frozen=True, slots=True)
class LoadSplit(Split):
    """A partition to load.

    Attributes:
        name: the name of its directory, which tells which partition it is.
        policy: what to do with damaged data.
        context: what loading depends on besides the partition.
        is_preview: whether the result is only shown, so that large content of files is left out.
    """

    name: str = ""
    policy: Policy = Policy.BROKER
    context: LoadContext = field(default_factory=LoadContext)
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
    topic = settings.topic(key.topic)
    context = load_context(
        directory,
        key,
        IndexSettings(topic.index_interval_bytes, topic.segment_index_bytes),
        now_ms=now_ms,
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
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


@dataclass(frozen=True, slots=True)
class RecoverJob:
    """Computes what a partition becomes."""

    def run(self, split: LoadSplit, /) -> Outcome:
        """Load one partition; a file that cannot be read is an outcome, too."""
        try:
            outcome = _outcome(split)
            if isinstance(outcome, Recovered | Recovered07):
                return replace(outcome, files=put_away(split, outcome.files))
        except OSError as failure:
            return Unreadable.of(failure, split.path)
        return outcome


def _outcome(split: LoadSplit) -> Recovered | Recovered07 | Refusal:
    # Most partitions are listed and read once.
    if split.policy is Policy.BROKER and not split.name.startswith(names.CLUSTER_METADATA_TOPIC):
        recovered = recover_usual(split.path, split.context)
        if recovered is not None:
            return recovered
    partition = read_lone_partition(split.path, split.name)
    if partition.is_0_7:
        return repair_0_7(partition, split.policy)
    return repair_partition(partition, split.context, split.policy)


def put_away(split: LoadSplit, files: Mapping[str, TargetFile]) -> dict[str, TargetFile]:
    """The same files, whose large content is where the split says.

    Raises:
        OSError: it cannot be written.
    """
    if split.is_preview:
        return {name: without_content(file) for name, file in files.items()}
    store = split.context.store
    return {name: file if store is None else store.staged(file) for name, file in files.items()}


def verdict_words(
    partition: Partition,
    codes: Collection[str],
    predicted: Verdict | None,
    worst: Severity | None = None,
) -> VerdictWords:
    """Put the verdict on a partition into words.

    Args:
        partition: the partition.
        codes: the codes of the findings about it.
        predicted: the verdict of loading or repairing it; None if unknown.
        worst: the worst severity of these findings; None without findings.
    """
    for code, what in _REFUSED.items():
        if code in codes:
            return _not_done(VerdictKind.REFUSED.value, f"a broker would {what}")
    if partition.state in STATE_VERDICTS:
        return _not_done(*STATE_VERDICTS[partition.state])
    words = VerdictWords("", "", "")
    if predicted is not None:
        words = VerdictWords(
            predicted.kind.value, predicted.sentence, predicted.done, predicted.details
        )
    for later_codes, later, what in _AFTER_LOADING:
        if later_codes.isdisjoint(codes) or words.kind == VerdictKind.REFUSED.value:
            continue
        if words.kind in (VerdictKind.REBUILT.value, VerdictKind.LOSS.value):
            return words.followed_by(f"; a broker would then {what}")
        return _not_done(later, f"a broker would {what}")
    if partition.is_cluster_metadata and words.kind == VerdictKind.UNCLEAN.value:
        # The clean shutdown marker says nothing about it: it would always be unclean.
        return _not_done(
            VerdictKind.SOUND.value, "valid; the Raft layer recovers it at every start"
        )
    is_harmless = words.kind in (VerdictKind.SOUND.value, VerdictKind.UNCLEAN.value)
    # A few zeroes at the end, too short for a batch, are truncated with the padding.
    is_noticed = predicted is not None and predicted.cuts_padding and TORN_TAIL.code in codes
    if is_harmless and not is_noticed and worst is not None and worst.is_damage:
        return _not_done("damaged", "a broker would load it without noticing the damage")
    return words


def _not_done(kind: str, sentence: str) -> VerdictWords:
    """The verdict on a partition for which a run has nothing else to report."""
    return VerdictWords(kind, sentence, sentence)


def swap_findings(partition: Partition, predicted: Verdict) -> Iterator[Finding]:
    """Findings about records that a broker loses when it finishes or drops a swap."""
    for each in predicted.swap_losses:
        if each.is_unfinished:
            yield SWAP_DROPPED.finding(
                Place(str(partition.path / each.name), None, each.loss.first_offset),
                "an unfinished file has records that no segment has; a starting broker deletes the"
                " file",
                loss=lost_with(each.loss),
            )
            continue
        yield SWAP_INCOMPLETE.finding(
            Place(str(partition.path / each.name), None, each.loss.first_offset),
            "a .swap that replaces this segment lacks records that compaction would keep;"
            " a starting broker deletes the segment",
            loss=lost_with(each.loss),
        )


def refused_finding(partition: Partition, refused: Verdict) -> Finding:
    """The finding that a broker does not load a partition, or that kdump cannot repair it."""
    return LOAD_REFUSED.finding(
        Place(str(partition.path)),
        refused.sentence,
        loss="all partitions of the directory, until it is repaired",
    )
