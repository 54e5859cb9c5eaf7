"""How much memory requests and responses may take together, whatever clients ask for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from msgspec import Struct, field

_SHARE: Final = 4
"""So many times what one gets has to be free: who reads slowly leaves room for others."""


class Held(Struct):
    """What one holds of the budget; a batch may be larger than what was granted."""

    size_bytes: int


class MemoryBudget(Struct):
    """Bytes that may be held at once.

    Attributes:
        free_bytes: how many are left; negative while something is larger than it asked for.
    """

    free_bytes: int
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @contextlib.asynccontextmanager
    async def hold(self, wanted_bytes: int, least_bytes: int) -> AsyncIterator[Held]:
        """Hold up to so many bytes; waits until the least are free."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.free_bytes >= least_bytes)
            held = Held(min(wanted_bytes, max(least_bytes, self.free_bytes // _SHARE)))
            self.free_bytes -= held.size_bytes
        try:
            yield held
        finally:
            self.free_bytes += held.size_bytes
            async with self._changed:
                self._changed.notify_all()

    def resize(self, held: Held, size_bytes: int) -> None:
        """Take note that something is of another size."""
        self.free_bytes += held.size_bytes - size_bytes
        held.size_bytes = size_bytes
