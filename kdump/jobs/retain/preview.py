"""Preview retention in a log directory of many partitions, where changes are only counted.

A preview of thousands of partitions shows a line for a few of them, and counts. So workers do all
that is done for a partition: they list it, check it, decide about its segments and count the
changes, and send back only what is shown. What the root of the log directory becomes depends on
all partitions, and is planned from their offsets.

The decisions and the plans are those of :mod:`kdump.jobs.retain.retain` and
:mod:`kdump.apply.plan`. What is not as usual, and anything that fails, is left to these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Struct

from kdump.apply.operations import DirectoryPlan, Operation, OperationPhase
from kdump.apply.plan import InPlace, TargetDirectory, TargetPartition, plan_partition, plan_root
from kdump.apply.usual_deletion import UsualDeletion, usual_deletion
from kdump.broker.retention.retention_outcome import RetainedPartition
from kdump.check.findings import Finding
from kdump.errors import KdumpError
from kdump.formats.names import CLUSTER_METADATA_TOPIC, PartitionState, TopicPartition
from kdump.jobs.listing.list_partitions import are_many, describe_places
from kdump.jobs.problems.found_problems import ProblemReporter
from kdump.jobs.retain.old_segments import PartitionDeletion, has_stale_log_start, target_of_root
from kdump.jobs.retain.retain import RetainRequest, decide_partition
from kdump.jobs.writing.start_blockers import severe_in
from kdump.log.directory import DirectoryKind, LogDirectory, PartitionPlace, read_root
from kdump.log.partition import Partition
from kdump.storage.entries import EntryKind
from kdump.storage.location import Location

Shown = TypeVar("Shown")
Shown_co = TypeVar("Shown_co", covariant=True)


class Show(Protocol[Shown_co]):
    """What is shown of a partition: a function that can be pickled."""

    def __call__(
        self, deletion: PartitionDeletion, plan: DirectoryPlan | UsualDeletion | None, /
    ) -> Shown_co:
        """Describe a partition and the plan for it, or what that comes to.

        None if nothing in it changes.
        """
        ...


class UnlistedDirectory(Struct, frozen=True):
    """A log directory whose partitions are only known by their names.

    Attributes:
        root: the directory; only the copies of the cluster's metadata are listed.
        in_place: which of them are inside of it.
    """

    root: LogDirectory
    places: tuple[PartitionPlace, ...]
    in_place: InPlace


class DirectoryPreview(Struct, Generic[Shown], frozen=True):
    """What retention would do to a log directory.

    Attributes:
        directory: the directory, without its partitions.
        partitions: what is shown of those that are selected.
        findings: the severe ones about them.
        root: the plan for the files in the directory itself.
        operations_in: finds the operations in a partition again, by the name of its directory. A
            preview lists them if they are few.
    """

    directory: LogDirectory
    partitions: tuple[Shown, ...]
    findings: tuple[Finding, ...]
    root: DirectoryPlan
    operations_in: Callable[[str], Sequence[Operation]]

    @property
    def root_operations(self) -> tuple[list[Operation], list[Operation]]:
        """The operations on those files, before and after the partitions change."""
        interim = OperationPhase.INTERIM
        return (
            [each for each in self.root.operations if each.phase is interim],
            [each for each in self.root.operations if each.phase is not interim],
        )


def read_unlisted(paths: Mapping[Location, DirectoryKind]) -> list[UnlistedDirectory] | None:
    """Read log directories without listing their partitions.

    Returns:
        None if they have too few partitions for a preview in workers, or something is not as usual.

    Raises:
        OSError: a directory cannot be listed.
    """
    read = {path: read_root(path, kind) for path, kind in paths.items()}
    if not are_many(sum(len(places) for _, places in read.values())):
        return None
    found = []
    for path, (root, places) in read.items():
        is_usual = root.is_clean and not root.problems and not root.refused
        if root.kind is not DirectoryKind.LOG_DIRECTORY or not is_usual:
            return None
        try:
            copies = [
                place.read(path)
                for place in places
                if place.topic_partition.topic == CLUSTER_METADATA_TOPIC
            ]
        except OSError:
            return None
        with_copies = msgspec.structs.replace(root, partitions=tuple(copies))
        found.append(UnlistedDirectory(with_copies, tuple(places), InPlace.below(path.local_path)))
    return None if _has_duplicates(found) else found


def _has_duplicates(directories: Iterable[UnlistedDirectory]) -> bool:
    """Whether a partition may have two directories of one broker."""
    logs = [
        (place.topic_partition, place.state)
        for each in directories
        for place in each.places
        if place.state in (PartitionState.LIVE, PartitionState.FUTURE)
    ]
    return len(set(logs)) < len(logs)


def preview(
    directories: Sequence[UnlistedDirectory], request: RetainRequest, show: Show[Shown]
) -> list[DirectoryPreview[Shown]] | None:
    """Preview retention.

    Args:
        request: what to delete; its directories are not used.
        show: what is shown of each partition.

    Returns:
        None if no partition is selected, or something failed: the command itself has to say how.
    """
    try:
        found = [_previewed(each, request, show) for each in directories]
    except (KdumpError, OSError):
        return None
    return found if any(each.partitions for each in found) else None


def _previewed(
    unlisted: UnlistedDirectory, request: RetainRequest, show: Show[Shown]
) -> DirectoryPreview[Shown]:
    path = unlisted.root.path
    describe = _Preview(request, unlisted.in_place, show)
    listed, described = describe_places(
        unlisted.root,
        unlisted.places,
        describe,
        what="finding out what to delete in",
        keep_entries=True,
    )
    found = [each.description for each in described if each.description is not None]
    outcomes = {
        each.key: RetainedPartition({}, *each.offsets) for each in found if each.offsets is not None
    }
    first, root = target_of_root(
        listed, outcomes, frozenset(each.key for each in found if each.is_stale)
    )
    return DirectoryPreview(
        listed,
        tuple(each.shown for each in found),
        tuple(finding for each in found for finding in each.findings),
        plan_root(
            TargetDirectory(path.local_path, (), root, first),
            has_partitions=any(each.is_changed for each in found),
        ),
        functools.partial(_operations_in, unlisted, describe),
    )


def _operations_in(
    unlisted: UnlistedDirectory, describe: _Preview[Any], name: str
) -> Sequence[Operation]:
    place = next(each for each in unlisted.places if each.name == name)
    partition = place.read_with_entries(unlisted.root.path)
    deletion = describe.decided(partition, unlisted.root)
    return describe.planned(deletion).operations


class _Previewed(NamedTuple, Generic[Shown]):
    """A selected partition. A tuple, because 10,000 come from workers.

    Attributes:
        findings: the severe ones about it.
        is_changed: whether one of its files changes.
        is_stale: whether its line about the log start has no effect.
        offsets: afterwards: where the log starts, and its lines in the checkpoints of recovery
            points and log starts; None if nothing changes.
    """

    key: TopicPartition
    shown: Shown
    findings: Sequence[Finding]
    is_changed: bool
    is_stale: bool
    offsets: tuple[int, int, int | None] | None


class _Preview(Struct, Generic[Shown], frozen=True):
    """Previews one partition; None for those that are not selected."""

    request: RetainRequest
    in_place: InPlace
    show: Show[Shown]

    def __call__(
        self, partition: Partition, directory: LogDirectory, problems: ProblemReporter, /
    ) -> _Previewed[Shown] | None:
        if not self.request.is_selected(partition):
            return None
        deletion = self.decided(partition, directory)
        plan = self._change(deletion) if deletion.files else None
        outcome = deletion.outcome
        return _Previewed(
            deletion.topic_partition,
            self.show(deletion, plan),
            severe_in(partition, directory, self.request.settings[directory.path].cluster, {}),
            plan is not None,
            has_stale_log_start(deletion),
            None
            if outcome is None
            else (
                outcome.log_start_offset,
                outcome.recovery_point,
                outcome.checkpointed_log_start_offset,
            ),
        )

    def decided(self, partition: Partition, directory: LogDirectory) -> PartitionDeletion:
        """Decide about a partition.

        Raises:
            InvalidSettingError: a setting has an invalid value.
        """
        return decide_partition(self.request, directory, partition)

    def _change(self, deletion: PartitionDeletion) -> DirectoryPlan | UsualDeletion | None:
        """Plan the changes of a partition, or count the usual ones; None if there are none."""
        partition = deletion.partition
        if self.in_place.has(partition.path.name):
            path = partition.path.local_path
            usual = usual_deletion(path, deletion.files, partition.entries)
            if usual is not None:
                return usual if usual.changes else None
        plan = self.planned(deletion)
        return plan if plan.operations else None

    def planned(self, deletion: PartitionDeletion) -> DirectoryPlan:
        """Plan the changes of a partition; without operations if there are none.

        Raises:
            KdumpError: as :func:`~kdump.apply.plan.make_plan`.
            OSError: as there.
        """
        partition = deletion.partition
        change = TargetPartition(partition.path.local_path, deletion.files)
        files = [each.name for each in partition.entries if each.kind is EntryKind.FILE]
        return plan_partition(deletion.directory.path.local_path, change, self.in_place, files)
