"""Back up log directories: list them, store what a repository does not have, make a snapshot."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence

from kdump.apply.lock import require_unlocked
from kdump.apply.runs import list_undos
from kdump.check.batches import SegmentScope
from kdump.check.metadata_snapshot import check_metadata_snapshot
from kdump.check.scope import PartitionScope
from kdump.engine.progress import SILENT, Progress
from kdump.errors import KdumpError, reason_of
from kdump.jobs.backup.backup_job import BackupSplit, Damage, FileToStore, damage_of
from kdump.jobs.backup.directory_backup import (
    BackupRequest,
    BackupResult,
    BackupRun,
    Directory,
    DirectoryBackup,
    attributes_of,
    grouped,
)
from kdump.jobs.backup.known_files import KnownFiles, identity_of
from kdump.jobs.backup.living_backup import LivingDirectory, back_up_living
from kdump.jobs.copy.copy_plan import (
    CopiedFile,
    CopiedPartition,
    CopyPlan,
    changed_since,
    plan_copy,
)
from kdump.log.directory import DirectoryKind
from kdump.log.lock_holders import is_living
from kdump.log.selection import EVERYTHING
from kdump.phases import phase
from kdump.processes.cpu_share import half_of_the_cpus
from kdump.processes.io_priority import idle_io_priority
from kdump.repository.repository_writer import begun_backup
from kdump.storage.file_status import FileStatus, file_status
from kdump.storage.location import Location
from kdump.storage.repository import later_snapshots
from kdump.storage.repository_documents import (
    BackedUpFile,
    BackedUpLogDirectory,
    Snapshot,
    stored_bytes,
)
from kdump.words import undo_command


def back_up(
    request: BackupRequest, clock_ms: Callable[[], int], progress: Progress = SILENT
) -> BackupResult:
    """Store what changed, and make a snapshot of everything.

    Args:
        clock_ms: tells the time, for the end of the run.

    Raises:
        UsageProblem: the directory of the repository has something else in it.
        LockedError: a broker uses one of the log directories that are read as stopped.
        KdumpError: the repository is locked, has too little space, or its disk fails; or a run of
            kdump has not finished in a log directory that is in use.
        OSError: a log directory cannot be listed.
    """
    in_use = {
        each.path
        for each in request.log_dirs
        if each.kind is not DirectoryKind.LOG_DIRECTORY_0_7
        and is_living(each.path, request.reading)
    }
    stopped = [each.path for each in request.log_dirs if each.path not in in_use]
    require_unlocked(stopped)
    runs = _finished_runs(in_use)
    plans = [plan_copy(each, EVERYTHING) for each in request.log_dirs if each.path in stopped]
    result = BackupResult()
    with begun_backup(request.repository, request.now_ms) as writer:
        known = KnownFiles(writer)
        with phase(f"reading the snapshots of {writer.repository.path}"):
            known.read([identity_of(each) for each in request.log_dirs])
            result.later = later_snapshots(writer.repository.snapshot_ids(), request.now_ms)
        result.unusable += known.unusable
        run = BackupRun(request, known, writer, result, progress)
        living = [LivingDirectory(run, each) for each in request.log_dirs if each.path in in_use]
        done = {plan.directory.path: _StoppedDirectory(run, plan).backed_up() for plan in plans}
        if living:
            # Not at the idle priority for CPUs: while a partition is read, its broker changes it.
            with idle_io_priority(), half_of_the_cpus():
                done |= back_up_living(living)
        result.log_dirs = [done[each.path] for each in request.log_dirs]
        _notice_changes(plans, result)
        require_unlocked(stopped)
        for log_dir, number in sorted(_finished_runs(in_use) ^ runs, key=str):
            raise KdumpError(
                f"{log_dir}: run {number} of kdump has changed it meanwhile, or was undone: there"
                " is no new snapshot; run this again"
            )
        if not result.unreadable:
            snapshot = Snapshot(request.now_ms, clock_ms(), request.kdump, tuple(result.log_dirs))
            with phase("syncing the repository"):
                result.snapshot = writer.add_snapshot(snapshot)
    return result


def _finished_runs(log_dirs: Iterable[Location]) -> set[tuple[Location, str]]:
    """The runs of kdump that can be undone in log directories that are in use, if all are finished.

    The one that uses a directory may be kdump. Each partition would be as it was at one moment, but
    some before a change and some after it.

    Raises:
        KdumpError: a run has begun to change one, and has not finished.
    """
    found = set()
    for log_dir in log_dirs:
        path = log_dir.storage.local_path(log_dir.path)
        for run in () if path is None else list_undos(path):
            if run.is_interrupted:
                raise KdumpError(
                    f"{log_dir}: run {run.undo_id} of kdump is changing it, or was stopped before"
                    " its end: there is no new snapshot; wait for its end, or undo it while the"
                    f" broker is stopped: {undo_command(log_dir, run.undo_id)}"
                )
            found.add((log_dir, run.undo_id))
    return found


def _notice_changes(plans: Sequence[CopyPlan], result: BackupResult) -> None:
    """Look again at what was read: nobody should write to it meanwhile."""
    for plan in plans:
        try:
            with phase(f"looking for changes in {plan.directory.path}"):
                changed = list(changed_since(plan, EVERYTHING))
        except OSError as failure:
            where = failure.filename or plan.directory.path
            result.unreadable.append(f"{where}: {reason_of(failure)}")
            continue
        result.unreadable += [
            f"{each}: changed while it was backed up: is it in use?" for each in changed
        ]


class _StoppedDirectory(DirectoryBackup):
    """The backup of a log directory that nobody changes meanwhile."""

    def __init__(self, run: BackupRun, plan: CopyPlan) -> None:
        super().__init__(run, plan.directory)
        self.plan = plan
        self.unreadable += plan.unreadable

    def backed_up(self) -> BackedUpLogDirectory:
        """Store the files and the documents of the directories."""
        with phase(f"comparing {self.root} with {self.where}"):
            splits = list(self._splits())
        self._require_space(splits)
        self._store(splits)
        partitions = sum(each.partition is not None for each in self.plan.partitions)
        return self._ended(partitions, self.plan.left_out)

    def _splits(self) -> Iterator[BackupSplit]:
        """What has to be read; other files are as an earlier snapshot has them."""
        for name in ("", *self._directories_inside()):
            path = self.root / name if name else self.root
            found = file_status(path.local_path)
            self._directories[name] = Directory(attributes_of(found))
        yield from grouped("", self._changed((each, None, False) for each in self.plan.root))
        for copied in self.plan.partitions:
            yield from grouped(copied.name, self._changed(self._files_of(copied)))

    def _directories_inside(self) -> Iterator[str]:
        for each in self.plan.partitions:
            yield from (each.name, *each.directories)

    def _files_of(
        self, copied: CopiedPartition
    ) -> Iterator[tuple[CopiedFile, SegmentScope | None, bool]]:
        """The files of a directory; for a log what to check it against, and whether it has to be.

        What was found in a log depends on its indexes, too: if one has changed, it is read again.
        """
        for each in copied.others:
            yield each, None, False
        if copied.partition is None:
            return
        scope = PartitionScope(copied.partition, is_clean=self.plan.directory.is_clean)
        for segment, (_, of_segment) in zip(copied.segments, scope.segment_scopes(), strict=True):
            for each in segment.files:
                is_log = each.path.endswith(f"/{segment.segment.log_name}")
                if not is_log:
                    yield each, None, False
                else:
                    indexes = [other for other in segment.files if other is not each]
                    is_read = any(self._same(other) is None for other in indexes)
                    yield each, of_segment, is_read

    def _changed(
        self, files: Iterable[tuple[CopiedFile, SegmentScope | None, bool]]
    ) -> Iterator[FileToStore]:
        """The files that have to be read; the others are noted as they were stored."""
        for file, scope, is_read in files:
            try:
                status = self._status(file)
            except OSError as failure:
                self.unreadable.append(f"{file.source}: {reason_of(failure)}")
                continue
            same = None if is_read else self._same(file)
            if same is not None:
                self._add(file.path, same)
                continue
            size_bytes = status.size_bytes
            known, lost = self.known.beginnings(self.identity, file.path, size_bytes)
            needed_bytes = stored_bytes(lost) if known else file.needed_bytes
            yield FileToStore(file.path, file.source, size_bytes, needed_bytes, known, lost, scope)

    def _status(self, file: CopiedFile) -> FileStatus:
        status = self._statuses.get(file.path)
        if status is None:
            status = self._statuses[file.path] = file_status(file.source.local_path)
        return status

    def _same(self, file: CopiedFile) -> BackedUpFile | None:
        try:
            return self.known.same(self.identity, file.path, self._status(file))
        except OSError:
            return None

    def _damage_beside(self, path: str) -> Damage:
        return self._of_metadata.get(path, ())

    @functools.cached_property
    def _of_metadata(self) -> dict[str, Damage]:
        """The damage of the snapshot of the cluster's metadata, by the path of its file."""
        return {
            f"{each.name}/{finding.place.path.rpartition('/')[2]}": damage_of([finding])
            for each in self.plan.partitions
            if each.partition is not None
            for finding in check_metadata_snapshot(each.partition)
        }
