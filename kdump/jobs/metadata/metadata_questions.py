"""What ``kdump metadata`` asks of the copies of a cluster's metadata.

These logs are small, and the metadata at an offset depends on all records before it: the work is
done in this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from kdump.jobs.metadata.metadata_copies import (
    CopyComparison,
    MetadataCopy,
    committed_end,
    compare_copies,
)
from kdump.phases import phase
from kdump.state.metadata.metadata_history import MetadataEvent, MetadataHistory
from kdump.state.metadata.metadata_image import MetadataChange, MetadataImage, changes_between
from kdump.state.metadata.metadata_replay import END, CopyReplay, MetadataPoint, OnProblem


class OtherCopy(Struct, frozen=True):
    """A copy that was not used, compared with the one that was."""

    copy: MetadataCopy
    comparison: CopyComparison


def compared(copies: Sequence[MetadataCopy]) -> list[OtherCopy]:
    """Compare all copies but the first with the first."""
    first = copies[0].outline
    return [OtherCopy(copy, compare_copies(first, copy.outline)) for copy in copies[1:]]


class ShownMetadata(Struct, frozen=True):
    """The metadata of a cluster at a point.

    Attributes:
        copy: the most advanced one, from which the metadata is.
        others: the other copies.
        committed_end: offset up to which records are known to be committed; None if unknown.
        uncommitted: what the records after it changed.
    """

    copy: MetadataCopy
    others: Sequence[OtherCopy]
    image: MetadataImage
    committed_end: int | None
    uncommitted: Sequence[MetadataChange]

    @property
    def uncommitted_records(self) -> int:
        """How many records are not known to be committed."""
        return max(self.image.end.offset - (self.committed_end or 0), 0)


def show_metadata(
    copies: Sequence[MetadataCopy], point: MetadataPoint, on_problem: OnProblem
) -> ShownMetadata:
    """Read the metadata at a point from the most advanced copy.

    Args:
        copies: of one cluster, the most advanced one first.
        point: up to where records count.
        on_problem: takes what is damaged.

    Raises:
        UsageProblem: the copy does not have the point.
        OSError: a file cannot be read.
    """
    copy = copies[0]
    with phase(f"reading {copy.partition.path}"):
        image = CopyReplay(copy.partition, on_problem).image_at(point)
        end, _ = committed_end(copies, image if point == END else None)
        uncommitted: list[MetadataChange] = []
        if image.end.offset > (end or 0):
            uncommitted = list(changes_between(_committed(copy, end or 0, on_problem), image))
    return ShownMetadata(copy, compared(copies), image, end, uncommitted)


def _committed(copy: MetadataCopy, end: int, on_problem: OnProblem) -> MetadataImage:
    replay = CopyReplay(copy.partition, on_problem)
    # Without an offset, not even the first record is known to be committed.
    return replay.image_at(MetadataPoint(end - 1)) if end else replay.image()


class HistoryReading(Struct):
    """The history of a copy, while it is read.

    Attributes:
        begin: offset at which it begins.
        end: offset that was reached.
        unknown: ranges of offsets, the ends exclusive, that damage makes unreadable; a later
            snapshot has what they led to.
    """

    begin: int
    end: int
    unknown: list[tuple[int, int]]
    _replay: CopyReplay
    _point: MetadataPoint

    @classmethod
    def of(cls, copy: MetadataCopy, point: MetadataPoint, on_problem: OnProblem) -> HistoryReading:
        """The history of a copy up to a point.

        Raises:
            OSError: a file cannot be read.
        """
        replay = CopyReplay(copy.partition, on_problem)
        with phase(f"reading {copy.partition.path}"):
            replay.begin_with_oldest()
        return cls(replay.start.offset, replay.start.offset, [], replay, point)

    def events(self) -> Iterator[MetadataEvent]:
        """Yield the events as the log is read.

        Raises:
            OSError: a file cannot be read.
        """
        replay = self._replay
        with phase(f"reading {replay.partition.path}") as step:
            while True:
                history = MetadataHistory.after(replay.image())
                for batch, changes in replay.changes(self._point):
                    yield from history.events_of(changes)
                    step.step(len(batch.records))
                self.end = replay.end.offset
                if not replay.resume():
                    return
                self.unknown.append((self.end, replay.start.offset))


class ComparedMetadata(Struct, frozen=True):
    """Two states of a cluster's metadata.

    Attributes:
        left: one of them.
        right: the other.
        comparison: of the two copies; None if both are from one.
    """

    left: MetadataImage
    right: MetadataImage
    comparison: CopyComparison | None

    @property
    def are_same_copies(self) -> bool:
        """Whether no copy has records that the other has not."""
        return self.comparison is None or self.comparison.is_same


def compare_metadata(
    left: tuple[MetadataCopy, MetadataPoint],
    right: tuple[MetadataCopy, MetadataPoint],
    on_problem: OnProblem,
) -> ComparedMetadata:
    """Read the metadata of two copies, or of one at two points.

    Raises:
        UsageProblem: a copy does not have its point.
        OSError: a file cannot be read.
    """
    images = []
    for copy, point in (left, right):
        with phase(f"reading {copy.partition.path}"):
            images.append(CopyReplay(copy.partition, on_problem).image_at(point))
    comparison = None
    if left[0] is not right[0]:
        comparison = compare_copies(left[0].outline, right[0].outline)
    return ComparedMetadata(images[0], images[1], comparison)
