"""Files of object stores: few large requests for many small reads.

A read that continues where the last request ended doubles the size of the next one, up to
:data:`LARGEST_REQUEST_BYTES`, and :data:`REQUESTS_AHEAD` more are already under way while its bytes
are used, up to where the reader said that it will end. A read that ends where the last request
began asks for as much before it: padding is read from its end. Other reads ask for
:data:`LEAST_REQUEST_BYTES`, or for all of a small file. Small answers are kept for the run, because
headers and indexes are read several times, and so is where there are only zeroes.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from kdump.storage.kept_blocks import NO_BLOCK, Block, KeptBlocks
from kdump.storage.location import Location, StoredFile
from kdump.storage.request_buffers import LARGEST_REQUEST_BYTES, RequestBuffers
from kdump.storage.store_connection import OpenObject, StoreConnection, StoreVersion

LEAST_REQUEST_BYTES: Final = 128 << 10
REQUESTS_AHEAD: Final = 4
"""One connection to a store has a fraction of the rate of several."""
SMALL_FILE_BYTES: Final = 512 << 10
"""Files up to this size are read with one request."""


class ObjectVersion(NamedTuple):
    """An object as it was listed.

    Attributes:
        modified_ns: in nanoseconds since the epoch; some stores know only seconds.
    """

    size_bytes: int
    modified_ns: int


_kept: Final = KeptBlocks()
_buffers: Final = RequestBuffers()


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
        self._window = NO_BLOCK
        self._before = NO_BLOCK
        self._ahead = deque[_Ahead]()
        self._request_bytes = LEAST_REQUEST_BYTES
        self._used_end = 0
        self._in_a_row = 0
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
            self._used_end = block.end
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
        # A request that is under way ends by itself, and has its buffer until then.
        self._ahead.clear()
        self._handle = None
        self._turn_to(NO_BLOCK)
        self._turn_to(NO_BLOCK)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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
        # A reader of batches goes back to where the last whole one ended.
        for block in (self._window, self._before):
            if block.covers(position):
                return block
        kept = _kept.find(self._kept_as, position)
        if kept is not None:
            return kept
        if self._ahead and self._ahead[0].start == position:
            self._turn_to(self._ahead.popleft().block())
            self._in_a_row += 1
            self._look_ahead(self._window.end)
        else:
            self._ahead.clear()
            self._turn_to(self._asked_for(position, wanted))
        return self._window

    def _asked_for(self, position: int, wanted: int) -> Block:
        """What a new request has, which is as large as the reads before it suggest."""
        if self.size_bytes <= SMALL_FILE_BYTES:
            return self._requested(0, self.size_bytes)
        after = self._window.start
        if position < after <= position + wanted:
            is_before = after == position + wanted
            start = max(0, after - LARGEST_REQUEST_BYTES) if is_before else position
            start = min(start, position)
            return self._requested(start, min(after - start, LARGEST_REQUEST_BYTES))
        is_next = position == self._used_end > 0
        self._in_a_row = self._in_a_row + 1 if is_next else 0
        least = 2 * self._request_bytes if is_next else LEAST_REQUEST_BYTES
        self._request_bytes = min(max(least, wanted), LARGEST_REQUEST_BYTES)
        if not is_next and self.expected_end is None:
            return self._requested(position, self._request_bytes)
        # In threads of their own, while this one waits for the first.
        first = self._under_way(position, self._request_bytes)
        self._look_ahead(first.end)
        return first.block()

    def _turn_to(self, block: Block) -> None:
        """Go on with another block; the last one stays at hand, the one before it does not."""
        _buffers.give_back(self._before.data)
        self._before, self._window = self._window, block

    def _look_ahead(self, after: int) -> None:
        """Ask for what follows: the more, the longer the file was read from front to back."""
        end = min(self.size_bytes, self.expected_end or self.size_bytes)
        most = REQUESTS_AHEAD
        if self.expected_end is None:
            most = min(self._in_a_row, REQUESTS_AHEAD)
        while len(self._ahead) < most:
            start = self._ahead[-1].end if self._ahead else after
            if start >= end:
                return
            self._request_bytes = min(2 * self._request_bytes, LARGEST_REQUEST_BYTES)
            self._ahead.append(self._under_way(start, min(self._request_bytes, end - start)))

    def _under_way(self, start: int, count: int) -> _Ahead:
        """Ask for a range in a thread of its own."""
        handle = self._open()
        count = self._counted(start, count)
        return _Ahead(start, count, lambda start, count: self._fetched(handle, start, count))

    def _requested(self, start: int, count: int) -> Block:
        """Ask for a range, and wait for it."""
        return self._fetched(self._open(), start, self._counted(start, count))

    def _counted(self, start: int, count: int) -> int:
        """Count a request; how many bytes it can have."""
        count = min(count, self.size_bytes - start)
        self._requests += 1
        self._fetched_bytes += count
        return count

    def _fetched(self, handle: OpenObject, start: int, count: int) -> Block:
        """Ask for a range; any thread may.

        Raises:
            OSError: the store does not answer, or the object is another one now.
        """
        data = _buffers.take(count)
        if self._connection.read_range(handle, start, data, self._name) != count:
            raise self._changed()
        kept = _kept.keep(self._kept_as, Block(start, data))
        if kept.data is not data:
            _buffers.give_back(data)
        return kept

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
