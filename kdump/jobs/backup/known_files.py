"""What earlier backups have of the files of a log directory, so that they are not read again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from msgspec import Struct, field

from kdump.log.directory import LogDirectory
from kdump.repository.repository_writer import FilesByPath, RepositoryWriter
from kdump.storage.file_status import FileStatus
from kdump.storage.places import concurrent_reads
from kdump.storage.repository import RepositoryError
from kdump.storage.repository_documents import BackedUpFile, Pieces, RepositoryPiece, stored_bytes

Identity = tuple[str, str | None, int | None, str | None]
"""Path, cluster, node and directory id of a log directory."""


def identity_of(directory: LogDirectory) -> Identity:
    """By what the log directory is found in earlier snapshots."""
    path = directory.path.resolved().path
    return path, directory.cluster_id, directory.node_id, directory.directory_id


class KnownFiles(Struct):
    """The files of the last snapshot of each log directory.

    Attributes:
        unusable: why snapshots cannot be used.
    """

    writer: RepositoryWriter
    unusable: list[str] = field(default_factory=list)
    _files: dict[Identity, FilesByPath] = field(default_factory=dict)
    _pieces: dict[str, set[Pieces]] = field(default_factory=lambda: defaultdict(set))

    def read(self, wanted: Collection[Identity]) -> None:
        """Read the newest snapshot, and the newest one that has each log directory.

        Raises:
            OSError: the snapshots cannot be listed, or an object store does not answer.
        """
        repository = self.writer.repository
        for name in reversed(repository.snapshot_ids()):
            try:
                snapshot = repository.snapshot(name)
            except (OSError, RepositoryError) as failure:
                if repository.gave_no_answer(failure):
                    raise
                self.unusable.append(str(failure))
                continue
            for each in snapshot.log_dirs:
                if each.identity not in self._files:
                    self._files[each.identity] = self._read(each.root)
            if self._files.keys() >= {*wanted}:
                break
        for path, files in self.writer.earlier.items():
            for where, file in files.items():
                self._pieces[where].add(file.pieces)
            for identity in wanted:
                if identity[0] == path:
                    self._files[identity] = {**self._files.get(identity, {}), **files}

    def _read(self, root: RepositoryPiece) -> FilesByPath:
        found: FilesByPath = {}
        for each in self.writer.repository.directories(root, threads=concurrent_reads()):
            if each.directory is None:
                self.unusable.append(each.failure)
                continue
            # The document may have come from a cache.
            if self.writer.has(each.document):
                self.writer.know(each.document)
            for file in each.directory.files:
                path = f"{each.path}/{file.name}".lstrip("/")
                found[path] = file
                self.add(path, file)
        return found

    def add(self, path: str, file: BackedUpFile) -> None:
        """Remember where the bytes of a file are: a replica may have the same."""
        if file.pieces:
            self._pieces[path].add(file.pieces)

    def note(self, identity: Identity, path: str, file: BackedUpFile) -> None:
        """Remember what this run has stored, which may come to read the file again."""
        self._files.setdefault(identity, {})[path] = file

    def same(self, identity: Identity, path: str, status: FileStatus) -> BackedUpFile | None:
        """A file as it is stored, if it has not changed since and all its pieces are there."""
        file = self._files.get(identity, {}).get(path)
        if file is None or not all(map(self.writer.has, file.pieces)):
            return None
        found = (file.size_bytes, file.attributes.modified_ns, file.changed_ns, file.file_id)
        now = (status.size_bytes, status.modified_ns, status.changed_ns, status.file_id)
        return file if found == now else None

    def beginnings(
        self, identity: Identity, path: str, size_bytes: int
    ) -> tuple[tuple[Pieces, ...], Pieces]:
        """Pieces that the beginning of a file may be, the most likely first.

        First what a replica has that goes on where the file itself ended, then what the file had,
        then as much as there is of any other replica.

        Returns:
            Those, and pieces that the file had and that are missing: if it still has their bytes,
            they are stored again, because earlier snapshots need them.
        """
        file = self._files.get(identity, {}).get(path)
        own = _fitting(() if file is None else file.pieces, size_bytes)
        every = {_fitting(each, size_bytes) for each in self._pieces.get(path, ())}
        going_on = {each for each in every if each[: len(own)] == own}
        found = (_longest(going_on), own, _longest(every - going_on))
        has = self.writer.has
        lost = tuple(each for each in own if not has(each))
        is_usable = {each: each == own or all(map(has, each)) for each in found}
        return tuple(each for each in is_usable if each and is_usable[each]), lost


def _longest(every: Collection[Pieces]) -> Pieces:
    return max(every, key=lambda each: (stored_bytes(each), each), default=())


def _fitting(pieces: Pieces, size_bytes: int) -> Pieces:
    """The first pieces that together are not longer than a file."""
    for number, each in enumerate(pieces):
        size_bytes -= each.size_bytes
        if size_bytes < 0:
            return pieces[:number]
    return pieces
