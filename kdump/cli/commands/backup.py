"""Back up log directories, check backups, restore from them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import kdump
from kdump.cli.options.conflicts import require_at_most_one
from kdump.cli.options.parameters import MOMENT, LocationParameter, paths_argument
from kdump.cli.options.progress_option import progress_option
from kdump.cli.options.selection_options import selection_options
from kdump.cli.output.events import EventFormat, events_option, open_printer
from kdump.cli.output.rendering import OutputFormat, open_output, output_option
from kdump.cli.output.selection_words import selection_words
from kdump.clock import current_time_ms
from kdump.errors import ExitStatus, UsageProblem
from kdump.phases import phase
from kdump.storage.local_disk import LOCAL_DISK
from kdump.storage.location import Location
from kdump.storage.place_names import is_store_uri
from kdump.storage.places import parse_location
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.cli.output.events import Printer
    from kdump.jobs.backup.restore import RestoreRequest
    from kdump.log.selection import PartitionSelection
    from kdump.storage.repository_documents import BackedUpLogDirectory, Snapshot

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class RepositoryParameter(LocationParameter):
    """A repository: a directory on a local disk, or in a bucket of S3."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not is_store_uri(str(value)):
            return super().convert(value, param, ctx)
        from kdump.repository.known_places import place_at

        return place_at(parse_location(str(value))).location


_REPOSITORY = click.argument(
    "repository", metavar="REPOSITORY", type=RepositoryParameter(readable=False, written=True)
)


def _keep(rule: str, what: str) -> Callable[[FunctionT], FunctionT]:
    return click.option(
        f"--keep-{rule}",
        metavar="N",
        type=click.IntRange(min=1),
        help=f"For each log directory, keep {what}.",
    )


@click.group("backup")
def command() -> None:
    """Back up log directories, check backups, restore from them."""


@command.command("create")
@_REPOSITORY
@paths_argument("LOG_DIR", written=True)
@click.option(
    "--live",
    is_flag=True,
    help="Read every directory as in use: for a broker whose lock cannot be seen from here.",
)
@click.option("--stopped", is_flag=True, help="Refuse a directory that is in use.")
@events_option
@progress_option
def create(
    repository: Location,
    paths: Sequence[Location],
    live: bool,
    stopped: bool,
    output_format: EventFormat,
    progress: bool | None,
) -> ExitStatus:
    """Store what changed in log directories, and make a snapshot of everything.

    REPOSITORY is a directory on a local disk, or s3://BUCKET/PATH; it is created. A directory that
    a broker is using is stored as the broker would leave it if it were killed.
    """
    from kdump.cli.output.backup_output import created_events, report_created, warn_of_later
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.progress_bar import shown
    from kdump.cli.shared.directories import read_log_directories
    from kdump.jobs.backup.backup import back_up
    from kdump.jobs.backup.directory_backup import BackupRequest
    from kdump.log.lock_holders import ReadAs
    from kdump.repository.known_places import place_at

    require_at_most_one({"--live": live, "--stopped": stopped})
    reading = ReadAs.LIVING if live else ReadAs.STOPPED if stopped else ReadAs.AS_FOUND
    diagnostics = Diagnostics()
    _refuse_overlap(repository, paths, "REPOSITORY")
    with shown(progress) as display:
        log_dirs = read_log_directories(paths, diagnostics)
        if diagnostics.status & ExitStatus.OPERATIONAL_ERROR or not log_dirs:
            return diagnostics.status | ExitStatus.OPERATIONAL_ERROR
        place = place_at(repository.resolved())
        request = BackupRequest(
            place, log_dirs, _host(), kdump.__version__, current_time_ms(), reading
        )
        result = back_up(request, current_time_ms, display)
    report_created(result, diagnostics)
    warn_of_later(result.later, repository)
    with open_printer(output_format) as printer:
        printer.emit_all(created_events(result, repository))
    return diagnostics.status


@command.command("list")
@_REPOSITORY
@output_option
def list_snapshots(repository: Location, output: OutputFormat) -> ExitStatus:
    """List the snapshots, a line for each of their log directories."""
    from kdump.cli.output.backup_output import LOG_DIRECTORY, log_directory_row
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.jobs.backup.restore import repository_at
    from kdump.storage.repository import RepositoryError

    diagnostics = Diagnostics()
    found = repository_at(repository)
    rows = []
    with phase(f"reading the snapshots of {repository}"):
        for name in found.snapshot_ids():
            try:
                snapshot = found.snapshot(name)
            except RepositoryError as failure:
                diagnostics.report_damaged(str(failure))
                continue
            rows += [log_directory_row(name, snapshot, each) for each in snapshot.log_dirs]
    with open_output(output, LOG_DIRECTORY.columns) as shown:
        shown.rows(rows)
    return diagnostics.status


@command.command("check")
@_REPOSITORY
@click.option(
    "--repair",
    "is_repair",
    is_flag=True,
    help="Rename damaged pieces, so that the next create stores them again.",
)
@events_option
@progress_option
def check(
    repository: Location, is_repair: bool, output_format: EventFormat, progress: bool | None
) -> ExitStatus:
    """Read everything that snapshots need, and compare it with its SHA-256."""
    from kdump.cli.output.backup_output import checked_events
    from kdump.cli.output.progress_bar import shown
    from kdump.jobs.backup.check_repository import check_repository
    from kdump.jobs.backup.restore import repository_at
    from kdump.repository.known_places import place_at

    found = repository_at(repository)
    where = place_at(found.path)
    locked = where.locked_to_remove() if is_repair else where.locked_to_read()
    with shown(progress) as display, locked as lock:
        result = check_repository(found, display, repair=lock)
    with open_printer(output_format) as printer:
        printer.emit_all(checked_events(result, repository))
    return ExitStatus.DAMAGE_LEFT if result.problems else ExitStatus.SOUND


@command.command("prune")
@_REPOSITORY
@_keep("last", "the last N snapshots")
@_keep("hourly", "the last snapshot of each of the last N hours that have one")
@_keep("daily", "the last snapshot of each of the last N days that have one, in UTC")
@_keep("weekly", "the last snapshot of each of the last N weeks that have one")
@_keep("monthly", "the last snapshot of each of the last N months that have one")
@_keep("yearly", "the last snapshot of each of the last N years that have one")
@click.option("--dry-run", "is_preview", is_flag=True, help="Preview and remove nothing.")
@events_option
def prune(
    repository: Location, is_preview: bool, output_format: EventFormat, **keep: int | None
) -> ExitStatus:
    """Remove the snapshots that no rule keeps, and what only they need.

    A snapshot is kept if any rule keeps it for any of its log directories.
    """
    from kdump.cli.output.backup_output import pruned_events, warn_of_later
    from kdump.jobs.backup import prune as job
    from kdump.jobs.backup.restore import repository_at

    rules = {rule: count for rule in job.RULES if (count := keep[f"keep_{rule}"]) is not None}
    if not rules:
        options = ", ".join(f"--keep-{rule}" for rule in job.RULES)
        raise UsageProblem(f"say what to keep: one or more of {options}")
    found = repository_at(repository)
    result = job.prune(found, rules, current_time_ms(), is_preview=is_preview)
    warn_of_later(result.later, repository)
    with open_printer(output_format) as printer:
        printer.emit_all(pruned_events(result, repository, is_preview=is_preview))
    return ExitStatus.SOUND


@command.command("restore")
@_REPOSITORY
@click.option(
    "--into",
    "targets",
    metavar="DIR",
    type=LocationParameter(readable=False, written=True),
    multiple=True,
    required=True,
    help="Restore to this new or empty directory; once for each log directory, in the order of"
    " the list.",
)
@click.option(
    "--snapshot",
    "name",
    metavar="ID",
    help="Restore this snapshot (default: the newest); its beginning is enough.",
)
@click.option(
    "--to",
    "time_ms",
    type=MOMENT,
    help="Restore to this moment: the first snapshot that is not earlier, cut as by kdump rewind"
    " --to; ISO 8601 or epoch milliseconds.",
)
@click.option(
    "--log-dir",
    "wanted",
    metavar="PATH",
    multiple=True,
    help="Restore only the log directory that had this path (default: all); may be repeated.",
)
@selection_options
@events_option
@progress_option
def restore(
    repository: Location,
    targets: Sequence[Location],
    name: str | None,
    time_ms: int | None,
    wanted: Sequence[str],
    selection: PartitionSelection,
    output_format: EventFormat,
    progress: bool | None,
) -> ExitStatus:
    """Restore log directories byte for byte, to new or empty directories.

    With --topic or --partition, restore these partitions only, for kdump or a broker of its own. A
    restore that was stopped continues when it is run again.
    """
    from kdump.cli.output.backup_output import report_restored, restored_events, uncut_lines
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.other_nodes import report_other_nodes
    from kdump.cli.output.progress_bar import shown
    from kdump.jobs.backup.restore import (
        RestoreRequest,
        has_selected,
        others_than_restored,
        refuse_other_content,
        refuse_other_snapshot,
        repository_at,
    )
    from kdump.jobs.backup.restore import (
        restore as restore_directory,
    )
    from kdump.jobs.backup.restored_moment import (
        left_to_restore,
        require_not_before,
        snapshot_to_cut,
    )
    from kdump.repository.known_places import place_at

    found = repository_at(repository)
    with phase(f"reading the snapshots of {repository}"):
        if name is None and time_ms is not None:
            name = snapshot_to_cut(found, time_ms, wanted, current_time_ms())
        else:
            name = found.named_snapshot(name, current_time_ms())
        snapshot = found.snapshot(name)
        if time_ms is not None:
            require_not_before(name, snapshot, time_ms)
        there = [each for each in snapshot.log_dirs if has_selected(found, each, selection)]
    if not there:
        globs = shlex.join(selection_words(selection))
        raise UsageProblem(f"no partition in {name} of {repository} matches {globs}")
    log_dirs = _chosen(snapshot, name, wanted, there, len(targets))
    for number, each in enumerate(targets):
        _refuse_overlap(each, [repository, *targets[:number]], "--into")
    requests = [
        RestoreRequest(found, name, log_dir, target.as_absolute().local_path, selection, time_ms)
        for log_dir, target in zip(log_dirs, targets, strict=True)
    ]
    # First of all of them: one that is complete already says less.
    for request in requests:
        refuse_other_snapshot(request)
    left: Sequence[RestoreRequest] | None = requests
    if time_ms is not None:
        left = left_to_restore(requests)
    else:
        for request in requests:
            refuse_other_content(request)
    diagnostics = Diagnostics()
    with open_printer(output_format) as printer, place_at(found.path).locked_to_read():
        is_complete = True
        for request in left or ():
            with shown(progress) as display:
                result = restore_directory(request, display)
            report_restored(request, result, diagnostics)
            printer.emit_all(restored_events(request, result))
            is_complete &= result.is_complete
        if time_ms is not None and is_complete:
            diagnostics.status |= _cut(requests, printer, is_done=left is None)
        elif is_complete and selection.is_everything:
            printer.emit_text(uncut_lines(requests, snapshot.begun_ms))
            report_other_nodes(printer, others_than_restored(requests))
    return diagnostics.status


def _cut(requests: Sequence[RestoreRequest], printer: Printer, *, is_done: bool) -> ExitStatus:
    """Cut what was restored at its moment, unless an earlier run did, and end the restore."""
    from kdump.cli.output.backup_output import cut_event, ended_lines
    from kdump.cli.output.rewind_output import report_rewind
    from kdump.jobs.backup.restored_moment import cut_restored, end_restores

    status = ExitStatus.SOUND
    printer.emit(cut_event(requests[0]))
    if not is_done:
        cut = cut_restored(requests, current_time_ms())
        status = report_rewind(printer, cut.request, cut.found, dry_run=False, verbose=False)
    end_restores(requests)
    printer.emit_text(ended_lines(requests))
    return status


def _chosen(
    snapshot: Snapshot,
    name: str,
    wanted: Sequence[str],
    selected: Sequence[BackedUpLogDirectory],
    count: int,
) -> Sequence[BackedUpLogDirectory]:
    """The log directories to restore, in the order of the snapshot.

    Args:
        wanted: their paths; empty for all.
        selected: those that have a selected partition.
        count: how many there have to be.

    Raises:
        UsageProblem: one is not in it, or there are not as many targets.
    """
    there = [each.path for each in snapshot.log_dirs]
    for each in wanted:
        if each not in there:
            raise UsageProblem(f"--log-dir: {each} is not in {name}, which has {', '.join(there)}")
    chosen = [each for each in selected if not wanted or each.path in wanted]
    if not chosen:
        paths = ", ".join(each.path for each in selected)
        raise UsageProblem(f"--log-dir: no selected partition is there, but in {paths}")
    if len(chosen) != count:
        paths = ", ".join(each.path for each in chosen)
        raise UsageProblem(
            f"--into is given {counted(count, 'time')}, for"
            f" {counted(len(chosen), 'log directory', 'log directories')}: {paths};"
            " --log-dir chooses among them"
        )
    return chosen


def _refuse_overlap(target: Location, others: Sequence[Location], named: str) -> None:
    """Refuse to write inside of a log directory, or of what is also named, or around it.

    Raises:
        UsageProblem: it would be.
    """
    from kdump.cli.output.out_file import refuse_log_directories

    if target.storage != LOCAL_DISK:
        return
    with phase(f"looking at {target}"):
        own = Path(target.resolved().path)
        for other in others:
            if other.storage != LOCAL_DISK:
                continue
            path = Path(other.resolved().path)
            if own == path or own in path.parents or path in own.parents:
                raise UsageProblem(
                    f"{named} {target}: overlaps {other}: name a directory elsewhere"
                )
        refuse_log_directories(target.path, f"{named} {target}")


def _host() -> str:
    import socket

    return socket.gethostname()
