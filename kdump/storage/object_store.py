"""Object stores and HDFS: ``s3://``, ``gs://``, ``abfs://`` and ``hdfs://``.

A directory that was named is listed with everything below it, in one go, and the listing is kept
for the run: a log directory of 10,000 partitions takes as many requests as its listing has pages.
Others, such as the one around it, and those that workers ask for, are listed by themselves.
Paths begin with ``/``, from the bucket or container on.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.phases import phase
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.location import Location, StoredFile
from kdump.storage.object_file import ObjectFile, ObjectVersion, forget_kept_blocks
from kdump.storage.place_names import TypedName
from kdump.storage.place_problem import NO_FILE_NAME, PlaceProblem, note_problem
from kdump.storage.request_counts import RequestCounts
from kdump.storage.rooted_storage import ROOT, RootedStorage, normal_path
from kdump.storage.store_connection import StoreConnection
from kdump.storage.store_limits import StoreLimits
from kdump.storage.store_uri import StoreUri, with_options

if TYPE_CHECKING:
    from kdump.storage.object_writer import ObjectWriter

_OTHER_KEYS: Final = "the store listed objects that are not in it; they are left out"
_NO_TEXT: Final = "the store listed objects whose names are not UTF-8; they are left out"
_NO_SIZE: Final = "left out, because the store gives no possible size for it"
_NO_NAMES: Final = frozenset({"", ".", ".."})


@dataclass(frozen=True, slots=True)
class ObjectStore(RootedStorage):
    """One bucket, container or cluster.

    Pickled, as in the splits of a job, it has the credentials of its URI, because there is no other
    place where a worker could find them. Those of the environment are not in it: workers on this
    machine have the same environment, and executors of a cluster need one of their own.

    Attributes:
        root_uri: the URI of its root, with credentials and options if it was named with any.
        name: the same without them.
    """

    root_uri: str = dataclasses.field(repr=False)
    name: str

    def name_of(self, path: str) -> str:
        return self.name if path == ROOT else f"{self.name}{path}"

    def uri_of(self, path: str) -> str:
        """The URI of a path, with the credentials and options of the root's."""
        root, _, options = self.root_uri.partition("?")
        return with_options(f"{root.rstrip('/')}{path}", options)

    def typed_name(self, path: str) -> TypedName:
        return replace(StoreUri.of(self.root_uri), path=normal_path(path)).typed()

    def entries(self, path: str) -> list[Entry]:
        return self._opened().entries(normal_path(path))

    def status(self, path: str) -> Entry:
        return self._opened().status(normal_path(path))

    def open_file(self, location: Location) -> StoredFile:
        opened, path = self._opened(), normal_path(location.path)
        listed = opened.seen(path)
        file = ObjectFile(location, opened.connection, opened.connection.path(path), listed)
        if listed is None and not file.size_bytes:
            opened.require_listed_empty(path)
        return file

    @property
    def scheme(self) -> str:
        """The scheme of its URI."""
        return StoreUri.of(self.root_uri).scheme

    @property
    def writer(self) -> ObjectWriter:
        """For writing; of S3 only.

        Raises:
            KdumpError: the package that this needs is missing.
            OSError: the store does not answer.
        """
        return self._opened().writer

    @property
    def counts(self) -> RequestCounts:
        """The requests of this process, and of those whose counts were added."""
        own = _stores.get((os.getpid(), self))
        others = _counted_elsewhere.get(self.name, RequestCounts())
        return others if own is None else others.plus(own.connection.counter.counts)

    @property
    def problems(self) -> Sequence[PlaceProblem]:
        """What this process found in listings and left out."""
        found = _stores.get((os.getpid(), self))
        return () if found is None else tuple(found.problems.values())

    def changes(self) -> Sequence[str]:
        """Which objects are not as they were listed; asks once more for what was listed.

        Raises:
            OSError: the store does not answer.
        """
        found = _stores.get((os.getpid(), self))
        return () if found is None else list(found.changes())

    def list_again(self) -> None:
        """Forget what was listed, but not what is to be listed with all below it."""
        found = _stores.get((os.getpid(), self))
        if found is not None:
            found.directories.clear()
            found.listed.clear()
            found.asked.clear()
            found.problems.clear()

    def forget(self) -> None:
        """Ask again for what was asked for before: a new run begins."""
        _stores.pop((os.getpid(), self), None)
        _counted_elsewhere.pop(self.name, None)
        _named.pop(self, None)
        forget_kept_blocks()

    def _opened(self) -> _OpenStore:
        key = (os.getpid(), self)
        found = _stores.get(key)
        if found is None:
            with _opening:
                found = _stores.get(key)
                if found is None:
                    connection = StoreConnection(self.root_uri, self.name)
                    found = _stores[key] = _OpenStore(self, connection)
        # A store that could not be connected to is known by its failures: it may be gone.
        found.connection.connect()
        return found


_opening: Final = threading.Lock()
_counted_elsewhere: Final[dict[str, RequestCounts]] = {}
"""What workers have counted, by the name of the store."""


def take_request_counts() -> Mapping[str, RequestCounts]:
    """What this process has counted since the last call, by the name of the store."""
    taken = {
        store.name: opened.connection.counter.take()
        for (process, store), opened in _stores.items()
        if process == os.getpid()
    }
    return {name: counts for name, counts in taken.items() if counts.requests}


def add_request_counts(counts: Mapping[str, RequestCounts]) -> None:
    """Add what a worker has taken to the counts of this process."""
    for name, each in counts.items():
        _counted_elsewhere[name] = _counted_elsewhere.get(name, RequestCounts()).plus(each)


_stores: Final[dict[tuple[int, ObjectStore], _OpenStore]] = {}
"""Those that this process has connected to, by its id: a fork connects by itself."""


def parse_store_uri(text: str) -> Location:
    """The location that a URI names.

    Raises:
        UsageProblem: as :meth:`StoreUri.of` and :meth:`StoreLimits.of`.
    """
    uri = StoreUri.of(text)
    StoreLimits.of(uri.options, uri.name)
    store = ObjectStore(uri.root, uri.name)
    _named.setdefault(store, set()).add(uri.path)
    return Location(store, uri.path)


_named: Final[dict[ObjectStore, set[str]]] = {}
"""The paths that were named in this process."""


class _OpenStore(Struct):
    """A store as this process has seen it so far."""

    store: ObjectStore
    connection: StoreConnection
    directories: dict[str, dict[str, Entry]] = field(default_factory=dict)
    """What is in each listed directory, by name."""
    listed: list[str] = field(default_factory=list)
    """The directories that were listed with all that is below them."""
    asked: dict[str, Entry] = field(default_factory=dict)
    """Files that were looked up one by one, because nothing that was listed has them."""
    problems: dict[str, PlaceProblem] = field(default_factory=dict)
    """What these have that is left out."""
    listing: threading.Lock = field(default_factory=threading.Lock)
    writers: list[ObjectWriter] = field(default_factory=list)
    """The one that was asked for, if any."""

    @property
    def writer(self) -> ObjectWriter:
        with self.listing:
            if not self.writers:
                from kdump.storage.object_writer import ObjectWriter

                uri = StoreUri.of(self.store.root_uri)
                self.writers.append(ObjectWriter(uri, self.connection))
            return self.writers[0]

    def entries(self, path: str) -> list[Entry]:
        if path not in self.directories:
            if path in _named.get(self.store, ()) or self._is_covered(path):
                with self.listing:
                    self._require_listed(path)
            else:
                # Workers list many, which need not wait for each other.
                self._list(path, is_deep=False)
        return list(self.directories[path].values())

    def _require_listed(self, path: str) -> None:
        if path in self.directories:
            return
        if self._is_covered(path):
            raise self._missing(path)
        # Only what was named is surely all wanted: what is around it can be a whole bucket.
        self._list(path, is_deep=path in _named.get(self.store, ()))

    def status(self, path: str) -> Entry:
        if path == ROOT or path in self.directories:
            return Entry(path.rpartition("/")[2], EntryKind.DIRECTORY)
        parent, _, name = path.rpartition("/")
        siblings = self.directories.get(parent or ROOT)
        if siblings is not None or self._is_covered(path):
            if siblings is None or name not in siblings:
                raise self._missing(path)
            return siblings[name]
        if path not in self.asked:
            found = self._asked_status(path, name)
            if found.kind is not EntryKind.FILE or not found.size_bytes:
                return found  # what seems to be empty may not be
            self.asked[path] = found
        return self.asked[path]

    def seen(self, path: str) -> ObjectVersion | None:
        """A file as it was listed; None if it was not.

        Raises:
            OSError: it is no file.
        """
        parent, _, name = path.rpartition("/")
        entry = self.directories.get(parent or ROOT, {}).get(name)
        if entry is None:
            if path in self.directories or path == ROOT:
                raise self._is_directory(path)
            if self._is_covered(path):
                raise self._missing(path)
            entry = self.asked.get(path)
            if entry is None:
                return None
        if entry.kind is not EntryKind.FILE:
            raise self._is_directory(path)
        return ObjectVersion(entry.size_bytes, entry.modified_ns)

    def _require_sizes(self, found: Mapping[str, Mapping[str, Entry]]) -> None:
        """Refuse a listing without sizes, in which every object seems to be empty.

        Raises:
            OSError: an object of it is not empty.
        """
        files = (
            (f"{directory.rstrip('/')}/{each.name}", each.size_bytes)
            for directory, entries in found.items()
            for each in entries.values()
            if each.kind is EntryKind.FILE
        )
        first, size_bytes = next(files, ("", 1))
        if size_bytes or any(size for _, size in files):
            return
        name = self.store.name_of(first)
        if self.connection.look_up(self.connection.path(first), name).size:
            raise OSError(errno.EIO, "the store lists it as empty, and it is not", name)

    def require_listed_empty(self, path: str) -> None:
        """Refuse an object that only seems to be empty.

        An answer without a length looks like that of an empty object: that of a proxy, or a
        redirect. The listing has the size.

        Raises:
            OSError: the object is not empty, or is not listed.
        """
        parent, _, name = path.rpartition("/")
        found = next((each for each in self.entries(parent or ROOT) if each.name == name), None)
        if found is None or found.kind is not EntryKind.FILE or found.size_bytes:
            what = "the store answers that it is empty, and does not list it so"
            raise OSError(errno.EIO, what, self.store.name_of(path))

    def changes(self) -> Iterator[str]:
        for path, entry in self.asked.items():
            try:
                found = self._asked_status(path, entry.name)
            except FileNotFoundError:
                found = None
            if found != entry:
                yield self.store.name_of(path)
        for path in list(self.listed):
            before = self._files_below(path)
            again = _OpenStore(self.store, self.connection)
            again._list(path, is_deep=True)
            now = again._files_below(path)
            yield from (
                self.store.name_of(each) for each in before if now.get(each) != before[each]
            )
            # What was written before something that was listed was there, but not listed: a page
            # of the listing was lost.
            latest_ns = max((each.modified_ns for each in before.values()), default=0)
            yield from (
                self.store.name_of(each)
                for each, entry in now.items()
                if each not in before and 0 < entry.modified_ns <= latest_ns
            )

    def _files_below(self, path: str) -> dict[str, Entry]:
        """What is listed below a directory, by path."""
        return {
            f"{directory.rstrip('/')}/{name}": entry
            for directory, entries in self.directories.items()
            if f"{directory.rstrip('/')}/".startswith(f"{path.rstrip('/')}/")
            for name, entry in entries.items()
            if entry.kind is EntryKind.FILE
        }

    def _is_covered(self, path: str) -> bool:
        """Whether a listing has what is at ``path``."""
        return any(f"{path}/".startswith(f"{each.rstrip('/')}/") for each in self.listed)

    def _asked_status(self, path: str, name: str) -> Entry:
        from pyarrow.fs import FileType

        info = self.connection.look_up(self.connection.path(path), self.store.name_of(path))
        if info.type == FileType.NotFound:
            raise self._missing(path)
        if info.type == FileType.Directory:
            return Entry(name, EntryKind.DIRECTORY)
        return _file_entry(name, info)

    def _list(self, path: str, *, is_deep: bool) -> None:
        """List a directory.

        Raises:
            OSError: it is missing, no directory, or cannot be listed.
        """
        name = self.store.name_of(path)
        root = self.connection.path(path)
        with phase(f"listing {name}"):
            try:
                infos = self.connection.list_directory(root, name, is_deep=is_deep)
            except FileNotFoundError:
                if self._asked_status(path, "").kind is EntryKind.FILE:
                    code = errno.ENOTDIR
                    raise NotADirectoryError(code, os.strerror(code), name) from None
                raise
            skipped_chars = len(root.rstrip("/")) + 1 if root else 0
            found = self._tree(path, infos, skipped_chars, is_deep=is_deep)
        if is_deep:
            self._require_sizes(found)
        self.directories |= found
        if is_deep:
            self.listed.append(path)

    def _tree(
        self, path: str, infos: Iterable[Any], skipped_chars: int, *, is_deep: bool
    ) -> dict[str, dict[str, Entry]]:
        """The directories that a listing has.

        Keys are any text: what no path can name is left out, and so are objects whose name is that
        of a directory, too.
        """
        from pyarrow.fs import FileType

        found: dict[str, dict[str, Entry]] = {path: {}}
        prefix = path.rstrip("/")
        root = self.connection.path(path).rstrip("/")
        for info in infos:
            is_directory = info.type == FileType.Directory
            try:
                key = info.path
            except UnicodeDecodeError:
                note_problem(self.problems, f"{self.store.name_of(path)}: {_NO_TEXT}")
                continue
            if root and not key.startswith(f"{root}/"):
                note_problem(
                    self.problems, f"{self.store.name_of(path)}: {_OTHER_KEYS}", is_cut=True
                )
                continue
            below = key[skipped_chars:]
            if is_directory:
                below = below.removesuffix("/")
            if not _NO_NAMES.isdisjoint(below.split("/")):
                if not is_directory and is_deep:
                    note_problem(
                        self.problems, f"{self.store.name_of(prefix)}/{below}: {NO_FILE_NAME}"
                    )
                continue
            if not is_directory and (info.size or 0) < 0:
                note_problem(
                    self.problems, f"{self.store.name_of(prefix)}/{below}: {_NO_SIZE}", is_cut=True
                )
                continue
            inner, _, last = below.rpartition("/")
            siblings = found.setdefault(f"{prefix}/{inner}".rstrip("/") or ROOT, {})
            before = siblings.get(last)
            if is_directory and is_deep:
                found.setdefault(f"{prefix}/{below}", {})
            if before is None:
                entry = (
                    Entry(last, EntryKind.DIRECTORY) if is_directory else _file_entry(last, info)
                )
                siblings[last] = entry
            elif is_directory is not (before.kind is EntryKind.DIRECTORY):
                siblings[last] = Entry(last, EntryKind.DIRECTORY)
                if is_deep:
                    what = "left out, because a directory has the same name"
                    note_problem(self.problems, f"{self.store.name_of(prefix)}/{below}: {what}")
        return found

    def _missing(self, path: str) -> OSError:
        name = self.store.name_of(path)
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)

    def _is_directory(self, path: str) -> OSError:
        name = self.store.name_of(path)
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)


def _file_entry(name: str, info: Any) -> Entry:
    return Entry(name, EntryKind.FILE, False, info.size or 0, info.mtime_ns or 0)
