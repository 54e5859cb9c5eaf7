"""Many small reads at the same time, where each waits for a server."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def each_read(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[Result]:
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
