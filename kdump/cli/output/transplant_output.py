"""What ``kdump transplant`` did, for people and programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kdump.cli.output.events import Event, Printer
from kdump.cli.output.value_text import format_bytes
from kdump.cli.output.write_report import Operations, plan_lines, plan_row
from kdump.formats.uuids import format_uuid
from kdump.repair.transplant.transplanted_log import OpenTransactions
from kdump.repair.verdict.verdict import VerdictKind
from kdump.rows.common_rows import INTERRUPTED, PLANNED_DIRECTORY
from kdump.rows.row_type import (
    BYTES,
    FLAG,
    INT,
    INTEGER,
    TEXT,
    Field,
    JsonAnswer,
    RowType,
    objects_of,
    one_of,
)
from kdump.words import counted, shell_command

if TYPE_CHECKING:
    from kdump.jobs.transplant.transplant import Transplant, TransplantRequest
    from kdump.jobs.writing.execution import PlanResult

TRANSPLANTED_PARTITION: Final = RowType(
    "partition",
    "The partition, in the source and in the target.",
    (
        Field("source", TEXT, "The directory that was copied."),
        Field("log_dir", TEXT, "The log directory that gets the partition."),
        Field("topic", TEXT, "In the target; likewise the partition and the topic id."),
        Field("partition", INT),
        Field("topic_id", TEXT),
        Field("log_start_offset", INTEGER, "Of the copy."),
        Field("log_end_offset", INTEGER, "Of the copy."),
        Field(
            "source_end_offset",
            INTEGER,
            "Of the source; abort markers come after it, and a truncated log ends before it.",
        ),
        Field("size_bytes", BYTES, "Of all files of the copy."),
        Field(
            "highest_leader_epoch", INTEGER.or_null, "Of the source; null if its batches have none."
        ),
        Field(
            "lowered_to_epoch",
            INTEGER.or_null,
            "Higher leader epochs were lowered to it; null if none was.",
        ),
        Field("producers", INTEGER, "Producers that the source knows."),
        Field("keeps_producers", FLAG, "Whether the copy knows them, too."),
        Field(
            "open_transactions",
            objects_of(Field("producer_id", INTEGER), Field("first_offset", INTEGER)),
            "By first offset.",
        ),
        Field(
            "open_transactions_action",
            one_of("abort", "truncate").or_null,
            "What was done with them; null if none is open.",
        ),
        Field(
            "replaces_empty_directory",
            FLAG,
            "Whether the target had the partition, without records.",
        ),
        Field(
            "is_there", FLAG, "Whether the target has this very copy already; nothing is done then."
        ),
        Field("verdict", TEXT, "What loading the source found."),
        Field("verdict_kind", one_of("valid", "unclean", "rebuilt"), "The same in one word."),
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "transplant",
        (
            TRANSPLANTED_PARTITION,
            INTERRUPTED,
            PLANNED_DIRECTORY,
        ),
    ),
)


def report_transplant(
    printer: Printer,
    request: TransplantRequest,
    found: Transplant,
    done: Iterable[PlanResult],
    *,
    verbose: bool,
) -> None:
    """Report the partition, what was written, and what has to be done beside it."""
    printer.emit(_partition_event(request, found))
    for each in done:
        printer.emit(_directory_event(each, str(found.key), verbose=verbose))
    printer.emit_text(_advice(request, found))


def _partition_event(request: TransplantRequest, found: Transplant) -> Event:
    log = found.log
    action = request.open_transactions
    row = {
        "source": str(request.source.path),
        "log_dir": str(request.target.path),
        "topic": found.key.topic,
        "partition": found.key.partition,
        "topic_id": format_uuid(found.topic_id),
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "source_end_offset": log.source_end_offset,
        "size_bytes": log.size_bytes,
        "highest_leader_epoch": log.highest_epoch,
        "lowered_to_epoch": found.highest_epoch,
        "producers": log.producers,
        "keeps_producers": found.keeps_producers,
        "open_transactions": [
            {"producer_id": each.producer_id, "first_offset": each.current_txn_first_offset}
            for each in log.open_transactions
        ],
        "open_transactions_action": action.value if log.open_transactions else None,
        "replaces_empty_directory": found.removal is not None,
        "is_there": found.creation is None,
        "verdict": log.verdict.sentence,
        "verdict_kind": log.verdict.kind.value,
    }
    return Event("partition", row, [*_lines(request, found)])


def _lines(request: TransplantRequest, found: Transplant) -> Iterator[str]:
    log = found.log
    yield f"{request.source.path} into {request.target.path / str(found.key)}:"
    if found.creation is None:
        yield "  the target has this copy already: nothing to do"
    if log.verdict.kind is not VerdictKind.VALID:
        yield f"  source        {log.verdict.sentence}; its files do not change"
    origin = "as given" if found.is_topic_id_given else "as the target has it"
    yield f"  topic id      {format_uuid(found.topic_id)}, {origin}"
    yield (
        f"  offsets       {log.log_start_offset} to {log.log_end_offset}, unchanged;"
        f" {format_bytes(log.size_bytes)}"
    )
    yield f"  leader epochs {_epochs_text(found)}"
    yield f"  producers     {_producers_text(found)}"
    yield f"  transactions  {_transactions_text(request.open_transactions, found)}"


def _epochs_text(found: Transplant) -> str:
    highest = found.log.highest_epoch
    if highest is None:
        return "none: the batches are of an old format"
    if found.highest_epoch is None:
        return f"up to {highest}, unchanged"
    return f"up to {highest}, lowered to {found.highest_epoch}"


def _producers_text(found: Transplant) -> str:
    known = counted(found.log.producers, "producer")
    if found.keeps_producers:
        return f"{known} kept: it is the same cluster"
    if not found.log.producers:
        return "none"
    return f"{known} forgotten: the target gives out the same ids to others"


def _transactions_text(action: OpenTransactions, found: Transplant) -> str:
    log = found.log
    if not log.open_transactions:
        return "none is open"
    count = counted(len(log.open_transactions), "open transaction")
    if action is OpenTransactions.ABORT:
        return f"{count}: aborted, with markers from offset {log.source_end_offset} on"
    return (
        f"{count}: the log is truncated to offset {log.log_end_offset},"
        f" from {log.source_end_offset}"
    )


def _directory_event(done: PlanResult, name: str, *, verbose: bool) -> Event:
    """The event about one of the plans, with the files of the new directory."""
    path = done.plan.path
    operations = Operations([done], verbose=verbose)
    rows = [{**each, "file": f"{name}/{each['file']}"} for each in operations.rows(path / name)]
    row = {"log_dir": str(path), **plan_row(done), "operations": [*rows, *operations.rows(path)]}
    lines = [] if done.failure is not None else [*plan_lines(done), *operations.counts(done)]
    return Event("directory", row, [*lines, *operations.lines(path)])


def _advice(request: TransplantRequest, found: Transplant) -> Iterator[str]:
    """What has to be done beside the copy, before the broker starts."""
    registration = None if found.topic is None else found.topic.registration
    replicas = () if registration is None else registration.replicas
    same = "" if found.highest_epoch is None else f" with --leader-epoch {found.highest_epoch}"
    yield ""
    if len(replicas) > 1:
        nodes = ", ".join(map(str, replicas))
        yield (
            f"before any broker starts: copy it to all replicas, nodes {nodes}{same}; an empty"
            " replica that becomes leader makes the others truncate theirs"
        )
    elif not replicas:
        yield f"before any broker starts: copy it to all replicas{same}, if the topic has several"
    if found.topic is None:
        yield (
            f"no metadata here says in which log directory of the broker {found.key} is: if another"
            " one has it, the broker does not start: remove that one, or transplant into it"
        )
    yield (
        "before the start: set retention.ms=-1 and cleanup.policy for the topic, or the broker"
        " deletes old records soon; group offsets and schema ids are not part of a partition"
    )
    check = shell_command(f"verify --partition {found.key}", [request.target.path])
    yield f"next: {check}"
