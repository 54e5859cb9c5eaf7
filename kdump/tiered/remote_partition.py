"""A partition with its remote segments: which files it has, and which bytes of remote ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from kdump.formats import names
from kdump.formats.checkpoints import EpochEntry, decode_leader_epoch_checkpoint, epochs_rise
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind, OffsetFileName
from kdump.formats.remote_names import RemoteFileKind, RemoteFileName
from kdump.log.log_search import SegmentSearch, Trust
from kdump.log.partition import Partition
from kdump.log.remote_files import RemoteFile, RemoteListing, RemoteSegmentFiles
from kdump.state.remote_segments import (
    RemoteRange,
    RemoteSegment,
    RemoteSegments,
    SegmentState,
    missing_ranges,
)
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.location import Location, StoredFile

_NO_END: Final = 2**63 - 1
_KINDS: Final = {
    RemoteFileKind.LOG: FileKind.LOG,
    RemoteFileKind.OFFSET_INDEX: FileKind.OFFSET_INDEX,
    RemoteFileKind.TIME_INDEX: FileKind.TIME_INDEX,
    RemoteFileKind.TRANSACTION_INDEX: FileKind.TRANSACTION_INDEX,
}


class RemoteSlice(Struct, frozen=True):
    """A file of a partition that is remote, or part of a remote one.

    Attributes:
        start: the first byte of it.
        size_bytes: how many bytes.
        modified_ns: when the remote file was modified.
    """

    path: Location
    start: int
    size_bytes: int
    modified_ns: int = 0

    def entry(self, name: str) -> Entry:
        """What a listing says of it."""
        return Entry(name, EntryKind.FILE, size_bytes=self.size_bytes, modified_ns=self.modified_ns)


class RemotePart(Struct, frozen=True):
    """The remote part of a partition.

    Attributes:
        files: by the name that they would have in a log directory.
        hidden: local files that are not used: an empty log does not replace remote segments.
        local_start_offset: where the local log begins; None if it has no bytes.
        highest_offset: the last offset that was copied; None if none was.
        ranges: which segments have which offsets.
        is_by_metadata: whether ``__remote_log_metadata`` says so, instead of the files.
        shorter: those of the ranges whose log has fewer bytes than the metadata say.
        log_start_offset: where the log begins, as far as it was not deleted; None if unknown.
    """

    files: Mapping[str, RemoteSlice]
    hidden: frozenset[str] = frozenset()
    local_start_offset: int | None = None
    highest_offset: int | None = None
    ranges: Sequence[RemoteRange] = ()
    is_by_metadata: bool = False
    shorter: Sequence[RemoteRange] = ()
    log_start_offset: int | None = None

    @property
    def remote_logs(self) -> list[RemoteSlice]:
        """The logs, or parts of logs, that are read from remote segments."""
        return [each for name, each in self.files.items() if name.endswith(FileKind.LOG.value)]

    @property
    def gaps(self) -> list[RemoteRange]:
        """Offsets of the log before its local part that no segment has."""
        return missing_ranges(self.ranges, self.log_start_offset, self.local_start_offset)


def plan_partition(
    local: Partition,
    listing: RemoteListing,
    known: RemoteSegments | None,
    log_start_offset: int | None = None,
) -> RemotePart:
    """Find out which remote bytes a consumer of a partition reads.

    Args:
        known: the segments by ``__remote_log_metadata``; None if that has none of this partition.
        log_start_offset: as checkpointed; None if unknown.

    Raises:
        OSError: a file cannot be read.
    """
    segments = segments_of_files(listing) if known is None else known
    lineage = lineage_of(local, segments, listing)
    local_start = local_start_of(local)
    ranges = segments.read_ranges(lineage, _NO_END if local_start is None else local_start)
    remote_end = ranges[-1].to_offset if ranges else 0
    hidden = [
        name
        for name in _local_names(local)
        if local_start is None and names_offset(name) < remote_end
    ]
    shorter = [each for each in ranges if _is_shorter(each.segment, listing)]
    files = dict(_files(ranges, listing, shorter))
    for name in [name for name in files if local_start is not None and name in _local_names(local)]:
        del files[name]
    highest = segments.highest_offset(lineage)
    return RemotePart(
        files,
        frozenset(hidden),
        local_start,
        highest,
        ranges,
        known is not None,
        shorter,
        first_offset(log_start_offset, segments, lineage),
    )


def first_offset(
    log_start_offset: int | None, segments: RemoteSegments, lineage: Sequence[EpochEntry]
) -> int | None:
    """Where a log begins, as far as it was not deleted since that was checkpointed."""
    return None if log_start_offset is None else max(log_start_offset, segments.deleted_to(lineage))


def topic_id_of(partition: Partition) -> str | None:
    """The topic id of a partition; None if there is none, or it cannot be read."""
    try:
        return partition.read_topic_id()
    except FormatError:
        return None


def _is_shorter(segment: RemoteSegment | None, listing: RemoteListing) -> bool:
    files = None if segment is None else listing.segments.get(segment.segment_id)
    if segment is None or segment.size_bytes is None or files is None or files.log is None:
        return False
    return files.log.size_bytes < segment.size_bytes


def names_offset(name: str) -> int:
    """The offset that a name of a local file begins with."""
    parsed = names.parse_offset_file_name(name)
    return _NO_END if parsed is None else parsed.offset


def _local_names(local: Partition) -> set[str]:
    found = {
        str(OffsetFileName(each.offset, FileKind.PRODUCER_SNAPSHOT))
        for each in local.producer_snapshots
    }
    for segment in local.segments:
        found |= {segment.file_name(kind) for kind in _KINDS.values()}
    return found


def local_start_of(local: Partition) -> int | None:
    """Where the local log begins; None if it has no bytes."""
    return local.segments[0].base_offset if local.log_bytes else None


def lineage_of(
    local: Partition | None, segments: RemoteSegments, listing: RemoteListing
) -> Sequence[EpochEntry]:
    """The leader epochs of the replica, or else those with the latest remote segment."""
    try:
        entries = None if local is None else local.read_leader_epochs()
    except FormatError:
        entries = None
    if entries:
        return entries
    latest = max(
        (each for each in segments.segments.values() if each.leader_epochs),
        key=lambda each: (each.leader_epochs[-1].epoch, each.end_offset),
        default=None,
    )
    if latest is None:
        return ()
    return read_epochs(listing.segments.get(latest.segment_id)) or latest.leader_epochs


def read_epochs(files: RemoteSegmentFiles | None) -> list[EpochEntry]:
    """The leader epochs up to the end of a remote segment; none if its file is missing or damaged.

    Raises:
        OSError: the file cannot be read.
    """
    file = None if files is None else files.files.get(RemoteFileKind.LEADER_EPOCHS)
    try:
        found = [] if file is None else decode_leader_epoch_checkpoint(file.path.read())
    except FormatError:
        return []
    return found if epochs_rise(found) else []


def segments_of_files(listing: RemoteListing) -> RemoteSegments:
    """Say which segments there are by their files alone, as if all were copied to the end.

    Raises:
        OSError: a file cannot be read.
    """
    found = RemoteSegments()
    whole = [each for each in listing.segments.values() if each.log is not None]
    described = [segment_of_files(files) for files in sorted(whole, key=_order)]
    segments = [each for each in described if each is not None]
    longest: dict[int, RemoteSegment] = {}
    for segment in sorted(segments, key=lambda each: each.end_offset):
        longest[segment.start_offset] = segment
    for segment in segments:
        if not _is_begin_of(segment, longest[segment.start_offset]):
            found.add_finished(segment)
    return found


def _is_begin_of(segment: RemoteSegment, other: RemoteSegment) -> bool:
    """Whether a segment is a copy of another's begin: one that was not finished."""
    same = tuple(each for each in other.leader_epochs if each.start_offset <= segment.end_offset)
    return segment.end_offset < other.end_offset and segment.leader_epochs == same


def _order(files: RemoteSegmentFiles) -> tuple[int, int]:
    return (0 if files.log is None else files.log.modified_ns), files.start_offset


def segment_of_files(files: RemoteSegmentFiles) -> RemoteSegment | None:
    """Describe a remote segment by its files; None if its log has no batch.

    Raises:
        OSError: a file cannot be read.
    """
    if files.log is None:
        return None
    with files.log.path.open_file() as log, _search(files, log) as search:
        end = search.end()
    if end.offset == files.start_offset:
        return None
    end_offset = end.offset - 1
    epochs = _epochs_within(read_epochs(files), files.start_offset, end_offset)
    return RemoteSegment(
        files.segment_id,
        files.start_offset,
        end_offset,
        epochs or (EpochEntry(max(0, end.leader_epoch), files.start_offset),),
        files.log.size_bytes,
        SegmentState.COPY_SEGMENT_FINISHED,
        has_transaction_index=RemoteFileKind.TRANSACTION_INDEX in files.files,
    )


def _epochs_within(
    entries: Sequence[EpochEntry], start_offset: int, end_offset: int
) -> tuple[EpochEntry, ...]:
    """The epochs of the offsets of a segment, as its metadata would have them."""
    found: list[EpochEntry] = []
    for entry in entries:
        if entry.start_offset <= start_offset:
            found = [EpochEntry(entry.epoch, start_offset)]
        elif entry.start_offset <= end_offset:
            found.append(entry)
    return tuple(found)


def _search(files: RemoteSegmentFiles, log: StoredFile) -> SegmentSearch:
    """A search by headers: each request to a remote storage costs money, and reads are few."""
    folder = log.location.parent

    def path(kind: RemoteFileKind) -> Location:
        return folder / str(RemoteFileName(files.start_offset, files.segment_id, kind))

    return SegmentSearch(
        log,
        files.start_offset,
        path(RemoteFileKind.OFFSET_INDEX),
        path(RemoteFileKind.TIME_INDEX),
        Trust.HEADERS,
    )


def _files(
    ranges: Sequence[RemoteRange], listing: RemoteListing, shorter: list[RemoteRange]
) -> Iterator[tuple[str, RemoteSlice]]:
    """The files; adds to ``shorter`` the ranges whose log is seen to end before their end."""
    for at, each in enumerate(ranges):
        if each.segment is None:
            continue
        files = listing.segments.get(each.segment.segment_id)
        if files is None or files.log is None:
            # Whoever reads it has to fail: a consumer would, too.
            yield _missing(each.segment, listing)
            continue
        is_first = not any(before.segment is not None for before in ranges[:at])
        cuts_start = not is_first and each.from_offset > each.segment.start_offset
        cuts_end = each.to_offset <= each.segment.end_offset
        if cuts_start or cuts_end:
            part = _part(each, files, files.log, cuts_start=cuts_start, cuts_end=cuts_end)
            if part is None:
                shorter.append(each)
                part = _part(each, files, files.log, cuts_start=cuts_start, cuts_end=False)
            if part is not None:
                yield part
            continue
        for kind, file in files.files.items():
            name = _name(kind, each.segment)
            if name is not None:
                yield name, RemoteSlice(file.path, 0, file.size_bytes, file.modified_ns)


def _name(kind: RemoteFileKind, segment: RemoteSegment) -> str | None:
    if kind is RemoteFileKind.PRODUCER_SNAPSHOT:
        return str(OffsetFileName(segment.end_offset + 1, FileKind.PRODUCER_SNAPSHOT))
    local_kind = _KINDS.get(kind)
    return None if local_kind is None else str(OffsetFileName(segment.start_offset, local_kind))


def _missing(segment: RemoteSegment, listing: RemoteListing) -> tuple[str, RemoteSlice]:
    name = RemoteFileName(segment.start_offset, segment.segment_id, RemoteFileKind.LOG)
    planned = RemoteSlice(listing.path / str(name), 0, segment.size_bytes or 0)
    return str(OffsetFileName(segment.start_offset, FileKind.LOG)), planned


def _part(
    found: RemoteRange,
    files: RemoteSegmentFiles,
    file: RemoteFile,
    *,
    cuts_start: bool,
    cuts_end: bool,
) -> tuple[str, RemoteSlice] | None:
    """The part of a log that has the offsets of a range; None if the log ends before.

    Without indexes, whose positions are those of the whole log. Replicas have the same batches, so
    a range begins and ends where a batch does.
    """
    start, end = 0, file.size_bytes
    with file.path.open_file() as log, _search(files, log) as search:
        if cuts_start:
            span = search.find_batch(found.from_offset)
            start = end if span is None else span.position
        if cuts_end:
            span = search.find_batch(found.to_offset)
            if span is None:
                return None
            is_inside = span.base_offset < found.to_offset
            end = span.next_position if is_inside else span.position
    offset = found.from_offset if cuts_start else files.start_offset
    planned = RemoteSlice(file.path, start, end - start, file.modified_ns)
    return str(OffsetFileName(offset, FileKind.LOG)), planned
