"""Wait for a state that another process or thread brings about, or for a later time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_PATIENCE_SECONDS: Final = 240
_POLL_SECONDS: Final = 0.02


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for a state.

    Raises:
        AssertionError: it does not come.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"not within {_PATIENCE_SECONDS} s: {what}"
        time.sleep(_POLL_SECONDS)


def a_moment() -> int:
    """The time now, in milliseconds since the epoch; what happens from now on is later."""
    now_ms = round(time.time() * 1000)
    while time.time() * 1000 < now_ms + 20:
        pass
    return now_ms + 10
