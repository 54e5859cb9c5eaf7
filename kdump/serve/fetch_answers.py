"""Answers to ``Fetch``: batches as they are stored."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from kdump.errors import KdumpError
from kdump.formats.names import TopicPartition
from kdump.log.special_times import IsolationLevel
from kdump.serve.answering import ServingAnswers
from kdump.serve.messages import Answer, Request
from kdump.serve.offset_answers import LEVELS
from kdump.serve.served_cluster import ServedPartition
from kdump.serve.served_log import CorruptBatch, FetchedBatches, OffsetOutOfRange
from kdump.serve.stored_batches import FilesToSend, StoredBatches

_NO_SESSION: Final = 0
_WITH_TOPIC_IDS: Final = 13
_CONSUMER: Final = -1
_LONGEST_WAIT_S: Final = 60.0
LARGEST_FETCH_BYTES: Final = 4 << 20
"""More is not read for one request, whatever it asks for; it asks again."""
_UNKNOWN: Final = -1


class _Room(Struct):
    """How many bytes a response may still have."""

    left_bytes: int
    used_bytes: int = 0


class FetchAnswers(ServingAnswers):
    """Answers ``Fetch``."""

    async def fetch(
        self, request: Request, room_bytes: int, to_send: FilesToSend | None
    ) -> tuple[Answer, float]:
        """The batches that were asked for, and how many seconds to wait before that is answered.

        Nothing ever follows the end of a dead log: only an answer without any batch has to wait.

        Args:
            room_bytes: how much may be answered.
            to_send: closes the files whose ranges are batches; None if all are to be read.
        """
        body = request.body
        state = getattr(body, "replica_state", None)
        if getattr(body, "replica_id", _CONSUMER) >= 0 or (state and state.replica_id >= 0):
            # Who copies logs as a follower would wait for a leader for ever.
            return {"error_code": ErrorCode.cluster_authorization_failed, "responses": ()}, 0.0
        if getattr(body, "session_id", _NO_SESSION) != _NO_SESSION:
            return {"error_code": ErrorCode.fetch_session_id_not_found, "responses": ()}, 0.0
        level = LEVELS.get(body.isolation_level)
        if level is None:
            return {"error_code": ErrorCode.invalid_request, "responses": ()}, 0.0
        room = _Room(max(0, min(body.max_bytes, room_bytes)))
        topics = await self._serving.threads.run(self._topics, request, level, room, to_send)
        self._serving.notices.fetched_bytes += room.used_bytes
        has_error = any(
            each["error_code"] is not ErrorCode.none
            for topic in topics
            for each in topic["partitions"]
        )
        wait_s = 0.0 if room.used_bytes or has_error else body.max_wait.total_seconds()
        answer = {"session_id": _NO_SESSION, "responses": topics}
        return answer, max(0.0, min(wait_s, _LONGEST_WAIT_S))

    def _topics(
        self, request: Request, level: IsolationLevel, room: _Room, to_send: FilesToSend | None
    ) -> list[dict[str, Any]]:
        if to_send is None:
            return self._chosen(request, level, room, None)
        with contextlib.ExitStack() as files:
            topics = self._chosen(request, level, room, files)
            to_send.keep(files.pop_all())
            return topics

    def _chosen(
        self,
        request: Request,
        level: IsolationLevel,
        room: _Room,
        files: contextlib.ExitStack | None,
    ) -> list[dict[str, Any]]:
        has_ids = request.version >= _WITH_TOPIC_IDS
        answers = []
        for asked in request.body.topics:
            if has_ids:
                topic = self._cluster.topic_with_id(asked.topic_id)
                named = {"topic_id": asked.topic_id}
                unknown = ErrorCode.unknown_topic_id
            else:
                topic = self._cluster.topics.get(asked.topic)
                named = {"topic": asked.topic}
                unknown = ErrorCode.unknown_topic_or_partition
            partitions = []
            for each in asked.partitions:
                if topic is None:
                    found = _error(unknown)
                else:
                    key = TopicPartition(topic.name, each.partition)
                    partition = topic.partitions.get(each.partition)
                    found = self._partition(key, partition, each, level, room, files)
                partitions.append({"partition_index": each.partition, **found})
            answers.append({**named, "partitions": partitions})
        return answers

    def _partition(
        self,
        key: TopicPartition,
        partition: ServedPartition | None,
        asked: Any,
        level: IsolationLevel,
        room: _Room,
        files: contextlib.ExitStack | None,
    ) -> dict[str, Any]:
        epoch = getattr(asked, "current_leader_epoch", _UNKNOWN)
        log = self._serving.readable(partition, epoch)
        if isinstance(log, ErrorCode):
            return _error(log)
        try:
            answer = {
                "high_watermark": log.end_offset(IsolationLevel.READ_UNCOMMITTED),
                "last_stable_offset": log.end_offset(level),
                "log_start_offset": log.log_start_offset(level),
            }
            found = log.fetch(
                asked.fetch_offset,
                max(0, min(asked.partition_max_bytes, room.left_bytes)),
                level,
                at_least_one=not room.used_bytes,
                to_send=files,
            )
        except OffsetOutOfRange:
            return _error(ErrorCode.offset_out_of_range)
        except CorruptBatch:
            return _error(ErrorCode.corrupt_message)
        except (OSError, KdumpError) as failure:
            return _error(self._serving.failure(key, failure))
        size_bytes = len(found.records)
        room.used_bytes += size_bytes
        room.left_bytes = max(0, room.left_bytes - size_bytes)
        return {"error_code": ErrorCode.none, **answer, **_batches(found)}


def _batches(found: FetchedBatches) -> Answer:
    aborted = None
    if found.aborted is not None:
        aborted = [
            {"producer_id": producer_id, "first_offset": first}
            for producer_id, first in found.aborted
        ]
    return {"aborted_transactions": aborted, "records": found.records}


def _error(error: ErrorCode) -> dict[str, Any]:
    return {
        "error_code": error,
        "high_watermark": _UNKNOWN,
        "aborted_transactions": None,
        "records": StoredBatches(),
    }
