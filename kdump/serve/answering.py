"""What all answers need: the cluster, the threads that read it, and the checks that they share."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from kio.schema.errors import ErrorCode
from msgspec import Struct

from kdump.errors import KdumpError, reason_of
from kdump.formats.names import TopicPartition
from kdump.serve.messages import Answer, Request
from kdump.serve.served_cluster import NO_EPOCH, ServedCluster, ServedPartition
from kdump.serve.served_log import ServedLog
from kdump.serve.served_log_0_7 import ServedLog07
from kdump.serve.served_notices import ServedNotices

_THREADS: Final = 4

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class ReadingThreads:
    """Threads that read logs; the program may end while they do."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        for number in range(_THREADS):
            threading.Thread(target=self._run, name=f"serve-{number}", daemon=True).start()

    async def run(
        self,
        function: Callable[Arguments, Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        """Call a function in one of the threads."""
        future: Future[Result] = Future()
        self._work.put((future, lambda: function(*args, **kwargs)))
        return await asyncio.wrap_future(future)

    def _run(self) -> None:
        while True:
            future, call = self._work.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except Exception as failure:  # noqa: BLE001 - who waits for the result gets it
                future.set_exception(failure)


class Caller(NamedTuple):
    """The connection on which a request came.

    Attributes:
        host: the address of this server that the client reached, for it to come back to.
        port: likewise.
    """

    host: str
    port: int
    peer: str


class Serving(Struct, frozen=True):
    """What the answers are made from."""

    cluster: ServedCluster
    notices: ServedNotices
    threads: ReadingThreads

    def broker(self, caller: Caller) -> Mapping[str, Any]:
        """The one node, as a client reaches it."""
        node_id = self.cluster.node_id
        return {"node_id": node_id, "broker_id": node_id, "host": caller.host, "port": caller.port}

    def readable(
        self, partition: ServedPartition | None, current_leader_epoch: int = NO_EPOCH
    ) -> ServedLog | ServedLog07 | ErrorCode:
        """The log of a partition, or why there is none.

        Follows ``ReplicaManager.getPartitionOrException``, ``Partition.checkCurrentLeaderEpoch``.

        Args:
            partition: as found; None if there is none.
            current_leader_epoch: of the leader, as far as the client knows.
        """
        if partition is None:
            return ErrorCode.unknown_topic_or_partition
        if partition.log is None:
            return ErrorCode.not_leader_or_follower
        if NO_EPOCH not in (current_leader_epoch, partition.leader_epoch):
            if current_leader_epoch < partition.leader_epoch:
                return ErrorCode.fenced_leader_epoch
            if current_leader_epoch > partition.leader_epoch:
                return ErrorCode.unknown_leader_epoch
        return partition.log

    def failure(self, key: TopicPartition, failure: OSError | KdumpError) -> ErrorCode:
        """Say that a log cannot be read; gives the error for the client."""
        if isinstance(failure, OSError):
            where = failure.filename or str(key)
            self.notices.note(f"{where}: {reason_of(failure)}")
        else:
            self.notices.note(f"{key}: {failure}")
        return ErrorCode.kafka_storage_error


class ServingAnswers:
    """What answers from what is served."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._cluster = serving.cluster


Answering = Callable[[Request, Caller], Awaitable[Answer]]
"""Answers the requests of one API."""


def numbers_by_topic(keys: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of partitions by topic, both in order."""
    found: dict[str, list[int]] = {}
    for key in sorted(keys):
        found.setdefault(key.topic, []).append(key.partition)
    return found
