"""Copy a partition into another cluster, or back into its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
from msgspec.structs import replace

from kdump.cli.options.parameters import (
    INT32,
    LocationParameter,
    NotParsedError,
    WordParameter,
    now_option,
)
from kdump.cli.options.repair_options import repair_options
from kdump.cli.output.write_arguments import RepairArguments
from kdump.errors import ExitStatus, KdumpError, UsageProblem, reason_of
from kdump.phases import phase
from kdump.storage.entries import EntryKind
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.apply.plan import TargetDirectory
    from kdump.jobs.transplant.transplant import Transplant
    from kdump.jobs.writing.execution import PlanResult, Writing
    from kdump.log.directory import LogDirectory
    from kdump.repair.transplant.transplanted_log import OpenTransactions

_WORDS = ("refuse", "abort", "truncate")


class TopicIdParameter(WordParameter[UUID]):
    """The id of a topic, as Kafka prints it."""

    name = "topic-id"

    def parse(self, text: str) -> UUID:
        from kdump.formats.uuids import ZERO_UUID, parse_uuid

        found = parse_uuid(text)
        if found is None or found == ZERO_UUID:
            raise NotParsedError(f"{text!r} is not a topic id of 22 characters")
        return found


def _open_transactions(ctx: click.Context, param: click.Parameter, value: Any) -> OpenTransactions:
    from kdump.repair.transplant.transplanted_log import OpenTransactions

    return OpenTransactions(value)


@click.command("transplant")
@click.argument(
    "source", metavar="PARTITION_DIR", type=LocationParameter(readable=False, written=True)
)
@click.option(
    "--into",
    "target",
    metavar="LOG_DIR",
    required=True,
    type=LocationParameter(readable=False, written=True),
    help="Copy the partition into this log directory; its broker must be stopped.",
)
@click.option("--topic", metavar="NAME", help="The topic there (default: that of PARTITION_DIR).")
@click.option(
    "--partition",
    metavar="N",
    type=INT32,
    help="The number of the partition there (default: that of PARTITION_DIR).",
)
@click.option(
    "--topic-id",
    metavar="ID",
    type=TopicIdParameter(),
    help="The id of the topic there (default: from the copy of the metadata in LOG_DIR).",
)
@click.option(
    "--leader-epoch",
    metavar="N",
    type=INT32,
    help="The leader epoch of the partition there: higher epochs are lowered to it (default: from"
    " the copy of the metadata in LOG_DIR).",
)
@click.option(
    "--open-transactions",
    type=click.Choice(_WORDS),
    default="refuse",
    show_default=True,
    callback=_open_transactions,
    help="If a transaction is open: refuse, append an abort marker, or truncate the log before it.",
)
@now_option("Write abort markers as of TIME")
@repair_options
def command(
    source: Location,
    target: Location,
    topic: str | None,
    partition: int | None,
    topic_id: UUID | None,
    leader_epoch: int | None,
    open_transactions: OpenTransactions,
    now_ms: int,
    repair: RepairArguments,
) -> ExitStatus:
    """Copy a partition into a log directory of another cluster. Offsets do not change.

    PARTITION_DIR is the directory of a partition, in a log directory or a copy of it; it is only
    read, and recovered on the way. The topic must exist in the target, without records in this
    partition. Each replica needs the copy.
    """
    from kdump.cli.output.transplant_output import report_transplant
    from kdump.cli.shared.change_run import changing
    from kdump.jobs.transplant.transplant import TransplantRequest, transplant

    listed, around = _source(source)
    _require_log_directory(target)
    with changing("transplant", [target], repair) as run:
        request = TransplantRequest(
            source=listed,
            source_directory=around,
            target=_target(target),
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            leader_epoch=leader_epoch,
            open_transactions=open_transactions,
            now_ms=now_ms,
        )
        found = transplant(request)
        run.done = _applied(found, run.writing)
    is_done = run.done and all(each.failure is None for each in run.done)
    with run.report() as printer:
        report_transplant(printer, request, found, run.done, verbose=repair.verbose)
    return run.status(ExitStatus.REPAIRED if is_done else ExitStatus.SOUND)


def _source(path: Location) -> tuple[Any, LogDirectory | None]:
    """List the source, and the log directory around it.

    Raises:
        KdumpError: it is no partition, or a running process has its log directory.
    """
    from kdump.jobs.listing.partition_facts import read_with_surroundings
    from kdump.log.directory import directory_kind
    from kdump.log.lock_holders import holder_of

    try:
        with phase(f"listing {path}"):
            kind = directory_kind(path)
            if kind.is_log_directory:
                raise UsageProblem(f"{path} is a log directory: name a partition in it")
            if not kind.is_partition:
                raise KdumpError(f"{path}: not the directory of a partition")
            lone = read_with_surroundings(path)
            around = path.around
            holder = holder_of(around.local_path)
    except OSError as failure:
        raise _unreadable(path, failure) from failure
    if holder is not None:
        raise KdumpError(
            f"{around}: locked by {holder}, which may write to {path.name};"
            " stop the broker first, or copy the directory"
        )
    return lone.partition, lone.log_directory


def _unreadable(path: Location, failure: OSError) -> KdumpError:
    return KdumpError(f"{failure.filename or path}: {reason_of(failure)}")


def _require_log_directory(path: Location) -> None:
    from kdump.formats import names
    from kdump.log.directory import directory_kind

    try:
        with phase(f"listing {path}"):
            kind = directory_kind(path)
            # A broker that has no partition yet has only this file.
            is_new = (path / names.META_PROPERTIES).kind() is EntryKind.FILE
    except OSError as failure:
        raise _unreadable(path, failure) from failure
    if kind.is_partition:
        raise UsageProblem(f"--into {path}: is a partition: name its log directory")
    if not (kind.is_log_directory or is_new):
        raise KdumpError(f"--into {path}: not a Kafka log directory")


def _target(path: Location) -> LogDirectory:
    from kdump.log.directory import read_log_directory

    try:
        return read_log_directory(path)
    except OSError as failure:
        raise _unreadable(path, failure) from failure


def _applied(found: Transplant, writing: Writing) -> Sequence[PlanResult]:
    """Remove the empty directory that is there, if any, then create the partition.

    Between the two, the log directory has no such partition: a broker that is started then creates
    an empty one again, and running the command again goes on.
    """
    from kdump.jobs.writing.execution import plan_and_apply

    if found.creation is None:
        return []
    targets: list[TargetDirectory] = [found.creation]
    if found.removal is not None:
        if not writing.dry_run:
            # What can be known to fail fails before anything changes.
            (previewed,) = plan_and_apply([found.creation], replace(writing, dry_run=True))
            _require_space(found.creation, previewed.needed_bytes)
        targets.insert(0, found.removal)
    return [plan_and_apply([each], writing)[0] for each in targets]


def _require_space(target: TargetDirectory, needed_bytes: int) -> None:
    from kdump.apply.files import free_bytes_at

    free_bytes = free_bytes_at(target.path)
    if free_bytes < needed_bytes:
        raise KdumpError(
            f"{target.path}: needs {needed_bytes} bytes of free space, has {free_bytes}; nothing"
            " has been changed"
        )
