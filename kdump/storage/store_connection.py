"""Connections to object stores and HDFS, by ``pyarrow.fs``.

Each process has its own, made when it is first needed: connections do not survive a fork. Threads
share it.

Arrow asks for the size of each object that it opens (``HEAD``), also where a listing has it: its
Python interface takes no size. So an object is opened once in a process, and what is open is kept.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from kdump.errors import StoreGoneError
from kdump.phases import Phase
from kdump.storage.interruptible import interruptible
from kdump.storage.parallel_reads import CONCURRENT_READS
from kdump.storage.request_counts import RequestCounter, RequestCounts
from kdump.storage.store_limits import StoreLimits, without_limits
from kdump.storage.store_uri import StoreUri

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

    from kdump.storage.hdfs_client import HdfsFileSystem

Value = TypeVar("Value")

ATTEMPTS: Final = 5
"""For connections that fail or stall, and answers such as 500; with growing pauses in between."""
GOOGLE_ATTEMPTS_SECONDS: Final = 30
"""For the same at Google's store, whose client would try for a quarter of an hour."""
WAITING_SECONDS: Final = 3.0
"""After so long, progress says that kdump waits for the store."""
LISTING_MEMORY_BYTES: Final = 2 << 30
"""More than what ten million objects take; a store that repeats its pages has no end."""
GONE_SECONDS: Final = 30.0
"""A store that has answered nothing for so long is gone, after a few requests with all attempts."""
_GONE_REQUESTS: Final = 3
ENTRIES_OF_A_PAGE: Final = 1000
_MOST_OPEN: Final = 4096
_NOT_READ: Final = (0xA7, 0x58)
"""At the end of a buffer they show that fewer bytes came: a byte of a file can be only one."""
_LONGEST_MESSAGE: Final = 400
_REFUSED: Final = re.compile(
    r"ACCESS_DENIED|AccessControl|HTTP status 4\d\d|[Pp]ermission ?[Dd]enied"
)
"""Answers that are about one object: the store is there."""
_LIMITS: Final = "the options timeout and lowest_rate of the URI wait longer"
_STALLED: Final = "curlCode: 28"
"""Its time-out, for S3: each repetition has one."""
_NO_END: Final = "its listing has no end"
_PAGES: Final = "the store seems to repeat its pages; name a directory with fewer objects"
_GOOGLE: Final = frozenset({"gs", "gcs"})
_GOOGLE_LIMIT: Final = "retry_limit_seconds"
_SECRET_VARIABLES: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_KEY",
)
"""Of the environment; a server may repeat in its answer what a request had."""
_REQUEST_ID: Final = re.compile(r" ?\(Request ID: [^)]*\)")


class StoreVersion(NamedTuple):
    """What a store says about an object that is opened.

    Attributes:
        etag: changes with its bytes; None if the store has none.
        modified_s: when it was written, in seconds since the epoch; None if it does not say.
    """

    size_bytes: int
    etag: bytes | None
    modified_s: int | None


class OpenObject(Struct, frozen=True):
    """An object that is open, as Arrow has it.

    Attributes:
        handle: Arrow's; threads may read from it at the same time.
    """

    handle: Any
    version: StoreVersion


class StoreConnection:
    """A file system of pyarrow, and the path of the store's root in it."""

    def __init__(self, root_uri: str, name: str) -> None:
        """Prepare a connection, which is made when it is first needed.

        Args:
            root_uri: of the root, with credentials and options if it has any.
            name: the root in messages.
        """
        self._name = name
        uri = StoreUri.of(root_uri)
        self._limits = StoreLimits.of(uri.options, name)
        self._of_client = replace(uri, options=without_limits(uri.options))
        of_environment = (os.environ.get(each, "") for each in _SECRET_VARIABLES)
        self._secrets: list[str] = []
        self.keep_secret(*uri.secrets(), *of_environment)
        self._failures = 0
        self._silent_since_s = 0.0
        self.counter = RequestCounter()
        self._open: OrderedDict[str, OpenObject] = OrderedDict()
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._connected: tuple[FileSystem | HdfsFileSystem, str] | None = None

    @property
    def limits(self) -> StoreLimits:
        """How long requests may take."""
        return self._limits

    @property
    def region(self) -> str | None:
        """The region of a bucket of S3, as the client has found it; None for other stores."""
        return getattr(self._file_system, "region", None)

    def keep_secret(self, *secrets: str | None) -> None:
        """Show no such text in messages."""
        found = {*self._secrets, *filter(None, secrets)}
        # The longest first: one may contain another.
        self._secrets = sorted(found, key=len, reverse=True)

    def connect(self) -> None:
        """Connect, unless that was done.

        Raises:
            OSError: the URI cannot be used, or the store does not answer.
            StoreGoneError: nor did it before.
        """
        with self._connecting:
            if self._connected is None:
                self._connected = self.asked(self._connect, self._name)

    def _connect(self) -> tuple[FileSystem | HdfsFileSystem, str]:
        from pyarrow import io_thread_count, set_io_thread_count
        from pyarrow.fs import FileSystem, S3FileSystem

        # A client has as many connections; Arrow starts threads only as they are needed.
        set_io_thread_count(max(CONCURRENT_READS, io_thread_count()))
        attempt_s = self._limits.seconds_of_attempt(ATTEMPTS)
        try:
            found, root = FileSystem.from_uri(_with_limit(self._of_client, self._limits).root)
        except OSError as failure:
            if not _needs_hadoop(failure):
                raise
            from kdump.storage.hdfs_client import HdfsFileSystem

            return HdfsFileSystem(self._of_client.root, ATTEMPTS, attempt_s), "/"
        if isinstance(found, S3FileSystem):
            found = _patient(found, attempt_s)
        return found, root

    @property
    def _file_system(self) -> FileSystem | HdfsFileSystem:
        return self._in_use[0]

    @property
    def _in_use(self) -> tuple[FileSystem | HdfsFileSystem, str]:
        assert self._connected is not None, "connect() comes first"
        return self._connected

    def path(self, path: str) -> str:
        """The path in the file system for one that begins with ``/``."""
        _, root = self._in_use
        if not root:
            return path.lstrip("/")
        return root.rstrip("/") + path if path != "/" else root

    def list_directory(self, path: str, name: str, *, is_deep: bool) -> Sequence[FileInfo]:
        """List what is in a directory.

        Args:
            path: as from :meth:`path`.
            name: of the directory, in messages.
            is_deep: whether to list everything below it.

        Raises:
            OSError: it is missing, no directory, or the store does not answer.
        """
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(path, recursive=is_deep)
        self.counter.add(RequestCounts(listings=1))
        begun_bytes = _memory_bytes()

        def watch(seconds: float) -> None:
            if seconds > self._limits.listing_s:
                raise TimeoutError(errno.ETIMEDOUT, f"{_NO_END} after {seconds:.0f} s; {_PAGES}")
            taken_bytes = _memory_bytes() - begun_bytes
            if taken_bytes > LISTING_MEMORY_BYTES:
                what = f"{_NO_END} after {taken_bytes >> 20} MiB; {_PAGES}"
                raise TimeoutError(errno.ETIMEDOUT, what)

        infos: Sequence[FileInfo] = self.asked(
            lambda: self._file_system.get_file_info(selector), name, watch=watch
        )
        # With everything below, directories are only in the names of files.
        entries = sum(not is_deep or each.type == FileType.File for each in infos)
        self.counter.add(RequestCounts(listings=max(0, -(-entries // ENTRIES_OF_A_PAGE) - 1)))
        return infos

    def look_up(self, path: str, name: str) -> FileInfo:
        """Ask what there is at a path.

        Raises:
            OSError: the store does not answer.
        """
        from pyarrow.fs import FileType

        self.counter.add(RequestCounts(lookups=1))
        info = self.asked(lambda: self._file_system.get_file_info(path), name)
        if info.type != FileType.File:
            # Arrow has looked for files with this path in front, too.
            self.counter.add(RequestCounts(listings=1))
        return info

    def open_object(self, path: str, name: str, *, is_again: bool = False) -> OpenObject:
        """Open an object.

        Args:
            name: of the object, in messages.
            is_again: whether to ask for it even if it is open.

        Raises:
            OSError: it is missing, or the store does not answer.
        """
        with self._lock:
            found = self._open.get(path)
        if found is not None and not is_again:
            return found
        self.counter.add(RequestCounts(lookups=1))
        handle = self.asked(lambda: self._file_system.open_input_file(path), name)
        opened = OpenObject(handle, _version(handle))
        if not is_again:
            with self._lock:
                self._open[path] = opened
                if len(self._open) > _MOST_OPEN:
                    self._open.popitem(last=False)
        return opened

    def read_range(self, opened: OpenObject, start: int, buffer: memoryview, name: str) -> int:
        """Read a range of an object into ``buffer``, which is not empty.

        Returns:
            How many bytes came: fewer than the buffer has only if the object ends before.

        Raises:
            OSError: the store does not answer.
        """
        # Arrow says that it has read what it asked for, whatever came. Of an object that was cut
        # after it was opened, the rest of the buffer would be taken for its bytes.
        count = 0
        for mark in _NOT_READ:
            buffer[-1] = mark
            count = self._read_once(opened, start, buffer, name)
            if count < len(buffer) or buffer[-1] != mark:
                return count
        return count - 1

    def _read_once(self, opened: OpenObject, start: int, buffer: memoryview, name: str) -> int:
        def read() -> int:
            # Where an object is read by several threads, each has a stream of its own.
            stream = opened.handle.get_stream(start, len(buffer))
            return int(stream.readinto(buffer))

        count = self.asked(
            read, f"{name} (reading at byte {start})", self._limits.seconds_for(len(buffer))
        )
        self.counter.add(RequestCounts(reads=1, read_bytes=count))
        return count

    def asked(
        self,
        ask: Callable[[], Value],
        name: str,
        most_s: float | None = None,
        watch: Callable[[float], None] | None = None,
    ) -> Value:
        """Ask the store something.

        Args:
            name: what is asked for, in messages.
            most_s: how long the answer may take; None for the time-out.
            watch: judges how long it may take instead, as for :func:`interruptible`.

        Raises:
            OSError: the call failed; has the store's answer, and no credentials.
            StoreGoneError: so did the calls before it.
        """
        from pyarrow import ArrowException

        self._require_there("")
        begin_s = time.monotonic()
        most_s = self._limits.seconds_for(0) if most_s is None else most_s

        def within(seconds: float) -> None:
            if seconds > most_s:
                raise TimeoutError(errno.ETIMEDOUT, f"gave up after {seconds:.0f} s; {_LIMITS}")

        try:
            value = _waited_for(ask, watch or within, name)
        except FileNotFoundError:
            self._failures = 0
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None
        # Clients throw exceptions of their own, which Arrow knows as no kind of error.
        except (OSError, ValueError, NotImplementedError, ArrowException) as failure:
            answer = self.answer(failure)
            if _REFUSED.search(answer):
                self._failures = 0
            else:
                if not self._failures:
                    self._silent_since_s = begin_s
                self._failures += 1
                self._require_there(f": {answer}")
            raise OSError(errno.EIO, answer, name) from None
        self._failures = 0
        return value

    def _require_there(self, answer: str) -> None:
        """Give up a store that is gone.

        Raises:
            StoreGoneError: it is.
        """
        silent_s = time.monotonic() - self._silent_since_s
        if self._failures >= _GONE_REQUESTS and silent_s >= GONE_SECONDS:
            raise StoreGoneError(
                f"{self._name}: gave up after {silent_s:.0f} s without an answer{answer}; run kdump"
                " again when the store answers"
            )

    def answer(self, failure: Exception) -> str:
        """What the store said, on one line."""
        if isinstance(failure, TimeoutError) and failure.strerror:
            return failure.strerror
        text = str(failure).strip() or type(failure).__name__
        text = _REQUEST_ID.sub("", text.split("\n", 1)[0])
        for each in self._secrets:
            text = text.replace(each, "***")
        text = text[:_LONGEST_MESSAGE]
        return f"{text}; {_LIMITS}" if _STALLED in text else text


def _needs_hadoop(failure: OSError) -> bool:
    """Whether pyarrow lacks Hadoop's own client."""
    return "libjvm" in str(failure) or "libhdfs" in str(failure)


def _version(handle: Any) -> StoreVersion:
    """What a store says about an object that is open: size, and ETag and time if it has them."""
    try:
        said = handle.metadata()
    except (OSError, NotImplementedError, AttributeError):
        said = {}
    known = {_text(key).lower(): value for key, value in (said or {}).items()}
    return StoreVersion(handle.size(), known.get("etag"), _seconds(known.get("last-modified")))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _seconds(said: Any) -> int | None:
    """A time as Arrow gives it, ISO 8601."""
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(_text(said)).timestamp())
    except ValueError:
        return None


def _with_limit(uri: StoreUri, limits: StoreLimits) -> StoreUri:
    """The same URI, with a limit for attempts where pyarrow takes it from there."""
    if uri.scheme not in _GOOGLE or _GOOGLE_LIMIT in uri.options:
        return uri
    options = f"{uri.options}&" if uri.options else ""
    seconds = min(GOOGLE_ATTEMPTS_SECONDS, limits.timeout_s)
    return replace(uri, options=f"{options}{_GOOGLE_LIMIT}={seconds}")


def _patient(found: Any, attempt_s: float) -> FileSystem:
    """The same file system of S3, with limits: pyarrow sets none for what it makes of a URI."""
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    (options,) = found.__reduce__()[1]
    limits = {
        "connect_timeout": attempt_s,
        "request_timeout": attempt_s,
        "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
    }
    return S3FileSystem(**(options | limits))


def _waited_for(ask: Callable[[], Value], watch: Callable[[float], None], name: str) -> Value:
    """As :func:`interruptible`; progress says so if it takes long."""
    with contextlib.ExitStack() as waiting:
        is_shown = False

        def watched(seconds: float) -> None:
            nonlocal is_shown
            watch(seconds)
            if seconds >= WAITING_SECONDS and not is_shown:
                is_shown = True
                waiting.enter_context(Phase(f"waiting for the store to answer: {name}"))

        return interruptible(ask, watched)


def _memory_bytes() -> int:
    """The most memory that this process has had."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10
