"""Check and repair cluster, node and directory ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdump.cli.options.parameters import INT32, DirectoryIdParameter, paths_argument
from kdump.cli.options.repair_options import optional_repair_options, require_repair
from kdump.cli.output.events import EventFormat, events_option, open_printer
from kdump.cli.output.write_arguments import RepairArguments
from kdump.cli.output.write_report import emit_findings
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.phases import phase
from kdump.storage.location import Location

if TYPE_CHECKING:
    from uuid import UUID

    from kdump.jobs.node_identity import NodeIdentity, ServerFile
    from kdump.log.directory import LogDirectory
    from kdump.repair.rebuild.node_directories import GivenIdentity


@click.command("identity")
@paths_argument("LOG_DIR", written=lambda given: bool(given["repair"]))
@click.option(
    "--server-properties",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Read node.id, log.dirs, metadata.log.dir, process.roles and voters from FILE.",
)
@click.option(
    "--repair",
    is_flag=True,
    is_eager=True,
    help="Write meta.properties where a broker would not start.",
)
@click.option(
    "--cluster-id",
    metavar="ID",
    help="With --repair, write this cluster id (default: the one in all directories).",
)
@click.option(
    "--node-id",
    metavar="ID",
    type=INT32,
    help="With --repair, write this node id (default: the one in all directories).",
)
@click.option(
    "--directory-id",
    "directory_ids",
    metavar="LOG_DIR=ID",
    type=DirectoryIdParameter(),
    multiple=True,
    help="With --repair, write this directory id, or with LOG_DIR=new a random one; may be "
    "repeated (default: the directory's own id, or as the cluster's metadata has it).",
)
@optional_repair_options
@events_option
def command(
    paths: Sequence[Location],
    server_properties: Path | None,
    repair: bool,
    cluster_id: str | None,
    node_id: int | None,
    directory_ids: Sequence[tuple[Location, UUID | None]],
    dry_run: bool,
    keep_undo: bool | None,
    output_format: EventFormat,
) -> ExitStatus:
    """Check what a node needs to start on log directories, before it reads any log.

    LOG_DIR is a log directory of a broker or a controller, which may be empty. If the node has
    several, name all of them. Nothing is written without --repair.
    """
    from kdump.repair.rebuild.node_directories import GivenIdentity

    if not repair:
        given_ids = {
            "--cluster-id": cluster_id,
            "--node-id": node_id is not None,
            "--directory-id": directory_ids,
        }
        require_repair(given_ids, dry_run=dry_run, keep_undo=keep_undo)
    if cluster_id is not None and not cluster_id.strip():
        raise UsageProblem("--cluster-id: a cluster id is not empty")
    server = None if server_properties is None else _read_server(server_properties)
    directories, status = _read_directories(paths)
    if not directories:
        return status
    found = [each.path for each in directories]
    given = GivenIdentity(cluster_id, node_id, _by_path(directory_ids, found))
    if not repair:
        return status | _check(directories, server, output_format)
    writing = RepairArguments(dry_run, keep_undo is not False, output_format, verbose=False)
    return status | _repair(found, server, given, writing)


def _read_server(path: Path) -> ServerFile:
    from kdump.cli.options.config_options import read_properties
    from kdump.formats.server_properties import ServerProperties
    from kdump.jobs.node_identity import ServerFile

    return ServerFile(str(path), ServerProperties.of(read_properties(path)))


def _read_directories(paths: Sequence[Location]) -> tuple[list[LogDirectory], ExitStatus]:
    """Read the directories, each once; those that cannot be read are reported."""
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.jobs.node_identity import read_node_directory

    diagnostics = Diagnostics()
    found: list[LogDirectory] = []
    for path in paths:
        try:
            directory = read_node_directory(path)
        except OSError as failure:
            diagnostics.report(path, failure)
        except UsageProblem:
            raise
        except KdumpError as failure:
            diagnostics.report_failure(failure)
        else:
            if not any(path.is_same(other.path) for other in found):
                found.append(directory)
    return found, diagnostics.status


def _by_path(
    directory_ids: Sequence[tuple[Location, UUID | None]], found: Sequence[Location]
) -> dict[Location, UUID | None]:
    """Return the given directory ids by the log directory as named.

    Raises:
        UsageProblem: a directory is not one of them.
    """
    by_path = {}
    for path, directory_id in directory_ids:
        named = next((each for each in found if _is_same(each, path)), None)
        if named is None:
            raise UsageProblem(f"--directory-id {path}: not one of the given log directories")
        by_path[named] = directory_id
    return by_path


def _is_same(path: Location, other: Location) -> bool:
    try:
        return path.is_same(other)
    except OSError:
        return False


def _check(
    directories: Sequence[LogDirectory], server: ServerFile | None, output_format: EventFormat
) -> ExitStatus:
    from kdump.cli.output.identity_output import (
        advice,
        directory_events,
        status_of,
        summary,
    )
    from kdump.jobs.node_identity import NodeIdentity

    node = NodeIdentity(directories, server)
    findings = [each.finding for each in node.problems]
    status = _unreadable(node)
    with open_printer(output_format) as printer:
        printer.emit_all(directory_events(node, _holders(node)))
        emit_findings(printer, findings, verbose=True)
        printer.emit(summary(node))
        printer.emit_text(advice(node))
    return status | status_of(node)


def _repair(
    paths: Sequence[Location],
    server: ServerFile | None,
    given: GivenIdentity,
    writing: RepairArguments,
) -> ExitStatus:
    from kdump.cli.output.identity_output import (
        change_lines,
        directory_events,
        status_of,
        summary,
    )
    from kdump.cli.shared.change_run import changing
    from kdump.jobs.node_identity import NodeIdentity, read_node_directory, targets_of

    with changing("identity", paths, writing) as run:
        # What was read before the lock may have changed since.
        node = NodeIdentity([read_node_directory(path) for path in paths], server)
        repaired = node.repaired(given)
        run.apply(targets_of(node.directories, repaired))
    after = node.after(repaired)
    status = _unreadable(after) | status_of(after)
    with run.report() as printer:
        status |= run.emit_plans(printer, run.operations())
        printer.emit_text(change_lines(repaired, given, node))
        printer.emit_all(directory_events(after))
        emit_findings(printer, [each.finding for each in after.problems], verbose=True)
        printer.emit(summary(after, is_preview=writing.dry_run))
    return run.status(status)


def _holders(node: NodeIdentity) -> dict[Location, str]:
    """Return which process holds the lock of a log directory, where one does."""
    from kdump.log.lock_holders import holder_of

    found = {}
    for each in node.directories:
        path = each.path.storage.local_path(each.path.path)
        with phase(f"looking at the lock of {each.path}"):
            holder = holder_of(path) if path is not None and each.has_lock_file else None
        if holder is not None:
            found[each.path] = holder
    return found


def _unreadable(node: NodeIdentity) -> ExitStatus:
    """Report files that cannot be read."""
    from kdump.cli.output.diagnostics import Diagnostics

    diagnostics = Diagnostics()
    for each in node.directories:
        diagnostics.report_unreadable(each)
    return diagnostics.status
