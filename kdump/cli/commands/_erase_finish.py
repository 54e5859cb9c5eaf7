"""``kdump erase --finish`` and ``--verify``: destroy what brings records back, and prove it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kdump.cli.options.config_options import ConfigArguments
from kdump.cli.options.named_records import NamedArguments
from kdump.cli.output.events import open_printer, write_notice
from kdump.cli.output.out_file import OutFile
from kdump.cli.output.write_arguments import RepairArguments
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.phases import phase
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.log.directory import LogDirectory
    from kdump.log.remote_files import RemotePlace


def finish_erasure(
    paths: Sequence[Location],
    named: NamedArguments,
    certificate: str,
    *,
    remote: RemotePlace | None,
    largest_record_bytes: int,
    now_ms: int,
    repair: RepairArguments,
    config: ConfigArguments,
    engine: EngineOptions,
) -> ExitStatus:
    """Search, destroy the undo data of erasures, and write the certificate.

    Raises:
        UsageProblem: there is nothing to finish, or the certificate exists.
        KdumpError: something cannot be searched, or the disk fails.
    """
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.erase_output import certificate_event, remains_event, remote_copy
    from kdump.cli.output.write_report import interrupted_event
    from kdump.cli.shared.change_run import changing
    from kdump.cli.shared.directories import find_log_directories
    from kdump.jobs.erase.finish import Finishing, FinishRequest
    from kdump.log.directory import read_log_directory

    with phase(f"looking at {certificate}"):
        out = OutFile.checked(certificate, is_replaced=False, option="--certificate")
    records = named.read()
    diagnostics = Diagnostics()
    log_dirs = find_log_directories(paths, diagnostics)
    if not log_dirs or diagnostics.status:
        return diagnostics.status
    with changing("erase", log_dirs, repair) as run:
        directories = [read_log_directory(path, kind) for path, kind in log_dirs.items()]
        _require_readable(directories)
        request = FinishRequest(
            directories=directories,
            settings=config.settings_of(directories),
            named=records,
            now_ms=now_ms,
            largest_record_bytes=largest_record_bytes,
        )
        finishing = Finishing(request)
        finishing.require_own_files()
        if finishing.fields:
            finishing.registry = named.registry(paths, diagnostics)
        elif named.schemas:
            raise UsageProblem("--schemas has no effect: no field was erased")
        in_remote = [] if remote is None else finishing.search_remote(remote, engine)
        remains = finishing.search(engine)
        is_left = any(each.is_certain for each in remains)
        is_written = not is_left and not repair.dry_run
        if is_written:
            finishing.destroy_undo_data()
            out.write([finishing.certificate()], finishing.destroy_lists)
    with open_printer(repair.output_format) as printer:
        printer.emit_all(map(interrupted_event, run.interrupted))
        printer.emit_all(map(remains_event, remains))
        printer.emit_all(map(remote_copy, in_remote))
        printer.emit(certificate_event(finishing, certificate if is_written else None))
        if is_left:
            printer.emit_text(
                ["there is no certificate, and nothing was destroyed: erase or delete these first"]
            )
    sys.stdout.flush()
    may_be_left = remains or in_remote or finishing.undecoded_records
    return ExitStatus.DAMAGE_LEFT if may_be_left else ExitStatus.SOUND


def _require_readable(directories: Iterable[LogDirectory]) -> None:
    """Refuse log directories with something that cannot be read: records may hide there.

    Raises:
        KdumpError: there is something.
    """
    for directory in directories:
        for problem in directory.problems:
            if isinstance(problem.error, OSError):
                raise KdumpError(f"{problem.path}: cannot be searched: {problem.error}")


def verify_certificate(
    paths: Sequence[Location],
    named: NamedArguments,
    certificate: Location,
    *,
    remote: RemotePlace | None,
    largest_record_bytes: int,
    repair: RepairArguments,
    engine: EngineOptions,
) -> ExitStatus:
    """Compare log directories with a certificate: no key of it, and no given field, may be there.

    Raises:
        KdumpError: it is no certificate, or something cannot be searched.
        OSError: it cannot be read.
    """
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.erase_output import remains_event, verified_event
    from kdump.cli.shared.directories import find_log_directories
    from kdump.jobs.erase.certificate import read_certificate
    from kdump.jobs.erase.remains import remote_files_to_search
    from kdump.jobs.erase.verify_certificate import search_again
    from kdump.log.directory import read_log_directory

    with phase(f"reading {certificate}"):
        known = read_certificate(certificate)
    diagnostics = Diagnostics()
    records = named.read(named.registry(paths, diagnostics) if named.fields else None)
    compared = known.compare(records)
    log_dirs = find_log_directories(paths, diagnostics)
    if not log_dirs or diagnostics.status:
        return diagnostics.status
    directories = [read_log_directory(path, kind) for path, kind in log_dirs.items()]
    _require_readable(directories)
    found = search_again(
        directories,
        known,
        records,
        largest_record_bytes,
        engine,
        [] if remote is None else remote_files_to_search(remote),
    )
    with open_printer(repair.output_format) as printer:
        printer.emit_all(map(remains_event, found.remains))
        printer.emit(verified_event(known, certificate, found, compared))
    sys.stdout.flush()
    for count, what in (
        (compared.unknown_keys, "keys"),
        (compared.unknown_fields, "fields"),
        (compared.unknown_prefixes, "prefixes"),
    ):
        if count:
            write_notice(f"{certificate}: is not about {count} of the given {what}")
    is_as_certified = compared.are_equal and not found.remains and not found.undecoded_records
    return ExitStatus.SOUND if is_as_certified else ExitStatus.DAMAGE_LEFT
