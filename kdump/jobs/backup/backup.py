"""Back up log directories: list them, store what a repository does not have, make a snapshot."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from kdump.apply.lock import require_unlocked
from kdump.check.batches import SegmentScope
from kdump.check.metadata_snapshot import check_metadata_snapshot
from kdump.check.scope import PartitionScope
from kdump.engine.engine_choice import results_here
from kdump.engine.progress import SILENT, Progress
from kdump.errors import KdumpError, reason_of
from kdump.jobs.backup.backup_job import (
    BackupJob,
    BackupSplit,
    Damage,
    FileToStore,
    StoredBytes,
    StoredFiles,
    damage_of,
)
from kdump.jobs.backup.known_files import Identity, KnownFiles, identity_of
from kdump.jobs.copy.copy_plan import (
    CopiedFile,
    CopiedPartition,
    CopyPlan,
    changed_since,
    plan_copy,
)
from kdump.jobs.writing.many_files import SPACE_BYTES_PER_FILE, UnsyncedWork, put_together
from kdump.log.directory import LogDirectory
from kdump.log.selection import EVERYTHING
from kdump.phases import phase
from kdump.repository.repository_place import RepositoryPlace
from kdump.repository.repository_writer import RepositoryWriter, begun_backup, unwritable
from kdump.storage.file_status import FileStatus, file_status
from kdump.storage.repository import later_snapshots
from kdump.storage.repository_documents import (
    BackedUpDirectory,
    BackedUpFile,
    BackedUpLogDirectory,
    FileAttributes,
    NotBackedUp,
    RepositoryPiece,
    Snapshot,
    StoredDirectory,
    stored_bytes,
)


class BackupRequest(Struct, frozen=True):
    """What to back up, and where to.

    Attributes:
        repository: its place.
        log_dirs: with all partitions listed.
        host: the name of this machine.
        kdump: this version.
        now_ms: the current time.
    """

    repository: RepositoryPlace
    log_dirs: Sequence[LogDirectory]
    host: str
    kdump: str
    now_ms: int


class BackupResult(Struct):
    """What was backed up.

    Attributes:
        snapshot: its name; None if none was made.
        log_dirs: in it, or as far as they were stored.
        damage: what was found, by path of the file that has it.
        left_out: what a backup cannot have, by path, and why.
        unreadable: why there is no snapshot.
        unusable: why the files of earlier snapshots were read again.
        later: the snapshots with a time later than this one.
        read_files: how many files were read.
        read_bytes: how many bytes they have.
        files: how many there are.
        size_bytes: in them.
        added_bytes: how many the repository did not have.
    """

    snapshot: str | None = None
    log_dirs: list[BackedUpLogDirectory] = field(default_factory=list)
    damage: list[tuple[Path, Mapping[str, Any]]] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    read_files: int = 0
    read_bytes: int = 0
    files: int = 0
    size_bytes: int = 0
    added_bytes: int = 0


def back_up(
    request: BackupRequest, clock_ms: Callable[[], int], progress: Progress = SILENT
) -> BackupResult:
    """Store what changed, and make a snapshot of everything.

    Args:
        request: what to back up, and where to.
        clock_ms: tells the time, for the end of the run.
        progress: shows how much is stored.

    Raises:
        UsageProblem: the directory of the repository has something else in it.
        LockedError: a broker uses one of the log directories.
        KdumpError: the repository is locked, has too little space, or its disk fails.
        OSError: a log directory cannot be listed.
    """
    log_dirs = [each.path for each in request.log_dirs]
    require_unlocked(log_dirs)
    plans = [plan_copy(each, EVERYTHING) for each in request.log_dirs]
    result = BackupResult()
    with begun_backup(request.repository, request.now_ms) as writer:
        known = KnownFiles(writer)
        with phase(f"reading the snapshots of {writer.repository.path}"):
            known.read([identity_of(each) for each in request.log_dirs])
            result.later = later_snapshots(writer.repository.snapshot_ids(), request.now_ms)
        result.unusable += known.unusable
        for plan in plans:
            run = _Run(request, plan, known, writer, result, progress)
            result.log_dirs.append(run.backed_up())
        _notice_changes(plans, result)
        require_unlocked(log_dirs)
        if not result.unreadable:
            snapshot = Snapshot(request.now_ms, clock_ms(), request.kdump, tuple(result.log_dirs))
            with phase("syncing the repository"):
                result.snapshot = writer.add_snapshot(snapshot)
    return result


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


class _Directory(Struct):
    """A directory while its files are stored.

    Attributes:
        files: those that are stored, by name.
    """

    attributes: FileAttributes
    files: dict[str, BackedUpFile] = field(default_factory=dict)


class _Run:
    """The backup of one log directory."""

    def __init__(
        self,
        request: BackupRequest,
        plan: CopyPlan,
        known: KnownFiles,
        writer: RepositoryWriter,
        result: BackupResult,
        progress: Progress,
    ) -> None:
        self.request = request
        self.plan = plan
        self.known = known
        self.writer = writer
        self.result = result
        self.progress = progress
        self.root = plan.directory.path
        self.where = request.repository.location
        self.identity: Identity = identity_of(plan.directory)
        self.unreadable = list(plan.unreadable)
        self.added_bytes = 0
        self._statuses: dict[str, FileStatus] = {}
        self._directories: dict[str, _Directory] = {}
        self._unsynced = UnsyncedWork(self._place_all)

    def backed_up(self) -> BackedUpLogDirectory:
        """Store the files and the documents of the directories."""
        with phase(f"comparing {self.root} with {self.where}"):
            splits = list(self._splits())
        self._require_space(splits)
        self._store(splits)
        self.result.unreadable += self.unreadable
        self.result.left_out |= self.plan.left_out
        with phase(f"storing the directories of {self.root}"):
            root = self._store_directories()
        return self._ended(root)

    def _splits(self) -> Iterator[BackupSplit]:
        """What has to be read; other files are as an earlier snapshot has them."""
        for name in ("", *self._directories_inside()):
            path = self.root / name if name else self.root
            found = file_status(path.local_path)
            self._directories[name] = _Directory(_attributes_of(found))
        yield from _grouped("", self._changed((each, None, False) for each in self.plan.root))
        for copied in self.plan.partitions:
            yield from _grouped(copied.name, self._changed(self._files_of(copied)))

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

    def _require_space(self, splits: Iterable[BackupSplit]) -> None:
        """Refuse to begin what does not fit.

        Raises:
            KdumpError: it does not.
        """
        files = [each for split in splits for each in split.files]
        needed_bytes = sum(
            each.needed_bytes + (0 if each.is_inline else SPACE_BYTES_PER_FILE) for each in files
        )
        free_bytes = self.request.repository.free_bytes()
        if free_bytes is not None and needed_bytes > free_bytes:
            raise KdumpError(
                f"{self.where}: {self.root} needs {needed_bytes} bytes of free space,"
                f" there are {free_bytes}; no snapshot was made; free some space first"
            )

    def _store(self, splits: Sequence[BackupSplit]) -> None:
        self.result.read_files += sum(len(each.files) for each in splits)
        self.result.read_bytes += sum(each.size_bytes for each in splits)
        job = BackupJob(self.request.repository, self.request.now_ms)
        with (
            phase(f"storing {self.root}"),
            results_here(job, splits, self.progress) as results,
        ):
            try:
                for split, stored in results:
                    if stored.unwritable is not None:
                        raise unwritable(self.where, stored.unwritable)
                    self._take(split, stored)
            finally:
                self._unsynced.place_all()

    def _take(self, split: BackupSplit, stored: StoredFiles) -> None:
        self.unreadable += stored.unreadable
        self._unsynced.add((split, stored), len(split.files), split.size_bytes)

    def _place_all(self, pending: Sequence[tuple[BackupSplit, StoredFiles]]) -> None:
        """Sync what was stored, and give the pieces their names."""
        every = [each for _, stored in pending for each in stored.files if each is not None]
        new = {piece: kept for each in every for kept, piece in each.new}
        self.added_bytes += stored_bytes(each for each in new if not self.writer.has(each))
        self.writer.place([each for found in every for each in found.new])
        for split, stored in pending:
            for file, found in zip(split.files, stored.files, strict=True):
                if found is not None:
                    self._placed(file, found)
        self.writer.write_notes()

    def _placed(self, file: FileToStore, found: StoredBytes) -> None:
        directory, _, name = file.path.rpartition("/")
        status = self._statuses[file.path]
        backed_up = BackedUpFile(
            name,
            status.size_bytes,
            _attributes_of(status),
            status.changed_ns,
            status.file_id,
            found.content,
            found.pieces,
            found.damage or self._of_metadata.get(file.path, ()),
        )
        if found.content is None:
            self.writer.note(self.identity[0], directory, backed_up)
        self._add(file.path, backed_up)

    @functools.cached_property
    def _of_metadata(self) -> dict[str, Damage]:
        """The damage of the snapshot of the cluster's metadata, by the path of its file."""
        return {
            f"{each.name}/{finding.place.path.rpartition('/')[2]}": damage_of([finding])
            for each in self.plan.partitions
            if each.partition is not None
            for finding in check_metadata_snapshot(each.partition)
        }

    def _add(self, path: str, file: BackedUpFile) -> None:
        """Note how a file is stored."""
        self.known.add(path, file)
        directory = path.rpartition("/")[0]
        self._directories[directory].files[file.name] = file
        self.result.damage += [
            (self.root.local_path / directory / each["file"], each) for each in file.damage
        ]

    def _store_directories(self) -> RepositoryPiece:
        """Store the documents of all directories; returns that of the root."""
        inside: dict[str, list[StoredDirectory]] = defaultdict(list)
        for path in sorted(self._directories, key=lambda each: (-_depth(each), each)):
            found = self._directories[path]
            files = tuple(found.files[name] for name in sorted(found.files))
            document = BackedUpDirectory(found.attributes, files, tuple(inside.pop(path, ())))
            piece, added_bytes = self.writer.add_directory(document)
            self.added_bytes += added_bytes
            if not path:
                return piece
            around, _, name = path.rpartition("/")
            inside[around].append(StoredDirectory(name, piece))
        raise AssertionError("a log directory has a root")

    def _ended(self, root: RepositoryPiece) -> BackedUpLogDirectory:
        files = [each for found in self._directories.values() for each in found.files.values()]
        path, cluster_id, node_id, directory_id = self.identity
        log_dir = BackedUpLogDirectory(
            path,
            self.request.host,
            cluster_id,
            node_id,
            directory_id,
            root,
            partitions=sum(each.partition is not None for each in self.plan.partitions),
            files=len(files),
            size_bytes=sum(each.size_bytes for each in files),
            added_bytes=self.added_bytes,
            damaged_files=sum(1 for each in files if each.damage),
            left_out=tuple(NotBackedUp(*each) for each in self.plan.left_out.items()),
        )
        self.result.files += log_dir.files
        self.result.size_bytes += log_dir.size_bytes
        self.result.added_bytes += log_dir.added_bytes
        return log_dir


def _grouped(label: str, files: Iterable[FileToStore]) -> Iterator[BackupSplit]:
    """Put small files of a directory together."""
    for together in put_together(files, lambda each: each.size_bytes):
        yield _split(label, together)


def _split(label: str, files: Sequence[FileToStore]) -> BackupSplit:
    size_bytes = sum(each.size_bytes for each in files)
    return BackupSplit(files[0].source, size_bytes=size_bytes, label=label, files=tuple(files))


def _attributes_of(status: FileStatus) -> FileAttributes:
    return FileAttributes(status.permissions, status.uid, status.gid, status.modified_ns)


def _depth(path: str) -> int:
    return path.count("/") + 1 if path else 0
