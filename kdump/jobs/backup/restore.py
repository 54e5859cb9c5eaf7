"""Restore a log directory of a snapshot to an empty directory, byte for byte.

Written as a copy is (:mod:`kdump.apply.unfinished_copy`): each file has its name as soon as it is
complete, no broker starts before all are there, and a run that was stopped continues.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.apply.files import DISK, Metadata, free_bytes_at
from kdump.apply.lock import drop_leftover, hold_locks
from kdump.apply.unfinished_copy import (
    TEMPORARY_PREFIX,
    CopySource,
    UnfinishedCopy,
    begun_copy,
    is_in_a_copy,
    is_there,
    read_earlier,
    unwritable,
)
from kdump.engine.engine_choice import results_here
from kdump.engine.job import Split
from kdump.engine.progress import SILENT, Progress
from kdump.errors import KdumpError, UsageProblem
from kdump.formats import names
from kdump.formats.checkpoints import decode_offset_checkpoint, encode_offset_checkpoint
from kdump.formats.errors import FormatError
from kdump.formats.names import LOCK_FILE, TopicPartition
from kdump.jobs.known_cluster import OtherNodes, other_nodes
from kdump.jobs.writing.many_files import SPACE_BYTES_PER_FILE, UnsyncedWork, put_together
from kdump.log.directory import read_log_directory
from kdump.log.selection import EVERYTHING, PartitionSelection
from kdump.phases import phase
from kdump.repository.piece_writer import PieceDiffersError, PieceWriter
from kdump.scan.source import read_at
from kdump.state.metadata.settings import read_settings
from kdump.storage.entries import EntryKind
from kdump.storage.local_disk import local
from kdump.storage.location import Location, StoredFile
from kdump.storage.places import concurrent_reads
from kdump.storage.repository import Repository, RepositoryError, sha256_of, worded
from kdump.storage.repository_documents import (
    BackedUpDirectory,
    BackedUpFile,
    BackedUpLogDirectory,
    FileAttributes,
)
from kdump.storage.sparse_writer import WriteFailedError, writing
from kdump.storage.unfinished_file import UnfinishedFile


class RestoreRequest(Struct, frozen=True):
    """What to restore, and where to.

    Attributes:
        snapshot: its name.
        log_dir: one of its log directories.
        into: an empty directory, or one that is missing; absolute.
        selection: the partitions to restore; with them come the files that Kafka keeps in the root,
            the checkpoints with the lines of these partitions only, and the cluster's metadata, as
            in a copy (:mod:`kdump.jobs.copy.copy_plan`).
        cut_to_ms: the moment to which it is cut after that
            (:mod:`kdump.jobs.backup.restored_moment`): until then no broker starts on it. None to
            restore it as it was backed up.
    """

    repository: Repository
    snapshot: str
    log_dir: BackedUpLogDirectory
    into: Path
    selection: PartitionSelection = EVERYTHING
    cut_to_ms: int | None = None

    @property
    def words(self) -> dict[str, str]:
        """What the journal says of the request: another run continues the same only."""
        words = {
            "repository": str(self.repository.path),
            "snapshot": self.snapshot,
            "log_dir": self.log_dir.path,
        }
        if not self.selection.is_everything:
            words["topics"] = shlex.join(self.selection.topics)
            words["partitions"] = shlex.join(self.selection.partitions)
        return words


class RestoreResult(Struct):
    """What was restored of a log directory.

    Attributes:
        restored_files: how many files this run has written.
        restored_bytes: in them.
        kept_files: how many an earlier run had written.
        unrestored: why files are missing.
    """

    restored_files: int = 0
    restored_bytes: int = 0
    kept_files: int = 0
    unrestored: list[str] = field(default_factory=list)
    is_complete: bool = False


class FileToRestore(Struct, frozen=True):
    """A file, and its path in the log directory."""

    path: str
    file: BackedUpFile


class RestoreSplit(Split, frozen=True, kw_only=True):
    """Files to restore."""

    repository: Repository
    files: tuple[FileToRestore, ...]


class RestoredFiles(Struct, frozen=True):
    """What was restored of a split.

    Attributes:
        temporary: the path of each file, in the order of the split; None if it was not written.
        unrestored: why files were not written.
        unwritable: why the job ended: the disk fails.
    """

    temporary: tuple[str | None, ...] = ()
    unrestored: tuple[str, ...] = ()
    unwritable: str | None = None


class RestoreJob(Struct, frozen=True):
    """Writes files from their pieces, and compares each piece with its SHA-256.

    Attributes:
        folder: where files are before they have their names.
    """

    folder: str

    def run(self, split: RestoreSplit, /) -> RestoredFiles:
        """Restore the files of a split, each complete or not at all; they are not synced."""
        temporary: list[str | None] = []
        unrestored: list[str] = []
        try:
            for each in split.files:
                try:
                    temporary.append(self._restored(split.repository, each.file))
                except (OSError, EOFError, RepositoryError) as failure:
                    temporary.append(None)
                    unrestored.append(f"{each.path}: {worded(failure)}")
        except WriteFailedError as failure:
            return RestoredFiles(unwritable=str(failure))
        return RestoredFiles(tuple(temporary), tuple(unrestored))

    def _restored(self, repository: Repository, file: BackedUpFile) -> str:
        with self._new() as new:
            writer = PieceWriter(new.stream, file.pieces)
            if file.content:
                writer.write(memoryview(file.content))
            with repository.file(file.pieces) as source:
                try:
                    if file.content is None:
                        writer.append(source, file.size_bytes)
                    writer.end(file.size_bytes)
                except PieceDiffersError as difference:
                    damaged = repository.location(file.pieces[difference.number])
                    what = "damaged: its SHA-256 is not its name"
                    raise RepositoryError(f"{damaged}: {what}") from None
            with writing():
                new.close()
            return new.keep()

    def _new(self) -> UnfinishedFile:
        with writing():
            return UnfinishedFile.beside(Path(self.folder, "file"), TEMPORARY_PREFIX, mode=0o600)


def restore(request: RestoreRequest, progress: Progress = SILENT) -> RestoreResult:
    """Restore a log directory.

    Raises:
        UsageProblem: the directory has something else in it.
        RepositoryError: a document of the snapshot is damaged or missing; nothing was written.
        KdumpError: there is not enough space, or the disk fails; says what to do.
    """
    directories = _directories(request)
    files = _files_of(directories)
    result = RestoreResult()
    if request.cut_to_ms is None and _seems_complete(request, directories):
        # The last run was stopped before it set the time.
        result.kept_files, result.is_complete = len(files), True
        _require_same_bytes(request, files)
        with hold_locks([request.into]):
            drop_leftover(request.into)
    else:
        refuse_other_content(request)
        _require_space(request, files)
        with begun_copy(request.into, request.words) as copy:
            _Run(request, directories, copy, result, progress).run(files)
    if result.is_complete and request.cut_to_ms is None:
        _set_time(request, directories[""])
    return result


def end_restore(request: RestoreRequest) -> None:
    """End a restore that was left unfinished until it was cut: brokers may start on it.

    Raises:
        RepositoryError: the document of its root is damaged or missing.
        KdumpError: the disk fails; says what to do.
    """
    root = request.repository.directory(request.log_dir.root)
    with begun_copy(request.into, request.words) as copy:
        _set_metadata(request.into, root)  # who may read it, before a broker may start
        copy.finish()
    _set_time(request, root)


def others_than_restored(requests: Sequence[RestoreRequest]) -> OtherNodes:
    """The nodes of the cluster whose log directories are not among those that are complete now.

    Raises:
        OSError: a directory cannot be read any more.
    """
    with phase("reading the cluster's metadata"):
        directories = [read_log_directory(local(request.into)) for request in requests]
        return other_nodes(directories, read_settings(directories).values())


def _set_time(request: RestoreRequest, root: BackedUpDirectory) -> None:
    """Set the attributes of the directory itself: the journal and the lock were in it."""
    with phase(f"setting the time of {request.into}"):
        _set_metadata(request.into, root)
        DISK.sync([request.into])


def refuse_other_snapshot(request: RestoreRequest) -> None:
    """Refuse a directory that has the beginning of the same restore of another snapshot.

    Raises:
        UsageProblem: it has; names that snapshot.
    """
    earlier = None
    with phase(f"looking at {request.into}"), contextlib.suppress(UsageProblem):
        earlier = read_earlier(request.into)
    if earlier is None or earlier.request == request.words:
        return
    if {**earlier.request, "snapshot": request.snapshot} == request.words:
        begun = earlier.request["snapshot"]
        raise UsageProblem(
            f"{request.into}: is the beginning of a restore of {begun}: continue it with"
            f" --snapshot {begun}, or name a new directory for {request.snapshot}"
        )


def refuse_other_content(request: RestoreRequest) -> None:
    """Refuse a directory that has anything in it but the same log directory, or its beginning.

    Raises:
        UsageProblem: it has, or is being cut at another moment.
        RepositoryError: a document of the snapshot is damaged or missing.
    """
    try:
        with phase(f"looking at {request.into}"):
            earlier = read_earlier(request.into)
    except UsageProblem:
        if request.cut_to_ms is None and _seems_complete(request, _directories(request)):
            return
        raise
    if earlier is None:
        return
    if earlier.request != request.words:
        raise UsageProblem(
            f"{request.into}: is the beginning of another copy: name a new directory"
        )
    if earlier.cut_to_ms not in (None, request.cut_to_ms):
        raise UsageProblem(
            f"{request.into}: is restored, and being cut at a moment: continue that with"
            f" --to {earlier.cut_to_ms}, or name a new directory"
        )


def may_be_restored(request: RestoreRequest) -> bool:
    """Whether a directory has the ``meta.properties`` of the log directory, if that had any.

    Raises:
        RepositoryError: the document of its root is damaged or missing.
        OSError: the file cannot be read.
    """
    for each in request.repository.directory(request.log_dir.root).files:
        if each.name == names.META_PROPERTIES:
            try:
                with (local(request.into) / each.name).open_file() as source:
                    return _has_bytes(source, each)
            except FileNotFoundError:
                return False
    return True


def _seems_complete(request: RestoreRequest, directories: Mapping[str, BackedUpDirectory]) -> bool:
    """Whether a directory has everything already, by sizes and times, and nothing else."""
    wanted = {each.path: _fingerprint(each.file) for each in _files_of(directories)}
    found = set()
    root = local(request.into)
    with phase(f"looking at {root}"), contextlib.suppress(OSError):
        for path in directories:
            for entry in (root / path if path else root).entries():
                name = f"{path}/{entry.name}".lstrip("/")
                found.add(name)
                if entry.kind is EntryKind.DIRECTORY:
                    is_same = name in directories
                else:
                    status = CopySource(entry.size_bytes, entry.modified_ns)
                    is_same = name == LOCK_FILE or wanted.get(name) == status
                if entry.is_link or not is_same:
                    return False
    return found - {LOCK_FILE} == wanted.keys() | directories.keys() - {""}


def _require_same_bytes(request: RestoreRequest, files: Iterable[FileToRestore]) -> None:
    """Read files that seem to be restored already.

    Raises:
        UsageProblem: one has other bytes.
        OSError: one cannot be read.
    """
    with phase(f"comparing {request.into} with {request.snapshot}"):
        for each in files:
            path = local(request.into) / each.path
            with path.open_file() as source:
                if not _has_bytes(source, each.file):
                    raise UsageProblem(f"{path}: is not as it was backed up: name a new directory")


def _has_bytes(source: StoredFile, file: BackedUpFile) -> bool:
    if file.content is not None:
        return source.size_bytes == file.size_bytes and source.location.read() == file.content
    starts = accumulate((each.size_bytes for each in file.pieces), initial=0)
    return all(
        sha256_of(source, start, each.size_bytes) == each.sha256
        for start, each in zip(starts, file.pieces, strict=False)
    )


def _files_of(directories: Mapping[str, BackedUpDirectory]) -> list[FileToRestore]:
    return [
        FileToRestore(f"{path}/{file.name}".lstrip("/"), file)
        for path, directory in directories.items()
        for file in directory.files
    ]


def _directories(request: RestoreRequest) -> dict[str, BackedUpDirectory]:
    """All directories by path, each before those in it.

    Raises:
        RepositoryError: one is damaged, missing, or has what no log directory can have.
    """
    found: dict[str, BackedUpDirectory] = {}
    with phase(f"reading the snapshot of {request.log_dir.path}"):
        for each in request.repository.directories(
            request.log_dir.root, threads=concurrent_reads()
        ):
            if each.directory is None:
                raise RepositoryError(
                    f"{each.failure}; nothing was restored; run 'kdump backup check' and restore"
                    " another snapshot"
                )
            if each.path and not is_in_a_copy(each.path):
                raise RepositoryError(f"{request.snapshot}: {each.path} cannot be restored")
            found[each.path] = each.directory
            for file in each.directory.files:
                if not is_in_a_copy(f"{each.path}/{file.name}".lstrip("/")):
                    raise RepositoryError(f"{request.snapshot}: {file.name} cannot be restored")
    return found if request.selection.is_everything else _selected(request, found)


def _selected(
    request: RestoreRequest, found: Mapping[str, BackedUpDirectory]
) -> dict[str, BackedUpDirectory]:
    """The directories of the selected partitions, and what belongs to them in the root."""
    root, lines, kept = found[""], set[TopicPartition](), set[str]()
    for each in root.directories:
        key = _partition_named(each.name)
        if key is not None and request.selection.needs(each.name, key):
            kept.add(each.name)
            lines.add(key)
    files = (each for each in root.files if each.name in names.LOG_DIRECTORY_FILES)
    directories = tuple(each for each in root.directories if each.name in kept)
    own = tuple(_with_lines(request.repository, each, lines) for each in files)
    inner = {path: each for path, each in found.items() if path.partition("/")[0] in kept}
    return {"": replace(root, files=own, directories=directories), **inner}


def _with_lines(
    repository: Repository, file: BackedUpFile, lines: Collection[TopicPartition]
) -> BackedUpFile:
    """The same file; an offset checkpoint has some lines only, unless it is malformed.

    Raises:
        RepositoryError: it cannot be read.
    """
    if file.name not in names.OFFSET_CHECKPOINTS:
        return file
    content = file.content
    if content is None:
        try:
            with repository.file(file.pieces) as source:
                is_damaged = not _has_bytes(source, file)
                content = read_at(source, 0, file.size_bytes)
        except (OSError, EOFError) as failure:
            raise RepositoryError(f"{file.name}: {failure}; nothing was restored") from failure
        if is_damaged:
            raise RepositoryError(f"{file.name}: a piece of it is damaged; nothing was restored")
    try:
        offsets = decode_offset_checkpoint(content)
    except FormatError:
        return file
    kept = encode_offset_checkpoint(each for each in offsets if each[0] in lines)
    return replace(file, content=kept, size_bytes=len(kept), pieces=())


def has_selected(
    repository: Repository, log_dir: BackedUpLogDirectory, selection: PartitionSelection
) -> bool:
    """Whether a log directory of a snapshot has a partition that is selected.

    Raises:
        RepositoryError: the document of its root is damaged or missing.
    """
    if selection.is_everything:
        return True
    root = repository.directory(log_dir.root)
    return any(
        key is not None and selection.matches(each.name, key)
        for each in root.directories
        for key in [_partition_named(each.name)]
    )


def _partition_named(directory_name: str) -> TopicPartition | None:
    """The partition that a directory is named after; None for other directories."""
    try:
        return names.parse_partition_directory_name(directory_name).topic_partition
    except FormatError:
        return None


def _require_space(request: RestoreRequest, files: Sequence[FileToRestore]) -> None:
    """Refuse to begin what does not fit; holes are not known before the pieces are opened.

    Raises:
        KdumpError: it does not.
    """
    target = local(request.into)
    around = request.into if target.is_directory() else request.into.parent
    if not local(around).is_directory():
        raise KdumpError(f"{request.into}: {around} is not a directory: make it first")
    needed_bytes = 0
    for each in files:
        if not is_there(request.into, each.path, _fingerprint(each.file)):
            needed_bytes += each.file.size_bytes - _hole_bytes(request, each.file)
            needed_bytes += SPACE_BYTES_PER_FILE
    free_bytes = free_bytes_at(around)
    if needed_bytes > free_bytes:
        raise KdumpError(
            f"{request.into}: needs {needed_bytes} bytes of free space, has {free_bytes}; nothing"
            " was written; free some space first"
        )


def _hole_bytes(request: RestoreRequest, file: BackedUpFile) -> int:
    holes = 0
    if not request.repository.is_local:
        return holes  # each piece would be asked for
    for each in file.pieces:
        with contextlib.suppress(OSError):  # reported when it is read
            holes += request.repository.location(each).status().hole_bytes
    return holes


def _fingerprint(file: BackedUpFile) -> CopySource:
    return CopySource(file.size_bytes, file.attributes.modified_ns)


def _metadata(attributes: FileAttributes) -> Metadata:
    """What a restored file or directory gets."""
    return Metadata.restored(
        attributes.permissions, attributes.uid, attributes.gid, attributes.modified_ns
    )


def _set_metadata(path: Path, directory: BackedUpDirectory) -> None:
    metadata = _metadata(directory.attributes)
    DISK.make_directory(path, metadata)
    DISK.set_metadata(path, metadata)


class _Run:
    """A run that writes."""

    def __init__(
        self,
        request: RestoreRequest,
        directories: dict[str, BackedUpDirectory],
        copy: UnfinishedCopy,
        result: RestoreResult,
        progress: Progress,
    ) -> None:
        self.request = request
        self.directories = directories
        self.copy = copy
        self.result = result
        self.progress = progress
        self._unsynced = UnsyncedWork(self._place_all)

    def run(self, files: Sequence[FileToRestore]) -> None:
        """Write what is missing, and finish if everything is there then."""
        with phase(f"making the directories of {self.request.into}"):
            self.copy.make_directories(each for each in self.directories if each)
            self._name_others(files)
        left = [each for each in files if not self._is_there(each)]
        self.result.kept_files = len(files) - len(left)
        self._write(left)
        self.result.is_complete = not self.result.unrestored
        if self.result.is_complete:
            with phase(f"syncing {self.request.into}"):
                for path in reversed(self.directories):
                    if path:
                        _set_metadata(self.request.into / path, self.directories[path])
                if self.request.cut_to_ms is None:
                    self.copy.finish()
                else:
                    self.copy.sync()

    def _name_others(self, files: Sequence[FileToRestore]) -> None:
        known = {each.path for each in files}
        for path in self.copy.unknown(known, {each for each in self.directories if each}):
            self.result.unrestored.append(f"{path}: is not in the snapshot: move it elsewhere")

    def _is_there(self, file: FileToRestore) -> bool:
        return is_there(self.request.into, file.path, _fingerprint(file.file))

    def _split(self, files: Sequence[FileToRestore]) -> RestoreSplit:
        return RestoreSplit(
            self.request.repository.path,
            size_bytes=sum(each.file.size_bytes for each in files),
            label=files[0].path.partition("/")[0],
            repository=self.request.repository,
            files=tuple(files),
        )

    def _write(self, files: Sequence[FileToRestore]) -> None:
        splits = [*map(self._split, put_together(files, lambda each: each.file.size_bytes))]
        job = RestoreJob(str(self.copy.folder))
        with (
            phase(f"restoring {self.request.into}"),
            results_here(job, splits, self.progress) as results,
        ):
            for split, restored in results:
                if restored.unwritable is not None:
                    raise unwritable(self.request.into, restored.unwritable)
                self._unsynced.add((split, restored), len(split.files), split.size_bytes)
            self._unsynced.place_all()

    def _place_all(self, pending: Sequence[tuple[RestoreSplit, RestoredFiles]]) -> None:
        """Sync what was written, and give the files their names."""
        written = [
            (file, path)
            for split, restored in pending
            for file, path in zip(split.files, restored.temporary, strict=True)
            if path is not None
        ]
        for file, path in written:
            DISK.set_metadata(Path(path), _metadata(file.file.attributes))
        DISK.sync([Path(path) for _, path in written])
        for file, path in written:
            self.copy.place(path, file.path, _fingerprint(file.file))
            self.result.restored_files += 1
            self.result.restored_bytes += file.file.size_bytes
        for _, restored in pending:
            self.result.unrestored += restored.unrestored


def repository_at(location: Location) -> Repository:
    """Open a repository.

    Raises:
        KdumpError: there is none.
        OSError: it cannot be read.
    """
    with phase(f"looking at {location}"):
        return Repository.opened(location.resolved())
