"""What clients share, where it is too little for all that want it at the same time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct, field


class Crowd(Struct):
    """The tasks that hold a part of it; if there is too little, the one ends that came first.

    Who means it needs some milliseconds, so that neither a flood nor slow clients keep it from
    others.

    Attributes:
        most: how much there is.
        on_end: is told the name of a task that ends.
    """

    most: int
    on_end: Callable[[str], None]
    _parts: dict[asyncio.Task[Any], tuple[int, str]] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many tasks hold a part."""
        return len(self._parts)

    @contextlib.contextmanager
    def hold(self, part: int, name: str) -> Iterator[None]:
        """Hold a part in this task; another task may be cancelled for it."""
        while self._parts and sum(held for held, _ in self._parts.values()) + part > self.most:
            longest = next(iter(self._parts))
            self.on_end(self._parts.pop(longest)[1])
            longest.cancel()
        task = asyncio.current_task()
        assert task is not None
        self._parts[task] = part, name
        try:
            yield
        finally:
            self._parts.pop(task, None)
