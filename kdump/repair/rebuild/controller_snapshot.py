"""A controller's metadata as one snapshot and no log: the state from which it can start again.

An empty log begins at the end of the latest snapshot (``KafkaRaftLog.truncateToLatestSnapshot``),
and without ``quorum-state`` its epoch is that of the snapshot (``QuorumState.initialize``). If both
are above everything that any node of the cluster has, every node fetches the snapshot and gives up
its own log: nothing on another disk has to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.errors import KdumpError
from kdump.formats.message_encoder import EncodingError
from kdump.formats.names import (
    PARTITION_METADATA,
    QUORUM_STATE,
    TEMPORARY_SUFFIX,
    MetadataSnapshotName,
    is_partition_file,
)
from kdump.formats.snapshot_writer import SnapshotHead, encode_snapshot
from kdump.state.metadata.image_records import (
    ImageLoss,
    ImageRecord,
    UnwritableImageError,
    records_of,
)
from kdump.state.metadata.metadata_image import EntityKind, LogEnd, MetadataImage
from kdump.state.metadata.metadata_nodes import Voter
from kdump.target.target_file import Gone, NewBytes, TargetFile

MARGIN_OFFSETS: Final = 1_000_000
"""How far a new snapshot is above everything that was shown: other disks may be ahead of it.

The figure is kdump's own: idle controllers write so many records in six days, one each half second
(``metadata.max.idle.interval.ms``).
"""
MARGIN_EPOCHS: Final = 1_000
"""Likewise; every election is an epoch."""
MARGIN_PRODUCER_IDS: Final = 1_000_000
"""Likewise; controllers give out blocks of 1,000 ids."""
_MAX_EPOCH: Final = 2**31 - 1
_MAX_OFFSET: Final = 2**63 - 1


class ControllerSnapshot(Struct, frozen=True):
    """A snapshot with which controllers start.

    Attributes:
        name: of its file: its end and its epoch.
        data: its bytes.
        records: how many records it has, without control records.
        losses: what its ``metadata.version`` cannot hold.
    """

    name: MetadataSnapshotName
    data: bytes
    records: int
    losses: tuple[ImageLoss, ...]


def end_above(ends: Iterable[LogEnd]) -> LogEnd:
    """An end of a snapshot above all others.

    Raises:
        KdumpError: they are so high that there is none.
    """
    seen = list(ends)
    end = LogEnd(
        max((each.epoch for each in seen), default=0) + MARGIN_EPOCHS,
        max((each.offset for each in seen), default=0) + MARGIN_OFFSETS,
    )
    # The elected controller has the next epoch, and every election another.
    if end.epoch > _MAX_EPOCH - MARGIN_EPOCHS or end.offset > _MAX_OFFSET - MARGIN_OFFSETS:
        raise KdumpError(
            f"no snapshot can be above epoch {end.epoch - MARGIN_EPOCHS} and offset"
            f" {end.offset - MARGIN_OFFSETS}: Kafka has no larger numbers"
        )
    return end


def snapshot_of_image(
    image: MetadataImage, end: LogEnd, voters: Sequence[Voter], *, now_ms: int
) -> ControllerSnapshot:
    """The snapshot of an image at an end, with voters if its ``kraft.version`` is 1.

    Raises:
        KdumpError: the image cannot be written.
    """
    losses: list[ImageLoss] = []
    try:
        records = list(records_of(image, on_loss=losses.append))
        return snapshot_of_records(
            records, end, voters, timestamp_ms=image.timestamp_ms, now_ms=now_ms, losses=losses
        )
    except UnwritableImageError as error:
        raise KdumpError(f"the metadata cannot be written: {error}") from error


def snapshot_of_records(
    records: Sequence[ImageRecord],
    end: LogEnd,
    voters: Sequence[Voter],
    *,
    timestamp_ms: int | None,
    now_ms: int,
    losses: Iterable[ImageLoss] = (),
) -> ControllerSnapshot:
    """The snapshot of records, with ``kraft.version`` 1 if there are voters.

    Raises:
        KdumpError: a record cannot be written.
    """
    head = SnapshotHead(
        epoch=end.epoch,
        last_timestamp_ms=timestamp_ms or 0,
        created_ms=now_ms,
        kraft_version=1 if voters else 0,
        voters=[voter.record() for voter in voters],
    )
    try:
        data = b"".join(encode_snapshot(head, (each.encode() for each in records)))
    except EncodingError as error:
        raise KdumpError(f"the metadata cannot be written: {error}") from error
    name = MetadataSnapshotName(end.offset, end.epoch)
    return ControllerSnapshot(name, data, len(records), tuple(losses))


def without_lost_controllers(image: MetadataImage, node_ids: Iterable[int]) -> MetadataImage:
    """The image without the registrations of other controllers than these."""
    kept = set(node_ids)
    controllers = image.of(EntityKind.CONTROLLER)
    entities = {
        **image.entities,
        EntityKind.CONTROLLER: {key: controllers[key] for key in controllers if key in kept},
    }
    return MetadataImage(entities, image.end, image.timestamp_ms, image.pending)


def with_margins(image: MetadataImage) -> MetadataImage:
    """The image with margins above its numbers: records with higher ones may be lost.

    A broker takes the first batch of a new producer for a duplicate if another one had its id.
    Followers whose logs have a later leader epoch never get in sync, and brokers that run ignore a
    partition with a lower epoch. A number without room for its margin is raised less, or stays.
    """
    next_id = image.of(EntityKind.NEXT_PRODUCER_ID).get("", 0)
    next_id = _raised(next_id, MARGIN_PRODUCER_IDS, _MAX_OFFSET)
    partitions = {
        key: replace(
            each,
            leader_epoch=_raised(each.leader_epoch, MARGIN_EPOCHS, _MAX_EPOCH),
            partition_epoch=_raised(each.partition_epoch, MARGIN_EPOCHS, _MAX_EPOCH),
        )
        for key, each in image.of(EntityKind.PARTITION).items()
    }
    entities = {
        **image.entities,
        EntityKind.NEXT_PRODUCER_ID: {"": next_id},
        EntityKind.PARTITION: partitions,
    }
    return MetadataImage(entities, image.end, image.timestamp_ms, image.pending)


def _raised(number: int, margin: int, most: int) -> int:
    # Later elections and blocks of ids need room, too.
    return max(number, min(number + margin, most - margin))


def files_with_snapshot(
    names: Iterable[str], snapshot: ControllerSnapshot
) -> dict[str, TargetFile]:
    """The target state of ``__cluster_metadata-0``: the snapshot, and no log.

    The snapshot is written first. From then on a controller that is started reads it, and truncates
    what is left of the log itself; before that, nothing has changed.

    Args:
        names: of the files in the directory. Those that are not Kafka's stay.
    """
    files: dict[str, TargetFile] = {
        name: Gone()
        for name in names
        if name != PARTITION_METADATA
        and (is_partition_file(name) or name == QUORUM_STATE + TEMPORARY_SUFFIX)
    }
    files[str(snapshot.name)] = NewBytes(snapshot.data)
    return files
