"""Calls that ^C or a limit can end although they wait in a library for a server.

Python's handlers of signals run between its own instructions: during such a call they would have
to wait for it. So another thread makes it, and the one that needs it waits where it can be woken.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

Value = TypeVar("Value")

WATCH_SECONDS: Final = 1.0

_under_way: Final = set[threading.Thread]()


def interruptible(call: Callable[[], Value], watch: Callable[[float], None]) -> Value:
    """Return what ``call`` returns, or raise what it raises; ^C wakes the main thread.

    A call that was left continues in its thread, which does not keep the process from ending
    (but see :func:`calls_left`).

    Args:
        call: made in a thread of its own.
        watch: called about every second meanwhile, with the seconds so far. What it raises leaves
            the call; what the call writes to must not be used again then.
    """
    values: list[Value] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            values.append(call())
        except BaseException as failure:  # noqa: BLE001 - raised by the caller
            failures.append(failure)
        finally:
            _under_way.discard(thread)
            done.set()

    thread = threading.Thread(target=run, daemon=True, name="kdump request")
    _under_way.add(thread)
    begin_s = time.monotonic()
    thread.start()
    while not done.wait(WATCH_SECONDS):
        watch(time.monotonic() - begin_s)
    if failures:
        raise failures[0]
    return values[0]


def calls_left() -> bool:
    """Whether calls are under way that nobody waits for: libraries wait for them at the end."""
    return bool(_under_way)
