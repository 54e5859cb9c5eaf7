"""Verify remote segments: which partitions, their splits, and how results come together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct, field

from kdump.check import invariants
from kdump.check.batches import SegmentScope
from kdump.check.directory import unreadable
from kdump.check.findings import Finding, Place, Severity
from kdump.check.part import ByteAccount, SegmentPart, total_records
from kdump.check.remote_segments import (
    LocalReplica,
    RemoteScope,
    check_manifest,
    check_remote_content,
    check_remote_partition,
    checked_segments,
)
from kdump.formats.names import REMOTE_LOG_METADATA_TOPIC, PartitionState
from kdump.formats.remote_names import TopicIdPartition
from kdump.jobs.verify.verify_partition import PartitionReport, SegmentSplit
from kdump.log.directory import LogDirectory
from kdump.log.log_search import checkpointed
from kdump.log.partition import Partition
from kdump.log.remote_files import RemoteListing, list_remote_segments
from kdump.log.selection import PartitionSelection
from kdump.state.metadata.settings import DirectorySettings
from kdump.state.remote_segments import RemoteSegments
from kdump.storage.location import Location
from kdump.tiered.aiven_storage import manifest_of
from kdump.tiered.remote_metadata import RemoteMetadata
from kdump.tiered.remote_partition import (
    first_offset,
    lineage_of,
    local_start_of,
    segments_of_files,
    topic_id_of,
)
from kdump.tiered.remote_plans import RemotePlans

REMOTE: Final = "remote"
"""The kind of verdict on the remote segments of a partition, which no broker loads or repairs."""
_DAMAGED: Final = "consumers get errors or lack records where remote segments are damaged"
_NO_END: Final = 2**63 - 1


class VerifyRemote(Struct, frozen=True):
    """Remote segments to verify.

    Attributes:
        plans: where they are, and their metadata.
        selection: of the selected partitions.
        directories: the log directories, with their partitions.
        metadata_partitions: how many partitions ``__remote_log_metadata`` has; None if unknown.
    """

    plans: RemotePlans
    selection: PartitionSelection
    directories: Sequence[LogDirectory]
    metadata_partitions: int | None = None

    @classmethod
    def found(
        cls,
        plans: RemotePlans,
        selection: PartitionSelection,
        directories: Sequence[LogDirectory],
        settings: DirectorySettings,
    ) -> VerifyRemote:
        """Look up in the cluster's metadata how many partitions remote log metadata have."""
        counts = [
            len(topic.partitions)
            for each in settings.values()
            if each.cluster is not None
            and (topic := each.cluster.topics.get(REMOTE_LOG_METADATA_TOPIC)) is not None
        ]
        return cls(plans, selection, directories, max(counts, default=0) or None)

    def partitions(self) -> list[TopicIdPartition]:
        """The selected partitions that have remote files or metadata.

        Raises:
            KdumpError: the metadata cannot be loaded.
            OSError: something cannot be listed.
        """
        listed = {each for same in self.plans.partitions().values() for each in same}
        known = {key for key, each in self.plans.metadata().partitions.items() if each.segments}
        return sorted(
            each
            for each in listed | known | self._under_another_id(listed | known)
            if self.selection.matches(str(each.topic_partition), each.topic_partition)
        )

    def _under_another_id(self, remote: AbstractSet[TopicIdPartition]) -> set[TopicIdPartition]:
        """Partitions that have remote segments under the ids of other topics only.

        Their log begins before its local part, so they should have some of their own.
        """
        named = {each.topic_partition for each in remote}
        found: set[TopicIdPartition] = set()
        for directory in self.directories:
            for each in directory.partitions:
                if each.state is not PartitionState.LIVE or each.topic_partition not in named:
                    continue
                begin = checkpointed(directory.checkpoints.log_start_offsets, each)
                local_start = local_start_of(each)
                topic_id = topic_id_of(each)
                if topic_id is None or begin is None or local_start is None:
                    continue
                if begin < local_start:
                    found.add(TopicIdPartition(each.topic_partition, topic_id))
        return found


def metadata_findings(metadata: RemoteMetadata) -> Iterator[Finding]:
    """What is wrong with ``__remote_log_metadata`` itself."""
    for damage in metadata.damage:
        yield invariants.REMOTE_METADATA_MALFORMED.finding(
            Place(damage.path, damage.start),
            "records of remote log metadata cannot be read",
            found=str(damage.problem),
        )
    for problem in metadata.problems:
        yield invariants.REMOTE_METADATA_MALFORMED.finding(
            Place(problem.path, offset=problem.offset),
            "a record of remote log metadata cannot be decoded",
            found=problem.problem,
        )


class RemotePieces(Struct):
    """The splits of a remote partition, and its results.

    Attributes:
        path: its remote directory.
        scope: what is known of it; None if it cannot be listed.
        failure: why not.
        splits: one for each segment whose log is checked.
    """

    key: TopicIdPartition
    path: Location
    scope: RemoteScope | None = None
    failure: OSError | None = None
    splits: list[SegmentSplit] = field(default_factory=list)

    @classmethod
    def of(cls, remote: VerifyRemote, key: TopicIdPartition) -> RemotePieces:
        """Look at the files and metadata of a partition."""
        path = remote.plans.remote / str(key)
        try:
            scope = _scope(remote, key, path)
        except OSError as failure:
            return cls(key, path, failure=failure)
        splits = []
        for segment, files in checked_segments(scope):
            assert files.log is not None
            splits.append(
                SegmentSplit(
                    files.log.path,
                    size_bytes=files.log.size_bytes,
                    label=str(key.topic_partition),
                    scope=SegmentScope(
                        files.log.path,
                        segment.start_offset,
                        segment.end_offset + 1,
                        is_active=False,
                        is_clean=True,
                    ),
                )
            )
        return cls(key, path, scope, splits=splits)

    def events(self, parts: Iterator[SegmentPart]) -> Iterator[Finding | PartitionReport]:
        """The findings, then a report; takes as many parts as there are splits."""
        codes: Counter[str] = Counter()
        worst: Severity | None = None
        account, batches, not_decoded, end_offset = ByteAccount(), 0, 0, 0
        records: int | None = 0
        for found in self._results(parts):
            if isinstance(found, Finding):
                codes[found.code] += 1
                worst = found.severity if worst is None else max(worst, found.severity)
                yield found
                continue
            account += found.account + found.index_account
            batches += found.batches
            records = total_records(records, found.records)
            not_decoded += found.not_decoded
            end_offset = max(end_offset, (found.max_offset or 0) + 1)
        yield PartitionReport(
            partition=Partition(
                self.path, self.key.topic_partition, PartitionState.LIVE, (), (), (), (), (), 0
            ),
            log_dir=str(self.path.parent),
            verdict="valid" if worst is None or not worst.is_damage else _DAMAGED,
            verdict_kind=REMOTE,
            worst=worst,
            findings=dict(codes),
            account=account,
            batches=batches,
            records=records,
            not_decoded=not_decoded,
            end_offset=end_offset,
        )

    def _results(self, parts: Iterator[SegmentPart]) -> Iterator[Finding | SegmentPart]:
        if self.scope is None:
            assert self.failure is not None
            yield unreadable(self.path, self.failure)
            return
        yield from check_remote_partition(self.scope)
        for segment, files in checked_segments(self.scope):
            part = next(parts)
            yield from part.findings
            try:
                yield from check_remote_content(segment, files, part)
                stored = None if files.log is None else manifest_of(files.log.path)
                if stored is not None:
                    yield from check_manifest(segment, *stored)
            except OSError as failure:
                yield unreadable(self.path, failure)
            yield part


def _scope(remote: VerifyRemote, key: TopicIdPartition, path: Location) -> RemoteScope:
    listing = RemoteListing(path, {}, ())
    if key in remote.plans.partitions().get(key.topic_partition, ()):
        listing = list_remote_segments(path)
    metadata = remote.plans.metadata()
    known = metadata.partitions.get(key)
    segments = segments_of_files(listing) if known is None else known
    return RemoteScope(
        listing,
        segments,
        is_by_metadata=known is not None,
        has_whole_metadata=metadata.is_whole(remote.metadata_partitions),
        is_deleted=key in metadata.deleted,
        replicas=list(_replicas(remote, key, segments, listing))
        or [_without_replica(path, segments, listing)],
    )


def _without_replica(
    path: Location, segments: RemoteSegments, listing: RemoteListing
) -> LocalReplica:
    """What a replica would have that begins with nothing but the remote segments."""
    lineage = lineage_of(None, segments, listing)
    return LocalReplica(path, None, None, segments.read_ranges(lineage, _NO_END))


def _replicas(
    remote: VerifyRemote, key: TopicIdPartition, segments: RemoteSegments, listing: RemoteListing
) -> Iterator[LocalReplica]:
    """The live local replicas of a partition of that topic id."""
    for directory in remote.directories:
        for partition in directory.partitions:
            is_named = partition.topic_partition == key.topic_partition
            if not is_named or partition.state is not PartitionState.LIVE:
                continue
            if topic_id_of(partition) not in (None, key.topic_id):
                continue
            lineage = lineage_of(partition, segments, listing)
            local_start = local_start_of(partition)
            end = _NO_END if local_start is None else local_start
            yield LocalReplica(
                partition.path,
                first_offset(
                    checkpointed(directory.checkpoints.log_start_offsets, partition),
                    segments,
                    lineage,
                ),
                local_start,
                segments.read_ranges(lineage, end),
            )
