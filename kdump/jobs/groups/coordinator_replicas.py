"""Which replica of a coordinator's log to believe, and what only other replicas have.

The most advanced replica is read. If it cannot be read, or is damaged, the others are, too, and
the one that reaches furthest counts. Another replica is also read if it parted from the one that
counts: an unclean election gives up records, among them offsets that groups committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct

from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions
from kdump.formats.errors import FormatError
from kdump.formats.names import TopicPartition
from kdump.jobs.groups.coordinator_logs import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    GroupLog,
    Records,
    read_logs,
)
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.batch_validity import NO_OFFSET
from kdump.log.directory import LogDirectory
from kdump.log.log_search import ReplicaEnd
from kdump.log.replicas import Replica, rank_replicas, replicas_by_partition
from kdump.phases import phase
from kdump.state.compacted.latest_records import LatestRecords
from kdump.state.epochs.follower_truncation import LoadedReplica, truncation_as_follower
from kdump.state.groups.share_groups import ShareRecords
from kdump.state.metadata.cluster import ClusterImage
from kdump.storage.location import Location


class OtherLog(Struct, frozen=True):
    """A replica that was read, and is not believed.

    Attributes:
        only: the offsets of records that the replica which is believed does not have.
    """

    log: GroupLog
    only: frozenset[int]


class ChosenLog(Struct, frozen=True):
    """A partition of a coordinator's topic.

    Attributes:
        log: of the replica that is believed.
        skipped: the log directories of replicas that may be more advanced, and cannot be read
            completely.
        unreadable: why, where not even their ends can be found.
        others: the other replicas that were read.
    """

    log: GroupLog
    skipped: tuple[Location, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    others: tuple[OtherLog, ...] = ()

    @property
    def logs(self) -> Iterator[GroupLog]:
        """All logs that were read."""
        yield self.log
        yield from (other.log for other in self.others)

    def all_unreadable(self) -> list[Unreadable]:
        """Why not all of its replicas could be read."""
        failures = [log.unreadable for log in self.logs if log.unreadable is not None]
        return [*self.unreadable, *failures]


class _Candidate(Struct, frozen=True):
    """A replica, and where its log ends by its headers; or why that is not known.

    Attributes:
        is_kept: whether its broker keeps it.
    """

    replica: Replica
    is_kept: bool = True
    end: ReplicaEnd | None = None
    failure: Unreadable | None = None


class _Read(Struct, frozen=True):
    """A replica that was read, and up to where."""

    candidate: _Candidate
    log: GroupLog

    @property
    def end(self) -> ReplicaEnd:
        by_headers = self.candidate.end
        is_whole = not self.log.damage and self.log.unreadable is None
        return by_headers if is_whole and by_headers is not None else self.log.end


def read_coordinators(
    directories: Sequence[LogDirectory],
    options: EngineOptions = DEFAULT_OPTIONS,
    *,
    topics: Collection[str] = (OFFSETS_TOPIC, SHARE_STATE_TOPIC),
    image: ClusterImage | None = None,
) -> list[ChosenLog]:
    """Read the logs of coordinators, each in the replica that reaches furthest.

    Args:
        directories: the log directories, with partitions as a starting broker loads them.
        image: the cluster's metadata, if there is any.

    Raises:
        KdumpError: the engine failed.
    """
    replicas = replicas_by_partition(directories)
    topic_ids = {} if image is None else image.topic_ids
    not_loaded: dict[TopicPartition, list[Location]] = {}
    for directory in directories:
        for key in directory.not_loaded():
            not_loaded.setdefault(key, []).append(directory.path)
    with phase("choosing among replicas"):
        ranked = {
            key: _ranked(replicas[key], topic_ids.get(key.topic))
            for key in sorted(replicas)
            if key.topic in topics
        }
    first = read_logs(((key, each[0].replica) for key, each in ranked.items()), options)
    read = {log.partition: [_Read(ranked[log.partition][0], log)] for log in first}
    more = [
        (key, candidate)
        for key, candidates in ranked.items()
        for candidate in candidates[1:]
        if _is_needed(candidate, read[key][0])
    ]
    if more:
        wanted = [(key, candidate.replica) for key, candidate in more]
        for (key, candidate), log in zip(more, read_logs(wanted, options), strict=True):
            read[key].append(_Read(candidate, log))
    return [_chosen(ranked[key], own, not_loaded.get(key, ())) for key, own in read.items()]


def _ranked(replicas: Sequence[Replica], topic_id: str | None) -> list[_Candidate]:
    """The replicas of a partition, the most advanced one first."""
    if len(replicas) == 1:
        return [_Candidate(replicas[0])]
    return [
        _Candidate(
            each.replica,
            each.is_kept,
            each.end,
            None
            if each.failure is None
            else Unreadable.of(each.failure, each.replica.partition.path),
        )
        for each in rank_replicas(replicas, topic_id=topic_id)
    ]


def _is_needed(other: _Candidate, first: _Read) -> bool:
    """Whether another replica than the most advanced one may have what that has not."""
    if other.end is None:
        return False
    if not first.log.is_gapless or other.end > first.end:
        return True
    return _parted_at(other, first) < other.end.offset


def _parted_at(other: _Candidate, chosen: _Read) -> int:
    """From which offset on the records of a replica are not those of the one that is believed.

    That is where it would truncate as a follower. Without leader epochs, it has all records that
    the other one has.
    """
    assert other.end is not None
    if other.end.leader_epoch == chosen.end.leader_epoch:
        return chosen.end.offset
    try:
        truncation = truncation_as_follower(
            _loaded(other.replica, other.end), _loaded(chosen.candidate.replica, chosen.end)
        )
    except (FormatError, OSError, ValueError):
        truncation = None
    return chosen.end.offset if truncation is None else truncation.end_offset


def _loaded(replica: Replica, end: ReplicaEnd) -> LoadedReplica:
    return LoadedReplica(
        log_start_offset=replica.log_start_offset or 0,
        log_end_offset=end.offset,
        high_watermark=replica.high_watermark,
        leader_epochs=replica.partition.read_leader_epochs() or (),
    )


def _chosen(
    candidates: Sequence[_Candidate], read: Sequence[_Read], not_loaded: Iterable[Location]
) -> ChosenLog:
    """Believe the replica whose valid batches reach furthest; of equal ones one without gaps."""
    best = max(read, key=lambda each: (each.candidate.is_kept, each.end, each.log.is_gapless))
    others = [each for each in read if each is not best]
    unreadable = [each for each in candidates if each.failure and each is not best.candidate]
    skipped = [each.candidate for each in others if _claims_more(each, best)]
    if best.log.unreadable is not None:
        # No replica can be read: the one that says most is not believed because of another one.
        skipped, not_loaded = [], ()
    else:
        skipped += unreadable
    return ChosenLog(
        best.log,
        (*(each.replica.log_directory.path for each in skipped), *not_loaded),
        tuple(each.failure for each in unreadable if each.failure is not None),
        tuple(OtherLog(each.log, _only(each, best)) for each in others),
    )


def _claims_more(other: _Read, best: _Read) -> bool:
    """Whether the headers of a replica reach as far as the one that is believed, or further."""
    return other.candidate.end is not None and other.candidate.end >= best.end


def _only(other: _Read, chosen: _Read) -> frozenset[int]:
    """The offsets of records that only ``other`` has."""
    parted_at = _parted_at(other.candidate, chosen)
    may_lack = not chosen.log.is_gapless
    known = _latest_offsets(chosen.log.records)
    return frozenset(
        offset
        for key, offset in _latest_offsets(other.log.records).items()
        if offset >= parted_at or (may_lack and known.get(key, NO_OFFSET) < offset)
    )


def _latest_offsets(records: Records) -> dict[bytes, int]:
    """The offset of the latest record of each key."""
    if isinstance(records, ShareRecords):
        return {key: changes.last_offset for key, changes in records.changes.items()}
    assert isinstance(records, LatestRecords)
    found = {key: latest.offset for key, latest in records.values.items()}
    for key, offset in records.tombstones.items():
        found[key] = max(offset, found.get(key, NO_OFFSET))
    return found
