"""Answers about the quorum of controllers, from the copies of the metadata that are here."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kdump.errors import KdumpError
from kdump.formats.names import CLUSTER_METADATA_TOPIC, TopicPartition
from kdump.formats.uuids import parse_uuid
from kdump.jobs.metadata.metadata_copies import MetadataCopy, read_copies
from kdump.jobs.quorum.quorum_ranking import QuorumRanking, rank_copies
from kdump.serve.answering import Answering, Caller, Serving
from kdump.serve.messages import Answer, Request
from kdump.state.metadata.metadata_image import EntityKind, MetadataImage

DESCRIBE_QUORUM: Final = 55
_METADATA: Final = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
_UNKNOWN: Final = -1


class QuorumAnswers:
    """Answers ``DescribeQuorum``, which the elected controller answers in a living cluster."""

    def __init__(self, serving: Serving, image: MetadataImage) -> None:
        self._serving = serving
        self._image = image
        self._lock = threading.Lock()

    def handlers(self) -> Mapping[int, Answering]:
        return {DESCRIBE_QUORUM: self.describe_quorum}

    async def describe_quorum(self, request: Request, _caller: Caller) -> Answer:
        """The voters, and who else has a copy. Follows ``KafkaRaftClient``.

        A request for anything but the metadata gets one error for all that it names.
        """
        asked = request.body.topics
        wanted = {
            TopicPartition(topic.topic_name, each.partition_index)
            for topic in asked
            for each in topic.partitions
        }
        if len(asked) != 1 or wanted != {_METADATA}:
            return _refused(ErrorCode.unknown_topic_or_partition, "only the metadata has a quorum")
        try:
            ranking = await self._serving.threads.run(self._read)
        except (OSError, KdumpError) as failure:
            error = self._serving.failure(_METADATA, failure)
            return _refused(error, "the copies of the metadata cannot be read")
        return {
            "error_message": None,
            "topics": [
                {
                    "topic_name": _METADATA.topic,
                    "partitions": [{"partition_index": 0, **self._quorum(ranking)}],
                }
            ],
            "nodes": [
                {
                    "node_id": each.voter.node_id,
                    "listeners": [listener.voter_record() for listener in each.voter.listeners],
                }
                for each in ranking.voters
                if each.voter.listeners
            ],
        }

    def _read(self) -> QuorumRanking:
        with self._lock:
            return self._ranking

    @cached_property
    def _ranking(self) -> QuorumRanking:
        """The copies, read once; the metadata was read from the best one."""
        return rank_copies(read_copies(self._serving.cluster.directories))

    def _quorum(self, ranking: QuorumRanking) -> Answer:
        end = ranking.committed_end
        return {
            "error_message": None,
            "leader_id": self._leader(ranking.best),
            "leader_epoch": ranking.best.end.epoch,
            "high_watermark": _UNKNOWN if end is None else end,
            "current_voters": [
                _replica(each.voter.node_id, each.voter.directory_id, each.copy)
                for each in ranking.voters
            ],
            "observers": [
                _replica(node_id, each.directory_id, each)
                for node_id, each in _observers(ranking).items()
            ],
        }

    def _leader(self, best: MetadataCopy) -> int:
        """Who was elected last: by the log, or by ``quorum-state`` after a snapshot."""
        leader: int | None = self._image.of(EntityKind.QUORUM_LEADER).get("")
        if leader is None and best.quorum_state is not None:
            leader = best.quorum_state.leader_id
        return _UNKNOWN if leader is None else leader


def _observers(ranking: QuorumRanking) -> dict[int, MetadataCopy]:
    """The most advanced copy of each node that is no voter, of the same cluster."""
    found: dict[int, MetadataCopy] = {}
    for each in _copies(ranking):
        is_other = None not in (each.cluster_id, ranking.best.cluster_id) and (
            each.cluster_id != ranking.best.cluster_id
        )
        is_voter = any(one.voter.is_at(each.node_id, each.directory_id) for one in ranking.voters)
        if each.node_id is not None and not is_other and not is_voter:
            found.setdefault(each.node_id, each)
    return found


def _copies(ranking: QuorumRanking) -> Iterator[MetadataCopy]:
    yield ranking.best
    yield from (each.copy for each in ranking.others)


def _replica(node_id: int, directory_id: str | None, copy: MetadataCopy | None) -> dict[str, Any]:
    """A replica; when it last fetched is written down nowhere."""
    return {
        "replica_id": node_id,
        "replica_directory_id": None if directory_id is None else parse_uuid(directory_id),
        "log_end_offset": _UNKNOWN if copy is None else copy.end.offset,
    }


def _refused(error: ErrorCode, why: str) -> Answer:
    return {"error_code": error, "error_message": why, "topics": (), "nodes": ()}
