"""The time that the machine says it is."""

from __future__ import annotations

import time


def current_time_ms() -> int:
    """The current time in milliseconds since 1970."""
    return round(time.time() * 1000)
