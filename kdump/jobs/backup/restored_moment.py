"""Restore to a moment between two snapshots: restore the later one, and cut it there.

The cut is a rewind of all restored directories together (:mod:`kdump.jobs.rewind.rewind`). What
there is if the machine stops after each step:

1. Some files, as of any restore: the next run continues, and no broker starts.
2. All files of all directories; their journals say that they are being cut: the next run finishes
   plans that were begun, and cuts again, which changes nothing where it is done.
3. All directories are cut, and some or all journals say so: the next run ends the restores.
4. Some directories are complete: the journals of the others say that all are cut, and the next run
   ends the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.apply.unfinished_copy import FOLDER, name_in_journal, note_cut, read_earlier
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions
from kdump.errors import KdumpError, UsageProblem
from kdump.jobs.backup.restore import (
    RestoreRequest,
    end_restore,
    may_be_restored,
    refuse_other_content,
)
from kdump.jobs.rewind.rewind import Rewind, RewindRequest, rewind
from kdump.jobs.writing.execution import Writing, locked_for_writing, plan_and_apply
from kdump.jobs.writing.large_content import LargeContent
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.phases import phase
from kdump.repair.rewind.log_facts import NotRewindableError
from kdump.state.metadata.settings import read_settings
from kdump.storage.local_disk import local
from kdump.storage.repository import Repository, later_snapshots, later_than_now
from kdump.storage.repository_documents import Snapshot
from kdump.words import shell_command

_ASK: Final = "name the snapshot to cut with --snapshot: 'kdump backup list' shows them"


class RestoredMoment(Struct, frozen=True):
    """How restored log directories were cut."""

    request: RewindRequest
    found: Rewind


def snapshot_to_cut(
    repository: Repository, time_ms: int, log_dirs: Sequence[str], now_ms: int
) -> str:
    """The first snapshot that was begun at a moment or later.

    Args:
        log_dirs: the paths that it must have; any if empty.

    Raises:
        UsageProblem: the moment is not between the first and the last snapshot; or several
            brokers have snapshots, or clocks were wrong, and nobody knows which are meant.
        RepositoryError: a snapshot is damaged.
        OSError: one cannot be read.
    """
    found: dict[str, Snapshot] = {}
    for name in repository.snapshot_ids():
        snapshot = repository.snapshot(name)
        if {each.path for each in snapshot.log_dirs}.issuperset(log_dirs):
            found[name] = snapshot
    if not found:
        what = f" of {', '.join(log_dirs)}" if log_dirs else " yet"
        raise UsageProblem(f"{repository.path}: has no snapshots{what}")
    if later := later_snapshots(found, now_ms):
        raise UsageProblem(f"{repository.path}: {later_than_now(later)}: {_ASK}")
    if len({_brokers(each, log_dirs) for each in found.values()}) > 1:
        raise UsageProblem(
            f"{repository.path}: its snapshots are of the log directories of different brokers:"
            f" {_ASK}"
        )
    names = [*found]
    is_earlier = time_ms < found[names[0]].begun_ms
    if is_earlier or time_ms > found[names[-1]].begun_ms:
        earlier = f", or --snapshot {names[0]}, which can be cut at any time before it"
        raise UsageProblem(
            f"--to: {repository.path} has snapshots from {names[0]} to {names[-1]}: name a time"
            f" that is not before the first or after the last{earlier if is_earlier else ''}"
        )
    return next(name for name in names if found[name].begun_ms >= time_ms)


def _brokers(
    snapshot: Snapshot, log_dirs: Sequence[str]
) -> frozenset[tuple[str | None, int | None]]:
    """The clusters and nodes of log directories."""
    return frozenset(
        (each.cluster_id, each.node_id)
        for each in snapshot.log_dirs
        if not log_dirs or each.path in log_dirs
    )


def require_not_before(name: str, snapshot: Snapshot, time_ms: int) -> None:
    """Refuse to cut a snapshot at a moment after it.

    Raises:
        UsageProblem: the moment is later.
    """
    if snapshot.begun_ms < time_ms:
        raise UsageProblem(f"--to: is after {name}: name a later snapshot, or none")


def left_to_restore(requests: Sequence[RestoreRequest]) -> list[RestoreRequest] | None:
    """The log directories whose files are not known to be complete; None if all are cut already.

    Raises:
        UsageProblem: a directory has something else in it, or is being cut at another moment.
        RepositoryError: a document of the snapshot is damaged or missing.
    """
    left, are_cut, others = [], False, list[tuple[RestoreRequest, UsageProblem]]()
    cut_with = set[str]()
    for request in requests:
        with phase(f"looking at {request.into}"):
            try:
                earlier = read_earlier(request.into)
            except UsageProblem as problem:
                others.append((request, problem))
                continue
        refuse_other_content(request)
        if earlier is None or earlier.cut_to_ms is None:
            left.append(request)
        else:
            are_cut |= earlier.is_cut
            cut_with |= earlier.cut_with
    are_ended = are_cut and not left
    for request, refusal in others:
        is_one_of_them = not cut_with or name_in_journal(request.into) in cut_with
        if not (are_ended and is_one_of_them and may_be_restored(request)):
            if len(others) == len(requests) and all(may_be_restored(each) for each, _ in others):
                raise UsageProblem(_there_already(requests))
            raise refusal
    return None if are_ended else left


def _there_already(requests: Sequence[RestoreRequest]) -> str:
    paths = [str(each.into) for each in requests]
    has = "has this log directory" if len(paths) == 1 else "have these log directories"
    return (
        f"{', '.join(paths)}: {has} already. If a run of this command has ended, the restore is"
        f" done: next: {shell_command('verify', paths)}. If not, name new directories"
    )


def cut_restored(
    requests: Sequence[RestoreRequest],
    now_ms: int,
    options: EngineOptions = DEFAULT_OPTIONS,
) -> RestoredMoment:
    """Cut restored log directories at their moment, all together; no broker starts on them yet.

    Raises:
        KdumpError: they cannot be cut; nothing was changed, or the next run continues.
        OSError: the disk fails.
    """
    time_ms = requests[0].cut_to_ms
    assert time_ms is not None
    paths = [request.into for request in requests]
    writing = Writing("backup restore", keep_undo=False)
    with locked_for_writing(map(local, paths), writing):
        with phase("listing what was restored"):
            directories = [_without_folder(read_log_directory(local(path))) for path in paths]
        request = RewindRequest(
            directories=directories,
            settings=read_settings(directories),
            time_ms=time_ms,
            now_ms=now_ms,
            large_content=LargeContent(writing),
        )
        try:
            found = rewind(request, options)
        except NotRewindableError as failure:
            what = str(failure).removesuffix("; nothing was changed")
            raise NotRewindableError(
                f"{what}. {_uncut(requests)}, and then use kdump rewind --to {time_ms}"
            ) from None
        _require_all_brokers(requests, found)
        for path in paths:
            note_cut(path, time_ms, paths, is_cut=False)
        done = plan_and_apply([each.target for each in found.directories], writing)
        for each in done:
            if each.failure is not None:
                raise each.failure
        for path in paths:
            note_cut(path, time_ms, paths, is_cut=True)
    return RestoredMoment(request, found)


def end_restores(requests: Sequence[RestoreRequest]) -> None:
    """Let brokers start on log directories that are all cut; some may be complete already.

    Raises:
        UsageProblem: a directory has something else in it by now.
        RepositoryError: the document of a root is damaged or missing.
        KdumpError: the disk fails; says what to do.
    """
    for request in requests:
        earlier = None
        with contextlib.suppress(UsageProblem):
            earlier = read_earlier(request.into)
        if earlier is not None:
            end_restore(request)


def _without_folder(directory: LogDirectory) -> LogDirectory:
    """As the directory is once it has no unfinished copy in it any more."""
    return replace(directory, refused=tuple(each for each in directory.refused if each != FOLDER))


def _require_all_brokers(requests: Sequence[RestoreRequest], found: Rewind) -> None:
    if found.absent:
        nodes = ", ".join(map(str, found.absent))
        raise KdumpError(
            f"partitions have replicas on brokers whose log directories are not in this snapshot:"
            f" {nodes}; alone, each broker would be cut at other offsets. {_uncut(requests)},"
            " restore the other brokers likewise, and then cut all together:"
            f" kdump rewind --to {requests[0].cut_to_ms}"
        )


def _uncut(requests: Sequence[RestoreRequest]) -> str:
    """Say that nothing was cut, and how to complete the restore."""
    return (
        "Nothing was cut, and no broker starts on what was restored. Run the same command without"
        f" --to, with --snapshot {requests[0].snapshot}"
    )
