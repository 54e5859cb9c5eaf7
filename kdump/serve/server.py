"""The server: connections, and one request after the other on each."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from kdump.errors import KdumpError
from kdump.serve.answering import Answering, Caller, ReadingThreads, Serving
from kdump.serve.classic_groups import LiveGroups
from kdump.serve.fetch_answers import FETCH, LARGEST_FETCH_BYTES, FetchAnswers
from kdump.serve.finding_answers import FindingAnswers
from kdump.serve.group_answers import GroupAnswers
from kdump.serve.memory_budget import MemoryBudget
from kdump.serve.message_shapes import MalformedMessage
from kdump.serve.messages import Request, decode_request, encode_response
from kdump.serve.metadata_answers import LogDirAnswers, MetadataAnswers
from kdump.serve.offset_answers import OffsetAnswers
from kdump.serve.quorum_answers import QuorumAnswers
from kdump.serve.refusing_answers import RefusingAnswers
from kdump.serve.served_cluster import ServedCluster
from kdump.serve.served_notices import ServedNotices
from kdump.serve.transaction_answers import TransactionAnswers

LARGEST_REQUEST_BYTES: Final = 8 << 20
"""A fetch of 100,000 partitions is smaller."""
LARGEST_QUESTION_BYTES: Final = 1 << 20
"""Of a request that is no fetch: its answer has something for each few bytes of it."""
_LEAST_REQUEST_BYTES: Final = 8
_MEMORY_BYTES: Final = 64 << 20
_DECODED_BYTES: Final = 128 << 20
_DECODED_TIMES: Final = 96
"""So many times its bytes a request can take with its answer: four bytes are a partition."""
_DECODED_FETCH_TIMES: Final = 16
"""A partition of a fetch has 20 bytes or more."""
_LEAST_FETCH_BYTES: Final = 256 << 10
_READ_AHEAD_BYTES: Final = 16 << 10
_MOST_CONNECTIONS: Final = 2000
_STALLED_S: Final = 60.0
"""A client that neither sends the rest of a request nor takes a response is disconnected."""
_FAREWELL_S: Final = 0.5


@dataclass(slots=True)
class ProtocolServer:
    """Answers clients.

    Attributes:
        cluster: what is served.
        notices: takes what there is to say.
    """

    cluster: ServedCluster
    notices: ServedNotices
    _answers: dict[int, Answering] = field(init=False)
    _fetches: FetchAnswers = field(init=False)
    _offered: frozenset[int] = field(init=False)
    _live_groups: LiveGroups = field(init=False)
    _memory: MemoryBudget = field(init=False)
    _decoded: MemoryBudget = field(init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    def __post_init__(self) -> None:
        serving = Serving(self.cluster, self.notices, ReadingThreads())
        finding, groups = FindingAnswers(serving), GroupAnswers(serving)
        self._live_groups = groups.live
        self._fetches = FetchAnswers(serving)
        self._answers = {
            **finding.handlers(),
            **OffsetAnswers(serving).handlers(),
            **RefusingAnswers().handlers(),
            **groups.handlers(),
            **TransactionAnswers(serving).handlers(),
            **LogDirAnswers(serving).handlers(),
        }
        if self.cluster.image is not None:
            self._answers |= MetadataAnswers(serving, self.cluster.image).handlers()
            self._answers |= QuorumAnswers(serving, self.cluster.image).handlers()
        self._offered = finding.offered = frozenset({*self._answers, FETCH})
        self._memory = MemoryBudget(_MEMORY_BYTES)
        self._decoded = MemoryBudget(_DECODED_BYTES)

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Begin to take connections; gives the address.

        Raises:
            KdumpError: the address cannot be used.
        """
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._note_failure)
        try:
            self._server = await asyncio.start_server(
                self._connected, host, port, limit=_READ_AHEAD_BYTES
            )
        except OSError as failure:
            raise KdumpError(f"{host}:{port}: cannot listen: {failure.strerror}") from failure
        address = self._server.sockets[0].getsockname()
        return address[0], address[1]

    async def close(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        self._live_groups.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_FAREWELL_S)

    def _note_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.notices.note(str(context.get("exception") or context.get("message")))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= _MOST_CONNECTIONS:
            self.notices.note(f"more than {_MOST_CONNECTIONS} connections: new ones are closed")
            writer.transport.abort()
            return
        self._tasks.add(task)
        self.notices.clients += 1
        # What was written is sent before the next request is read.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            await self._converse(reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            pass  # The client is gone, or the server ends.
        except MalformedMessage as problem:
            self.notices.refused += 1
            self.notices.note(f"closed a connection after a request was refused: {problem}")
        except Exception as failure:  # noqa: BLE001 - a single connection ends, not the server
            self.notices.refused += 1
            self.notices.note(
                "closed a connection, because a request could not be answered:"
                f" {type(failure).__name__}: {failure}"
            )
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if writer.is_closing() else writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own, peer = (writer.get_extra_info(name) for name in ("sockname", "peername"))
        caller = Caller(own[0], own[1], peer[0])
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big", signed=True)
            if not _LEAST_REQUEST_BYTES <= size <= LARGEST_REQUEST_BYTES:
                raise MalformedMessage(
                    f"it claims to have {size} bytes; the most is {LARGEST_REQUEST_BYTES}"
                )
            async with contextlib.AsyncExitStack() as until_sent:
                async with self._memory.hold(size, size):
                    data = await asyncio.wait_for(reader.readexactly(size), _STALLED_S)
                    decoded = _decoded_bytes(data)
                    await until_sent.enter_async_context(self._decoded.hold(decoded, decoded))
                    request = decode_request(data, self._offered)
                    del data
                if request.api_key == FETCH:
                    await self._fetch(request, writer)
                else:
                    answer = await self._answers[request.api_key](request, caller)
                    await self._send(writer, encode_response(request, answer))

    async def _fetch(self, request: Request, writer: asyncio.StreamWriter) -> None:
        wanted = max(_LEAST_FETCH_BYTES, min(request.body.max_bytes, LARGEST_FETCH_BYTES))
        async with self._memory.hold(wanted, _LEAST_FETCH_BYTES) as held:
            answer, wait_s = await self._fetches.fetch(request, held.size_bytes)
            response = encode_response(request, answer)
            self._memory.resize(held, len(response))
            await asyncio.sleep(wait_s)
            await self._send(writer, response)

    async def _send(self, writer: asyncio.StreamWriter, response: memoryview) -> None:
        writer.write(response)
        try:
            await asyncio.wait_for(writer.drain(), _STALLED_S)
        except TimeoutError:
            writer.transport.abort()
            raise


def _decoded_bytes(data: bytes) -> int:
    """How much memory a request may take with its answer.

    Raises:
        MalformedMessage: it is no fetch, and larger than others may be.
    """
    if int.from_bytes(data[:2], "big") == FETCH:
        return len(data) * _DECODED_FETCH_TIMES
    if len(data) > LARGEST_QUESTION_BYTES:
        raise MalformedMessage(
            f"it has {len(data)} bytes; the most is {LARGEST_QUESTION_BYTES} for what is no fetch"
        )
    return len(data) * _DECODED_TIMES


def serve(
    cluster: ServedCluster,
    notices: ServedNotices,
    host: str,
    port: int,
    on_ready: Callable[[str, int], None],
) -> None:
    """Serve until SIGTERM or SIGINT; only in the main thread.

    Args:
        cluster: what is served.
        notices: takes what there is to say.
        host: to listen at.
        port: likewise; 0 for any.
        on_ready: takes the address, once clients can connect.

    Raises:
        KdumpError: the address cannot be used.
    """

    async def run() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        server = ProtocolServer(cluster, notices)
        on_ready(*await server.listen(host, port))
        await stopped.wait()
        await server.close()

    asyncio.run(run())
