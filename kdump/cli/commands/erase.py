"""Erase records by key, offset or field."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from kdump.cli.options.config_options import ConfigArguments, config_options
from kdump.cli.options.conflicts import require_at_most_one, require_with
from kdump.cli.options.deletion_options import refuse_cluster_metadata
from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.mask_options import MaskArguments, mask_options
from kdump.cli.options.named_records import NamedArguments, named_records_options
from kdump.cli.options.parameters import (
    LocationParameter,
    max_record_bytes_option,
    now_option,
    paths_argument,
)
from kdump.cli.options.remote_option import remote_option
from kdump.cli.options.repair_options import repair_options
from kdump.cli.options.selection_options import nothing_selected_in, selection_options
from kdump.cli.output.brief import MAX_LISTED
from kdump.cli.output.events import write_notice
from kdump.cli.output.write_arguments import RepairArguments
from kdump.cli.output.write_report import emit_findings
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus, UsageProblem
from kdump.formats.names import has_no_records
from kdump.phases import phase
from kdump.storage.location import Location
from kdump.words import counted, first_of

if TYPE_CHECKING:
    from kdump.cli.output.erase_output import UnsearchedFile
    from kdump.cli.output.events import Printer
    from kdump.jobs.erase.erase import EraseRequest, PartitionErasure
    from kdump.log.partition import Partition
    from kdump.log.remote_files import RemotePlace
    from kdump.log.selection import PartitionSelection
    from kdump.repair.erase.named_records import NamedRecords

_MOST_PERCENT: Final = 10
"""A larger share of a topic is erased only with ``--yes``: a wrong list of keys is easily given."""


@click.command("erase")
@paths_argument("LOG_DIR", written=True)
@selection_options
@named_records_options
@mask_options
@click.option(
    "--yes", is_flag=True, help=f"Erase even more than {_MOST_PERCENT}% of the records of a topic."
)
@click.option(
    "--finish",
    is_flag=True,
    help="Search everything in LOG_DIR for keys and fields that were erased; if nothing is left,"
    " destroy the undo data and write the certificate.",
)
@click.option(
    "--certificate",
    type=click.Path(),
    metavar="FILE",
    help="With --finish, write the certificate to FILE; only you can read it.",
)
@click.option(
    "--verify",
    "verified",
    type=LocationParameter(),
    metavar="FILE",
    help="Search LOG_DIR for the keys of the certificate FILE, and for the fields of it that are"
    " given; nothing is written.",
)
@remote_option
@max_record_bytes_option
@now_option("Load partitions as of TIME")
@repair_options
@config_options
@engine_options
def command(
    paths: Sequence[Location],
    selection: PartitionSelection,
    named: NamedArguments,
    mask: MaskArguments,
    yes: bool,
    finish: bool,
    certificate: str | None,
    verified: Location | None,
    remote: RemotePlace | None,
    largest_record_bytes: int,
    now_ms: int,
    repair: RepairArguments,
    config: ConfigArguments,
    engine: EngineOptions,
) -> ExitStatus:
    """Erase records by key, offset or field; all other records stay as they are.

    LOG_DIR is a log directory after a clean shutdown. If the broker has several, name all of them.
    Each replica has to be erased: run it on the disks of all brokers that have one.
    """
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.erase_output import (
        ErasureReport,
        remote_copy,
        status_of,
        summary,
        undecoded_lines,
    )
    from kdump.cli.shared.change_run import changing
    from kdump.cli.shared.directories import find_log_directories
    from kdump.jobs.erase.erase import (
        ErasedLogs,
        EraseRequest,
        differing_replicas,
        find_in_remote,
        find_named,
        targets,
    )
    from kdump.jobs.writing.start_blockers import severe_findings
    from kdump.log.broker import by_broker, partitions_twice
    from kdump.log.directory import read_log_directory

    if verified is not None:
        from kdump.cli.commands._erase_finish import verify_certificate

        require_at_most_one({"--verify": True, "--finish": finish, "--certificate": certificate})
        _require_everything("--verify", selection, named, mask, repair, yes=yes)
        if not named.fields:
            require_with("--where", {"--schemas": named.schemas})
        return verify_certificate(
            paths,
            named,
            verified,
            remote=remote,
            largest_record_bytes=largest_record_bytes,
            repair=repair,
            engine=engine,
        )
    if finish:
        from kdump.cli.commands._erase_finish import finish_erasure

        if certificate is None:
            raise UsageProblem("--finish requires --certificate")
        _require_everything("--finish", selection, named, mask, repair, yes=yes)
        return finish_erasure(
            paths,
            named,
            certificate,
            remote=remote,
            largest_record_bytes=largest_record_bytes,
            now_ms=now_ms,
            repair=repair,
            config=config,
            engine=engine,
        )
    require_with("--finish", {"--certificate": certificate})
    begin = time.monotonic()
    if selection.is_everything:
        raise UsageProblem("erase requires --topic or --partition")
    if not named.is_given:
        raise UsageProblem("erase requires --key, --keys-file, --key-prefix, --offsets or --where")
    refuse_cluster_metadata(selection)
    if not named.fields:
        require_with("--where", {"--schemas": named.schemas})
    mask.require_once(named)
    diagnostics = Diagnostics()
    records = named.read(named.registry(paths, diagnostics) if named.fields else None)
    masking = mask.read(records)
    log_dirs = find_log_directories(paths, diagnostics)
    if not log_dirs:
        return diagnostics.status
    with changing("erase", log_dirs, repair, overwrites=True) as run:
        directories = [read_log_directory(path, kind) for path, kind in log_dirs.items()]
        settings = config.settings_of(directories)
        request = EraseRequest(
            directories=directories,
            settings=settings,
            selection=selection,
            named=records,
            now_ms=now_ms,
            twice=partitions_twice(directories),
            largest_record_bytes=largest_record_bytes,
            mask=masking,
        )
        selected = {
            each.path: [one for one in each.partitions if request.selects(one)]
            for each in directories
        }
        if not any(selected.values()):
            raise nothing_selected_in(selection, directories)
        keys = (one.topic_partition for each in selected.values() for one in each)
        _report_not_selected(named, records, map(str, keys))
        severe = [
            finding
            for own in by_broker(directories).values()
            for finding in severe_findings(own, settings, selected)
        ]
        for directory in directories:
            diagnostics.report_problems(directory)
        found = find_named(request, engine)
        in_remote, undecoded = (
            ([], 0) if remote is None else find_in_remote(request, remote, engine)
        )
        if not (yes or repair.dry_run):
            _require_few(found, is_masked=mask.is_given)
        with ErasedLogs(request) as logs:
            if not repair.dry_run:
                with phase("making the new logs", len(found)) as making:
                    found = [
                        logs.write(each) if each.is_changed else each for each in making.over(found)
                    ]
                run.apply(targets(request, found))
    report = ErasureReport(run.operations(), repair, is_masked=mask.is_given)
    with run.report() as printer:
        emit_findings(printer, severe, verbose=repair.verbose)
        printer.emit_all(map(report.partition, found))
        printer.emit_text(report.rest())
        printer.emit_all(map(report.difference, differing_replicas(found)))
        for done in run.done:
            printer.emit(report.directory(done))
        _emit_copies(printer, request, found, verbose=repair.verbose)
        printer.emit_all(map(remote_copy, in_remote))
        printer.emit_text(undecoded_lines(undecoded, "in remote segments"))
        printer.emit(summary(found, repair, time.monotonic() - begin, is_masked=mask.is_given))
        printer.emit_text(report.unchanged.lines())
        if repair.dry_run and not yes:
            printer.emit_text(_wide_lines(found, is_masked=mask.is_given))
    status = diagnostics.status | status_of(found)
    is_left = bool(severe or in_remote or undecoded)
    return run.status(status | (ExitStatus.DAMAGE_LEFT if is_left else ExitStatus.SOUND))


def _require_everything(
    mode: str,
    selection: PartitionSelection,
    named: NamedArguments,
    mask: MaskArguments,
    repair: RepairArguments,
    *,
    yes: bool,
) -> None:
    """Refuse options that restrict what is searched, or say how to erase.

    Raises:
        UsageProblem: one was given.
    """
    for option, is_given in {
        "--topic or --partition": not selection.is_everything,
        "--offsets": named.offsets_file is not None,
        "--mask": mask.is_given,
        "--mask-secret": mask.secret_file is not None,
        "--yes": yes,
        "--no-undo": not repair.keep_undo,
    }.items():
        if is_given:
            raise UsageProblem(f"{option} has no effect with {mode}, which searches everything")


def _report_not_selected(
    named: NamedArguments, records: NamedRecords, selected: Iterable[str]
) -> None:
    """Say on standard error which offsets are of no selected partition: a name may be wrong."""
    missing = sorted(records.offsets.keys() - set(selected))
    if missing:
        listed = first_of(missing, MAX_LISTED)
        write_notice(f"{named.offsets_file}: not among the selected partitions: {listed}")


def _require_few(found: Sequence[PartitionErasure], *, is_masked: bool) -> None:
    """Refuse to erase or mask a large share of a topic.

    Raises:
        UsageProblem: it was not confirmed.
    """
    wide = list(_wide_lines(found, is_masked=is_masked))
    if wide:
        raise UsageProblem(f"{'; '.join(wide)}; nothing has been changed")


def _wide_lines(found: Sequence[PartitionErasure], *, is_masked: bool) -> list[str]:
    from kdump.jobs.erase.erase import shares_of_topics

    done = "masked" if is_masked else "erased"
    return [
        f"{share.topic}: {share.amount.erased_records} of"
        f" {counted(share.amount.records, 'record')} would be {done}, more than {_MOST_PERCENT}%:"
        " give --yes to confirm"
        for share in shares_of_topics(found)
        if share.is_over(_MOST_PERCENT)
    ]


def _emit_copies(
    printer: Printer, request: EraseRequest, found: Sequence[PartitionErasure], *, verbose: bool
) -> None:
    """Say where in the log directories the records may still be."""
    from kdump.apply.runs import list_undos
    from kdump.cli.output.erase_output import (
        list_copy,
        undo_copies,
        unsearched_directories,
        unsearched_in_brief,
        unsearched_leftovers,
    )
    from kdump.repair.erase.erased_list import FILE_NAME

    rewritten = {each.partition.path for each in found if each.is_changed}
    for directory in request.directories:
        if any(each.amount.erased_records for each in found if each.directory is directory):
            printer.emit_all(undo_copies(directory, list_undos(directory.path.local_path)))
            if (directory.path / FILE_NAME).kind() is not None:
                printer.emit(list_copy(directory))
        matching = [
            each
            for each in directory.partitions
            if request.may_hold(each) and not each.is_cluster_metadata
        ]
        others = [each.path.name for each in matching if not request.selects(each)]
        printer.emit_all(unsearched_directories(directory, others))
        leftovers = list(_leftovers(request, matching, rewritten))
        printer.emit_all(unsearched_leftovers(directory, leftovers, verbose=verbose))
        printer.emit_text(unsearched_in_brief(directory, leftovers, verbose=verbose))


def _leftovers(
    request: EraseRequest, partitions: Iterable[Partition], rewritten: Container[Location]
) -> Iterator[UnsearchedFile]:
    """The leftover files of selected partitions that may hold records, after the run."""
    from kdump.cli.output.erase_output import UnsearchedFile
    from kdump.log.partition import LeftoverKind

    for partition in partitions:
        if request.selects(partition):
            for leftover in partition.leftovers:
                if has_no_records(leftover.name):
                    continue
                if leftover.kind is LeftoverKind.CLEANED and partition.path in rewritten:
                    continue
                if (partition.path / leftover.name).kind() is not None:
                    name = f"{partition.path.name}/{leftover.name}"
                    yield UnsearchedFile(name, leftover.size_bytes)
