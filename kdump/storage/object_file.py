"""Files of object stores: few large requests for many small reads.

A read that continues where the last request ended doubles the size of the next one, up to
:data:`LARGEST_REQUEST_BYTES`, and :data:`REQUESTS_AHEAD` more are already under way while its bytes
are used, up to where the reader said that it will end. Other reads ask for
:data:`LEAST_REQUEST_BYTES`, or for all of a small file. Small answers are kept for the run, because
headers and indexes are read several times.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, NamedTuple

from kdump.storage.kept_blocks import Block, KeptBlocks
from kdump.storage.location import Location, StoredFile
from kdump.storage.store_connection import OpenObject, StoreConnection, StoreVersion

LEAST_REQUEST_BYTES: Final = 128 << 10
LARGEST_REQUEST_BYTES: Final = 4 << 20
REQUESTS_AHEAD: Final = 2
SMALL_FILE_BYTES: Final = 512 << 10
"""Files up to this size are read with one request."""


class ObjectVersion(NamedTuple):
    """An object as it was listed.

    Attributes:
        size_bytes: its size.
        modified_ns: in nanoseconds since the epoch; some stores know only seconds.
    """

    size_bytes: int
    modified_ns: int


_kept: Final = KeptBlocks()


def forget_kept_blocks() -> None:
    """Ask again for what was read before."""
    _kept.clear()


class _Ahead:
    """A request that is under way in a thread of its own."""

    def __init__(self, start: int, count: int, fetch: Callable[[int, int], Block]) -> None:
        self.start = start
        self.end = start + count
        self._fetch = fetch
        self._block: Block | None = None
        self._failure: BaseException | None = None
        # It must not keep a process that was told to stop.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._block = self._fetch(self.start, self.end - self.start)
        except Exception as failure:  # noqa: BLE001 - raised where the bytes are needed
            self._failure = failure

    def block(self) -> Block:
        self._thread.join()  # ^C wakes it
        if self._block is None:
            assert self._failure is not None
            raise self._failure
        return self._block


class ObjectFile(StoredFile):
    """An object that is open for reading; nothing is asked for before the first read."""

    def __init__(
        self,
        location: Location,
        connection: StoreConnection,
        path: str,
        listed: ObjectVersion | None,
    ) -> None:
        """Open an object.

        Args:
            location: of it.
            connection: to its store.
            path: in the connection's file system.
            listed: as the process has listed it; None if it has not.

        Raises:
            OSError: it is not known from a listing, and missing.
        """
        self._connection = connection
        self._path = path
        self._listed = listed
        self._handle: OpenObject | None = None
        self._requests = 0
        self._fetched_bytes = 0
        self._window = Block(0, memoryview(b""))
        self._ahead = deque[_Ahead]()
        self._request_bytes = LEAST_REQUEST_BYTES // 2
        self._name = str(location)
        super().__init__(location, 0 if listed is None else listed.size_bytes)
        if listed is None:
            self.size_bytes = self._open().version.size_bytes
        self._kept_as = location, listed or self._open().version

    def read_into(self, buffer: memoryview, position: int) -> int:
        wanted = max(0, min(len(buffer), self.size_bytes - position))
        filled = 0
        while filled < wanted:
            block = self._block_at(position + filled, wanted - filled)
            start = position + filled - block.start
            piece = block.data[start : start + wanted - filled]
            buffer[filled : filled + len(piece)] = piece
            filled += len(piece)
        self.reached_bytes = position + filled
        return filled

    def identity(self) -> tuple[int | str, ...] | None:
        version = self._open().version
        return None if version.etag is None else (version.etag.decode("latin-1"),)

    def close(self) -> None:
        # A request that is under way ends by itself.
        self._ahead.clear()
        self._handle = None
        self._window = Block(0, memoryview(b""))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._is_doubtful():
                self._require_unchanged()
        finally:
            self.close()

    def _is_doubtful(self) -> bool:
        """Whether to ask once more for the version of the object.

        Not for a few headers of an object that was listed: listings are compared when a run ends.
        """
        return self._requests > 1 and (
            self._listed is None or self._fetched_bytes >= self.size_bytes
        )

    def _block_at(self, position: int, wanted: int) -> Block:
        """Bytes from around ``position``: those at hand, or those of a new request."""
        if self._window.covers(position):
            return self._window
        kept = _kept.find(self._kept_as, position)
        if kept is not None:
            return kept
        if self._ahead and self._ahead[0].start == position:
            self._window = self._ahead.popleft().block()
            self._look_ahead()
            return self._window
        self._ahead.clear()
        is_next = position == self._window.start + len(self._window.data)
        if self.size_bytes <= SMALL_FILE_BYTES:
            self._window = self._fetched(0, self.size_bytes)
        else:
            doubled = min(2 * self._request_bytes, LARGEST_REQUEST_BYTES)
            self._request_bytes = max(doubled if is_next else LEAST_REQUEST_BYTES, wanted)
            self._window = self._fetched(position, self._request_bytes)
            if is_next and position:
                self._look_ahead()
        _kept.keep(self._kept_as, self._window)
        return self._window

    def _look_ahead(self) -> None:
        """Ask for what follows the window."""
        end = min(self.size_bytes, self.expected_end or self.size_bytes)
        while len(self._ahead) < REQUESTS_AHEAD:
            last = self._ahead[-1] if self._ahead else None
            start = last.end if last else self._window.start + len(self._window.data)
            if start >= end:
                return
            self._request_bytes = min(2 * self._request_bytes, LARGEST_REQUEST_BYTES)
            self._ahead.append(_Ahead(start, min(self._request_bytes, end - start), self._fetched))

    def _fetched(self, start: int, count: int) -> Block:
        """Ask for a range.

        Raises:
            OSError: the store does not answer, or the object is another one now.
        """
        count = min(count, self.size_bytes - start)
        handle = self._open()
        self._requests += 1
        self._fetched_bytes += count
        data = self._connection.read_range(handle, start, count, self._name)
        if len(data) != count:
            raise self._changed()
        return Block(start, memoryview(data))

    def _open(self) -> OpenObject:
        if self._handle is None:
            handle = self._connection.open_object(self._path, self._name)
            if self._listed is not None and not _is_version(handle.version, self._listed):
                raise self._changed()
            self._handle = handle
        return self._handle

    def _require_unchanged(self) -> None:
        """Refuse what was put together from two versions of an object.

        Raises:
            OSError: it was replaced while it was read.
        """
        now = self._connection.open_object(self._path, self._name, is_again=True)
        if self._handle is not None and self._handle.version != now.version:
            raise self._changed()

    def _changed(self) -> OSError:
        return OSError(
            errno.ESTALE, "it was changed while it was read; run kdump again", self._name
        )


def _is_version(found: StoreVersion, listed: ObjectVersion) -> bool:
    """Whether an object is still the one that was listed; times have whole seconds at least."""
    if found.size_bytes != listed.size_bytes:
        return False
    if found.modified_s is None or not listed.modified_ns:
        return True
    return found.modified_s == listed.modified_ns // 1_000_000_000
