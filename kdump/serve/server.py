"""The server: connections, and one request after the other on each."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, TypeVar, cast

from kdump.errors import KdumpError, reason_of
from kdump.serve.admission import Admission
from kdump.serve.answering import Answering, Caller, ReadingThreads, Serving
from kdump.serve.authentication import (
    AUTHENTICATING,
    EARLY,
    LARGEST_EARLY_REQUEST_BYTES,
    Authentication,
    NotAuthenticatedError,
    illegal_state,
)
from kdump.serve.authorization import RULES, Access, Authorization
from kdump.serve.config_answers import DESCRIBE_CONFIGS, LARGEST_CONFIGS_BYTES, ConfigAnswers
from kdump.serve.crowd import Crowd
from kdump.serve.fetch_answers import LARGEST_FETCH_BYTES, FetchAnswers
from kdump.serve.finding_answers import FindingAnswers
from kdump.serve.group_answers import GroupAnswers
from kdump.serve.live_groups import LiveGroups
from kdump.serve.member_answers import WAITING, MemberAnswers
from kdump.serve.memory_budget import MemoryBudget
from kdump.serve.message_shapes import MalformedMessage
from kdump.serve.messages import FETCH, Answer, Request, Response, decode_request, encode_response
from kdump.serve.metadata_answers import LogDirAnswers, MetadataAnswers
from kdump.serve.offset_answers import OffsetAnswers
from kdump.serve.quorum_answers import QuorumAnswers
from kdump.serve.read_ahead import ReadAhead
from kdump.serve.refusing_answers import RefusingAnswers
from kdump.serve.served_cluster import ServedCluster
from kdump.serve.served_notices import ServedNotices
from kdump.serve.stored_batches import FilesToSend, SentRange, read_stored
from kdump.serve.transaction_answers import TransactionAnswers
from kdump.state.metadata.authorizer import java_address
from kdump.storage.local_disk import CAN_SEND_FILES

T = TypeVar("T")

LARGEST_REQUEST_BYTES: Final = 8 << 20
"""A fetch of 100,000 partitions is smaller."""
LARGEST_QUESTION_BYTES: Final = 1 << 20
"""Of a request that is no fetch: its answer has something for each few bytes of it."""
_LEAST_REQUEST_BYTES: Final = 8
_REQUESTS_BYTES: Final = 24 << 20
"""Of requests that are larger than what is read ahead: the others never wait for a client that
claims a large one and does not send it."""
_RESPONSES_BYTES: Final = 24 << 20
"""What the allocator keeps of them can be as much again."""
_LARGE_RESPONSE_BYTES: Final = 64 << 10
_LARGE_RESPONSES_BYTES: Final = 128 << 20
"""Of those that are larger and no fetches, while they are sent. One of them can be 32 MiB: all that
the members of a group say."""
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
_GLANCE_S: Final = 1.0
"""So often it is looked whether a client that waits is still there."""
_FAREWELL_S: Final = 0.5
_MOST_TLS_CONNECTIONS: Final = 200
"""Each has buffers of a quarter of a MiB."""
_PIECE_BYTES: Final = 256 << 10
_TLS_PIECE_BYTES: Final = 64 << 10
_MOST_EARLY_CONNECTIONS: Final = 100
"""So many may be at their TLS handshake or their authentication at the same time."""
_MOST_EARLY_REQUESTS: Final = 8
"""A client asks for the versions once or twice, and three times to authenticate."""
_EARLY_S: Final = 10.0
"""A TLS handshake and the authentication together may take so long."""
_IDLE_S: Final = 600.0
"""Follows ``connections.max.idle.ms``."""
_AFTER_FAILURE_S: Final = 0.1
"""Follows ``connection.failed.authentication.delay.ms``."""


@dataclass(slots=True)
class ProtocolServer:
    """Answers clients."""

    cluster: ServedCluster
    notices: ServedNotices
    admission: Admission = field(default_factory=Admission)
    _early: Crowd = field(init=False)
    _large: Crowd = field(init=False)
    _authorization: Authorization = field(init=False)
    _answers: dict[int, Answering] = field(init=False)
    _fetches: FetchAnswers = field(init=False)
    _offered: frozenset[int] = field(init=False)
    _live_groups: LiveGroups = field(init=False)
    _threads: ReadingThreads = field(init=False)
    _requests: MemoryBudget = field(init=False)
    _responses: MemoryBudget = field(init=False)
    _decoded: MemoryBudget = field(init=False)
    _described: MemoryBudget = field(init=False)
    _configs: ConfigAnswers | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    def __post_init__(self) -> None:
        self._early = Crowd(_MOST_EARLY_CONNECTIONS, self._say_early)
        self._large = Crowd(_LARGE_RESPONSES_BYTES, self._say_large)
        self._threads = ReadingThreads()
        serving = Serving(self.cluster, self.notices, self._threads)
        finding, groups = FindingAnswers(serving), GroupAnswers(serving)
        self._live_groups = groups.live
        self._fetches = FetchAnswers(serving)
        self._answers = {
            **finding.handlers(),
            **OffsetAnswers(serving).handlers(),
            **RefusingAnswers().handlers(),
            **groups.handlers(),
            **MemberAnswers(serving, groups.live).handlers(),
            **TransactionAnswers(serving).handlers(),
            **LogDirAnswers(serving).handlers(),
        }
        if self.cluster.image is not None:
            self._answers |= MetadataAnswers(serving, self.cluster.image).handlers()
            self._answers |= QuorumAnswers(serving, self.cluster.image).handlers()
            self._configs = ConfigAnswers(serving, self.cluster.image)
            self._answers |= self._configs.handlers()
        offered = frozenset({*self._answers, FETCH})
        if self.admission.identities is not None:
            offered = offered & RULES.keys() | AUTHENTICATING
        self._offered = finding.offered = offered
        self._authorization = Authorization(self.cluster)
        self._requests = MemoryBudget(_REQUESTS_BYTES)
        self._responses = MemoryBudget(_RESPONSES_BYTES)
        self._decoded = MemoryBudget(_DECODED_BYTES)
        self._described = MemoryBudget(LARGEST_CONFIGS_BYTES)

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
            # Connections that were ended are closed in the next turn.
            await asyncio.sleep(0)

    def _note_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.notices.note(str(context.get("exception") or context.get("message")))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        most = _MOST_CONNECTIONS if self.admission.tls is None else _MOST_TLS_CONNECTIONS
        if len(self._tasks) - len(self._early) >= most:
            self.notices.note(f"more than {most} connections: new ones are closed")
            writer.transport.abort()
            return
        if writer.get_extra_info("peername") is None:
            # It was gone before it was looked at.
            writer.transport.abort()
            return
        self._tasks.add(task)
        self.notices.clients += 1
        try:
            access = await self._let_in(reader, writer)
            with self._fetches.of_connection() as ahead:
                await self._converse(reader, writer, access, ahead)
        except ssl.SSLError as failure:
            why = (failure.reason or str(failure)).replace("_", " ").lower()
            self.notices.note_refusal(f"closed a connection of {self._peer(writer)}: TLS: {why}")
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            pass  # The client is gone, or the server ends.
        except NotAuthenticatedError as problem:
            self.notices.note_refusal(f"closed a connection of {self._peer(writer)}: {problem}")
        except MalformedMessage as problem:
            self.notices.note_refusal(f"closed a connection after a request was refused: {problem}")
        except Exception as failure:  # noqa: BLE001 - a single connection ends, not the server
            self.notices.note_refusal(
                "closed a connection, because a request could not be answered:"
                f" {type(failure).__name__}: {failure}"
            )
        finally:
            self._tasks.discard(task)
            if self.admission.tls is not None or writer.is_closing():
                # All was sent; nobody waits for a client to say farewell.
                writer.transport.abort()
            else:
                writer.close()

    @staticmethod
    def _peer(writer: asyncio.StreamWriter) -> str:
        return str(writer.get_extra_info("peername")[0])

    async def _let_in(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Access | None:
        """TLS and authentication, in bounded time; gives what the client may do, None for all.

        Nothing may be waited for before the handshake begins: its first bytes would be lost.
        """
        # What was written is sent before the next request is read.
        writer.transport.set_write_buffer_limits(high=0)
        if self.admission.tls is None and self.admission.identities is None:
            return None
        with self._early.hold(1, self._peer(writer)):
            async with asyncio.timeout(_EARLY_S):
                if self.admission.tls is not None:
                    await writer.start_tls(self.admission.tls)
                    # With 0 it would wait at each write for the client to send something.
                    writer.transport.set_write_buffer_limits(high=1)
                return await self._authenticate(reader, writer)

    def _say_early(self, peer: str) -> None:
        self.notices.note(
            f"more than {_MOST_EARLY_CONNECTIONS} connections are not let in yet: the oldest"
            f" are closed (one is of {peer})"
        )

    async def _authenticate(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Access | None:
        identities = self.admission.identities
        if identities is None:
            return None
        caller = self._caller(writer)
        exchange = Authentication(identities.credentials)
        for _ in range(_MOST_EARLY_REQUESTS):
            try:
                async with self._request(reader, LARGEST_EARLY_REQUEST_BYTES, EARLY) as request:
                    if request.api_key in AUTHENTICATING:
                        answer = await self._proved(exchange, request, writer)
                    else:
                        answer = await self._answers[request.api_key](request, caller)
                    await self._send(writer, encode_response(request, answer))
            except MalformedMessage as problem:
                raise MalformedMessage(f"before authentication: {problem}") from problem
            if exchange.user is not None:
                host = java_address(caller.peer)
                return Access(identities.authorizer, f"User:{exchange.user}", host)
        raise MalformedMessage("before authentication: one more after many others")

    async def _proved(
        self, exchange: Authentication, request: Request, writer: asyncio.StreamWriter
    ) -> Answer:
        """The next answer of an authentication; who cannot prove who it is has to wait for that.

        Raises:
            NotAuthenticatedError: it is refused, which the client has been told.
        """
        try:
            return exchange.answer(request)
        except NotAuthenticatedError as refusal:
            await asyncio.sleep(_AFTER_FAILURE_S)
            await self._send(writer, encode_response(request, refusal.answer))
            raise

    def _caller(self, writer: asyncio.StreamWriter) -> Caller:
        own, peer = (writer.get_extra_info(name) for name in ("sockname", "peername"))
        return Caller(self.admission.name or own[0], own[1], peer[0])

    @contextlib.asynccontextmanager
    async def _request(
        self, reader: asyncio.StreamReader, largest: int, api_keys: frozenset[int]
    ) -> AsyncIterator[Request]:
        """Read a request; the memory for it and its answer is held until it is answered.

        Raises:
            MalformedMessage: it is not one, or larger than that.
            EOFError: the client is gone.
            TimeoutError: the client is idle, or does not send the rest of it.
        """
        async with asyncio.timeout(_IDLE_S):
            prefix = await reader.readexactly(4)
        size = int.from_bytes(prefix, "big", signed=True)
        if not _LEAST_REQUEST_BYTES <= size <= largest:
            raise MalformedMessage(f"it claims to have {size} bytes; the most is {largest}")
        async with contextlib.AsyncExitStack() as until_answered:
            is_large = size > _READ_AHEAD_BYTES
            async with self._requests.hold(size, size) if is_large else contextlib.nullcontext():
                async with asyncio.timeout(_STALLED_S):
                    data = await reader.readexactly(size)
                decoded = _decoded_bytes(data)
                await until_answered.enter_async_context(self._decoded.hold(decoded, decoded))
                request = decode_request(data, api_keys)
                del data
            yield request

    async def _converse(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        access: Access | None,
        ahead: ReadAhead,
    ) -> None:
        caller = self._caller(writer)
        while True:
            async with self._request(reader, LARGEST_REQUEST_BYTES, self._offered) as request:
                if request.api_key == FETCH:
                    await self._fetch(request, reader, writer, access, ahead)
                elif request.api_key == DESCRIBE_CONFIGS and self._configs is not None:
                    await self._describe_configs(request, writer, access, self._configs)
                else:
                    answering = self._answer(request, caller, access)
                    if request.api_key in WAITING:
                        answering = _while_there(reader, answering)
                    response = encode_response(request, await answering)
                    is_large = response.held_bytes > _LARGE_RESPONSE_BYTES
                    with (
                        self._large.hold(response.held_bytes, self._peer(writer))
                        if is_large
                        else contextlib.nullcontext()
                    ):
                        await self._send(writer, response)
            # Who sends many requests at once does not keep others waiting.
            await asyncio.sleep(0)

    def _say_large(self, _peer: str) -> None:
        self.notices.note(
            f"more than {_LARGE_RESPONSES_BYTES >> 20} MiB of responses are not taken by their"
            " clients: the oldest are closed"
        )

    async def _describe_configs(
        self,
        request: Request,
        writer: asyncio.StreamWriter,
        access: Access | None,
        configs: ConfigAnswers,
    ) -> None:
        """Answer what is much larger than the request, and takes long to encode."""
        size_bytes = configs.size_bytes(request)
        async with self._described.hold(size_bytes, size_bytes):
            answer = await self._answer(request, self._caller(writer), access)
            await self._send(writer, await self._threads.run(encode_response, request, answer))

    async def _answer(self, request: Request, caller: Caller, access: Access | None) -> Answer:
        if request.api_key in AUTHENTICATING:
            return illegal_state(request)

        async def ask(asked: Request) -> Answer:
            return await self._answers[asked.api_key](asked, caller)

        if access is None:
            return await ask(request)
        return await self._authorization.answer(request, access, ask)

    async def _fetch(
        self,
        request: Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        access: Access | None,
        ahead: ReadAhead,
    ) -> None:
        wanted = max(_LEAST_FETCH_BYTES, min(request.body.max_bytes, LARGEST_FETCH_BYTES))
        async with self._responses.hold(wanted, _LEAST_FETCH_BYTES) as held:
            with FilesToSend() as files:
                room_bytes = held.size_bytes
                response, wait_s = await self._fetched(request, access, room_bytes, files, ahead)
                self._responses.resize(held, response.held_bytes)
                if wait_s > 0:
                    await _while_there(reader, asyncio.sleep(wait_s))
                await self._send(writer, response)
        ahead.answered()

    async def _fetched(
        self,
        request: Request,
        access: Access | None,
        room_bytes: int,
        files: FilesToSend,
        ahead: ReadAhead,
    ) -> tuple[Response, float]:
        """The response to a fetch, and how many seconds to wait before it is sent."""
        to_send = files if CAN_SEND_FILES and self.admission.tls is None else None
        wait_s = 0.0

        async def ask(asked: Request) -> Answer:
            nonlocal wait_s
            answer, wait_s = await self._fetches.fetch(asked, room_bytes, to_send, ahead)
            if request.body.topics and not asked.body.topics:
                # All is refused, which is answered at once.
                wait_s = 0.0
            return answer

        if access is None:
            answer = await ask(request)
        else:
            answer = await self._authorization.answer(request, access, ask)
        return encode_response(request, answer), wait_s

    async def _send(self, writer: asyncio.StreamWriter, response: Response) -> None:
        """Send a response; if that fails in between, the connection cannot be used any more.

        Its end is sent only if nobody wrote to its files meanwhile: a response that is not complete
        counts for nothing.

        Raises:
            TimeoutError: the client does not take it.
            OSError: the client is gone, or a file has become shorter or cannot be read.
        """
        *others, last = response.parts
        try:
            async with asyncio.timeout(_STALLED_S):
                for each in others:
                    if isinstance(each, SentRange):
                        await self._send_range(writer, each)
                    else:
                        await self._send_bytes(writer, each)
                if isinstance(last, SentRange):
                    end = last.end - 1
                    await self._send_range(writer, last._replace(end=end))
                    last = memoryview(await self._read(last, end, last.end))
                self._require_unchanged(response)
                await self._send_bytes(writer, last)
        except BaseException:
            writer.transport.abort()
            raise

    async def _send_bytes(self, writer: asyncio.StreamWriter, data: memoryview) -> None:
        """Send bytes piece by piece: what a client does not take at once is copied."""
        piece_bytes = _PIECE_BYTES if self.admission.tls is None else _TLS_PIECE_BYTES
        for start in range(0, len(data), piece_bytes):
            writer.write(data[start : start + piece_bytes])
            await writer.drain()

    def _require_unchanged(self, response: Response) -> None:
        try:
            for each in response.parts:
                if isinstance(each, SentRange):
                    each.require_unchanged()
        except OSError as failure:
            self.notices.note(f"{failure.filename}: {reason_of(failure)}")
            raise

    async def _read(self, part: SentRange, start: int, end: int) -> bytes:
        try:
            return await self._threads.run(read_stored, part.file, start, end)
        except OSError as failure:
            self.notices.note(f"{failure.filename}: {reason_of(failure)}")
            raise

    async def _send_range(self, writer: asyncio.StreamWriter, part: SentRange) -> None:
        """Let the system send a range of a file; what it does not send is read.

        That is all of it where the file system cannot send files, or the disk fails, and the rest
        of a file that has become shorter.
        """
        if writer.is_closing():
            raise ConnectionResetError
        start = part.start
        with contextlib.suppress(OSError):
            # Nothing is left to write before it. Usually the system takes all at once.
            start += part.file.send(writer.get_extra_info("socket").fileno(), start, part.end)
        if start < part.end:
            start = await self._sent_by_loop(writer, part, start)
        for begin in range(start, part.end, _PIECE_BYTES):
            data = await self._read(part, begin, min(begin + _PIECE_BYTES, part.end))
            await self._send_bytes(writer, memoryview(data))

    async def _sent_by_loop(self, writer: asyncio.StreamWriter, part: SentRange, start: int) -> int:
        """Go on to send a range as the client takes it; gives the byte up to which it was sent."""
        send = asyncio.get_running_loop().sendfile
        file = cast("BinaryIO", part.file)
        try:
            return start + await send(
                writer.transport, file, start, part.end - start, fallback=False
            )
        except asyncio.SendfileNotAvailableError:
            return start
        except (ConnectionError, TimeoutError):
            raise
        except OSError as failure:
            self.notices.note(f"{part.file.location}: {reason_of(failure)}")
            raise


async def _while_there(reader: asyncio.StreamReader, waiting: Coroutine[Any, Any, T]) -> T:
    """Wait for something, as long as the client does.

    Raises:
        EOFError: it is gone.
    """
    task = asyncio.ensure_future(waiting)
    try:
        while not (await asyncio.wait({task}, timeout=_GLANCE_S))[0]:
            if reader.at_eof() or reader.exception() is not None:
                raise EOFError
        return task.result()
    finally:
        task.cancel()


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
    admission: Admission,
) -> None:
    """Serve until SIGTERM or SIGINT; only in the main thread.

    Args:
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
        server = ProtocolServer(cluster, notices, admission)
        on_ready(*await server.listen(host, port))
        await stopped.wait()
        await server.close()

    asyncio.run(run())
