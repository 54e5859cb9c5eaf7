"""Cut all partitions at one moment, as the cluster was then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from kdump.cli.options.config_options import ConfigArguments, config_options
from kdump.cli.options.conflicts import require_at_most_one
from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.out_option import out_option
from kdump.cli.options.parameters import (
    MOMENT,
    LocationParameter,
    now_option,
    paths_argument,
)
from kdump.cli.options.repair_options import repair_options
from kdump.cli.output.out_file import OutFile
from kdump.cli.output.write_arguments import RepairArguments
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus, KdumpError, UsageProblem, reason_of
from kdump.formats.names import TopicPartition
from kdump.phases import phase
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.jobs.rewind.rewind import Rewind
    from kdump.log.directory import LogDirectory


@click.command("rewind")
@paths_argument("LOG_DIR", written=True)
@click.option(
    "--to",
    "time_ms",
    type=MOMENT,
    help="End each partition before its first batch that is later than TIME: ISO 8601 or epoch"
    " milliseconds.",
)
@click.option(
    "--offsets",
    "offsets_file",
    metavar="FILE",
    type=LocationParameter(readable=False),
    help="End partitions at the offsets in FILE, which has the format of kafka-delete-records;"
    " others are not cut.",
)
@click.option(
    "--exclude",
    "excluded",
    metavar="PARTITION_DIR",
    type=LocationParameter(readable=False),
    multiple=True,
    help="Leave this replica unchanged; may be repeated.",
)
@out_option("With --dry-run, write the offsets at which partitions end", required=False)
@now_option("Expire producers as of TIME")
@repair_options
@config_options
@engine_options
def command(
    paths: Sequence[Location],
    time_ms: int | None,
    offsets_file: Location | None,
    excluded: Sequence[Location],
    out: OutFile | None,
    now_ms: int,
    repair: RepairArguments,
    config: ConfigArguments,
    engine: EngineOptions,
) -> ExitStatus:
    """Cut all partitions at one moment: records, group offsets and transactions as they were then.

    LOG_DIR is a log directory. Name those of all brokers: every replica is cut at the same offset.
    """
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.rewind_output import report_not_found, report_rewind
    from kdump.cli.shared.change_run import changing
    from kdump.cli.shared.directories import find_log_directories
    from kdump.jobs.rewind.offsets_file import encode_offsets
    from kdump.jobs.rewind.rewind import RewindRequest, rewind
    from kdump.jobs.writing.large_content import LargeContent
    from kdump.log.directory import read_log_directory

    require_at_most_one({"--to": time_ms is not None, "--offsets": offsets_file is not None})
    if time_ms is None and offsets_file is None:
        raise UsageProblem("give --to TIME or --offsets FILE")
    if out is not None and not repair.dry_run:
        raise UsageProblem("--out requires --dry-run")
    offsets = None if offsets_file is None else _read_offsets(offsets_file)
    if out is not None and offsets_file is not None:
        out.refuse_to_replace([offsets_file])
    diagnostics = Diagnostics()
    log_dirs = find_log_directories(paths, diagnostics)
    if diagnostics.status or not log_dirs:
        return diagnostics.status
    with changing("rewind", log_dirs, repair) as run:
        directories = [read_log_directory(path, kind) for path, kind in log_dirs.items()]
        request = RewindRequest(
            directories=directories,
            settings=config.settings_of(directories),
            time_ms=time_ms,
            offsets=offsets,
            excluded=_excluded(directories, excluded),
            now_ms=now_ms,
            large_content=LargeContent(run.writing),
        )
        found = rewind(request, engine)
        if time_ms is not None and not repair.dry_run:
            _require_all_brokers(found)
        run.apply(each.target for each in found.directories)
    if out is not None:
        out.write([encode_offsets(found.ends)])
    with run.report() as printer:
        status = run.emit_plans(printer, run.operations())
        status |= report_rewind(
            printer, request, found, dry_run=repair.dry_run, verbose=repair.verbose
        )
    if offsets_file is not None:
        report_not_found(offsets_file, request, found)
    return diagnostics.status | run.status(status)


def _read_offsets(path: Location) -> Mapping[TopicPartition, int]:
    from kdump.formats.json_document import DocumentError
    from kdump.jobs.rewind.offsets_file import decode_offsets

    try:
        with phase(f"reading {path}"):
            return decode_offsets(path.read())
    except DocumentError as problem:
        raise UsageProblem(f"--offsets {path}: {problem}") from problem
    except OSError as failure:
        raise KdumpError(f"--offsets {path}: {reason_of(failure)}") from failure


def _excluded(
    directories: Sequence[LogDirectory], given: Sequence[Location]
) -> frozenset[Location]:
    """The directories of partitions to leave unchanged, as they are listed.

    Raises:
        UsageProblem: one is not a partition of the log directories.
    """
    listed = {
        partition.path.resolved(): partition.path
        for directory in directories
        for partition in directory.partitions
    }
    found = set()
    for each in given:
        path = listed.get(each.resolved())
        if path is None:
            raise UsageProblem(f"--exclude {each}: not a partition in one of the log directories")
        found.add(path)
    return frozenset(found)


def _require_all_brokers(found: Rewind) -> None:
    """Refuse to cut some brokers at a time: alone, each would be cut at other offsets.

    Raises:
        KdumpError: replicas are on other brokers.
    """
    if found.absent:
        nodes = ", ".join(map(str, found.absent))
        raise KdumpError(
            f"partitions have replicas on brokers whose log directories were not given: {nodes};"
            " nothing was changed; name the log directories of all brokers, or write the offsets"
            " with --dry-run --out FILE and give --offsets FILE on each broker"
        )
