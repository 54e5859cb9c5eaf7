"""The summary of ``kdump txns``: what pins, what hangs, what is missing, and what to run next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from kdump.cli.output.value_text import format_timestamp
from kdump.formats.names import TopicPartition
from kdump.jobs.transactions.shown_transactions import OpenHere, ShownTransactions
from kdump.jobs.transactions.transaction_rows import end_commands
from kdump.state.transactions.transaction_coordinator import (
    TRANSACTION_STATE_TOPIC,
    CoordinatorState,
    CoordinatorTransaction,
)
from kdump.words import counted, first_of

_PATTERN: Final = frozenset("*?[")
_LONGEST_NAME: Final = 60
_MOST_LISTED: Final = 10
"""So many commands and names are listed for people; JSON has all of them."""


def summary_lines(shown: ShownTransactions, now_ms: int) -> Iterator[str]:
    """The summary for people."""
    opened = shown.open_transactions()
    yield _counts(shown, opened)
    yield from _about_hanging(shown, [each for each in opened if each[1].judgement.is_hanging])
    if not shown.only_hanging:
        yield from _about_left([each for each in opened if _is_left(each)])
        yield from _about_ongoing(shown, now_ms)
        yield from _about_replicas(shown)
        yield from _about_high_watermarks(shown)
    undecided = [each for each in opened if each[1].judgement.is_hanging is None]
    yield from _about_undecided(shown, undecided)
    yield from _about_ids(shown)
    yield from _about_missing(shown, is_needed=bool(undecided or shown.id_globs))


def _counts(shown: ShownTransactions, opened: Sequence[OpenHere]) -> str:
    partitions = {partition.topic_partition for partition, _ in opened}
    ids = shown.transactions()
    ongoing = sum(each.state.is_open for _, each in ids)
    where = f" in {counted(len(partitions), 'partition')}" if partitions else ""
    at = f", {ongoing} with a transaction at the coordinator" if ids else ""
    return (
        f"{counted(len(ids), 'transactional id')}{at};"
        f" {counted(len(opened), 'open transaction')}{where}"
    )


def _about_hanging(shown: ShownTransactions, hanging: Sequence[OpenHere]) -> Iterator[str]:
    if not hanging:
        if shown.only_hanging:
            yield "no transaction is known to hang"
        return
    count = counted(len(hanging), "transaction hangs", "transactions hang")
    them, each = ("it", "it") if len(hanging) == 1 else ("them", "each")
    yield f"{count}: no coordinator will end {them}. Once brokers run, abort {each}:"
    yield from _commands(hanging, most=None if shown.only_hanging else _MOST_LISTED)
    decided = [each for each in hanging if _is_committed(each)]
    if decided:
        names = _listed(str(partition.topic_partition) for partition, _ in decided)
        yield (
            f"before you abort in {names}: the producer's last transaction is committed at its"
            " coordinator; if it is this one, its marker is missing here, and aborting discards"
            " committed records"
        )


def _is_committed(each: OpenHere) -> bool:
    """Whether the coordinator has committed the last transaction of the same producer."""
    transaction = each[1].judgement.transaction
    return (
        transaction is not None
        and transaction.state is CoordinatorState.COMPLETE_COMMIT
        and transaction.producer_epoch == each[1].txn.producer_epoch
    )


def _is_left(each: OpenHere) -> bool:
    """Whether no coordinator will end a transaction that is too young to hang."""
    judgement = each[1].judgement
    return judgement.is_ongoing is False and judgement.is_hanging is False


def _about_left(left: Sequence[OpenHere]) -> Iterator[str]:
    if left:
        count = counted(len(left), "open transaction is", "open transactions are")
        yield (
            f"{count} unknown to the coordinators, but too young to hang (see"
            " --max-transaction-timeout). To abort:"
        )
        yield from _commands(left, most=_MOST_LISTED)


def _commands(opened: Sequence[OpenHere], most: int | None) -> Iterator[str]:
    for partition, each in islice(opened, most):
        yield f"  {end_commands(partition, each)[0]}"
    if most is not None and len(opened) > most:
        yield f"  and {len(opened) - most} more: --hanging lists all"


def _about_ongoing(shown: ShownTransactions, now_ms: int) -> Iterator[str]:
    """Say when the open transactions of coordinators end."""
    ongoing = [each for _, each in shown.transactions() if each.state.is_open and each.is_certain]
    for each in islice(ongoing, _MOST_LISTED):
        name = _shortened(each.transactional_id)
        refusing = shown.refusing_partitions(each)
        yield f"{name}: {_refused_end(each, refusing) if refusing else _end(each, now_ms)}"
        elsewhere = _not_open(shown, each)
        if elsewhere:
            yield (
                f"{name}: not open in {_listed(map(str, elsewhere))}: it wrote nothing there, or"
                " the end of that log is missing"
            )
        missing = shown.missing_partitions(each)
        if missing:
            yield f"{name}: not in LOG_DIR: {_listed(map(str, missing))}"
    if len(ongoing) > _MOST_LISTED:
        yield f"and {len(ongoing) - _MOST_LISTED} more transactions at coordinators"


def _shortened(transactional_id: str) -> str:
    if len(transactional_id) <= _LONGEST_NAME:
        return transactional_id or "''"
    return f"{transactional_id[: _LONGEST_NAME - 3]}..."


def _refused_end(transaction: CoordinatorTransaction, refusing: Sequence[TopicPartition]) -> str:
    return (
        f"its {_outcome(transaction)} is decided, but no coordinator can complete it: its producer"
        f" has begun others since in {_listed(map(str, refusing))}, so the log directories are not"
        " as at one moment, and no producer can use the transactional id; cut them with kdump"
        " rewind --to TIME, or restore a snapshot with kdump backup restore --to TIME"
    )


def _outcome(transaction: CoordinatorTransaction) -> str:
    return "commit" if transaction.state.is_commit else "abort"


def _end(transaction: CoordinatorTransaction, now_ms: int) -> str:
    if transaction.state.is_prepared:
        return f"its {_outcome(transaction)} is decided; a starting coordinator completes it"
    if transaction.start_time_ms is None:
        return "its coordinator aborts it after its timeout"
    end_ms = transaction.start_time_ms + transaction.timeout_ms
    if end_ms < now_ms:
        return f"timed out at {format_timestamp(end_ms)}; a starting coordinator aborts it"
    return f"its coordinator aborts it at {format_timestamp(end_ms)}, unless its producer ends it"


def _not_open(shown: ShownTransactions, transaction: CoordinatorTransaction) -> list[object]:
    if transaction.state.is_prepared:
        return []  # its marker is there already
    accounted = {*shown.open_partitions(transaction), *shown.missing_partitions(transaction)}
    return [
        each
        for each in transaction.partitions
        if each not in accounted and shown.selection.matches(str(each), each)
    ]


def _about_replicas(shown: ShownTransactions) -> Iterator[str]:
    differing = [each for each in shown.partitions() if each.other_ends and each.open_transactions]
    if differing:
        names = _listed(str(each.topic_partition) for each in differing)
        yield f"replicas end at different offsets: {names}; the most advanced one was read"


def _about_high_watermarks(shown: ShownTransactions) -> Iterator[str]:
    unmarked = sum(each.is_only_unmarked for each in shown.partitions())
    if unmarked:
        yield (
            f"{counted(unmarked, 'partition has', 'partitions have')} no high watermark in the"
            " checkpoint, so the last stable offset is unknown"
        )


def _about_undecided(shown: ShownTransactions, undecided: Sequence[OpenHere]) -> Iterator[str]:
    if not undecided:
        return
    count = counted(len(undecided), "open transaction hangs", "open transactions hang")
    names = _listed(str(partition.topic_partition) for partition, _ in undecided)
    yield f"unknown whether {count}: in {names}"


def _about_ids(shown: ShownTransactions) -> Iterator[str]:
    """Name the selected ids that no coordinator has, if they are no patterns."""
    coordinators = shown.report.coordinators
    found = {each.transactional_id for _, each in shown.report.transactions()}
    for glob in shown.id_globs:
        if _PATTERN.isdisjoint(glob) and glob not in found:
            number = coordinators.partition_of(glob)
            where = f"{TRANSACTION_STATE_TOPIC}-{'?' if number is None else number}"
            if number is None or number in coordinators.missing:
                yield f"{_shortened(glob)}: unknown: its records would be in {where}"
            else:
                yield f"{_shortened(glob)}: not in {where}: its coordinator does not know it"


def _about_missing(shown: ShownTransactions, *, is_needed: bool) -> Iterator[str]:
    """Name the coordinators' partitions that are missing.

    If their number is unknown, say so only if that leaves a question open (``is_needed``).
    """
    coordinators = shown.report.coordinators
    missing = coordinators.missing
    if missing:
        names = _listed(f"{TRANSACTION_STATE_TOPIC}-{number}" for number in missing)
        yield (
            f"not in LOG_DIR: {len(missing)} of"
            f" {counted(coordinators.partitions_count or 0, 'partition')} of"
            f" {TRANSACTION_STATE_TOPIC}: {names}; name the log directories of other brokers too"
        )
    elif coordinators.partitions_count is None and is_needed:
        yield (
            f"unknown how many partitions {TRANSACTION_STATE_TOPIC} has: no log directory has the"
            " cluster's metadata; name the directory with __cluster_metadata-0 too"
        )


def _listed(names: Iterable[str]) -> str:
    """Some of the names, and how many more there are."""
    return first_of(dict.fromkeys(names), _MOST_LISTED)
