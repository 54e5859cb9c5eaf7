"""What ``kdump rewind`` did, for people and programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kdump.cli.output.brief import MAX_LISTED
from kdump.cli.output.events import Event, Printer, write_notice
from kdump.cli.output.other_nodes import ABSENT_BROKER
from kdump.cli.output.value_text import format_bytes, format_timestamp
from kdump.errors import ExitStatus
from kdump.formats.names import TopicPartition
from kdump.log.broker import by_broker
from kdump.rows.common_rows import INTERRUPTED, PLANNED_DIRECTORY
from kdump.rows.row_type import (
    COUNT,
    FLAG,
    INT,
    INTEGER,
    SIZE,
    TEXT,
    Field,
    JsonAnswer,
    RowType,
    one_of,
)
from kdump.words import counted, first_of, shell_command

if TYPE_CHECKING:
    from kdump.jobs.rewind.later_metadata import LaterMetadata
    from kdump.jobs.rewind.rewind import Rewind, RewindRequest, RewoundReplica
    from kdump.repair.rewind.consistent_cuts import Transaction
    from kdump.storage.location import Location

REWOUND_PARTITION: Final = RowType(
    "partition",
    "A replica of a partition.",
    (
        Field("log_dir", TEXT, "Its log directory."),
        Field("topic", TEXT),
        Field("partition", INT),
        Field("is_cut", FLAG, "Whether anything is removed from it."),
        Field("log_start_offset", INTEGER),
        Field("log_end_offset", INTEGER, "Before."),
        Field("cut_offset", INTEGER, "Where the cut ends it; its end if nothing is removed."),
        Field(
            "new_end_offset",
            INTEGER,
            "Afterwards; records that set committed offsets come after the cut.",
        ),
        Field(
            "moment_offset",
            INTEGER.or_null,
            "Where the time alone would have ended it; null if that is where it ends.",
        ),
        Field("removed_records", COUNT, "Without control records."),
        Field(
            "removed_on_time",
            COUNT.or_null,
            "How many of them are not later than the time; null with --offsets.",
        ),
        Field("removed_bytes", SIZE, "Of batches."),
        Field(
            "cleaned_to",
            INTEGER.or_null,
            "The first offset that the cleaner had not reached, if that is after the cut: records"
            " before the cut that later ones replaced are gone; null otherwise.",
        ),
        Field(
            "is_behind",
            FLAG,
            "Whether it ends before records that were appended to other replicas, and may become"
            " leader: start its broker after theirs.",
        ),
    ),
)

REWOUND_TRANSACTION: Final = RowType(
    "transaction",
    "A transaction that is not ended in all logs.",
    (
        Field("transactional_id", TEXT.or_null, "Null if no coordinator's log has it."),
        Field("producer_id", INTEGER),
        Field(
            "outcome",
            one_of("open", "committed", "aborted", "committing", "aborting", "in-part"),
            "open: its coordinator aborts it at its timeout; committed, aborted: that was being"
            " done, and the missing markers were appended; committing, aborting: that was being"
            " done, and is left to its coordinator, because not all replicas were given; in-part:"
            " it was committed, and the given offsets keep only a part of it.",
        ),
    ),
)

LOWERED_OFFSET: Final = RowType(
    "offset",
    "A committed offset that was beyond the end of its log.",
    (
        Field("group", TEXT),
        Field("topic", TEXT),
        Field("partition", INT),
        Field("committed_offset", INTEGER, "Before."),
        Field("new_offset", INTEGER, "Afterwards: the end of the log."),
    ),
)

WRITTEN_SHARE: Final = RowType(
    "share_offset",
    "What a share group had delivered of a partition, where it could not stay as it was.",
    (
        Field("group", TEXT),
        Field("topic", TEXT.or_null, "Null if nobody knows the name."),
        Field("topic_id", TEXT),
        Field("partition", INT),
        Field(
            "outcome",
            one_of("lowered", "restored", "lost"),
            "lowered: it was beyond the end of its log, and is set to that end; restored: its"
            " records had been deleted since, and it is written again; lost: they are not on disk"
            " any more, and the group reads the partition only after its offset is reset.",
        ),
        Field("start_offset", INTEGER.or_null, "At the moment; null if lost."),
        Field("new_start_offset", INTEGER.or_null, "Afterwards; null if lost."),
    ),
)

LATER_TOPIC: Final = RowType(
    "topic",
    "A topic that the cluster's metadata created or deleted after the time.",
    (
        Field("topic", TEXT, "Its name."),
        Field(
            "change",
            one_of("created", "deleted", "recreated"),
            "created: it stays, with its records that are not later; deleted: it does not come"
            " back; recreated: it was deleted and created again, and stays likewise.",
        ),
    ),
)

SUMMARY: Final = RowType(
    "summary",
    "The numbers of all log directories.",
    (
        Field("partitions", COUNT, "Partitions, whatever the number of their replicas."),
        Field("cut_partitions", COUNT, "Those that are cut."),
        Field("moved_partitions", COUNT, "Those that end earlier, to keep transactions whole."),
        Field("partitions_without_times", COUNT, "Those without timestamps: not cut by a time."),
        Field("removed_records", COUNT, "Of one replica of each partition."),
        Field("lowered_offsets", COUNT),
        Field("written_share_offsets", COUNT, "Those of share groups, lowered or restored."),
        Field("lost_share_offsets", COUNT),
        Field("open_transactions", COUNT),
        Field("ended_transactions", COUNT, "Those that were committed or aborted."),
        Field("left_transactions", COUNT, "Those left to coordinators to commit or abort."),
        Field("transactions_in_part", COUNT),
    ),
)

OF_CUTS: Final = (
    REWOUND_PARTITION,
    REWOUND_TRANSACTION,
    LOWERED_OFFSET,
    WRITTEN_SHARE,
    ABSENT_BROKER,
    LATER_TOPIC,
    SUMMARY,
)
"""What was cut, in log directories and in those that are restored to a moment."""
ANSWERS: Final = (JsonAnswer("rewind", (INTERRUPTED, PLANNED_DIRECTORY, *OF_CUTS)),)


def report_rewind(
    printer: Printer, request: RewindRequest, found: Rewind, *, dry_run: bool, verbose: bool
) -> ExitStatus:
    """Report what is cut, and what clients will notice; returns whether something is amiss."""
    for replica in found.replicas:
        lines = [*_replica_lines(replica)] if verbose and replica.is_cut else []
        printer.emit(Event("partition", _replica_row(request, found, replica), lines))
    printer.emit_text(_topic_lines(request, found))
    for outcome, transactions in (
        ("open", found.open),
        ("committed", [each for each in found.ended if each.is_commit]),
        ("aborted", [each for each in found.ended if not each.is_commit]),
        ("committing", [each for each in found.left if each.is_commit]),
        ("aborting", [each for each in found.left if not each.is_commit]),
        ("in-part", found.in_part),
    ):
        _report_transactions(printer, outcome, transactions, verbose=verbose)
    for number, each in enumerate(found.lowered):
        row = {
            "group": each.group,
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "committed_offset": each.committed,
            "new_offset": each.end_offset,
        }
        line = (
            f"group {each.group}: {each.partition}: committed offset {each.committed} set to the"
            f" end of the log, {each.end_offset}"
        )
        is_listed = verbose or number < MAX_LISTED
        printer.emit(Event("offset", row, [line] if is_listed else []))
    if not verbose and len(found.lowered) > MAX_LISTED:
        more = counted(len(found.lowered) - MAX_LISTED, "more committed offset")
        printer.emit_text([f"… and {more} (--verbose lists all)"])
    _report_shares(printer, found, verbose=verbose)
    for node, partitions in found.absent.items():
        cut = counted(partitions, "partition")
        line = (
            f"broker {node} is not among the log directories, and has replicas of {cut} that"
            " end earlier now: it would have other records; cut it at the same offsets"
            " (--offsets), or do not start it with its disks"
        )
        row = {"node_id": node, "partitions": partitions}
        printer.emit(Event("absent_broker", row, [line]))
    if found.is_cut and found.later is not None:
        _report_later(printer, found, found.later)
    printer.emit(_summary(found))
    printer.emit_text(_advice(request, found, dry_run=dry_run))
    behind = [each for each in found.replicas if each.is_behind]
    printer.emit_text(_behind_lines(behind))
    is_amiss = found.in_part or found.lost_shares or behind
    return ExitStatus.DAMAGE_LEFT if is_amiss else ExitStatus.SOUND


def _behind_lines(behind: Sequence[RewoundReplica]) -> Iterator[str]:
    for each in behind[:MAX_LISTED]:
        yield (
            f"{each.partition.path}: ends before the records that are appended to other replicas,"
            " and they lose them if it becomes leader: start its broker when theirs run"
        )
    if (more := len(behind) - MAX_LISTED) > 0:
        yield f"… and {counted(more, 'more replica')}"


def _report_shares(printer: Printer, found: Rewind, *, verbose: bool) -> None:
    for number, each in enumerate(sorted(found.shares, key=lambda each: not each.is_lowered)):
        before, after = each.before.start_offset, each.after.start_offset
        outcome = "lowered" if each.is_lowered else "restored"
        row = _share_row(each.group, each.partition, each.topic_id, each.number, outcome)
        row |= {"start_offset": before, "new_start_offset": after}
        lines = []
        if each.is_lowered:
            where = f"{each.partition}: what it had delivered after the end of the log"
            lines = [f"share group {each.group}: {where} is to be delivered again"]
        printer.emit(Event("share_offset", row, lines if verbose or number < MAX_LISTED else []))
    lowered = sum(each.is_lowered for each in found.shares)
    if not verbose and (more := lowered - MAX_LISTED) > 0:
        printer.emit_text([f"… and {counted(more, 'more partition')} (--verbose lists all)"])
    if restored := len(found.shares) - lowered:
        line = (
            f"share groups: {counted(restored, 'partition')} whose records of that time their"
            " coordinator had deleted: written again as they were"
        )
        printer.emit_text([line])
    for lost in found.lost_shares:
        partition = None if lost.topic is None else TopicPartition(lost.topic, lost.partition)
        row = _share_row(lost.group, partition, lost.topic_id, lost.partition, "lost")
        row |= {"start_offset": None, "new_start_offset": None}
        where = (
            str(partition or "")
            or f"partition {lost.partition} of the topic with id {lost.topic_id}"
        )
        line = (
            f"share group {lost.group}: {where}: what it had delivered is not on disk any more: it"
            " reads nothing there before you reset its offset (kafka-share-groups --reset-offsets)"
        )
        printer.emit(Event("share_offset", row, [line]))


def _share_row(
    group: str, partition: TopicPartition | None, topic_id: str, number: int, outcome: str
) -> dict[str, Any]:
    return {
        "group": group,
        "topic": None if partition is None else partition.topic,
        "topic_id": topic_id,
        "partition": number,
        "outcome": outcome,
    }


def report_not_found(path: Location, request: RewindRequest, found: Rewind) -> None:
    """Say on standard error which lines of a file with offsets match no partition."""
    given = request.offsets or {}
    not_found = len(found.elsewhere) + len(found.unknown)
    if given and not_found == len(given):
        write_notice(f"{path}: none of its partitions is in these log directories")
    if found.elsewhere:
        write_notice(
            f"{path}: not in these log directories: {first_of(found.elsewhere, MAX_LISTED)}"
        )
    if found.unknown:
        who = "the cluster's metadata has" if found.has_metadata else "these log directories have"
        what = "partition" if found.has_metadata else "topic"
        write_notice(
            f"{path}: {who} no such {what}: {first_of(found.unknown, MAX_LISTED)}; check the name"
        )


def _replica_row(request: RewindRequest, found: Rewind, replica: RewoundReplica) -> dict[str, Any]:
    log = replica.log
    return {
        "log_dir": str(replica.directory.path),
        "topic": replica.key.topic,
        "partition": replica.key.partition,
        "is_cut": replica.is_cut,
        "log_start_offset": log.after.log_start_offset,
        "log_end_offset": log.before.log_end_offset,
        "cut_offset": log.end_offset,
        "new_end_offset": log.after.log_end_offset,
        "moment_offset": found.moved.get(replica.key),
        "removed_records": log.removed.records,
        "removed_on_time": None if request.time_ms is None else log.removed.on_time,
        "removed_bytes": log.removed.size_bytes,
        "cleaned_to": replica.cleaned_to if _is_cleaned_past(replica) else None,
        "is_behind": replica.is_behind,
    }


def _is_cleaned_past(replica: RewoundReplica) -> bool:
    return replica.is_cut and replica.cleaned_to > replica.log.end_offset


def _replica_lines(replica: RewoundReplica) -> Iterator[str]:
    log = replica.log
    yield (
        f"{replica.partition.path}: ends at offset {log.end_offset} instead of"
        f" {log.before.log_end_offset}; {counted(log.removed.records, 'record')} removed"
        f" ({format_bytes(log.removed.size_bytes)})"
    )


def _one_of_each(found: Rewind) -> list[RewoundReplica]:
    """The replica of each partition that loses most."""
    longest: dict[Any, RewoundReplica] = {}
    for each in found.replicas:
        known = longest.get(each.key)
        if known is None or each.log.before.log_end_offset > known.log.before.log_end_offset:
            longest[each.key] = each
    return [*longest.values()]


def _topic_lines(request: RewindRequest, found: Rewind) -> Iterator[str]:
    """What is removed from each topic."""
    by_topic: dict[str, list[RewoundReplica]] = defaultdict(list)
    for each in _one_of_each(found):
        if each.is_cut:
            by_topic[each.key.topic].append(each)
    for topic, replicas in sorted(by_topic.items()):
        records = sum(each.log.removed.records for each in replicas)
        partitions = counted(len(replicas), "partition")
        yield f"{topic}: {partitions} cut, {counted(records, 'record')} removed"
        on_time = sum(each.log.removed.on_time for each in replicas)
        if request.time_ms is not None and on_time:
            yield (
                f"  {counted(on_time, 'record')} of them not later than the time: in or after a"
                " batch that is later, or cut with a transaction; clocks differ"
            )
        moved = [each for each in replicas if each.key in found.moved]
        if moved:
            yield (
                f"  {counted(len(moved), 'partition')} cut earlier than the time, to keep"
                " transactions whole"
            )
        cleaned = [each for each in replicas if _is_cleaned_past(each)]
        if cleaned:
            yield (
                f"  {counted(len(cleaned), 'partition')} compacted past the cut: records that were"
                " replaced by removed ones are gone"
            )
    if found.again:
        yield (
            f"{counted(len(found.again), 'partition')} with records that an earlier rewind appended"
            " to some replicas only: now the others have them, too:"
            f" {', '.join(map(str, found.again[:MAX_LISTED]))}"
        )
    if request.time_ms is not None and found.without_times:
        yield (
            f"{counted(len(found.without_times), 'partition')} without timestamps, not cut:"
            f" {', '.join(map(str, found.without_times[:MAX_LISTED]))}"
        )


_OUTCOMES: Final = {
    "open": "open again: its coordinator aborts it at its timeout",
    "committed": "was being committed: its missing markers are appended",
    "aborted": "was being aborted: its missing markers are appended",
    "committing": "being committed: its coordinator writes the missing markers when it starts,"
    " where the partition has a leader by then",
    "aborting": "being aborted: its coordinator writes the missing markers when it starts, where"
    " the partition has a leader by then",
    "in-part": "was committed, and is kept only in part",
}


def _report_transactions(
    printer: Printer, outcome: str, transactions: Sequence[Transaction], *, verbose: bool
) -> None:
    for number, each in enumerate(transactions):
        row = {
            "transactional_id": each.transactional_id,
            "producer_id": each.producer_id,
            "outcome": outcome,
        }
        who = f"producer {each.producer_id}"
        if each.transactional_id is not None:
            who = f"{each.transactional_id} ({who})"
        line = f"transaction of {who}: {_OUTCOMES[outcome]}"
        is_listed = verbose or number < MAX_LISTED
        printer.emit(Event("transaction", row, [line] if is_listed else []))
    if not verbose and len(transactions) > MAX_LISTED:
        more = counted(len(transactions) - MAX_LISTED, "more transaction")
        printer.emit_text([f"… and {more} {outcome} (--verbose lists all)"])


_LATER: Final = {
    "created": "created after the time: it stays",
    "deleted": "deleted after the time: it does not come back; kdump undelete restores what is left"
    " of its directories",
    "recreated": "deleted and created again after the time: it stays",
}


def _kept_records(found: Rewind, topic: str) -> str:
    """What is left in a topic that was created after the time."""
    logs = [each.log.after for each in found.replicas if each.key.topic == topic]
    if logs and all(each.log_start_offset == each.log_end_offset for each in logs):
        return ", without records"
    return ", with its records that are not later"


def _report_later(printer: Printer, found: Rewind, later: LaterMetadata) -> None:
    for topic in sorted({*later.created, *later.deleted}):
        change = "created" if topic in later.created else "deleted"
        if topic in later.created and topic in later.deleted:
            change = "recreated"
        line = f"{topic}: {_LATER[change]}"
        if topic in later.created:
            line += _kept_records(found, topic)
        printer.emit(Event("topic", {"topic": topic, "change": change}, [line]))
    if later.settings:
        changes = counted(later.settings, "change")
        line = (
            f"{changes} of configurations, ACLs, credentials and quotas after the time stay: kdump"
            " metadata history lists them"
        )
        printer.emit_text([line])
    if not later.is_complete:
        printer.emit_text(
            ["the copy of the cluster's metadata does not show all that was changed after the time"]
        )


def _summary(found: Rewind) -> Event:
    one_of_each = _one_of_each(found)
    cut = [each for each in one_of_each if each.is_cut]
    records = sum(each.log.removed.records for each in cut)
    row = {
        "partitions": len(one_of_each),
        "cut_partitions": len(cut),
        "moved_partitions": len(found.moved),
        "partitions_without_times": len(found.without_times),
        "removed_records": records,
        "lowered_offsets": len(found.lowered),
        "written_share_offsets": len(found.shares),
        "lost_share_offsets": len(found.lost_shares),
        "open_transactions": len(found.open),
        "ended_transactions": len(found.ended),
        "left_transactions": len(found.left),
        "transactions_in_part": len(found.in_part),
    }
    partitions = counted(len(one_of_each), "partition")
    lines = [f"{partitions}: {len(cut)} cut, {counted(records, 'record')} removed"]
    return Event("summary", row, lines)


def _advice(request: RewindRequest, found: Rewind, *, dry_run: bool) -> Iterator[str]:
    if not found.is_cut:
        return
    if request.time_ms is not None:
        yield f"the time is {format_timestamp(request.time_ms)} (UTC)"
    yield (
        "topics, configurations and ACLs are not rewound; to bring them back, too: kdump metadata"
        " collect --to, plan and apply"
    )
    if not found.has_metadata:
        yield (
            "no copy of the cluster's metadata says where else replicas are: name the log"
            " directories of all brokers"
        )
    if not dry_run:
        # A broker's log directories are verified together, those of two never are.
        for directories in by_broker(request.directories).values():
            yield f"next: {shell_command('verify', [each.path for each in directories])}"
