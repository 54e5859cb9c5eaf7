"""The logs that groups consume: where they end, and which topic they belong to.

Each takes a few small reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from kdump.formats.errors import FormatError
from kdump.formats.names import PARTITION_METADATA, TopicPartition
from kdump.log.bounds import is_certain_end
from kdump.log.log_search import ReplicaEnd, Trust
from kdump.log.partition import Partition
from kdump.log.problems import FileProblem
from kdump.log.replicas import Replica, rank_replicas
from kdump.log.valid_windows import Damage
from kdump.state.metadata.cluster import ClusterImage
from kdump.storage.location import Location


class ConsumedLog(Struct, frozen=True):
    """The log of a partition that a group consumes, in its most advanced replica.

    Attributes:
        log_start_offset: None if unknown; so are the others.
        high_watermark: as checkpointed: after a crash it is old.
        end: of the valid batches.
        is_end_certain: whether a starting broker ends the log there, too; None without an end.
        topic_id: of the topic when the replica was created.
        have_other_ends: whether other replicas end elsewhere.
    """

    replica: Replica
    log_start_offset: int | None
    high_watermark: int | None
    end: ReplicaEnd | None
    is_end_certain: bool | None
    topic_id: str | None
    have_other_ends: bool

    @property
    def end_offset(self) -> int | None:
        return None if self.end is None else self.end.offset


class ConsumedLogs:
    """Reads logs that groups consume, each once.

    Attributes:
        problems: files that cannot be read.
    """

    def __init__(
        self, replicas: Mapping[TopicPartition, Sequence[Replica]], image: ClusterImage | None
    ) -> None:
        """Take the replicas of each partition, and the cluster's metadata if there is any."""
        self._replicas = replicas
        self._image = image
        self._logs: dict[TopicPartition, ConsumedLog | None] = {}
        self._names: dict[str, str] | None = None
        self._topic_ids: dict[Location, str | None] = {}
        self.problems: list[FileProblem] = []

    def log(self, key: TopicPartition) -> ConsumedLog | None:
        """The log of a partition; None if there is no replica of it.

        A replica of an earlier topic of the same name is none.
        """
        if key not in self._logs:
            known = None if self._image is None else self._image.topics.get(key.topic)
            of_topic = [
                replica
                for replica in self._replicas.get(key, ())
                if (topic_id := self._topic_id(replica)) is None
                or known is None
                or topic_id == known.topic_id
            ]
            self._logs[key] = self._consumed(of_topic) if of_topic else None
        return self._logs[key]

    def damage(self) -> Iterator[Damage]:
        """Yield what is not valid at the ends of the logs that were read."""
        for log in self._logs.values():
            if log is not None and log.end is not None:
                yield from log.end.damage

    def topic_state(
        self, topic: str, committed_id: str | None, log: ConsumedLog | None
    ) -> str | None:
        """Whether a topic is the one that an offset was committed for.

        Args:
            committed_id: the topic id of the commit; None if it has none.

        Returns:
            ``live``, ``recreated`` or ``unlisted``; None if it is not known.
        """
        if self._image is not None:
            known = self._image.topics.get(topic)
            if known is None:
                # A replica that the metadata does not list yet: the copy is old.
                return "unlisted" if log is None else None
            current_id: str | None = known.topic_id
        else:
            current_id = None if log is None else log.topic_id
        if current_id is None:
            return None
        return "live" if committed_id in (None, current_id) else "recreated"

    def topic_names(self) -> dict[str, str]:
        """The names of topics by id, from the metadata or else from the partitions."""
        if self._names is None:
            self._names = {}
            if self._image is not None:
                self._names = {each.topic_id: each.name for each in self._image.topics.values()}
            known = set(self._names.values())
            for key, replicas in self._replicas.items():
                if key.topic not in known:
                    known.add(key.topic)
                    topic_id = self._topic_id(replicas[0])
                    if topic_id is not None:
                        self._names.setdefault(topic_id, key.topic)
        return self._names

    def _consumed(self, replicas: Sequence[Replica]) -> ConsumedLog:
        """The most advanced of replicas, by checksums, because lag is counted from its end."""
        ranked = rank_replicas(replicas, Trust.CHECKSUMS)
        for each in ranked:
            if each.failure is not None:
                self.problems.append(FileProblem(each.replica.partition.path, each.failure))
        replica = ranked[0].replica
        end = ranked[0].end if _says_end(replica.partition) else None
        return ConsumedLog(
            replica,
            replica.log_start_offset,
            replica.high_watermark,
            end,
            None if end is None else self._is_certain(replica, end.offset),
            self._topic_id(replica),
            len({each.end.offset for each in ranked if each.end is not None}) > 1,
        )

    def _is_certain(self, replica: Replica, end_offset: int) -> bool:
        try:
            return is_certain_end(
                replica.partition,
                end_offset,
                replica.log_start_offset,
                is_clean=replica.log_directory.is_clean,
            )
        except OSError as failure:
            self.problems.append(FileProblem(replica.partition.path, failure))
            return False

    def _topic_id(self, replica: Replica) -> str | None:
        path = replica.partition.path
        if path not in self._topic_ids:
            self._topic_ids[path] = self._read_topic_id(replica.partition)
        return self._topic_ids[path]

    def _read_topic_id(self, partition: Partition) -> str | None:
        try:
            return partition.read_topic_id()
        except (FormatError, OSError) as problem:
            self.problems.append(FileProblem(partition.path / PARTITION_METADATA, problem))
            return None


def _says_end(partition: Partition) -> bool:
    return bool(partition.segments) and not partition.is_0_7
