"""How much memory requests and responses may take together, whatever clients ask for."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from msgspec import Struct, field

_SHARE: Final = 4
"""So many times what one gets has to be free: who reads slowly leaves room for others."""


class Held(Struct):
    """What one holds of the budget; a batch may be larger than what was granted."""

    size_bytes: int


class _Waiting(NamedTuple):
    """Somebody who waits for bytes."""

    wanted_bytes: int
    least_bytes: int
    coming: asyncio.Future[Held]


class MemoryBudget(Struct):
    """Bytes that may be held at once.

    Attributes:
        free_bytes: how many are left; negative while something is larger than it asked for.
    """

    free_bytes: int
    _waiting: deque[_Waiting] = field(default_factory=deque)

    @contextlib.asynccontextmanager
    async def hold(self, wanted_bytes: int, least_bytes: int) -> AsyncIterator[Held]:
        """Hold up to so many bytes; waits until the least are free."""
        if self.free_bytes >= least_bytes:
            held = self._taken(wanted_bytes, least_bytes)
        else:
            held = await self._waited_for(wanted_bytes, least_bytes)
        try:
            yield held
        finally:
            self.resize(held, 0)

    def resize(self, held: Held, size_bytes: int) -> None:
        """Take note that something is of another size; who waits for what is free now, gets it."""
        self.free_bytes += held.size_bytes - size_bytes
        held.size_bytes = size_bytes
        if self.free_bytes > 0 and self._waiting:
            self._let_in()

    def _taken(self, wanted_bytes: int, least_bytes: int) -> Held:
        held = Held(min(wanted_bytes, max(least_bytes, self.free_bytes // _SHARE)))
        self.free_bytes -= held.size_bytes
        return held

    async def _waited_for(self, wanted_bytes: int, least_bytes: int) -> Held:
        coming: asyncio.Future[Held] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(wanted_bytes, least_bytes, coming))
        try:
            return await coming
        except asyncio.CancelledError:
            if coming.done() and not coming.cancelled():
                self.resize(coming.result(), 0)
            raise

    def _let_in(self) -> None:
        """Give what is free to those that wait, in their order; who needs more waits on."""
        waiting, still_waiting = self._waiting, deque[_Waiting]()
        while waiting and self.free_bytes > 0:
            each = waiting.popleft()
            if each.coming.done():
                continue  # it does not wait any more
            if each.least_bytes <= self.free_bytes:
                each.coming.set_result(self._taken(each.wanted_bytes, each.least_bytes))
            else:
                still_waiting.append(each)
        waiting.extendleft(reversed(still_waiting))
