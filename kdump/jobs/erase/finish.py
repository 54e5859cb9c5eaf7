"""Finish an erasure: search what is left, and destroy the undo data that could bring it back.

What is found anywhere else stops it before anything is destroyed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.apply.files import DISK, Files
from kdump.apply.journal_file import run_files_in
from kdump.apply.overwriting import destroy, overwritable_bytes, with_names_elsewhere
from kdump.apply.pinned_directory import pinned
from kdump.apply.runs import Undo, list_undos
from kdump.apply.undo import discard
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions
from kdump.errors import KdumpError, UsageProblem
from kdump.formats.record_batch import LARGEST_RECORD_BYTES
from kdump.jobs.erase.certificate import (
    CertifiedDirectory,
    SearchedRemote,
    encode_certificate,
)
from kdump.jobs.erase.remains import (
    Remains,
    SearchedFile,
    are_unchanged,
    files_to_search,
    possible_places,
    remains_of,
    remote_files_to_search,
    search_files,
    undecoded_records,
)
from kdump.log.directory import LogDirectory
from kdump.log.remote_files import RemotePlace
from kdump.log.selection import EVERYTHING
from kdump.phases import phase
from kdump.repair.erase.erased_list import FILE_NAME, ErasedRun, read_list
from kdump.repair.erase.erased_offsets import ErasedOffsets
from kdump.repair.erase.key_search import FoundKeys, KeySearch, fields_of_topics
from kdump.repair.erase.named_records import NamedRecords
from kdump.state.metadata.settings import DirectorySettings
from kdump.state.schema_registry import SchemaRegistry
from kdump.storage.location import Location

COMMAND: Final = "erase"


class FinishRequest(Struct, frozen=True):
    """What to finish.

    Attributes:
        directories: the log directories, locked.
        named: what to search besides what the lists of the log directories have.
    """

    directories: Sequence[LogDirectory]
    settings: DirectorySettings
    named: NamedRecords
    now_ms: int
    largest_record_bytes: int = LARGEST_RECORD_BYTES


class _Pending(Struct, frozen=True):
    """A log directory, and what finishing destroys in it."""

    directory: LogDirectory
    erased: tuple[ErasedRun, ...]
    undos: tuple[Undo, ...]
    own_files: tuple[Path, ...]
    """Undo data of erasures, and the list."""

    @property
    def log_dir(self) -> Path:
        return self.directory.path.local_path


class Finishing:
    """Finishes the erasures in some locked log directories, step by step.

    Attributes:
        fields: those that are looked for in records, by topic.
        registry: the schemas by which these are decoded.
        undecoded_records: in how many records of these topics none could be looked for.
        possible_places: how often a key may be in other fields.
    """

    def __init__(self, request: FinishRequest, files: Files = DISK) -> None:
        """Look at what there is to finish.

        Raises:
            UsageProblem: nothing.
            KdumpError: a list or undo data cannot be used.
        """
        self._request = request
        self._files = files
        self._pending = [_pending(each) for each in request.directories]
        runs = [run for each in self._pending for run in each.erased]
        is_given = bool(request.named.keys or request.named.prefixes or request.named.fields)
        for each in self._pending if not is_given else ():
            if each.undos and not each.erased:
                raise UsageProblem(
                    f"{each.directory.path}: has undo data of an erasure, but no {FILE_NAME}, which"
                    " says what to look for: give the keys with --keys-file, or fields with --where"
                )
        self.named = _joined([request.named, *(run.named for run in runs)])
        every = (each for found in request.directories for each in found.partitions)
        self.fields = fields_of_topics(
            (each, topic)
            for fields, topics in (
                *((run.fields, run.topics) for run in runs),
                (request.named.fields, EVERYTHING.topics_in(every)),
            )
            for each in fields
            for topic in topics
        )
        self._erased = ErasedOffsets.of(
            partition for run in runs if not run.is_masked for partition in run.partitions
        )
        if not (runs or is_given):
            raise UsageProblem(
                "nothing to finish: no log directory has the list of an erasure; to certify that"
                " keys are not there, give them with --keys-file"
            )
        self.registry = SchemaRegistry()
        self.undecoded_records = 0
        self.possible_places = 0
        self._remote: SearchedRemote | None = None
        self._listed: dict[Location, list[SearchedFile]] = {}
        self._searched_bytes: dict[Location, int] = {}
        self._overwritten_bytes: dict[Location, int] = {}

    @property
    def searched_files(self) -> int:
        return sum(map(len, self._listed.values()))

    @property
    def undos(self) -> int:
        """Of how many erasures there was undo data."""
        return sum(len(each.undos) for each in self._pending)

    @property
    def records_without_key(self) -> int:
        """How many erased records no search finds by their key."""
        return sum(
            segment.records_without_key
            for each in self._pending
            for run in each.erased
            for partition in run.partitions
            for segment in partition.segments
        )

    def search_remote(
        self, remote: RemotePlace, options: EngineOptions = DEFAULT_OPTIONS
    ) -> list[Remains]:
        """Search remote segments; what is found there is certified as not reached.

        Raises:
            KdumpError: they cannot be listed.
        """
        files = remote_files_to_search(remote)
        found = search_files(files, self._search(), options)
        self.undecoded_records += undecoded_records(each for _, each in found)
        remains = remains_of(found)
        self.possible_places += possible_places(remains)
        self._remote = SearchedRemote(len(files), [str(each.file.path) for each in remains])
        return remains

    def _search(self) -> KeySearch:
        named = replace(self.named, registry=self.registry)
        return KeySearch(named, self._request.largest_record_bytes, self.fields, self._erased)

    def search(self, options: EngineOptions = DEFAULT_OPTIONS) -> list[Remains]:
        """Search every file but those that are destroyed.

        Returns:
            The files in which something is, or may be.

        Raises:
            KdumpError: something cannot be searched.
            OSError: a directory cannot be listed.
        """
        self._listed = {each.directory.path: self._files_of(each) for each in self._pending}
        every = [file for files in self._listed.values() for file in files]
        commands = {each.directory.path: _commands(each) for each in self._pending}
        self._searched_bytes = dict.fromkeys(self._listed, 0)
        every_found = search_files(every, self._search(), options)
        for file, found in every_found:
            if isinstance(found, FoundKeys):
                self._searched_bytes[file.log_dir] += found.searched_bytes
                self.undecoded_records += found.undecoded_records
        remains = [
            replace(each, command=commands[each.file.log_dir].get(each.file.name))
            for each in remains_of(every_found)
        ]
        self.possible_places += possible_places(remains)
        return remains

    def _files_of(self, pending: _Pending) -> list[SearchedFile]:
        own = {path.name for path in pending.own_files}
        return files_to_search(pending.directory.path, own)

    def require_own_files(self) -> None:
        """Refuse undo data that has other names: overwriting it would change what they name.

        Raises:
            KdumpError: it has; says where.
        """
        for each in self._pending:
            with pinned(each.log_dir):
                linked = with_names_elsewhere(each.log_dir, each.own_files)
            if linked:
                raise KdumpError(
                    f"{linked[0]}: has another hard link outside of {each.log_dir}, perhaps of a"
                    " backup, which keeps the records; nothing has been changed; delete that one"
                )

    def destroy_undo_data(self) -> None:
        """Overwrite and delete the undo data of the erasures.

        Raises:
            KdumpError: a file has changed since it was searched, or something new is there.
            OSError: the disk fails.
        """
        for each in self._pending:
            with phase(f"destroying undo data in {each.log_dir}"), pinned(each.log_dir):
                self._overwritten_bytes[each.directory.path] = sum(
                    overwritable_bytes(path) for path in each.own_files
                )
                for undo in each.undos:
                    discard(each.log_dir, undo.undo_id, overwrites=True, files=self._files)
        for each in self._pending:
            if not are_unchanged(self._listed[each.directory.path], self._files_of(each)):
                raise KdumpError(
                    f"{each.log_dir}: files have changed while they were searched; the undo data is"
                    " gone, and there is no certificate: run the command again"
                )

    def certificate(self) -> bytes:
        """The certificate; only after everything else was done."""
        return encode_certificate(
            (
                CertifiedDirectory(
                    each.directory,
                    each.erased,
                    len(self._listed[each.directory.path]),
                    self._searched_bytes[each.directory.path],
                    self._overwritten_bytes[each.directory.path],
                )
                for each in self._pending
            ),
            self.named,
            self.fields,
            undecoded_records=self.undecoded_records,
            possible_places=self.possible_places,
            remote=self._remote,
            remote_topics=sorted(set(self._remote_topics())),
            now_ms=self._request.now_ms,
        )

    def destroy_lists(self) -> None:
        """Overwrite and delete the lists of what was erased: they have the keys.

        Raises:
            OSError: the disk fails.
        """
        for each in self._pending:
            if each.erased:
                with pinned(each.log_dir):
                    destroy(each.log_dir / FILE_NAME, self._files)

    def _remote_topics(self) -> Iterator[str]:
        for each in self._pending:
            settings = self._request.settings[each.directory.path]
            for partition in each.directory.partitions:
                key = partition.topic_partition
                if key is not None and settings.topic(key.topic).remote_storage_enable:
                    yield key.topic


def _pending(directory: LogDirectory) -> _Pending:
    log_dir = directory.path.local_path
    erased = read_list(directory.path)
    undos = tuple(each for each in list_undos(log_dir) if each.command == COMMAND)
    run_files = run_files_in(log_dir)
    own = [path for undo in undos for path in run_files[int(undo.undo_id)].values()]
    if erased:
        own.append(log_dir / FILE_NAME)
    return _Pending(directory, erased, undos, tuple(own))


def _commands(pending: _Pending) -> dict[str, str]:
    """The command of each other run, by the names of its files."""
    log_dir = pending.log_dir
    commands = {int(each.undo_id): each.command for each in list_undos(log_dir)}
    return {
        path.name: commands[number]
        for number, found in run_files_in(log_dir).items()
        if number in commands
        for path in found.values()
    }


def _joined(named: Iterable[NamedRecords]) -> NamedRecords:
    found = list(named)
    return NamedRecords(
        frozenset[bytes]().union(*(each.keys for each in found)),
        tuple(sorted({prefix for each in found for prefix in each.prefixes})),
    )
