"""Calls that ^C can end although they wait in a library for a server.

Python's handlers of signals run between its own instructions: during such a call they would have
to wait for it. So the main thread leaves it to another thread, and waits where it can be woken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

Value = TypeVar("Value")

_under_way: Final = set[threading.Thread]()


def interruptible(call: Callable[[], Value]) -> Value:
    """Return what ``call`` returns, or raise what it raises; only the main thread is woken.

    A call that was left continues in its thread, which does not keep the process from ending
    (but see :func:`calls_left`).
    """
    own = threading.current_thread()
    if own is not threading.main_thread():
        _under_way.add(own)
        try:
            return call()
        finally:
            _under_way.discard(own)
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
    thread.start()
    done.wait()
    if failures:
        raise failures[0]
    return values[0]


def calls_left() -> bool:
    """Whether calls are under way that nobody waits for: libraries wait for them at the end."""
    return bool(_under_way)
