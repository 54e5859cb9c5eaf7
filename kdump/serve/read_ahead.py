"""What a client will probably fetch next, read while it is at work with what it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from kdump.serve.fetch_question import FetchedTopics, FetchQuestion
from kdump.serve.stored_batches import FilesToSend

_KEPT_S: Final = 1.0
"""Files are not kept open for longer; a client that is slower than that gains nothing."""
_MOST: Final = 16
"""So many clients have something read ahead at the same time."""

Read = Callable[[FetchQuestion, FilesToSend | None], Coroutine[Any, Any, FetchedTopics]]


class ReadAhead:
    """The fetches of one connection.

    If a client goes on where the last answer ended, what follows this one is read before it asks.

    Args:
        read: finds what is asked.
        all_ahead: those of all connections for which something is read ahead.
    """

    def __init__(self, read: Read, all_ahead: set[ReadAhead]) -> None:
        self._read = read
        self._all_ahead = all_ahead
        self._following: FetchQuestion | None = None
        self._answered_s = 0.0
        self._goes_on = False
        self._files = FilesToSend()
        self._task: asyncio.Task[FetchedTopics] | None = None
        self._expiry: asyncio.TimerHandle | None = None

    async def find(self, question: FetchQuestion, to_send: FilesToSend | None) -> FetchedTopics:
        """What is asked.

        Args:
            to_send: takes the files whose ranges are batches; None if all are to be read.
        """
        self._goes_on = question == self._following and self._since_answer_s() < _KEPT_S
        if self._goes_on and self._task is not None and to_send is not None:
            assert self._expiry is not None
            self._expiry.cancel()
            found = await self._task
            to_send.keep(self._files.released())
            self.forget()
        else:
            self.forget()
            found = await self._read(question, to_send)
        self._following = found.following
        return found

    def answered(self) -> None:
        """The client has its answer: read what it will ask next, if it has gone on so far."""
        self._answered_s = asyncio.get_running_loop().time()
        if self._goes_on and self._following is not None and len(self._all_ahead) < _MOST:
            self._all_ahead.add(self)
            self._files = FilesToSend()
            self._task = asyncio.ensure_future(self._read(self._following, self._files))
            self._expiry = asyncio.get_running_loop().call_later(_KEPT_S, self.forget)

    def forget(self) -> None:
        """Close what was read ahead."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._task is not None:
            self._task.cancel()
        self._files.close()
        self._all_ahead.discard(self)
        self._task = self._expiry = None

    def _since_answer_s(self) -> float:
        return asyncio.get_running_loop().time() - self._answered_s
