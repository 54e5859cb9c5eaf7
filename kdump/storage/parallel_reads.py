"""Many small reads at the same time, where each waits for a server."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from kdump.errors import KdumpError

if TYPE_CHECKING:
    from kdump.storage.location import Location

Item = TypeVar("Item")
Result = TypeVar("Result")

CONCURRENT_READS: Final = 64
"""Each waits tens of milliseconds for a server, which serves thousands a second."""
_FETCHED_EARLY_BYTES: Final = 128 << 10
"""Of larger files, the bytes take longer than waiting for the first one."""
_MOST_FETCHED: Final = 4 * CONCURRENT_READS
"""So many files of this size fit into what is kept."""
_MOST_OF_AN_ITEM: Final = 4096


def each_read(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Generator[Result, None, None]:
    """Yield what a function returns for each item, in the order of the items.

    Args:
        function: reads; called in several threads unless ``threads`` is 1.
        items: taken a few at a time, as results are used.
        threads: how many calls at the same time, from
            :func:`~kdump.storage.places.concurrent_reads`.

    Raises:
        Exception: what the first failing call raises.
    """
    if threads == 1:
        yield from map(function, items)
        return
    from concurrent.futures import Future, ThreadPoolExecutor

    pool = ThreadPoolExecutor(threads, thread_name_prefix="kdump read")
    waiting = deque[Future[Result]]()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        # Nobody waits for what a server has not answered yet.
        pool.shutdown(wait=False, cancel_futures=True)


def with_files_at_hand(
    items: Iterable[Item], files_of: Callable[[Item], Iterable[Location]], threads: int
) -> Iterator[Item]:
    """Yield items in order, when the small files of each were read: an object store keeps them.

    Args:
        items: what will be worked on.
        files_of: files that this needs; large ones are left to it.
        threads: as for :func:`each_read`; with 1, nothing is read.
    """
    if threads == 1:
        yield from items
        return
    from concurrent.futures import Future, ThreadPoolExecutor, wait

    def found(item: Item) -> tuple[Item, list[Location]]:
        return item, list(itertools.islice(files_of(item), _MOST_OF_AN_ITEM))

    pool = ThreadPoolExecutor(threads, thread_name_prefix="kdump read")
    waiting = deque[tuple[Item, list[Future[None]]]]()
    under_way = 0
    # A worker that does not have the listing of a directory asks for it.
    with_files = each_read(found, items, threads)
    try:
        for item, files in with_files:
            waiting.append((item, [pool.submit(_fetch_small, each) for each in files]))
            under_way += len(waiting[-1][1])
            while under_way > _MOST_FETCHED and len(waiting) > 1:
                first, fetched = waiting.popleft()
                wait(fetched)
                under_way -= len(fetched)
                yield first
        while waiting:
            first, fetched = waiting.popleft()
            wait(fetched)
            yield first
    finally:
        with_files.close()
        pool.shutdown(wait=False, cancel_futures=True)


def _fetch_small(location: Location) -> None:
    """Read a file that is small; what fails is left to who needs it."""
    with contextlib.suppress(OSError, KdumpError), location.open_file() as file:
        if 0 < file.size_bytes <= _FETCHED_EARLY_BYTES:
            file.read_into(memoryview(bytearray(1)), 0)
