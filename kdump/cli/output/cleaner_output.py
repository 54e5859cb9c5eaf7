"""The report of ``kdump compact --explain``: the log cleaner's queue, and what it cannot clean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kdump.broker.cleaner.cleanable_range import DirtyFrom, Hold
from kdump.cli.output.brief import MAX_LISTED
from kdump.cli.output.events import Event
from kdump.cli.output.recovery_rows import refusal_row
from kdump.cli.output.value_text import format_bytes, format_timestamp
from kdump.errors import ExitStatus
from kdump.formats.names import CLEANER_OFFSET_CHECKPOINT
from kdump.jobs.compact.cleaner_view import CleanerView, Uncleanable
from kdump.jobs.compact.cleaning_queue import CleaningQueue, CleaningState, QueuedPartition
from kdump.jobs.loading.verdict_words import TWICE
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.lock_holders import in_use_by
from kdump.rows.common_rows import directory_values
from kdump.state.metadata.config_keys import (
    MAX_COMPACTION_LAG_MS,
    MIN_CLEANABLE_DIRTY_RATIO,
    MIN_COMPACTION_LAG_MS,
)
from kdump.storage.place_names import kdump_command
from kdump.target.refusal import Refusal
from kdump.words import counted, shell_command

_WIDEST_NAME: Final = 40
"""A longer name of a partition shifts its own line only."""
_DECISIVE: Final = (MIN_CLEANABLE_DIRTY_RATIO, MIN_COMPACTION_LAG_MS, MAX_COMPACTION_LAG_MS)
"""The properties that decide when a log is cleaned."""
_PROBLEMS: Final = (CleaningState.UNCLEANABLE, CleaningState.NOT_LOADED)


def queue_events(queue: CleaningQueue, *, verbose: bool) -> Iterator[Event]:
    """Yield an event for each partition of a broker, and one for the broker.

    Args:
        verbose: whether to list every partition to people.
    """
    is_short = verbose or len(queue.partitions) <= MAX_LISTED
    shown = [each for each in queue.partitions if is_short or _is_notable(each)]
    listed = set(map(id, _first_of_each_kind(shown, verbose=verbose)))
    width = min(_WIDEST_NAME, max((len(str(each.key)) for each in shown), default=0))
    heading = [_line("Turn", "Partition", "Size", "Ratio", "Cleaner", width)]
    for each in queue.partitions:
        lines = [*heading, _partition_line(each, width)] if id(each) in listed else []
        heading = [] if lines else heading
        yield Event("explained_partition", _partition_row(queue, each), lines)
    yield Event("explained_broker", _broker_row(queue), list(_broker_lines(queue, len(listed))))


def queue_status(queue: CleaningQueue) -> ExitStatus:
    """Return the exit status for a broker's queue."""
    status = ExitStatus.DAMAGE_LEFT if queue.misplaced_lines else ExitStatus.SOUND
    for each in queue.partitions:
        if isinstance(each.outcome, Unreadable):
            status |= ExitStatus.OPERATIONAL_ERROR
        elif each.view is None or each.view.torn_tail is not None:
            status |= ExitStatus.DAMAGE_LEFT
    return status


def damage_lines(queue: CleaningQueue) -> Iterator[str]:
    """Yield lines for standard error: what is damaged or cannot be read, with file and byte."""
    for each in queue.partitions:
        path, outcome = each.partition.path, each.outcome
        if isinstance(outcome, Unreadable):
            yield f"{outcome.path}: {outcome.what}"
        elif isinstance(outcome, Uncleanable):
            yield f"{path}: {outcome.refusal}"
        elif outcome is None:
            yield f"{path}: {TWICE}"
        elif not isinstance(outcome, CleanerView):
            yield f"{path}: {outcome}"
        elif (torn := outcome.torn_tail) is not None:
            yield (
                f"{path / torn.file}: the last {counted(torn.size_bytes, 'byte')}, from byte"
                f" {torn.position} on, are no whole batch; a starting broker deletes them"
            )
    for line in queue.misplaced_lines:
        for stale in line.without_log:
            command = shell_command("checkpoint set", [stale, "cleaner-offset", f"{line.key}=none"])
            when = "" if line.is_repeated else " after its next round on this log"
            yield (
                f"{stale / CLEANER_OFFSET_CHECKPOINT}: has a line for {line.key}, whose log is not"
                f" in this directory: the log cleaner of a running broker ends with an exception"
                f"{when}, and cleans nothing any more; remove the line with: {command}"
            )


# Lines for people


def _is_notable(each: QueuedPartition) -> bool:
    """Whether there is something to do or to know about a partition."""
    view = each.view
    return view is None or each.position is not None or bool(view.log.held_bytes)


def _first_of_each_kind(
    partitions: Sequence[QueuedPartition], *, verbose: bool
) -> Iterator[QueuedPartition]:
    """Yield the first few partitions that are cleaned, and that are not; problems always."""
    counts = defaultdict[bool, int](int)
    for each in partitions:
        counts[each.position is None] += 1
        is_early = counts[each.position is None] <= MAX_LISTED
        if verbose or is_early or each.state in _PROBLEMS:
            yield each


def _line(turn: str, name: str, size: str, ratio: str, sentence: str, width: int) -> str:
    return f"{turn:>4}  {name:<{width}}  {size:>10}  {ratio:>5}  {sentence}"


def _partition_line(each: QueuedPartition, width: int) -> str:
    view = each.view
    ratio = None if view is None else view.log.cleanable_ratio
    return _line(
        "-" if each.position is None else str(each.position),
        str(each.key),
        format_bytes(each.partition.log_bytes if view is None else view.log_bytes),
        "-" if ratio is None else _ratio(ratio),
        "; ".join(_phrases(each)),
        width,
    )


def _ratio(ratio: float) -> str:
    """Format a ratio; one that is nearly 0 or 1 is not shown as exactly that."""
    return f"{min(max(ratio, 0.01), 0.99):.2f}" if 0 < ratio < 1 else f"{ratio:.2f}"


def _phrases(each: QueuedPartition) -> Iterator[str]:
    view = each.outcome
    if not isinstance(view, CleanerView):
        yield _problem_phrase(view)
        return
    log, cleanable = view.log, view.log.cleanable
    if log.cleanable_bytes:
        yield (
            f"offsets {cleanable.first_dirty_offset} to {cleanable.end_offset} are cleanable"
            f" ({format_bytes(log.cleanable_bytes)})"
        )
        yield from _choice_phrases(each, view)
    elif log.held_bytes:
        yield _hold_phrase(each, view)
    else:
        yield f"nothing to clean before the active segment at offset {cleanable.end_offset}"
    yield from _dirty_phrases(each, view)
    if log.cleanable_bytes and log.held_bytes:
        yield _hold_phrase(each, view)
    if view.deletable_segments:
        yield (
            f"the cleaner also deletes {counted(view.deletable_segments, 'old segment')}"
            f" ({format_bytes(view.deletable_bytes)})"
        )


def _problem_phrase(outcome: Uncleanable | Refusal | Unreadable | None) -> str:
    if isinstance(outcome, Uncleanable):
        return f"the cleaner fails on it, and ignores it from then on: {outcome.refusal.reason}"
    if isinstance(outcome, Unreadable):
        return f"cannot be read: {outcome.what}"
    return f"a broker does not load it: {TWICE if outcome is None else outcome.reason}"


def _choice_phrases(each: QueuedPartition, view: CleanerView) -> Iterator[str]:
    log = view.log
    if log.is_forced and (log.cleanable_ratio or 0) <= log.min_cleanable_ratio:
        yield f"forced by {MAX_COMPACTION_LAG_MS}"
    elif each.position is None:
        yield f"the ratio is not above {MIN_CLEANABLE_DIRTY_RATIO}, {log.min_cleanable_ratio}"
    if log.earliest_dirty_timestamp_ms is not None:
        yield f"dirty since {format_timestamp(log.earliest_dirty_timestamp_ms)}"


def _dirty_phrases(each: QueuedPartition, view: CleanerView) -> Iterator[str]:
    cleanable = view.log.cleanable
    if cleanable.dirty_from is DirtyFrom.NO_CHECKPOINT:
        if view.log.cleanable_bytes or view.log.held_bytes:
            yield "never cleaned"
    elif cleanable.is_reset:
        where = "log start offset" if "start" in cleanable.dirty_from.value else "end of the log"
        side = "below" if "start" in cleanable.dirty_from.value else "past"
        yield (
            f"the cleaner's checkpoint, {each.cleaner_offset}, is {side} the {where}: dirty from"
            " the start"
        )


def _hold_phrase(each: QueuedPartition, view: CleanerView) -> str:
    """Say what keeps dirty segments from being cleaned."""
    cleanable = view.log.cleanable
    what = f"the cleaner cannot pass offset {cleanable.held_at}: "
    match cleanable.held_by:
        case Hold.OPEN_TRANSACTION if view.transaction is not None:
            txn = view.transaction
            what += f"open transaction of producer {txn.producer_id}"
            if txn.start_time_ms is not None:
                what += f" since {format_timestamp(txn.start_time_ms)}"
        case Hold.OPEN_TRANSACTION:
            what += f"a transaction that ends past the high watermark, {view.high_watermark}"
        case Hold.HIGH_WATERMARK if not each.has_high_watermark:
            what += (
                "replication-offset-checkpoint has no line for the partition (if the log is fully"
                " replicated, use --high-watermark end)"
            )
        case Hold.HIGH_WATERMARK:
            what += "that is the high watermark"
        case Hold.COMPACTION_LAG:
            until = format_timestamp(cleanable.held_until_ms or 0)
            what += f"min.compaction.lag.ms, until {until}"
        case Hold.ACTIVE_SEGMENT:
            what += "the active segment"
    return f"{what}; {format_bytes(view.log.held_bytes)} of closed segments stay dirty"


def _broker_lines(queue: CleaningQueue, listed: int) -> Iterator[str]:
    hidden = len(queue.partitions) - listed
    if hidden:
        yield f"… and {counted(hidden, 'more partition')} (--verbose shows all)"
    name = "" if queue.broker is None else f"broker {queue.broker[1]}: "
    first = queue.partitions[0].key if queue.partitions and queue.partitions[0].position else None
    compacted = counted(queue.compacted, "compacted partition")
    line = f"{name}the cleaner takes {queue.queued} of {compacted}"
    if first is not None and queue.partitions[0].position == 1:
        line += f", {first} first"
    yield line
    for hold, held in _held(queue).items():
        size = format_bytes(sum(each.log.held_bytes for each in held))
        line = f"{size} in {counted(len(held), 'partition')} cannot be cleaned yet: {_HELD[hold]}"
        if hold is Hold.OPEN_TRANSACTION:
            paths = [each.path.typed for each in queue.directories]
            line += f"; find hanging ones with: {kdump_command('txns --hanging', paths)}"
        yield line
    for directory in queue.directories:
        # Of a running broker the queue is as it is now.
        if not directory.is_clean and in_use_by(directory.path) is None:
            yield (
                f"{directory.path}: not shut down cleanly: a starting broker recovers it first;"
                f" preview that with: {shell_command('recover --dry-run', [directory.path])}"
            )
    if queue.unknown:
        topics = counted(len(queue.unknown), "topic")
        yield (
            f"cleanup.policy of {topics} is not known, such as {queue.unknown[0]}: give"
            " --server-properties FILE and --metadata DIR, or name the topic with --topic"
        )


_HELD: Final = {
    Hold.OPEN_TRANSACTION: "open transactions",
    Hold.HIGH_WATERMARK: "the high watermark",
    Hold.COMPACTION_LAG: "min.compaction.lag.ms",
    Hold.ACTIVE_SEGMENT: "the active segment",
}


def _held(queue: CleaningQueue) -> dict[Hold, list[CleanerView]]:
    """Return the partitions with dirty segments that cannot be cleaned, by what prevents it."""
    found: dict[Hold, list[CleanerView]] = {}
    for each in queue.partitions:
        if each.view is not None and each.view.log.held_bytes:
            found.setdefault(each.view.log.cleanable.held_by, []).append(each.view)
    return found


# Rows for programs


_LOG_FIELDS: Final = (
    "clean_bytes",
    "cleanable_bytes",
    "held_bytes",
    "active_bytes",
    "cleanable_ratio",
    "is_forced",
    "compaction_delay_ms",
    "earliest_dirty_timestamp_ms",
)
_VIEW_FIELDS: Final = (
    "segments",
    "log_start_offset",
    "log_end_offset",
    "high_watermark",
    "last_stable_offset",
    "deletable_segments",
    "deletable_bytes",
)
_CLEANABLE_FIELDS: Final = (
    "first_dirty_offset",
    "first_uncleanable_offset",
    "end_offset",
    "held_at",
    "held_until_ms",
)


def _partition_row(queue: CleaningQueue, each: QueuedPartition) -> dict[str, Any]:
    topic = each.topic
    return {
        "node_id": None if queue.broker is None else queue.broker[1],
        **directory_values(each.directory.path, each.partition.path.name, each.key),
        "state": each.state.value,
        "turn": each.position,
        **_view_row(each.view),
        "checkpoint_offset": each.cleaner_offset,
        "checkpoint_line": each.checkpoint_line.value,
        "has_high_watermark": each.has_high_watermark,
        "log_bytes": each.partition.log_bytes if each.view is None else each.view.log_bytes,
        "cleanup_policy": sorted(policy.value for policy in topic.cleanup_policy)
        if topic.is_policy_known
        else None,
        "min_cleanable_ratio": topic.min_cleanable_dirty_ratio,
        "min_compaction_lag_ms": topic.min_compaction_lag_ms,
        "max_compaction_lag_ms": topic.max_compaction_lag_ms,
        "unknown_properties": [name for name in _DECISIVE if name not in topic.origins],
        "problem": _problem_row(each),
    }


def _view_row(view: CleanerView | None) -> dict[str, Any]:
    if view is None:
        names = (*_LOG_FIELDS, *_VIEW_FIELDS, *_CLEANABLE_FIELDS)
        return dict.fromkeys((*names, "dirty_from", "held_by", "transaction", "total_bytes"))
    cleanable, txn = view.log.cleanable, view.transaction
    return {
        **{name: getattr(view.log, name) for name in (*_LOG_FIELDS, "total_bytes")},
        **{name: getattr(view, name) for name in _VIEW_FIELDS},
        **{name: getattr(cleanable, name) for name in _CLEANABLE_FIELDS},
        "dirty_from": cleanable.dirty_from.value,
        "held_by": cleanable.held_by.value,
        "transaction": None
        if txn is None
        else {
            "first_offset": txn.first_offset,
            "producer_id": txn.producer_id,
            "producer_epoch": txn.producer_epoch,
            "start_time_ms": txn.start_time_ms,
        },
    }


def _problem_row(each: QueuedPartition) -> dict[str, Any] | None:
    outcome = each.outcome
    if isinstance(outcome, CleanerView):
        return None
    if outcome is None:
        return {"why": TWICE, "file": None, "position": None, "exception": None}
    return refusal_row(outcome.refusal if isinstance(outcome, Uncleanable) else outcome)


def _broker_row(queue: CleaningQueue) -> dict[str, Any]:
    cluster_id, node_id = queue.broker or (None, None)
    return {
        "node_id": node_id,
        "cluster_id": cluster_id,
        "log_dirs": [str(each.path) for each in queue.directories],
        "unclean_log_dirs": [str(each.path) for each in queue.directories if not each.is_clean],
        "partitions": len(queue.partitions),
        "compacted": queue.compacted,
        "queued": queue.queued,
        "held_bytes": {
            hold.value: sum(view.log.held_bytes for view in views)
            for hold, views in _held(queue).items()
        },
        "unknown_topics": list(queue.unknown),
        "misplaced_checkpoint_lines": [
            {
                "topic": line.key.topic,
                "partition": line.key.partition,
                "log_dirs": [str(place) for place in line.directories],
                "is_repeated": line.is_repeated,
                "without_log": [str(place) for place in line.without_log],
            }
            for line in queue.misplaced_lines
        ],
    }
