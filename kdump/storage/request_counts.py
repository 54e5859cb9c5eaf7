"""How many requests were made to object stores, and how many bytes came."""

from __future__ import annotations

import threading
from typing import NamedTuple


class RequestCounts(NamedTuple):
    """Requests by what they ask for; repetitions after failures do not count.

    Attributes:
        listings: pages of listings.
        lookups: questions for the size and version of an object, before it is read.
        reads: ranges of objects.
        read_bytes: in these.
        writes: objects that were written, and requests to delete some.
    """

    listings: int = 0
    lookups: int = 0
    reads: int = 0
    read_bytes: int = 0
    writes: int = 0

    @property
    def requests(self) -> int:
        return self.listings + self.lookups + self.reads + self.writes

    def plus(self, other: RequestCounts) -> RequestCounts:
        """The sum of both."""
        return RequestCounts(*(a + b for a, b in zip(self, other, strict=True)))


class RequestCounter:
    """Counts requests, in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = RequestCounts()

    @property
    def counts(self) -> RequestCounts:
        """All so far, but what was taken."""
        return self._counts

    def add(self, more: RequestCounts) -> None:
        with self._lock:
            self._counts = self._counts.plus(more)

    def take(self) -> RequestCounts:
        """All so far; the count begins at zero again."""
        with self._lock:
            taken, self._counts = self._counts, RequestCounts()
            return taken
