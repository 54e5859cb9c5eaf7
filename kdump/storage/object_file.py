"""Files of object stores: few large requests for many small reads.

A read that continues where the last request ended doubles the size of the next one, up to
:data:`LARGEST_REQUEST_BYTES`, and the one after that is already under way while its bytes are used.
Other reads ask for :data:`LEAST_REQUEST_BYTES`, or for all of a small file. Small answers are kept
for the run, because headers and indexes are read several times.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, NamedTuple

from kdump.storage.location import Location, StoredFile
from kdump.storage.store_connection import StoreConnection

LEAST_REQUEST_BYTES: Final = 128 << 10
LARGEST_REQUEST_BYTES: Final = 8 << 20
SMALL_FILE_BYTES: Final = 512 << 10
"""Files up to this size are read with one request."""
_KEPT_ANSWER_BYTES: Final = 1 << 20
_KEPT_BYTES: Final = 128 << 20
_MOST_KEPT: Final = 20_000


class ObjectVersion(NamedTuple):
    """An object as it was listed.

    Attributes:
        size_bytes: its size.
        modified_ns: in nanoseconds since the epoch; some stores know only seconds.
    """

    size_bytes: int
    modified_ns: int


class _Block(NamedTuple):
    """Bytes of a file from a position on."""

    start: int
    data: memoryview

    def covers(self, position: int) -> bool:
        return self.start <= position < self.start + len(self.data)


class _KeptBlocks:
    """The last small answers of this process, by file; the oldest go first."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[Any, int], _Block] = OrderedDict()
        self._starts: dict[Any, list[int]] = {}
        self._bytes = 0

    def clear(self) -> None:
        self._blocks.clear()
        self._starts.clear()
        self._bytes = 0

    def find(self, file: Any, position: int) -> _Block | None:
        for start in self._starts.get(file, ()):
            block = self._blocks[file, start]
            if block.covers(position):
                return block
        return None

    def keep(self, file: Any, block: _Block) -> None:
        if (file, block.start) in self._blocks:
            return
        self._blocks[file, block.start] = block
        self._starts.setdefault(file, []).append(block.start)
        self._bytes += len(block.data)
        while self._bytes > _KEPT_BYTES or len(self._blocks) > _MOST_KEPT:
            (oldest, start), dropped = self._blocks.popitem(last=False)
            self._bytes -= len(dropped.data)
            self._starts[oldest].remove(start)
            if not self._starts[oldest]:
                del self._starts[oldest]


_kept: Final = _KeptBlocks()


def forget_kept_blocks() -> None:
    """Ask again for what was read before."""
    _kept.clear()


class _Ahead:
    """A request that is under way in a thread of its own."""

    def __init__(self, start: int, fetch: Callable[[], _Block]) -> None:
        self.start = start
        self._fetch = fetch
        self._block: _Block | None = None
        self._failure: BaseException | None = None
        # It must not keep a process that was told to stop.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._block = self._fetch()
        except Exception as failure:  # noqa: BLE001 - raised where the bytes are needed
            self._failure = failure

    def block(self) -> _Block:
        self._thread.join()
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
        self._handle: Any = None
        self._requests = 0
        self._window = _Block(0, memoryview(b""))
        self._ahead: _Ahead | None = None
        self._request_bytes = LEAST_REQUEST_BYTES // 2
        self._name = str(location)
        super().__init__(location, 0 if listed is None else listed.size_bytes)
        if listed is None:
            self.size_bytes = self._open().size()
        self._kept_as = location, listed or _version(self._handle)

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

    def close(self) -> None:
        # A request that is under way ends by itself.
        self._ahead = self._handle = None
        self._window = _Block(0, memoryview(b""))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._requests > 1:
                self._require_unchanged()
        finally:
            self.close()

    def _block_at(self, position: int, wanted: int) -> _Block:
        """Bytes from around ``position``: those at hand, or those of a new request."""
        if self._window.covers(position):
            return self._window
        kept = _kept.find(self._kept_as, position)
        if kept is not None:
            return kept
        if self._ahead is not None and self._ahead.start == position:
            ahead, self._ahead = self._ahead, None
            self._window = ahead.block()
            self._look_ahead()
            return self._window
        is_next = position == self._window.start + len(self._window.data)
        if self.size_bytes <= SMALL_FILE_BYTES:
            self._window = self._fetched(0, self.size_bytes)
        else:
            doubled = min(2 * self._request_bytes, LARGEST_REQUEST_BYTES)
            self._request_bytes = max(doubled if is_next else LEAST_REQUEST_BYTES, wanted)
            self._window = self._fetched(position, self._request_bytes)
            if is_next and position:
                self._look_ahead()
        if len(self._window.data) <= _KEPT_ANSWER_BYTES:
            _kept.keep(self._kept_as, self._window)
        return self._window

    def _look_ahead(self) -> None:
        """Ask for what follows the window."""
        start = self._window.start + len(self._window.data)
        self._request_bytes = min(2 * self._request_bytes, LARGEST_REQUEST_BYTES)
        count = self._request_bytes
        if start < self.size_bytes:
            self._ahead = _Ahead(start, lambda: self._fetched(start, count))

    def _fetched(self, start: int, count: int) -> _Block:
        """Ask for a range.

        Raises:
            OSError: the store does not answer, or the object is another one now.
        """
        count = min(count, self.size_bytes - start)
        handle = self._open() if self._handle is None else self._handle
        self._requests += 1
        data = self._connection.asked(
            lambda: handle.read_at(count, start), f"{self._name} (reading at byte {start})"
        )
        if len(data) != count:
            raise self._changed()
        return _Block(start, memoryview(data))

    def _open(self) -> Any:
        system = self._connection.file_system
        self._handle = self._connection.asked(
            lambda: system.open_input_file(self._path), self._name
        )
        if self._listed is not None and self._handle.size() != self._listed.size_bytes:
            raise self._changed()
        return self._handle

    def _require_unchanged(self) -> None:
        """Refuse what was put together from two versions of an object.

        Raises:
            OSError: it was replaced while it was read.
        """
        before = _version(self._handle)
        if before != _version(self._open()):
            raise self._changed()

    def _changed(self) -> OSError:
        return OSError(
            errno.ESTALE, "it was changed while it was read; run kdump again", self._name
        )


def _version(handle: Any) -> tuple[Any, ...]:
    """What a store says about an object that is open: size, and ETag or time if it has them."""
    try:
        said = handle.metadata()
    except (OSError, NotImplementedError, AttributeError):
        said = {}
    known = {str(key).lower().strip("b'"): value for key, value in (said or {}).items()}
    return handle.size(), known.get("etag"), known.get("last-modified")
