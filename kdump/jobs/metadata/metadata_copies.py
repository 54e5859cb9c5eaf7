"""Several copies of a cluster's metadata: the most advanced one, and what of it is committed.

A high watermark is not on disk. What a snapshot covers is committed (``KafkaRaftClient`` makes no
other snapshots), and so is what a majority of the voters has, if no leader of a later epoch can
have replaced it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from kdump.check.metadata_snapshot import newest_snapshot
from kdump.errors import KdumpError
from kdump.formats.errors import FormatError
from kdump.formats.names import QUORUM_STATE, FileKind, MetadataSnapshotName
from kdump.formats.quorum_state import QuorumState
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.log.valid_windows import Damage, OnDamage, segment_part, valid_windows
from kdump.phases import phase
from kdump.scan.batches import Column
from kdump.state.metadata.metadata_image import EntityKind, LogEnd, MetadataImage
from kdump.state.metadata.metadata_nodes import Voter
from kdump.state.metadata.metadata_replay import END, CopyReplay
from kdump.storage.location import Location

_EMPTY: Final = np.empty(0, np.int64)


class LogOutline(Struct, frozen=True):
    """The batch headers of a copy, up to where its log can be used.

    Attributes:
        base_offset: of each batch; likewise the other columns, of shape (n,).
        last_offset: of each batch.
        epoch: of each batch.
        crc: of each batch.
        highest_epoch: in any batch header, also after what ends the copy; 0 without one.
    """

    base_offset: Column
    last_offset: Column
    epoch: Column
    crc: Column
    snapshots: tuple[LogEnd, ...]
    end: LogEnd
    highest_epoch: int

    def ends_by_epoch(self) -> dict[int, int]:
        """The offset after the last record of each epoch."""
        ends = dict(sorted(self.snapshots))
        epochs, rows = np.unique(self.epoch[::-1], return_index=True)
        for epoch, row in zip(epochs.tolist(), rows.tolist(), strict=True):
            ends[epoch] = max(ends.get(epoch, 0), int(self.last_offset[::-1][row]) + 1)
        return ends

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record before an offset."""
        row = int(np.searchsorted(self.base_offset, offset, "left")) - 1
        if row >= 0:
            return int(self.epoch[row])
        return max((each.epoch for each in self.snapshots if each.offset <= offset), default=0)


class MetadataCopy(Struct, frozen=True):
    """A copy of the cluster's metadata in a log directory.

    Attributes:
        node_id: of the node; None if ``meta.properties`` does not name it.
        directory_id: of the log directory, likewise.
        cluster_id: likewise.
        quorum_state: the content of ``quorum-state``; None if it cannot be read.
        outline: its batches.
        problems: what is damaged in it, with the file.
    """

    log_dir: Location
    partition: Partition
    node_id: int | None
    directory_id: str | None
    cluster_id: str | None
    quorum_state: QuorumState | None
    outline: LogOutline
    problems: tuple[str, ...]

    @property
    def quorum_epoch(self) -> int | None:
        """The epoch in ``quorum-state``."""
        return None if self.quorum_state is None else self.quorum_state.leader_epoch

    @property
    def end(self) -> LogEnd:
        """Where the copy ends."""
        return self.outline.end

    @property
    def highest(self) -> LogEnd:
        """The highest epoch and offset of its end, its snapshots and ``quorum-state``.

        A candidate's epoch is in no batch yet.
        """
        ends = (self.end, *self.outline.snapshots)
        epochs = [each.epoch for each in ends]
        return LogEnd(max(*epochs, self.quorum_epoch or 0), max(each.offset for each in ends))


def read_copies(directories: Iterable[LogDirectory]) -> list[MetadataCopy]:
    """Read the batch headers of all copies, the most advanced copy first.

    Raises:
        OSError: a file cannot be read.
    """
    copies = []
    for directory in directories:
        for partition in directory.partitions:
            if partition.is_cluster_metadata:
                with phase(f"reading {partition.path}"):
                    copies.append(_read_copy(directory, partition))
    return sorted(copies, key=lambda copy: copy.end, reverse=True)


def _read_copy(directory: LogDirectory, partition: Partition) -> MetadataCopy:
    problems = []
    try:
        quorum_state = partition.read_quorum_state()
    except FormatError as error:
        quorum_state = None
        problems.append(f"{partition.path / QUORUM_STATE}: {error}")
    except IsADirectoryError:
        quorum_state = None
        problems.append(f"{partition.path / QUORUM_STATE}: is a directory; no node starts with it")
    outline = _read_outline(partition, lambda damage: problems.append(str(damage)))
    if (what := _directory_as_snapshot(partition, outline.end)) is not None:
        problems.append(what)
    return MetadataCopy(
        log_dir=directory.path,
        partition=partition,
        node_id=directory.node_id,
        directory_id=directory.directory_id,
        cluster_id=directory.cluster_id,
        quorum_state=quorum_state,
        outline=outline,
        problems=tuple(problems),
    )


def require_no_directory_as_snapshot(copy: MetadataCopy) -> None:
    """Refuse to write a snapshot beside a directory that a node may take for a newer one.

    Raises:
        KdumpError: there is one.
        OSError: the kind of an entry cannot be read.
    """
    if (what := _directory_as_snapshot(copy.partition, copy.end)) is not None:
        raise KdumpError(what)


def _directory_as_snapshot(partition: Partition, end: LogEnd) -> str | None:
    """What is wrong if the newest snapshot is a directory."""
    newest = newest_snapshot(partition)
    if not isinstance(newest, MetadataSnapshotName):
        return None
    comes = "no node starts with it"
    if (newest.epoch, newest.end_offset) > (end.epoch, end.offset):
        comes = "a starting node deletes the log for it, and has no metadata then"
    return (
        f"{partition.path / str(newest)}: a directory has the name of the newest snapshot: {comes};"
        " move it away first"
    )


def _read_outline(partition: Partition, on_damage: OnDamage) -> LogOutline:
    snapshots = tuple(LogEnd(each.epoch, each.end_offset) for each in partition.metadata_snapshots)
    covered = max((each.offset for each in snapshots), default=0)
    parts = [
        columns
        for segment, following in partition.with_following()
        for columns in _headers(partition, segment, following, on_damage)
    ]
    base_offset, last_offset, epoch, crc = (
        np.concatenate([part[index] for part in parts]) if parts else _EMPTY for index in range(4)
    )
    # Up to the first record that is missing; what a snapshot covers need not be in the log.
    follows = np.concatenate(([covered], last_offset + 1))[: len(base_offset)]
    reached = np.maximum(follows, covered)
    is_gap = (base_offset > reached) & (last_offset >= covered)
    count = int(np.argmax(is_gap)) if is_gap.any() else len(base_offset)
    ends = [*snapshots]
    if count:
        ends.append(LogEnd(int(epoch[count - 1]), int(last_offset[count - 1]) + 1))
    return LogOutline(
        base_offset[:count],
        last_offset[:count],
        epoch[:count],
        crc[:count],
        snapshots,
        max(ends, default=LogEnd(0, 0), key=lambda end: (end.offset, end.epoch)),
        int(epoch.max(initial=0)),
    )


def _headers(
    partition: Partition, segment: Segment, following: Segment | None, on_damage: OnDamage
) -> Iterator[tuple[Column, Column, Column, Column]]:
    path = partition.segment_path(segment, FileKind.LOG)
    with path.open_file() as source:
        for step in valid_windows(source, segment_part(segment, following)):
            if isinstance(step, Damage):
                on_damage(step)
                continue
            batches = step.batches
            yield (
                batches.base_offset.copy(),
                batches.last_offset.copy(),
                batches.partition_leader_epoch.copy(),
                batches.crc.copy(),
            )


# --- two copies


class CopyVerdict(enum.Enum):
    """How two copies relate; the value is the word in output."""

    SAME = "same"
    PREFIX = "prefix"
    """One has all of the other, and more."""
    DIVERGED = "diverged"
    """Each has records that the other has not."""


class CopyComparison(Struct, frozen=True):
    """What two copies have in common.

    Attributes:
        verdict: how they relate.
        common_end_offset: up to which they agree.
        common_epoch: of the last record that they have in common.
        differing_offset: of the first batch whose content differs although its epoch is the same,
            which is damage; None if there is none.
    """

    verdict: CopyVerdict
    common_end_offset: int
    common_epoch: int
    differing_offset: int | None = None

    @property
    def is_same(self) -> bool:
        """Whether both have the same records."""
        return self.verdict is CopyVerdict.SAME and self.differing_offset is None


def compare_copies(left: LogOutline, right: LogOutline) -> CopyComparison:
    """Compare two copies by epochs, and by the checksums of the batches that both have."""
    common, epoch = _common_end(left, right)
    differing = _first_difference(left, right, common)
    if differing is not None:
        common, epoch = differing, left.epoch_before(differing)
    ends = {left.end.offset, right.end.offset}
    if common < min(ends):
        verdict = CopyVerdict.DIVERGED
    else:
        verdict = CopyVerdict.SAME if len(ends) == 1 else CopyVerdict.PREFIX
    return CopyComparison(verdict, common, epoch, differing)


def _common_end(left: LogOutline, right: LogOutline) -> tuple[int, int]:
    """Up to where both have the same epochs: the same epoch and offset are the same record."""
    ends, others = left.ends_by_epoch(), right.ends_by_epoch()
    shared = [(min(ends[epoch], others[epoch]), epoch) for epoch in ends.keys() & others.keys()]
    return max(shared, default=(0, 0))


def _first_difference(left: LogOutline, right: LogOutline, common: int) -> int | None:
    """The first batch before ``common`` that both have, with other content."""
    offsets, ours, theirs = np.intersect1d(
        left.base_offset, right.base_offset, assume_unique=True, return_indices=True
    )
    is_other = (left.crc[ours] != right.crc[theirs]) & (offsets < common)
    return int(offsets[is_other][0]) if is_other.any() else None


# --- what is committed


def committed_end(
    copies: Sequence[MetadataCopy], image: MetadataImage | None = None
) -> tuple[int | None, list[Voter]]:
    """The offset up to which the records of the most advanced copy are known to be committed.

    Args:
        copies: of one cluster, the most advanced one first.
        image: the metadata at the end of that copy, if it has been read.

    Returns:
        The offset, None if nothing on the disks says it; and the voters, as the copy has them.

    Raises:
        OSError: a file cannot be read.
    """
    newest = copies[0].outline
    known = [
        each.offset
        for copy in copies
        for each in copy.outline.snapshots
        if 0 < each.offset <= newest.end.offset and newest.epoch_before(each.offset) == each.epoch
    ]
    if image is None:
        image = _control_image(copies[0])
    voters = list(image.of(EntityKind.VOTER).values())
    majority = _end_of_majority(copies, voters)
    if majority is not None:
        known.append(min(majority.end.offset, _common_end(newest, majority)[0]))
    return max(known, default=None), voters


def _control_image(copy: MetadataCopy) -> MetadataImage:
    """The part of the image that control records make: the voters."""
    replay = CopyReplay(copy.partition, lambda _problem: None, type_names=())
    return replay.image_at(END)


def _end_of_majority(copies: Sequence[MetadataCopy], voters: Sequence[Voter]) -> LogOutline | None:
    """What a majority of the voters has, if it is sure to be committed; otherwise None."""
    by_node: dict[int, MetadataCopy] = {}
    for copy in copies:
        for voter in voters:
            if voter.is_at(copy.node_id, copy.directory_id):
                by_node.setdefault(voter.node_id, copy)
    needed = len(voters) // 2 + 1
    if not voters or len(by_node) < needed:
        return None
    holders = list(by_node.values())
    newest = holders[0].outline
    reached = [(_common_end(newest, copy.outline)[0], copy) for copy in holders]
    reached.sort(key=lambda each: each[0], reverse=True)
    offset = reached[needed - 1][0]
    epoch = newest.epoch_before(offset)
    # Records of an earlier epoch on a majority can still be replaced, unless nothing later is
    # anywhere, or the majority has not taken part in a later election (Raft, section 5.4.2).
    is_last = len(by_node) == len(voters) and epoch == newest.end.epoch
    is_stable = all(copy.quorum_epoch == epoch for end, copy in reached if end >= offset)
    if not (is_last or is_stable):
        return None
    return _cut(newest, offset)


def _cut(outline: LogOutline, offset: int) -> LogOutline:
    """The part of an outline before an offset."""
    count = int(np.searchsorted(outline.base_offset, offset, "left"))
    return LogOutline(
        outline.base_offset[:count],
        outline.last_offset[:count],
        outline.epoch[:count],
        outline.crc[:count],
        tuple(each for each in outline.snapshots if each.offset <= offset),
        LogEnd(outline.epoch_before(offset), offset),
        outline.highest_epoch,
    )
