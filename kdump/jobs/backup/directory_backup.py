"""Store what changed of one log directory, and the documents of its directories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from kdump.engine.engine_choice import results_here
from kdump.engine.progress import Progress
from kdump.errors import KdumpError
from kdump.jobs.backup.backup_job import (
    BackupJob,
    BackupSplit,
    Damage,
    FileToStore,
    StoredBytes,
    StoredFiles,
)
from kdump.jobs.backup.known_files import Identity, KnownFiles, identity_of
from kdump.jobs.writing.many_files import SPACE_BYTES_PER_FILE, UnsyncedWork, put_together
from kdump.log.directory import LogDirectory
from kdump.log.lock_holders import ReadAs
from kdump.phases import phase
from kdump.repository.repository_place import RepositoryPlace
from kdump.repository.repository_writer import RepositoryWriter, unwritable
from kdump.storage.file_status import FileStatus
from kdump.storage.repository_documents import (
    BackedUpDirectory,
    BackedUpFile,
    BackedUpLogDirectory,
    FileAttributes,
    NotBackedUp,
    RepositoryPiece,
    StoredDirectory,
    stored_bytes,
)


class BackupRequest(Struct, frozen=True):
    """What to back up, and where to.

    Attributes:
        log_dirs: with all partitions listed.
        host: the name of this machine.
        kdump: this version.
    """

    repository: RepositoryPlace
    log_dirs: Sequence[LogDirectory]
    host: str
    kdump: str
    now_ms: int
    reading: ReadAs = ReadAs.AS_FOUND


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


class Directory(Struct):
    """A directory while its files are stored.

    Attributes:
        files: those that are stored, by name.
    """

    attributes: FileAttributes
    files: dict[str, BackedUpFile] = field(default_factory=dict)


class BackupRun(Struct, frozen=True):
    """What the backups of all log directories have in common."""

    request: BackupRequest
    known: KnownFiles
    writer: RepositoryWriter
    result: BackupResult
    progress: Progress


class DirectoryBackup:
    """The backup of one log directory.

    Attributes:
        changed: paths of files that a broker changed while they were read.
    """

    def __init__(self, run: BackupRun, directory: LogDirectory) -> None:
        self.request = run.request
        self.directory = directory
        self.known = run.known
        self.writer = run.writer
        self.result = run.result
        self.progress = run.progress
        self.root = directory.path
        self.where = run.request.repository.location
        self.identity: Identity = identity_of(directory)
        self.unreadable: list[str] = []
        self.changed: set[str] = set()
        self.added_bytes = 0
        self._statuses: dict[str, FileStatus] = {}
        self._directories: dict[str, Directory] = {}
        self._unsynced = UnsyncedWork(self._place_all)

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
        self.changed.update(stored.changed)
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
            file.size_bytes,
            attributes_of(status),
            # What a broker writes through memory need not change the times of its file.
            0 if file.content is not None else status.changed_ns,
            status.file_id,
            found.content,
            found.pieces,
            found.damage or self._damage_beside(file.path),
        )
        if found.content is None:
            self.writer.note(self.identity[0], directory, backed_up)
            self.known.note(self.identity, file.path, backed_up)
        self._add(file.path, backed_up)

    def _damage_beside(self, path: str) -> Damage:
        """Damage of a file that is not found while it is stored."""
        return ()

    def _add(self, path: str, file: BackedUpFile) -> None:
        """Note how a file is stored."""
        self.known.add(path, file)
        directory = path.rpartition("/")[0]
        self._directories[directory].files[file.name] = file

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

    def _ended(
        self, partitions: int, left_out: Mapping[str, str], *, is_in_use: bool = False
    ) -> BackedUpLogDirectory:
        """Store the documents of the directories; returns that of the log directory.

        Args:
            left_out: what the backup cannot have, by path, and why.
        """
        with phase(f"storing the directories of {self.root}"):
            root = self._store_directories()
        self.result.unreadable += dict.fromkeys(self.unreadable)
        self.result.left_out |= left_out
        for directory, found in self._directories.items():
            self.result.damage += [
                (self.root.local_path / directory / each["file"], each)
                for file in found.files.values()
                for each in file.damage
            ]
        files = [each for found in self._directories.values() for each in found.files.values()]
        path, cluster_id, node_id, directory_id = self.identity
        log_dir = BackedUpLogDirectory(
            path,
            self.request.host,
            cluster_id,
            node_id,
            directory_id,
            root,
            partitions=partitions,
            files=len(files),
            size_bytes=sum(each.size_bytes for each in files),
            added_bytes=self.added_bytes,
            damaged_files=sum(1 for each in files if each.damage),
            left_out=tuple(NotBackedUp(*each) for each in left_out.items()),
            is_in_use=is_in_use,
        )
        self.result.files += log_dir.files
        self.result.size_bytes += log_dir.size_bytes
        self.result.added_bytes += log_dir.added_bytes
        return log_dir


def grouped(label: str, files: Iterable[FileToStore]) -> Iterator[BackupSplit]:
    """Put small files of a directory together."""
    for together in put_together(files, lambda each: each.size_bytes):
        yield _split(label, together)


def _split(label: str, files: Sequence[FileToStore]) -> BackupSplit:
    size_bytes = sum(each.size_bytes for each in files)
    return BackupSplit(files[0].source, size_bytes=size_bytes, label=label, files=tuple(files))


def attributes_of(status: FileStatus) -> FileAttributes:
    """What a restored file gets besides its bytes."""
    return FileAttributes(status.permissions, status.uid, status.gid, status.modified_ns)


def _depth(path: str) -> int:
    return path.count("/") + 1 if path else 0
