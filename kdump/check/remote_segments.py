"""Hold the remote segments of a partition against their metadata, their files and the local log."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from kdump.check import invariants
from kdump.check.findings import Finding, Place, Severity
from kdump.check.part import SegmentPart
from kdump.formats import producer_snapshot, transaction_index
from kdump.formats.checkpoints import decode_leader_epoch_checkpoint, epochs_rise
from kdump.formats.errors import FormatError
from kdump.formats.kafka_versions import NEWEST
from kdump.formats.remote_names import RemoteFileKind, RemoteFileName
from kdump.formats.segment_manifest import SegmentManifest
from kdump.log.remote_files import RemoteListing, RemoteSegmentFiles
from kdump.state.remote_segments import (
    RemoteRange,
    RemoteSegment,
    RemoteSegments,
    SegmentState,
    missing_ranges,
)
from kdump.storage.location import Location

_UNFINISHED: Final = {
    SegmentState.COPY_SEGMENT_STARTED: "the copy of a segment was begun and not finished",
    SegmentState.DELETE_SEGMENT_STARTED: "the deletion of a segment was begun and not finished",
}
_REQUIRED: Final = (
    RemoteFileKind.LOG,
    RemoteFileKind.OFFSET_INDEX,
    RemoteFileKind.TIME_INDEX,
    RemoteFileKind.PRODUCER_SNAPSHOT,
    RemoteFileKind.LEADER_EPOCHS,
)
"""The files that every remote segment has; a transaction index only if there is something in it."""


class LocalReplica(Struct, frozen=True):
    """A local replica of a partition in tiered storage.

    Attributes:
        path: its directory.
        log_start_offset: where its whole log begins; None if unknown.
        local_start_offset: where its local log begins; None if it has no bytes.
        ranges: from which remote segments its log is read.
    """

    path: Location
    log_start_offset: int | None
    local_start_offset: int | None
    ranges: Sequence[RemoteRange]


class RemoteScope(Struct, frozen=True):
    """What is known of a remote partition.

    Attributes:
        segments: by ``__remote_log_metadata``, or else by the files.
        is_by_metadata: whether by the metadata.
        has_whole_metadata: whether the metadata of every partition are known.
        is_deleted: whether the metadata say that the partition was deleted.
        replicas: the local replicas that are known.
    """

    listing: RemoteListing
    segments: RemoteSegments
    is_by_metadata: bool
    has_whole_metadata: bool
    is_deleted: bool
    replicas: Sequence[LocalReplica]


def checked_segments(scope: RemoteScope) -> list[tuple[RemoteSegment, RemoteSegmentFiles]]:
    """The segments whose content has to be valid: their copies are finished, and there."""
    found = [
        (segment, scope.listing.segments[segment.segment_id])
        for segment in scope.segments.segments.values()
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED
        and segment.segment_id in scope.listing.segments
    ]
    whole = [each for each in found if each[1].log is not None]
    return sorted(whole, key=lambda each: (each[0].start_offset, each[0].segment_id))


def check_remote_partition(scope: RemoteScope) -> Iterator[Finding]:
    """Check everything but the content of the segments."""
    place = Place(str(scope.listing.path))
    if not scope.is_by_metadata and not scope.has_whole_metadata:
        yield invariants.REMOTE_METADATA_MISSING.finding(
            place, "the log directories have no metadata of its remote segments"
        )
    for segment in sorted(scope.segments.segments.values(), key=lambda each: each.start_offset):
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
            yield from _check_files(segment, scope)
        elif segment.state in _UNFINISHED:
            yield _unfinished(segment, scope.listing)
    if scope.is_by_metadata or scope.has_whole_metadata:
        yield from _orphans(scope)
    yield from _overlaps(scope.segments)
    for replica in scope.replicas:
        yield from _gaps(replica)


def _path(segment: RemoteSegment, listing: RemoteListing, kind: RemoteFileKind) -> str:
    name = RemoteFileName(segment.start_offset, segment.segment_id, kind)
    return str(listing.path / str(name))


def _offsets(segment: RemoteSegment) -> str:
    return f"offsets {segment.start_offset} to {segment.end_offset}"


def _check_files(segment: RemoteSegment, scope: RemoteScope) -> Iterator[Finding]:
    """Check that a finished segment has its files, and its log the size of the metadata."""
    files = scope.listing.segments.get(segment.segment_id)
    present = {} if files is None else files.files
    required = list(_REQUIRED)
    if segment.has_transaction_index and scope.is_by_metadata:
        required.append(RemoteFileKind.TRANSACTION_INDEX)
    is_read = _is_read(segment, scope.replicas)
    for kind in required:
        if kind not in present:
            is_log = kind is RemoteFileKind.LOG
            yield invariants.REMOTE_SEGMENT_MISSING.finding(
                Place(_path(segment, scope.listing, kind), offset=segment.start_offset),
                f"the {'log' if is_log else kind.value[1:]} of a remote segment is missing",
                expected=_offsets(segment),
                loss=_offsets(segment) if is_log and is_read else None,
                severity=None if is_read else Severity.WARNING,
            )
    log = present.get(RemoteFileKind.LOG)
    if log is not None and segment.size_bytes not in (None, log.size_bytes):
        yield invariants.REMOTE_SEGMENT_SIZE.finding(
            Place(str(log.path)),
            "the log of a remote segment has another size than its metadata say",
            expected=f"{segment.size_bytes} bytes",
            found=f"{log.size_bytes} bytes",
        )


def _is_read(segment: RemoteSegment, replicas: Sequence[LocalReplica]) -> bool:
    """Whether a replica's log is read from a segment; also if no replica is known."""
    return not replicas or any(
        found.segment is not None and found.segment.segment_id == segment.segment_id
        for replica in replicas
        for found in replica.ranges
    )


def _unfinished(segment: RemoteSegment, listing: RemoteListing) -> Finding:
    return invariants.REMOTE_SEGMENT_UNFINISHED.finding(
        Place(_path(segment, listing, RemoteFileKind.LOG), offset=segment.start_offset),
        _UNFINISHED[segment.state],
        found=_offsets(segment),
    )


def _orphans(scope: RemoteScope) -> Iterator[Finding]:
    """Files of segments that the metadata do not name."""
    known = scope.segments.segments if scope.is_by_metadata else {}
    for files in sorted(scope.listing.segments.values(), key=lambda each: each.start_offset):
        if files.segment_id not in known:
            name = RemoteFileName(files.start_offset, files.segment_id, RemoteFileKind.LOG)
            size = sum(each.size_bytes for each in files.files.values())
            of_what = "a deleted partition" if scope.is_deleted else "a segment without metadata"
            yield invariants.REMOTE_SEGMENT_ORPHAN.finding(
                Place(str(scope.listing.path / str(name)), offset=files.start_offset),
                f"the files are those of {of_what}",
                found=f"{size} bytes in {len(files.files)} files",
            )


def _overlaps(segments: RemoteSegments) -> Iterator[Finding]:
    """Finished segments with the same offsets of the same leader epoch."""
    finished = [
        each
        for each in segments.segments.values()
        if each.state is SegmentState.COPY_SEGMENT_FINISHED
    ]
    by_epoch: dict[int, list[tuple[int, int, RemoteSegment]]] = {}
    for segment in finished:
        for entry in segment.leader_epochs:
            row = (entry.start_offset, segment.end_of(entry.epoch), segment)
            by_epoch.setdefault(entry.epoch, []).append(row)
    for epoch, rows in sorted(by_epoch.items()):
        rows.sort(key=lambda row: row[:2])
        for (_, end, one), (start, _, other) in itertools.pairwise(rows):
            if start <= end:
                yield invariants.REMOTE_SEGMENT_OVERLAP.finding(
                    Place(other.segment_id, offset=start),
                    f"remote segments {one.segment_id} and {other.segment_id} have the same"
                    f" offsets of leader epoch {epoch}",
                    found=f"{_offsets(one)}, and {_offsets(other)}",
                )


def _gaps(replica: LocalReplica) -> Iterator[Finding]:
    """Offsets of a log before its local part that no segment has."""
    for found in missing_ranges(
        replica.ranges, replica.log_start_offset, replica.local_start_offset
    ):
        offsets = f"offsets {found.from_offset} to {found.to_offset - 1}"
        yield invariants.REMOTE_OFFSETS_MISSING.finding(
            Place(str(replica.path), offset=found.from_offset),
            "no remote segment has these offsets, and the local log begins later",
            found=offsets,
            loss=offsets,
        )


def check_manifest(
    segment: RemoteSegment, path: Location, manifest: SegmentManifest
) -> Iterator[Finding]:
    """Compare the offsets of a manifest with those of the metadata."""
    if (manifest.start_offset, manifest.end_offset) != (segment.start_offset, segment.end_offset):
        yield invariants.REMOTE_SEGMENT_OFFSETS.finding(
            Place(str(path)),
            "the manifest of a remote segment has other offsets than its metadata say",
            expected=_offsets(segment),
            found=f"offsets {manifest.start_offset} to {manifest.end_offset}",
        )


def check_remote_content(
    segment: RemoteSegment, files: RemoteSegmentFiles, part: SegmentPart
) -> Iterator[Finding]:
    """Compare the offsets of a log with its metadata, and check the small files by themselves.

    Raises:
        OSError: a file cannot be read.
    """
    first, last = part.first_offset, part.last_offset
    is_whole = not part.starts_damaged and not part.ends_damaged
    if is_whole and (last != segment.end_offset or (first or 0) < segment.start_offset):
        yield invariants.REMOTE_SEGMENT_OFFSETS.finding(
            Place(part.path, offset=first),
            "the log of a remote segment has other offsets than its metadata say",
            expected=_offsets(segment),
            found="no batch" if first is None else f"offsets {first} to {last}",
        )
    for kind, decode in _DECODERS.items():
        file = files.files.get(kind)
        if file is None:
            continue
        try:
            decode(file.path.read())
        except FormatError as problem:
            yield invariants.REMOTE_SEGMENT_FILE.of_error(
                Place(str(file.path), problem.position),
                problem,
                f"the {kind.value[1:]} of a remote segment cannot be read: {problem.what}",
            )


def _decode_snapshot(data: bytes) -> None:
    problem = producer_snapshot.crc_problem(data, producer_snapshot.decode(data))
    if problem is not None:
        raise problem


def _decode_leader_epochs(data: bytes) -> None:
    if not epochs_rise(decode_leader_epoch_checkpoint(data)):
        raise FormatError("leader epochs go back")


def _decode_transaction_index(data: bytes) -> None:
    index = transaction_index.decode(data)
    if index.trailing_bytes:
        raise FormatError("the last entry is incomplete", position=len(data) - index.trailing_bytes)
    for slot, entry in enumerate(index.entries):
        if not entry.is_known_to(NEWEST):
            raise FormatError(
                "an entry has a version that Kafka refuses",
                position=slot * transaction_index.ENTRY_BYTES,
                found=entry.version_in(NEWEST),
            )


_DECODERS: Final[Mapping[RemoteFileKind, Callable[[bytes], object]]] = {
    RemoteFileKind.PRODUCER_SNAPSHOT: _decode_snapshot,
    RemoteFileKind.TRANSACTION_INDEX: _decode_transaction_index,
    RemoteFileKind.LEADER_EPOCHS: _decode_leader_epochs,
}
