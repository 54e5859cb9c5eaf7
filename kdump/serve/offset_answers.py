"""Answers about offsets: by time, the ends of logs, and the ends of leader epochs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kdump.errors import KdumpError
from kdump.formats.names import TopicPartition
from kdump.jobs.lookup import Question
from kdump.log.special_times import IsolationLevel, SpecialTime
from kdump.serve.answering import Answering, Caller, ServingAnswers
from kdump.serve.messages import Answer, Request

LIST_OFFSETS: Final = 2
OFFSET_FOR_LEADER_EPOCH: Final = 23
_UNKNOWN: Final = -1

LEVELS: Final = {0: IsolationLevel.READ_UNCOMMITTED, 1: IsolationLevel.READ_COMMITTED}
"""Isolation levels by their numbers in requests."""
_SPECIAL_TIMES: Final = {
    -1: (SpecialTime.LATEST, 1),
    -2: (SpecialTime.EARLIEST, 1),
    -3: (SpecialTime.MAX, 7),
    -4: (SpecialTime.EARLIEST_LOCAL, 8),
    -5: (SpecialTime.LATEST_TIERED, 9),
    -6: (SpecialTime.EARLIEST_PENDING_UPLOAD, 11),
}
"""Special times by their numbers in requests, with the first version of the request that has them.
Follows ``KafkaApis.handleListOffsetRequest``."""
_WITH_TIME: Final = frozenset({SpecialTime.MAX})
"""Special times that are answered with the time of a record."""


class OffsetAnswers(ServingAnswers):
    """Answers ``ListOffsets`` and ``OffsetForLeaderEpoch``."""

    def handlers(self) -> Mapping[int, Answering]:
        return {
            LIST_OFFSETS: self.list_offsets,
            OFFSET_FOR_LEADER_EPOCH: self.offset_for_leader_epoch,
        }

    async def list_offsets(self, request: Request, _caller: Caller) -> Answer:
        return await self._serving.threads.run(self._list_offsets, request)

    def _list_offsets(self, request: Request) -> Answer:
        """One answer for each partition; one that is named again is refused, as by a broker."""
        level = LEVELS.get(getattr(request.body, "isolation_level", 0))
        times_asked = Counter(
            TopicPartition(topic.name, each.partition_index)
            for topic in request.body.topics
            for each in topic.partitions
        )
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": each.partition_index,
                            **(
                                self._offset(key, each, level, request.version)
                                if times_asked[key] == 1
                                else {"error_code": ErrorCode.invalid_request}
                            ),
                        }
                        for each in topic.partitions
                        for key in [TopicPartition(topic.name, each.partition_index)]
                    ],
                }
                for topic in request.body.topics
            ]
        }

    def _offset(
        self, key: TopicPartition, asked: Any, level: IsolationLevel | None, version: int
    ) -> Answer:
        time = asked.timestamp
        special, since = _SPECIAL_TIMES.get(time, (None, 0))
        if (time < 0 and special is None) or version < since:
            return {"error_code": ErrorCode.unsupported_version}
        if level is None:
            return {"error_code": ErrorCode.invalid_request}
        epoch = getattr(asked, "current_leader_epoch", _UNKNOWN)
        partition = self._cluster.partition(key)
        log = self._serving.readable(partition, epoch)
        if isinstance(log, ErrorCode):
            return {"error_code": log}
        assert partition is not None
        try:
            found = log.found(Question(time=special or time, isolation_level=level))
        except (OSError, KdumpError) as failure:
            return {"error_code": self._serving.failure(key, failure)}
        if found.offset is None:
            return {}
        timestamp = _UNKNOWN
        if (special is None or special in _WITH_TIME) and found.record is not None:
            known = found.record.timestamp_ms
            timestamp = _UNKNOWN if known is None else known
        leader_epoch = _UNKNOWN if found.leader_epoch is None else found.leader_epoch
        if special is SpecialTime.LATEST and partition.registration is not None:
            # The epoch of the leader, which may have written nothing.
            leader_epoch = partition.leader_epoch
        return {"offset": found.offset, "timestamp": timestamp, "leader_epoch": leader_epoch}

    async def offset_for_leader_epoch(self, request: Request, _caller: Caller) -> Answer:
        return await self._serving.threads.run(self._offset_for_leader_epoch, request)

    def _offset_for_leader_epoch(self, request: Request) -> Answer:
        return {
            "topics": [
                {
                    "topic": topic.topic,
                    "partitions": [
                        {
                            "partition": each.partition,
                            **self._epoch_end(TopicPartition(topic.topic, each.partition), each),
                        }
                        for each in topic.partitions
                    ],
                }
                for topic in request.body.topics
            ]
        }

    def _epoch_end(self, key: TopicPartition, asked: Any) -> Answer:
        log = self._serving.readable(self._cluster.partition(key), asked.current_leader_epoch)
        if isinstance(log, ErrorCode):
            return {"error_code": log}
        try:
            found = log.epoch_end(asked.leader_epoch)
        except (OSError, KdumpError) as failure:
            return {"error_code": self._serving.failure(key, failure)}
        if found is None:
            return {}
        return {"leader_epoch": found.leader_epoch, "end_offset": found.end_offset}
