"""The verdict on a partition in words, with what a broker does besides loading it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from kdump.check.findings import Finding, Place, Severity
from kdump.check.invariants import (
    BATCH_OUTSIDE_SEGMENT,
    FILE_UNREADABLE,
    LOAD_LOSS,
    LOAD_REFUSED,
    LOG_REPLACED,
    METADATA_SNAPSHOT_DAMAGED,
    PARTITION_METADATA_MALFORMED,
    PARTITION_METADATA_MISMATCH,
    PARTITION_METADATA_MISSING,
    PARTITION_METADATA_OTHER_TOPIC,
    PARTITION_NOT_ASSIGNED,
    PARTITION_TWICE,
    SWAP_DROPPED,
    SWAP_INCOMPLETE,
    TORN_TAIL,
    TRANSACTION_INDEX_MISMATCH,
    TRANSACTION_INDEX_MISSING,
)
from kdump.formats.names import PartitionState
from kdump.log.partition import Partition
from kdump.repair.verdict.verdict import Verdict, VerdictKind, lost_with
from kdump.target.refusal import OFFLINE

STATE_VERDICTS: Final = {
    PartitionState.DELETE: ("deleted", "a broker would delete it: its topic was deleted"),
    PartitionState.STRAY: ("stray", "a broker would leave it alone"),
}
"""The verdicts on partitions that no longer belong to the broker's logs: a word and a sentence.

A starting broker loads them all the same (``LogManager.loadLog``), and may fail or truncate them.
"""

_MOVE_AWAY: Final = "move the directory out of the log directory"
"""What helps against a partition that no longer belongs to the broker: no command changes it."""

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

_ABORTED: Final = (
    "show aborted records to read_committed consumers, or hide committed ones: a transaction index"
    " contradicts the log"
)
_AFTER_LOADING: Final = (
    (
        frozenset({LOG_REPLACED.code}),
        "replaced",
        "delete it: the copy on the disk that the metadata assigns becomes the log",
    ),
    (STRAY_CODES, "stray", "rename it to -stray and start an empty log"),
    (
        frozenset({PARTITION_METADATA_OTHER_TOPIC.code}),
        "offline",
        "load it but not serve it: it has the ID of another topic",
    ),
)
"""What a broker does with a log after loading it: codes, the verdict's word, the action."""


HIDING: Final = {
    TRANSACTION_INDEX_MISSING.code: _ABORTED,
    TRANSACTION_INDEX_MISMATCH.code: _ABORTED,
    BATCH_OUTSIDE_SEGMENT.code: "hide batches whose offsets belong to another segment",
}
"""What a broker that keeps a file does to readers without noticing it; by code of the finding."""


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


def verdict_words(
    partition: Partition,
    codes: Collection[str],
    predicted: Verdict | None,
    worst: Severity | None = None,
    *,
    hides: str = "",
) -> VerdictWords:
    """Put the verdict on a partition into words.

    Args:
        codes: the codes of the findings about it.
        predicted: the verdict of loading or repairing it; None if unknown.
        worst: the worst severity of these findings; None without findings.
        hides: what a broker that keeps the files would not show of the log; empty if nothing.
    """
    for code, what in _REFUSED.items():
        if code in codes:
            return _not_done(VerdictKind.REFUSED.value, f"a broker would {what}")
    if partition.state in STATE_VERDICTS:
        return _left_words(partition.state, predicted)
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
    is_harmless = words.kind in (VerdictKind.VALID.value, VerdictKind.UNCLEAN.value)
    if is_harmless and METADATA_SNAPSHOT_DAMAGED.code in codes:
        return _not_done(
            "damaged", "a node would not start with its snapshot, or would lack metadata"
        )
    if partition.is_cluster_metadata and words.kind == VerdictKind.UNCLEAN.value:
        # The clean shutdown marker says nothing about it: it would always be unclean.
        return _not_done(
            VerdictKind.VALID.value, "valid; the Raft layer recovers it at every start"
        )
    # A few zeroes at the end, too short for a batch, are truncated with the padding.
    is_noticed = predicted is not None and predicted.cuts_padding and TORN_TAIL.code in codes
    if is_harmless and FILE_UNREADABLE.code in codes:
        return _not_done("damaged", "a broker may fail where it cannot be read")
    if hides and words.kind != VerdictKind.REFUSED.value:
        if is_harmless:
            return _not_done(VerdictKind.LOSS.value, f"a broker would {hides}")
        return words._replace(kind=VerdictKind.LOSS.value).followed_by(f"; it would {hides}")
    if is_harmless and not is_noticed and worst is not None and worst.is_damage:
        return _not_done("damaged", "a broker would load it without noticing the damage")
    return words


def _left_words(state: PartitionState, predicted: Verdict | None) -> VerdictWords:
    """The verdict on a partition that no longer belongs to the broker's logs."""
    kind, sentence = STATE_VERDICTS[state]
    if predicted is None:
        return _not_done(kind, sentence)
    if predicted.kind is VerdictKind.REFUSED:
        return _not_done(kind, f"{predicted.sentence}; {_MOVE_AWAY}")
    if predicted.kind is VerdictKind.LOSS and state is PartitionState.STRAY:
        words = VerdictWords(predicted.kind.value, predicted.sentence, predicted.sentence)
        return words.followed_by(f", although it is a -stray directory; to keep it, {_MOVE_AWAY}")
    return _not_done(kind, sentence)


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


def loss_finding(partition: Partition, predicted: Verdict) -> Finding:
    """The finding that a broker loses or hides records of a log in which no damage was found."""
    return LOAD_LOSS.finding(Place(str(partition.path)), predicted.sentence)


def refused_finding(partition: Partition, refused: Verdict) -> Finding:
    """The finding that a broker does not load a partition, or that kdump cannot repair it."""
    is_left = partition.state in STATE_VERDICTS
    return LOAD_REFUSED.finding(
        Place(str(partition.path)),
        f"{refused.sentence}; {_MOVE_AWAY}" if is_left else refused.sentence,
        loss="all partitions of the directory, until it is repaired",
    )
