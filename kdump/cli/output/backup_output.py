"""What kdump backup has stored, found and restored, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kdump.cli.output.events import Event, write_notice
from kdump.cli.output.other_nodes import ABSENT_CONTROLLER
from kdump.cli.output.rewind_output import OF_CUTS
from kdump.cli.output.value_text import format_bytes, format_timestamp
from kdump.errors import ExitStatus
from kdump.jobs.backup.prune import FUTURE, RULES
from kdump.jobs.verify.finding_row import FINDING
from kdump.rows.row_type import (
    COUNT,
    FLAG,
    INTEGER,
    SIZE,
    TEXT,
    TIME,
    Field,
    JsonAnswer,
    RowType,
    list_of,
    one_of,
    values_of,
)
from kdump.storage.location import Location
from kdump.storage.place_names import kdump_command
from kdump.storage.repository import SNAPSHOTS, later_than_now
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.jobs.backup.check_repository import RepositoryCheck, RepositoryProblem
    from kdump.jobs.backup.directory_backup import BackupResult
    from kdump.jobs.backup.prune import PruneResult
    from kdump.jobs.backup.restore import RestoreRequest, RestoreResult
    from kdump.storage.repository_documents import BackedUpLogDirectory, Snapshot

LOG_DIRECTORY: Final = RowType(
    "log_directory",
    "A log directory of a snapshot.",
    (
        Field("snapshot", TEXT, "The name of the snapshot.", "Snapshot"),
        Field("begun_ms", TIME, "When its backup began.", "Begun", dropped=6),
        Field("log_dir", TEXT, "The path that the log directory had.", "Log dir"),
        Field("host", TEXT, "The machine that it was on.", "Host", dropped=5),
        Field("cluster_id", TEXT.or_null, "From meta.properties."),
        Field("node_id", INTEGER.or_none, "From meta.properties.", "Node", dropped=3),
        Field("directory_id", TEXT.or_null, "From meta.properties."),
        Field(
            "partitions",
            COUNT,
            "How many partitions it had.",
            "Partitions",
            dropped=1,
        ),
        Field("files", COUNT, "How many files it had.", "Files", dropped=2),
        Field("size_bytes", SIZE, "In them.", "Size"),
        Field("added_bytes", SIZE, "What the repository did not have.", "Added", dropped=4),
        Field("damaged_files", COUNT, "In how many files damage was found.", "Damaged", alert=True),
        Field("left_out", COUNT, "What the backup does not have.", "Left out", alert=True),
        Field(
            "is_in_use",
            FLAG,
            "Whether a broker was using it: it is as if the broker had been killed.",
            "In use",
            dropped=7,
        ),
    ),
)
PROBLEM: Final = RowType(
    "problem",
    "Something that was not stored or restored, or is not as it was stored.",
    (
        Field("what", TEXT, "What is wrong, and with which file."),
        Field("snapshots", list_of(TEXT), "The snapshots that cannot be restored as a whole."),
        Field("files", list_of(TEXT), "A few of the files in them."),
        Field("kept_as", TEXT.or_null, "The name that **--repair** gave to a damaged piece."),
    ),
)
CREATED: Final = RowType(
    "created",
    "What a backup has stored.",
    (
        Field("repository", TEXT, "As typed."),
        Field("snapshot", TEXT.or_null, "The name of the snapshot; null if none was made."),
        Field("files", COUNT, "How many files there are."),
        Field("size_bytes", SIZE, "In them."),
        Field("read_files", COUNT, "How many of them were read; others had not changed."),
        Field("read_bytes", SIZE, "In them."),
        Field("added_bytes", SIZE, "How many the repository did not have before."),
        Field("damaged_files", COUNT, "In how many files damage was found."),
    ),
)
CHECKED: Final = RowType(
    "checked",
    "What a repository has.",
    (
        Field("repository", TEXT, "As typed."),
        Field("snapshots", COUNT, "How many snapshots it has."),
        Field("damaged_snapshots", COUNT, "How many cannot be restored as a whole."),
        Field("pieces", COUNT, "How many pieces they need; all were read."),
        Field("size_bytes", SIZE, "In them."),
        Field("unneeded_pieces", COUNT, "How many pieces no snapshot needs."),
        Field("unneeded_bytes", SIZE, "In them."),
    ),
)
PRUNED_SNAPSHOT: Final = RowType(
    "snapshot",
    "A snapshot that prune keeps or removes.",
    (
        Field("snapshot", TEXT, "The name of the snapshot."),
        Field("begun_ms", TIME, "When its backup began."),
        Field(
            "kept_by",
            list_of(one_of(*RULES, FUTURE)),
            "The rules that keep it; `future` if its time is later than now; none: removed.",
        ),
    ),
)
PRUNED: Final = RowType(
    "pruned",
    "What prune removed.",
    (
        Field("repository", TEXT, "As typed."),
        Field("is_preview", FLAG, "Whether nothing was removed, because of --dry-run."),
        Field("kept_snapshots", COUNT, "How many snapshots are kept."),
        Field("removed_snapshots", COUNT, "How many are removed."),
        Field("removed_pieces", COUNT, "How many pieces are removed with them."),
        Field("removed_bytes", SIZE, "In them."),
        Field(
            "young_pieces",
            COUNT,
            "How many more pieces no snapshot needs, and are kept, because they were stored in the"
            " last 24 hours.",
        ),
    ),
)
RESTORED: Final = RowType(
    "restored",
    "A log directory that was restored.",
    (
        Field("snapshot", TEXT, "The name of the snapshot."),
        Field("log_dir", TEXT, "The path that the log directory had."),
        Field("into", TEXT, "The directory that it was restored to."),
        Field("is_complete", FLAG, "Whether everything is there."),
        Field("restored_files", COUNT, "How many files were written."),
        Field("restored_bytes", SIZE, "In them."),
        Field("kept_files", COUNT, "How many an earlier run had written."),
        Field("damaged_files", COUNT, "How many were damaged when they were backed up."),
        Field("is_in_use", FLAG, "Whether a broker was using it when it was backed up."),
    ),
)

CUT: Final = RowType(
    "cut",
    "The moment to which log directories were restored; what it removed follows.",
    (
        Field("snapshot", TEXT, "The name of the snapshot that was cut."),
        Field("to_ms", TIME, "The moment."),
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "backup",
        (
            *(LOG_DIRECTORY, FINDING, PROBLEM, CREATED, CHECKED, PRUNED_SNAPSHOT, PRUNED),
            *(RESTORED, ABSENT_CONTROLLER, CUT, *OF_CUTS),
        ),
        ("backup create", "backup list", "backup check", "backup prune", "backup restore"),
    ),
)


def log_directory_row(
    name: str, snapshot: Snapshot, log_dir: BackedUpLogDirectory
) -> dict[str, Any]:
    """A log directory of a snapshot."""
    return {
        "type": "log_directory",
        **values_of(
            LOG_DIRECTORY.fields,
            log_dir,
            snapshot=name,
            begun_ms=snapshot.begun_ms,
            log_dir=log_dir.path,
            left_out=len(log_dir.left_out),
        ),
    }


def _problem(what: str) -> Event:
    return Event("problem", {"what": what, "snapshots": [], "files": [], "kept_as": None})


def _left_out(result: BackupResult) -> list[str]:
    return [f"{path}: not backed up: {why}" for path, why in result.left_out.items()]


def report_created(result: BackupResult, diagnostics: Diagnostics) -> None:
    """Report on standard error what is not as it should be, and set the exit status."""
    for what in (*_left_out(result), *result.unreadable):
        diagnostics.report_operational(what)
    for what in result.unusable:
        diagnostics.report_damaged(f"{what}; files are read again: run 'kdump backup check'")
    if result.damage:
        diagnostics.status |= ExitStatus.DAMAGE_LEFT


def warn_of_later(names: Sequence[str], repository: Location) -> None:
    """Warn of snapshots with a time later than now."""
    if names:
        what = (
            f"{repository}: {later_than_now(names)}; restore needs --snapshot, and prune keeps such"
            f" snapshots; to do without one, delete its file in {repository / SNAPSHOTS}"
        )
        write_notice(what)


def created_events(result: BackupResult, repository: Location) -> Iterator[Event]:
    """Yield an event for each finding and problem, and the summary."""
    for path, row in result.damage:
        fields = {name: value for name, value in row.items() if name != "file"}
        where = str(path) if row["position"] is None else f"{path} at byte {row['position']}"
        line = f"{row['severity']}: {where}: {row['what']} ({row['code']}); stored as it is"
        yield Event("finding", {**fields, "path": str(path)}, [line])
    yield from map(_problem, (*_left_out(result), *result.unreadable, *result.unusable))
    damaged = sum(each.damaged_files for each in result.log_dirs)
    row = values_of(CREATED.fields, result, repository=str(repository), damaged_files=damaged)
    what = f"{repository}: {counted(result.files, 'file')}, {format_bytes(result.size_bytes)};"
    what += f" {counted(result.read_files, 'file')}, {format_bytes(result.read_bytes)}, read;"
    lines = [f"{what} {format_bytes(result.added_bytes)} added"]
    if damaged:
        lines.append(f"{counted(damaged, 'damaged file')}, stored unchanged")
    if result.snapshot is None:
        lines.append(
            f"{repository}: no snapshot was made: run the same command again once everything can"
            " be read"
        )
    else:
        lines.append(f"{repository}: snapshot {result.snapshot}")
        lines += [
            f"{each.path}: stored as its broker would leave it if it were killed"
            for each in result.log_dirs
            if each.is_in_use
        ]
    yield Event("created", row, lines)


def checked_events(result: RepositoryCheck, repository: Location) -> Iterator[Event]:
    """Yield an event for each problem, and the summary."""
    for each in result.problems:
        fields = {
            "what": f"{each.path}: {each.what}",
            "snapshots": list(each.snapshots),
            "files": list(each.files),
            "kept_as": each.kept_as,
        }
        yield Event("problem", fields, _problem_lines(each))
    row = values_of(
        CHECKED.fields,
        result,
        repository=str(repository),
        damaged_snapshots=len(result.damaged_snapshots),
    )
    what = (
        f"{repository}: {counted(result.snapshots, 'snapshot')},"
        f" {counted(result.pieces, 'piece')}, {format_bytes(result.size_bytes)}, read"
    )
    lines = [what]
    if result.unneeded_pieces:
        lines.append(
            f"{counted(result.unneeded_pieces, 'piece')},"
            f" {format_bytes(result.unneeded_bytes)}, that no snapshot needs"
        )
    if result.problems:
        damaged = counted(len(result.damaged_snapshots), "snapshot")
        lines.append(f"{repository}: damaged: {damaged} cannot be restored as a whole")
        lines += _advice(result, repository)
    else:
        lines.append(f"{repository}: no damage found")
    yield Event("checked", row, lines)


def pruned_events(
    result: PruneResult, repository: Location, *, is_preview: bool
) -> Iterator[Event]:
    """Yield an event for each snapshot, and the summary."""
    removed = "would be removed" if is_preview else "removed"
    for each in result.snapshots:
        fields = {"snapshot": each.name, "begun_ms": each.begun_ms, "kept_by": list(each.kept_by)}
        kept = f"kept: {', '.join(each.kept_by)}"
        yield Event("snapshot", fields, [f"{each.name}: {kept if each.kept_by else removed}"])
    kept_snapshots = sum(1 for each in result.snapshots if each.kept_by)
    removed_snapshots = len(result.snapshots) - kept_snapshots
    row = values_of(
        PRUNED.fields,
        result,
        repository=str(repository),
        is_preview=is_preview,
        kept_snapshots=kept_snapshots,
        removed_snapshots=removed_snapshots,
    )
    line = (
        f"{repository}: {counted(kept_snapshots, 'snapshot')} kept;"
        f" {counted(removed_snapshots, 'snapshot')}, {counted(result.removed_pieces, 'piece')},"
        f" {format_bytes(result.removed_bytes)}, {removed}"
    )
    lines = [line]
    if result.young_pieces:
        pieces = counted(result.young_pieces, "more piece")
        lines.append(
            f"{pieces} that no snapshot needs: kept for 24 hours, because a backup that was stopped"
            " may need them"
        )
    yield Event("pruned", row, lines)


def _advice(result: RepositoryCheck, repository: Location) -> Iterator[str]:
    """What to do next about damaged pieces."""
    first = ""
    if any(each.is_damaged and each.kept_as is None for each in result.problems):
        first = f"{kdump_command('backup check --repair', [repository.typed])}, then "
    if any(each.files for each in result.problems):
        create = kdump_command("backup create", [repository.typed])
        yield (
            f"next: {first}{create} with the same log directories: it stores"
            " again what they still have; what is missing after that is lost"
        )


def _problem_lines(problem: RepositoryProblem) -> list[str]:
    lines = [f"{problem.path}: {problem.what}"]
    lines += [f"  {each}" for each in problem.files]
    if problem.more_files:
        lines.append(f"  … and {counted(problem.more_files, 'more file')}")
    lines += [f"  needed by snapshot {each}" for each in problem.snapshots]
    if problem.kept_as is not None:
        lines.append(f"  renamed to {problem.kept_as}")
    return lines


def report_restored(
    request: RestoreRequest, result: RestoreResult, diagnostics: Diagnostics
) -> None:
    """Report on standard error what was not restored, and set the exit status."""
    for what in result.unrestored:
        diagnostics.report_operational(what)
    if request.log_dir.damaged_files:
        diagnostics.status |= ExitStatus.DAMAGE_LEFT


def restored_events(request: RestoreRequest, result: RestoreResult) -> Iterator[Event]:
    """Yield an event for each problem, and what was restored."""
    yield from map(_problem, result.unrestored)
    row = values_of(
        RESTORED.fields,
        result,
        snapshot=request.snapshot,
        log_dir=request.log_dir.path,
        into=str(request.into),
        damaged_files=request.log_dir.damaged_files,
        is_in_use=request.log_dir.is_in_use,
    )
    what = (
        f"{request.into}: {counted(result.restored_files, 'file')},"
        f" {format_bytes(result.restored_bytes)}, restored"
    )
    if result.kept_files:
        what += f"; {counted(result.kept_files, 'file')} were restored before"
    lines = [what]
    if request.log_dir.damaged_files:
        damaged = counted(request.log_dir.damaged_files, "damaged file")
        lines.append(f"{damaged}, restored as stored")
    if request.log_dir.is_in_use:
        lines.append(
            f"{request.into}: as its broker would have left it if it had been killed: a broker"
            " recovers it at its start"
        )
    lines.append(
        f"{request.into}: complete"
        if result.is_complete and request.cut_to_ms is None
        else f"{request.into}: all files are there; no broker starts with it before it is cut"
        if result.is_complete
        else f"{request.into}: not complete, and no broker starts with it"
    )
    yield Event("restored", row, lines)


def cut_event(request: RestoreRequest) -> Event:
    """Which snapshot is cut, and at which moment."""
    assert request.cut_to_ms is not None
    row = {"snapshot": request.snapshot, "to_ms": request.cut_to_ms}
    when = format_timestamp(request.cut_to_ms)
    return Event("cut", row, [f"snapshot {request.snapshot}, cut at {when} (UTC)"])


def uncut_lines(requests: Sequence[RestoreRequest], begun_ms: int) -> Iterator[str]:
    """Say how to have the partitions of running brokers as at one moment."""
    if any(each.log_dir.is_in_use for each in requests):
        yield (
            "brokers were running, so that the partitions are not as at one moment: transactions"
            " can be whole in some of them only, and kdump txns names those that cannot end; to"
            f" cut all partitions at one moment: restore with --to {format_timestamp(begun_ms)}"
        )


def ended_lines(requests: Sequence[RestoreRequest]) -> Iterator[str]:
    """Say that what was cut is complete."""
    return (f"{each.into}: complete" for each in requests)
