"""What a copy has: the files of a log directory, or those of some of its partitions.

All files of the source are copied as they are, whether a broker knows them or not, but ``.lock``.
With a selection these are the directories of the selected partitions, Kafka's own files in the
root, and the cluster's metadata: a broker reads the settings of all topics from it. The
checkpoints then have the lines of these partitions only: of another, a broker would drop some
lines, and the log cleaner would fail at the others (``LogCleanerManager.updateCheckpoints``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.apply.unfinished_copy import FOLDER, JOURNAL, CopySource, EarlierCopy
from kdump.errors import KdumpError, reason_of
from kdump.formats import names
from kdump.formats.checkpoints import encode_offset_checkpoint
from kdump.formats.names import FileKind, TopicPartition
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.log.selection import PartitionSelection
from kdump.phases import phase
from kdump.storage.entries import Entry, EntryKind, is_file_name
from kdump.storage.location import Location
from kdump.storage.places import cut_places
from kdump.tiered.missing_offsets import missing_offsets
from kdump.tiered.tiered_storage import remote_part

_LATEST_NS: Final = 2**62
"""An archive can claim any time; a disk takes those of the next century."""
_NO_FILE_NAME: Final = "no file can have this name"
_LOCK: Final = "a directory, but the lock of a log directory is a file of this name"
_SEGMENT_KINDS: Final = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)


class CopiedFile(Struct, frozen=True):
    """A file of a copy.

    Attributes:
        path: in the copy.
        size_bytes: its size in the copy.
        modified_ns: the modification time that it gets.
        hole_bytes: how much of it was never written, as far as known.
        content: what it has, if that is not what the source has.
        changed_ns: when anything of the source last changed; 0 if that is not known.
    """

    path: str
    source: Location
    size_bytes: int
    modified_ns: int
    hole_bytes: int = 0
    content: bytes | None = None
    changed_ns: int = 0

    @property
    def status(self) -> CopySource:
        """Tells the next run whether the source has changed."""
        return CopySource(self.size_bytes, self.modified_ns, self.changed_ns)

    @property
    def needed_bytes(self) -> int:
        """About how much space it takes."""
        return self.size_bytes - self.hole_bytes


class CopiedSegment(Struct, frozen=True):
    """The files of a segment of a copy.

    Attributes:
        segment: as it is listed in the source.
        files: the log is the last one.
        is_whole: whether its indexes are those of the log; not of a part of a remote log.
    """

    segment: Segment
    files: tuple[CopiedFile, ...]
    is_whole: bool = True


class CopiedPartition(Struct, frozen=True):
    """A directory of a copy.

    Attributes:
        partition: as it is listed in the source; None if it is no partition's.
        segments: with the files of each.
        others: all other files.
        directories: inside it; no partition has any.
    """

    name: str
    partition: Partition | None
    segments: tuple[CopiedSegment, ...] = ()
    others: tuple[CopiedFile, ...] = ()
    directories: tuple[str, ...] = ()

    def files(self) -> Iterator[CopiedFile]:
        for each in self.segments:
            yield from each.files
        yield from self.others


class CopyPlan(Struct):
    """What a copy has.

    Attributes:
        partitions: its directories.
        root: the files in its root.
        left_out: what cannot be copied, by path, and why.
        unreadable: what cannot be looked at now, and why.
        cut: why the source did not come whole; more than is known may be missing.
    """

    directory: LogDirectory
    partitions: list[CopiedPartition] = field(default_factory=list)
    root: list[CopiedFile] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)

    def files(self) -> Iterator[CopiedFile]:
        for each in self.partitions:
            yield from each.files()
        yield from self.root


def plan_copy(directory: LogDirectory, selection: PartitionSelection) -> CopyPlan:
    """List what a copy has. Only reads.

    Args:
        directory: the source, with the selected partitions listed.

    Raises:
        KdumpError: it is an unfinished copy itself.
        OSError: the root cannot be listed.
    """
    plan = CopyPlan(directory)
    found = {each.path.name: each for each in directory.partitions}
    with phase(f"listing {directory.path}"):
        entries = sorted(directory.path.entries())
    if not {FOLDER, JOURNAL}.isdisjoint(each.name for each in entries):
        raise KdumpError(f"{directory.path}: is an unfinished copy: complete it first")
    directories = [
        each
        for each in entries
        if each.kind is EntryKind.DIRECTORY
        and (selection.is_everything or each.name in found or each.name in directory.unreadable)
    ]
    with phase(f"listing the files in {directory.path}", len(directories)) as listing:
        for entry in listing.over(directories):
            if not is_file_name(entry.name) or entry.name == names.LOCK_FILE:
                why = _LOCK if is_file_name(entry.name) else _NO_FILE_NAME
                plan.left_out[str(directory.path / entry.name)] = why
                continue
            try:
                partition = found.get(entry.name)
                plan.partitions.append(_directory(plan, entry.name, partition))
                if partition is not None:
                    plan.cut += map(str, missing_offsets(partition))
            except OSError as failure:
                path = failure.filename or directory.path / entry.name
                plan.unreadable.append(f"{path}: {reason_of(failure)}")
    plan.cut += cut_places()
    plan.root = list(_root_of(plan, entries, selection))
    return plan


def _root_of(
    plan: CopyPlan, entries: Iterable[Entry], selection: PartitionSelection
) -> Iterator[CopiedFile]:
    """The files in the root that a copy of a selection has."""
    others = [
        # A lock is never copied: what it leads to makes no copy incomplete.
        each._replace(error=None) if each.name == names.LOCK_FILE and each.is_link else each
        for each in entries
        if each.kind is not EntryKind.DIRECTORY
    ]
    if not selection.is_everything:
        others = [each for each in others if each.name in names.LOG_DIRECTORY_FILES]
    lines = None if selection.is_everything else _live(plan.directory.partitions)
    return _root_files(plan, others, lines)


def _live(partitions: Iterable[Partition]) -> set[TopicPartition]:
    return {each.topic_partition for each in partitions if each.topic_partition is not None}


def _root_files(
    plan: CopyPlan, entries: Iterable[Entry], lines: set[TopicPartition] | None
) -> Iterator[CopiedFile]:
    """The files in the root; checkpoints have some lines only, if these are given."""
    checkpoints = plan.directory.checkpoints.by_file_name()
    for file in _files(plan, plan.directory.path, "", entries):
        if file.path == names.LOCK_FILE:
            continue
        if file.path == names.CLEAN_SHUTDOWN_MARKER and plan.cut:
            continue  # nobody knows what it was true of
        offsets = checkpoints.get(file.path)
        if lines is None or offsets is None:  # what is malformed is copied as it is
            yield file
            continue
        kept = (each for each in offsets.items() if each[0] in lines)
        content = encode_offset_checkpoint(kept)
        yield replace(file, size_bytes=len(content), hole_bytes=0, content=content)


def _directory(plan: CopyPlan, name: str, partition: Partition | None) -> CopiedPartition:
    """List a directory.

    Raises:
        OSError: it cannot be listed.
    """
    path = plan.directory.path / name
    entries = sorted(path.entries())
    files = {each.path.rpartition("/")[2]: each for each in _files(plan, path, f"{name}/", entries)}
    segments = []
    remote = _remote_names(partition)
    for segment in () if partition is None else partition.segments:
        wanted = [segment.file_name(kind) for kind in _SEGMENT_KINDS]
        own = [files.pop(each) for each in (*wanted, segment.log_name) if each in files]
        is_whole = segment.offset_index_bytes is not None or segment.log_name not in remote
        segments.append(CopiedSegment(segment, tuple(own), is_whole))
    others = list(files.values())
    directories = _directories_among(name, entries)
    # Not by recursion: keys and archives have names of any depth.
    for inner in directories:
        path = plan.directory.path / inner
        entries = sorted(path.entries())
        others += _files(plan, path, f"{inner}/", entries)
        directories += _directories_among(inner, entries)
    return CopiedPartition(name, partition, tuple(segments), tuple(others), tuple(directories))


def _directories_among(name: str, entries: Iterable[Entry]) -> list[str]:
    """The directories in a directory, by their paths in the copy; not what links lead to."""
    return [
        f"{name}/{each.name}"
        for each in entries
        if each.kind is EntryKind.DIRECTORY and not each.is_link and is_file_name(each.name)
    ]


def _remote_names(partition: Partition | None) -> Collection[str]:
    """The files of a partition that are remote.

    Raises:
        KdumpError: ``__remote_log_metadata`` cannot be loaded.
        OSError: something cannot be read.
    """
    part = None if partition is None else remote_part(partition)
    return () if part is None else part.files


def _files(
    plan: CopyPlan, path: Location, prefix: str, entries: Iterable[Entry]
) -> Iterator[CopiedFile]:
    """The regular files among entries; others are noted as left out."""
    for each in entries:
        where = path / each.name
        if not is_file_name(each.name):
            plan.left_out[str(where)] = _NO_FILE_NAME
        elif each.kind is EntryKind.FILE:
            modified_ns = max(-_LATEST_NS, min(each.modified_ns, _LATEST_NS))
            yield CopiedFile(
                f"{prefix}{each.name}",
                where,
                each.size_bytes,
                modified_ns,
                each.hole_bytes,
                changed_ns=each.changed_ns,
            )
        elif each.kind is EntryKind.DIRECTORY and not (prefix and each.is_link):
            continue
        elif each.error is not None:
            plan.unreadable.append(f"{where}: {reason_of(each.error)}")
        else:
            is_directory = each.kind is EntryKind.DIRECTORY
            kind = "link to a directory" if is_directory else each.kind.value
            plan.left_out[str(where)] = f"a {kind}, not a regular file"


def changed_files(plan: CopyPlan, earlier: EarlierCopy) -> tuple[list[CopiedFile], list[str]]:
    """The files that changed in the source since they were copied, and those that are gone.

    Args:
        plan: what there is now.
        earlier: what earlier runs copied.
    """
    before = earlier.files
    current = {each.path: each for each in plan.files()}
    changed = [
        each for path, each in current.items() if path in before and before[path] != each.status
    ]
    # An index that was made for a log is wanted as long as the log is.
    made = {each for each in earlier.made if f"{each.rpartition('.')[0]}.log" in current}
    return changed, sorted(before.keys() - current.keys() - made)


def changed_since(plan: CopyPlan, selection: PartitionSelection) -> Iterator[str]:
    """List again what a plan has; yields the names of files that changed since, or are gone.

    Also of files that were there when the plan was made, but not listed: a page of a listing can be
    lost on its way. Files and directories that are newer than all in the plan are not of the copy.

    One directory after the other: two plans of a hundred thousand files would be held otherwise.

    Args:
        plan: what was copied.

    Raises:
        OSError: the root cannot be listed.
    """
    again = CopyPlan(plan.directory, cut=list(plan.cut))
    latest_ns = max((each.modified_ns for each in plan.files()), default=0)
    known = {each.name for each in plan.partitions}
    with phase(f"listing {plan.directory.path}", len(plan.partitions)) as listing:
        entries = sorted(plan.directory.path.entries())
        yield from _differences(plan.root, _root_of(again, entries, selection), latest_ns)
        for copied in listing.over(plan.partitions):
            try:
                now = _directory(again, copied.name, copied.partition)
            except OSError:
                yield str(plan.directory.path / copied.name)
                continue
            yield from _differences(copied.files(), now.files(), latest_ns)
        for name in _selected_directories(entries, selection):
            if name in known or name in plan.directory.unreadable or not is_file_name(name):
                continue
            if str(plan.directory.path / name) in plan.left_out:
                continue
            with contextlib.suppress(OSError):  # it is gone again
                found = _directory(again, name, None)
                yield from _differences((), found.files(), latest_ns)


def _selected_directories(entries: Iterable[Entry], selection: PartitionSelection) -> Iterator[str]:
    for each in entries:
        if each.kind is EntryKind.DIRECTORY:
            is_partition = names.is_accepted_name(each.name)
            key = (
                names.parse_partition_directory_name(each.name).topic_partition
                if is_partition
                else None
            )
            if selection.is_everything or selection.matches(each.name, key):
                yield each.name


def _differences(
    before: Iterable[CopiedFile], now: Iterable[CopiedFile], latest_ns: int
) -> Iterator[str]:
    found = {each.path: each for each in now}
    for each in before:
        other = found.pop(each.path, None)
        if other is None or (other.size_bytes, other.modified_ns) != (
            each.size_bytes,
            each.modified_ns,
        ):
            yield str(each.source)
    for each in found.values():
        if 0 < each.modified_ns <= latest_ns:
            yield str(each.source)
