"""Search everything in log directories for keys that were erased."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from msgspec import Struct

from kdump.apply.runs import names_before
from kdump.engine.engine import run_in_order
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, open_engine
from kdump.engine.engine_rates import JobKind
from kdump.engine.job import Split
from kdump.errors import KdumpError
from kdump.formats.errors import FormatError
from kdump.formats.names import may_be_cut, parse_partition_directory_name
from kdump.jobs.problems.unreadable import Unreadable
from kdump.phases import phase
from kdump.repair.erase.key_search import FoundKeys, KeySearch
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.location import Location

_DEEPEST: Final = 8
"""A log directory has files and partitions; whatever is deeper was put there by somebody."""


class SearchedFile(Struct, frozen=True):
    """A file in a log directory.

    Attributes:
        log_dir: the log directory.
        path: the file.
        entry: its size and time.
        content_names: what the files were called that a run has put aside in it; else its own name.
    """

    log_dir: Location
    path: Location
    entry: Entry
    content_names: frozenset[str]

    @property
    def name(self) -> str:
        """Its path in the log directory."""
        return str(self.path).removeprefix(f"{self.log_dir}/")

    @property
    def topic(self) -> str | None:
        """The topic in whose directory it is; None if it is elsewhere, or the name is cut short."""
        folder, is_below, _ = self.name.partition("/")
        if not is_below or may_be_cut(folder):
            return None
        try:
            return parse_partition_directory_name(folder).topic
        except FormatError:
            return None


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
            return self.search.file(split.path, split.file.content_names, split.file.topic)
        except OSError as failure:
            return Unreadable.of(failure, split.path)


def files_to_search(log_dir: Location, skipped: Collection[str] = ()) -> list[SearchedFile]:
    """All files of a log directory, at any depth.

    Args:
        log_dir: the log directory.
        skipped: names of files in the log directory itself that are left out.

    Raises:
        KdumpError: something cannot be searched: it is neither a file nor a directory.
        OSError: a directory cannot be listed.
    """
    put_aside = names_before(log_dir.local_path)
    return [
        SearchedFile(
            log_dir,
            path,
            entry,
            frozenset({entry.name} if depth else put_aside.get(entry.name, {entry.name})),
        )
        for path, entry, depth in _below(log_dir)
        if depth or entry.name not in skipped
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
    splits = [
        SearchSplit(each.path, size_bytes=each.entry.size_bytes, label=each.name, file=each)
        for each in files
    ]
    total_bytes = sum(each.size_bytes for each in splits)
    with (
        open_engine(options, kind=JobKind.SCAN, total_bytes=total_bytes) as engine,
        phase("searching for what is left"),
    ):
        found = list(run_in_order(engine, SearchJob(search), splits))
    return [(split.file, each) for split, each in found]


def are_unchanged(before: Sequence[SearchedFile], after: Sequence[SearchedFile]) -> bool:
    """Whether two listings have the same files, of the same sizes and times."""
    return [_seen(each) for each in before] == [_seen(each) for each in after]


def _seen(file: SearchedFile) -> tuple[str, Entry]:
    # How much of a file was never written may differ between two looks.
    return str(file.path), file.entry._replace(hole_bytes=0)
