"""Answers to ``Fetch``: batches as they are stored."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from kdump.errors import KdumpError
from kdump.formats.names import TopicPartition
from kdump.log.lock_holders import is_anything_in_use
from kdump.log.special_times import IsolationLevel
from kdump.serve.answering import Serving, ServingAnswers
from kdump.serve.fetch_question import AskedPartition, AskedTopic, FetchedTopics, FetchQuestion
from kdump.serve.messages import Answer, Request
from kdump.serve.offset_answers import LEVELS
from kdump.serve.read_ahead import ReadAhead
from kdump.serve.served_cluster import ServedTopic
from kdump.serve.served_log import CorruptBatch, FetchedBatches, OffsetOutOfRange
from kdump.serve.stored_batches import FilesToSend, StoredBatches

_NO_SESSION: Final = 0
_WITH_TOPIC_IDS: Final = 13
_CONSUMER: Final = -1
_LONGEST_WAIT_S: Final = 60.0
LARGEST_FETCH_BYTES: Final = 4 << 20
"""More is not read for one request, whatever it asks for; it asks again."""
_MOST_HELD_BYTES: Final = 256 << 10
"""So much memory may take what is read ahead for a client."""
_UNKNOWN: Final = -1


class _Room(Struct):
    """How many bytes a response may still have.

    Attributes:
        held_bytes: of those that were used, how many are no ranges of files.
    """

    left_bytes: int
    used_bytes: int = 0
    held_bytes: int = 0


class FetchAnswers(ServingAnswers):
    """Answers ``Fetch``."""

    def __init__(self, serving: Serving) -> None:
        super().__init__(serving)
        self._all_ahead: set[ReadAhead] = set()

    @contextlib.contextmanager
    def of_connection(self) -> Iterator[ReadAhead]:
        """What the fetches of a connection read."""
        ahead = ReadAhead(self._read, self._all_ahead)
        try:
            yield ahead
        finally:
            ahead.forget()

    async def fetch(
        self, request: Request, room_bytes: int, to_send: FilesToSend | None, ahead: ReadAhead
    ) -> tuple[Answer, float]:
        """The batches that were asked for, and how many seconds to wait before that is answered.

        Nothing ever follows the end of a dead log: only an answer without any batch has to wait.

        Args:
            room_bytes: how much may be answered.
            to_send: closes the files whose ranges are batches; None if all are to be read.
            ahead: of the connection.
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
        max_bytes = max(0, min(body.max_bytes, room_bytes))
        found = await ahead.find(FetchQuestion(_asked(request), level, max_bytes), to_send)
        self._serving.notices.fetched_bytes += found.used_bytes
        wait_s = (
            0.0 if found.used_bytes or _has_error(found.topics) else body.max_wait.total_seconds()
        )
        answer = {"session_id": _NO_SESSION, "responses": found.topics}
        return answer, max(0.0, min(wait_s, _LONGEST_WAIT_S))

    async def _read(self, question: FetchQuestion, to_send: FilesToSend | None) -> FetchedTopics:
        return await self._serving.threads.run(self._found, question, to_send)

    def _found(self, question: FetchQuestion, to_send: FilesToSend | None) -> FetchedTopics:
        if to_send is None:
            return self._chosen(question, None)
        with contextlib.ExitStack() as files:
            found = self._chosen(question, files)
            to_send.keep(files.pop_all())
            return found

    def _chosen(self, question: FetchQuestion, files: contextlib.ExitStack | None) -> FetchedTopics:
        room = _Room(question.max_bytes)
        answers, following = [], []
        for asked in question.topics:
            answer, next_asked = self._topic(asked, question.level, room, files)
            answers.append(answer)
            following.append(next_asked)
        next_question = None
        if self._is_worth_more(answers, room, files):
            next_question = question._replace(topics=tuple(following))
        return FetchedTopics(answers, room.used_bytes, next_question)

    def _topic(
        self,
        asked: AskedTopic,
        level: IsolationLevel,
        room: _Room,
        files: contextlib.ExitStack | None,
    ) -> tuple[dict[str, Any], AskedTopic]:
        """The answer for a topic, and where a client goes on."""
        if isinstance(asked.topic, str):
            named, unknown = "topic", ErrorCode.unknown_topic_or_partition
            topic = self._cluster.topics.get(asked.topic)
        else:
            named, unknown = "topic_id", ErrorCode.unknown_topic_id
            topic = self._cluster.topic_with_id(asked.topic)
        answers, following = [], []
        for each in asked.partitions:
            found, next_offset = _error(unknown), each.fetch_offset
            if topic is not None:
                found, next_offset = self._partition(topic, each, level, room, files)
            answers.append({"partition_index": each.partition, **found})
            following.append(each._replace(fetch_offset=next_offset))
        return {named: asked.topic, "partitions": answers}, AskedTopic(
            asked.topic, tuple(following)
        )

    @staticmethod
    def _is_worth_more(
        answers: list[dict[str, Any]], room: _Room, files: contextlib.ExitStack | None
    ) -> bool:
        """Whether what follows may be read ahead.

        That is if the system sends most of it, so that it takes little memory, and if no broker
        goes on with a log.
        """
        return (
            files is not None
            and room.held_bytes <= min(room.used_bytes // 2, _MOST_HELD_BYTES)
            and room.used_bytes > 0
            and not _has_error(answers)
            and not is_anything_in_use()
        )

    def _partition(
        self,
        topic: ServedTopic,
        asked: AskedPartition,
        level: IsolationLevel,
        room: _Room,
        files: contextlib.ExitStack | None,
    ) -> tuple[dict[str, Any], int]:
        """The answer for a partition, and where a client goes on."""
        offset = asked.fetch_offset
        partition = topic.partitions.get(asked.partition)
        log = self._serving.readable(partition, asked.current_leader_epoch)
        if isinstance(log, ErrorCode):
            return _error(log), offset
        try:
            answer = {
                "high_watermark": log.end_offset(IsolationLevel.READ_UNCOMMITTED),
                "last_stable_offset": log.end_offset(level),
                "log_start_offset": log.log_start_offset(level),
            }
            found = log.fetch(
                offset,
                max(0, min(asked.partition_max_bytes, room.left_bytes)),
                level,
                at_least_one=not room.used_bytes,
                to_send=files,
            )
        except OffsetOutOfRange:
            return _error(ErrorCode.offset_out_of_range), offset
        except CorruptBatch:
            return _error(ErrorCode.corrupt_message), offset
        except (OSError, KdumpError) as failure:
            key = TopicPartition(topic.name, asked.partition)
            return _error(self._serving.failure(key, failure)), offset
        size_bytes = len(found.records)
        room.used_bytes += size_bytes
        room.held_bytes += found.records.held_bytes
        room.left_bytes = max(0, room.left_bytes - size_bytes)
        return {"error_code": ErrorCode.none, **answer, **_batches(found)}, found.next_offset


def _asked(request: Request) -> tuple[AskedTopic, ...]:
    has_ids = request.version >= _WITH_TOPIC_IDS
    return tuple(
        AskedTopic(
            topic.topic_id if has_ids else topic.topic,
            tuple(
                AskedPartition(
                    each.partition,
                    each.fetch_offset,
                    each.partition_max_bytes,
                    getattr(each, "current_leader_epoch", _UNKNOWN),
                )
                for each in topic.partitions
            ),
        )
        for topic in request.body.topics
    )


def _has_error(topics: Iterable[Mapping[str, Any]]) -> bool:
    return any(
        each["error_code"] is not ErrorCode.none for topic in topics for each in topic["partitions"]
    )


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
