"""Search everything in log directories for keys that were erased."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from kdump.apply.runs import paths_before
from kdump.engine.engine import run_in_order
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, open_engine
from kdump.engine.engine_rates import JobKind
from kdump.engine.job import Job, Split
from kdump.errors import KdumpError, reason_of
from kdump.formats.errors import FormatError
from kdump.formats.names import (
    PARTITION_METADATA,
    FileKind,
    may_be_cut,
    parse_partition_directory_name,
)
from kdump.formats.partition_metadata import known_topic_id
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.partition import read_if_there
from kdump.log.remote_files import (
    RemotePlace,
    list_remote_partitions,
    list_remote_segments,
)
from kdump.log.selection import EVERYTHING, PartitionSelection
from kdump.phases import phase
from kdump.repair.erase.key_search import FoundKeys, KeySearch
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.location import Location
from kdump.target.virtual_directory import file_name
from kdump.tiered.remote_plans import find_remote_root

_DEEPEST: Final = 8
"""A log directory has files and partitions; whatever is deeper was put there by somebody."""


class SearchedFile(Struct, frozen=True):
    """A file in a log directory.

    Attributes:
        entry: its size and time.
        content_names: what the files were called that a run has put aside in it; else its own name.
        topic: whose records may be in it; None if any.
        partition: the ``TOPIC-PARTITION`` whose records are in it; None if nobody knows.
        topic_id: of the topic; None if nobody knows.
    """

    log_dir: Location
    path: Location
    entry: Entry
    content_names: frozenset[str]
    topic: str | None = None
    partition: str | None = None
    topic_id: str | None = None

    @property
    def name(self) -> str:
        """Its path in the log directory."""
        return str(self.path).removeprefix(f"{self.log_dir}/")


class Remains(Struct, frozen=True):
    """A file in which something was found, or that cannot be searched.

    Attributes:
        command: of the run, if the file is its undo data.
    """

    file: SearchedFile
    found: FoundKeys | Unreadable
    command: str | None = None

    @property
    def is_certain(self) -> bool:
        """Whether there is more than possible places, which a certificate counts."""
        return isinstance(self.found, Unreadable) or not self.found.is_clean


class SearchSplit(Split, frozen=True, eq=False, kw_only=True):
    """A file to search."""

    file: SearchedFile


class SearchJob(Struct, frozen=True):
    """Searches files for keys.

    Attributes:
        search: the keys.
    """

    search: KeySearch

    def run(self, split: SearchSplit, /) -> FoundKeys | Unreadable:
        try:
            file = split.file
            return self.search.file(
                split.path, file.content_names, file.topic, file.partition, file.topic_id
            )
        except OSError as failure:
            return Unreadable.of(failure, split.path)


def files_to_search(log_dir: Location, skipped: Collection[str] = ()) -> list[SearchedFile]:
    """All files of a log directory, at any depth.

    Args:
        skipped: names of files in the log directory itself that are left out.

    Raises:
        KdumpError: something cannot be searched: it is neither a file nor a directory.
        OSError: a directory cannot be listed.
    """
    put_aside = paths_before(log_dir.local_path)
    topic_id_in = functools.lru_cache(maxsize=1)(_topic_id_in)
    found = []
    for path, entry, depth in _below(log_dir):
        if not depth and entry.name in skipped:
            continue
        paths = [log_dir / each for each in put_aside.get(entry.name, ())] if not depth else []
        own_paths = paths or [path]
        folders = {each.parent for each in own_paths}
        partitions = {_partition_of(each) for each in folders - {log_dir}}
        (partition,) = partitions if len(partitions) == 1 else (None,)
        found.append(
            SearchedFile(
                log_dir,
                path,
                entry,
                frozenset(each.name for each in own_paths),
                _topic_of(path, depth),
                partition,
                topic_id_in(path.parent) if depth and partition else None,
            )
        )
    return found


def _partition_of(folder: Location) -> str | None:
    """The partition of a directory, also in a copy of a log directory; None if it is of none."""
    if may_be_cut(folder.name):
        return None
    try:
        return str(parse_partition_directory_name(folder.name).topic_partition)
    except FormatError:
        return None


def _topic_id_in(folder: Location) -> str | None:
    return known_topic_id(read_if_there(folder / PARTITION_METADATA))


def _topic_of(path: Location, depth: int) -> str | None:
    """The topic of a file so deep in a log directory; None if its directory does not tell.

    A directory in which others are may be a copy of a log directory, whatever its name.
    """
    folder = path.parent.name
    if depth != 1 or may_be_cut(folder):
        return None
    try:
        return parse_partition_directory_name(folder).topic
    except FormatError:
        return None


def remote_files_to_search(
    remote: RemotePlace, selection: PartitionSelection = EVERYTHING
) -> list[SearchedFile]:
    """The logs of all remote segments, also of those that no consumer gets.

    Args:
        remote: where they are.
        selection: only segments of these partitions.

    Raises:
        KdumpError: there are no remote segments, or they cannot be listed.
    """
    root = find_remote_root(remote)
    try:
        listings = [
            (key.topic_partition, list_remote_segments(path))
            for key, path in sorted(list_remote_partitions(root).items())
            if selection.matches(str(key.topic_partition), key.topic_partition)
        ]
    except OSError as failure:
        raise KdumpError(f"{remote}: {reason_of(failure)}") from failure
    return [
        SearchedFile(
            root,
            segment.log.path,
            Entry(segment.log.path.name, EntryKind.FILE, size_bytes=segment.log.size_bytes),
            frozenset({file_name(segment.start_offset, FileKind.LOG)}),
            key.topic,
            str(key),
        )
        for key, listing in listings
        for segment in sorted(listing.segments.values(), key=lambda each: each.start_offset)
        if segment.log is not None
    ]


def _below(folder: Location, depth: int = 0) -> Iterator[tuple[Location, Entry, int]]:
    if depth > _DEEPEST:
        raise KdumpError(f"{folder}: too many directories in each other: cannot be searched")
    for entry in sorted(folder.entries()):
        path = folder / entry.name
        if entry.error is not None:
            raise entry.error
        if entry.kind is EntryKind.FILE:
            yield path, entry, depth
        elif entry.kind is EntryKind.DIRECTORY:
            yield from _below(path, depth + 1)
        else:
            raise KdumpError(f"{path}: is a {entry.kind.value}: cannot be searched")


def search_files(
    files: Sequence[SearchedFile], search: KeySearch, options: EngineOptions = DEFAULT_OPTIONS
) -> list[tuple[SearchedFile, FoundKeys | Unreadable]]:
    """Search all files.

    Raises:
        KdumpError: the engine failed.
    """
    return search_with(SearchJob(search), files, options, "searching for what is left")


def search_with(
    job: Job[SearchSplit, FoundKeys | Unreadable],
    files: Sequence[SearchedFile],
    options: EngineOptions,
    what: str,
) -> list[tuple[SearchedFile, FoundKeys | Unreadable]]:
    """Search all files with a job; says ``what`` is done meanwhile.

    Raises:
        KdumpError: the engine failed.
    """
    splits = [
        SearchSplit(each.path, size_bytes=each.entry.size_bytes, label=each.name, file=each)
        for each in files
    ]
    total_bytes = sum(each.size_bytes for each in splits)
    with (
        open_engine(options, kind=JobKind.SCAN, total_bytes=total_bytes) as engine,
        phase(what),
    ):
        found = list(run_in_order(engine, job, splits))
    return [(split.file, each) for split, each in found]


def remains_of(found: Iterable[tuple[SearchedFile, FoundKeys | Unreadable]]) -> list[Remains]:
    """Those in which something was found, or that cannot be read."""
    return [
        Remains(file, each)
        for file, each in found
        if isinstance(each, Unreadable) or not each.is_clean or each.possible
    ]


def possible_places(remains: Iterable[Remains]) -> int:
    """How many possible places of keys there are in files."""
    return sum(each.found.possible for each in remains if isinstance(each.found, FoundKeys))


def undecoded_records(found: Iterable[FoundKeys | Unreadable]) -> int:
    """In how many records no field could be looked for."""
    return sum(each.undecoded_records for each in found if isinstance(each, FoundKeys))


def are_unchanged(before: Sequence[SearchedFile], after: Sequence[SearchedFile]) -> bool:
    """Whether two listings have the same files, of the same sizes and times."""
    return [_seen(each) for each in before] == [_seen(each) for each in after]


def _seen(file: SearchedFile) -> tuple[str, Entry]:
    # How much of a file was never written may differ between two looks.
    return str(file.path), file.entry._replace(hole_bytes=0)
