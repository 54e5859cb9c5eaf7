"""What can happen to a partition's directory while a broker uses it, and what stays known.

A broker appends to the log and the indexes of the last segment, and rolls: then the indexes are
trimmed to their size, a segment is created after it, and a producer snapshot is written in place.
Retention renames the files of the first segments to ``.deleted``, one by one, and deletes them
later. The cleaner writes ``.cleaned`` files, renames them to ``.swap``, renames the old files to
``.deleted``, and renames the ``.swap`` files to their names, each time one by one. A follower
deletes the last segments, and truncates the one before them. Checkpoints are replaced by a rename.
Directories are created empty, are renamed to ``-delete``, and lose one file after the other.

So the files of a segment that has another after it keep their content as long as they have their
name. What was read of a file is true if the file is the same before and after it was read; what
several files say together, if all of them are. Who finds that they are not reads again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from kdump.formats import names
from kdump.formats.names import FileStage
from kdump.log.lock_holders import is_living_around, require_log_directory
from kdump.log.partition import Partition, read_partition
from kdump.log.settled_listing import ATTEMPTS, read_settled_partition
from kdump.scan.source import ShortenedFileError
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.file_status import FileStatus
from kdump.storage.location import Location

Read = TypeVar("Read")
Gone = TypeVar("Gone")


class FileStamp(NamedTuple):
    """Which file has a name: another file, or another content, has another state."""

    file_id: int
    size_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, file: Entry | FileStatus) -> FileStamp:
        """That of a file as it was listed or looked at."""
        return cls(file.file_id, file.size_bytes, file.modified_ns)


SegmentStamps = tuple[tuple[str, FileStamp], ...]


class Glimpse(Struct, frozen=True):
    """A partition's directory as it was listed, without what a broker has put aside.

    Attributes:
        partition: without leftovers: they are a broker's work that is not finished.
        files: the state of each file.
        replaced: base offsets of the segments that the cleaner is putting into place.
        removed: base offsets of the files that wait to be deleted.
        leftover_count: how many files the broker has not finished, or has put aside.
    """

    partition: Partition
    files: Mapping[str, FileStamp]
    replaced: frozenset[int]
    removed: frozenset[int]
    leftover_count: int

    @property
    def last_base_offset(self) -> int | None:
        """Where the segment begins to which a broker appends; None without segments."""
        segments = self.partition.segments
        return segments[-1].base_offset if segments else None

    def is_closed(self, base_offset: int) -> bool:
        """Whether a segment begins there, whole and in place, and another after it."""
        last = self.last_base_offset
        return (
            last is not None
            and base_offset < last
            and (base_offset not in self.replaced or self._is_before_swap(base_offset))
            and any(each.base_offset == base_offset for each in self.partition.segments)
        )

    def _is_before_swap(self, base_offset: int) -> bool:
        """Whether a segment that is to be replaced has all its files, and the other none of them.

        Of a segment the log is renamed first (``LogSegment.changeFileSuffixes``): the indexes are
        those of the log while the other log is still ``.swap``. A listing that runs meanwhile may
        see one file under both names.
        """
        log = f"{base_offset:020d}{names.FileKind.LOG.extension}"
        old, new = self.files.get(log), self.files.get(log + FileStage.SWAP.value)
        return old is not None and new is not None and old.file_id != new.file_id

    def segment_state(self, base_offset: int) -> SegmentStamps:
        """The state of each file of a segment."""
        return tuple(self._segment_files(base_offset))

    def _segment_files(self, base_offset: int) -> Iterator[tuple[str, FileStamp]]:
        stem = f"{base_offset:020d}"
        for kind in names.FileKind:
            state = self.files.get(stem + kind.extension)
            if state is not None and kind is not names.FileKind.PRODUCER_SNAPSHOT:
                yield kind.extension, state

    def has_kept_file(self, name: str, later: Glimpse) -> bool:
        """Whether a file is there, and was not replaced or changed since; or still a directory."""
        state = self.files.get(name)
        if state is None:
            return name in self.partition.foreign and name in later.partition.foreign
        return later.files.get(name) == state

    def has_kept_segment(self, base_offset: int, later: Glimpse) -> bool:
        """Whether a segment was closed, and none of its files was changed or replaced since."""
        return (
            self.is_closed(base_offset)
            and later.is_closed(base_offset)
            and self.segment_state(base_offset) == later.segment_state(base_offset)
        )

    def has_kept_log(self, base_offset: int, later: Glimpse) -> bool:
        """Whether the log of a segment with the same segment after it was not replaced.

        That is known of a segment in the middle of a swap, too, whose indexes are of another log.
        """
        following = self._following(base_offset)
        log = f"{base_offset:020d}{names.FileKind.LOG.extension}"
        return (
            following is not None
            and following == later._following(base_offset)
            and self.has_kept_file(log, later)
        )

    def _following(self, base_offset: int) -> int | None:
        """Where the next segment begins."""
        bases = [each.base_offset for each in self.partition.segments]
        return min((each for each in bases if each > base_offset), default=None)

    def has_kept_all(self, later: Glimpse) -> bool:
        """Whether no closed segment was added to or lost from the log, or is about to be."""
        closed = [each.base_offset for each in self.partition.segments[:-1]]
        first = self.partition.segments[0].base_offset if self.partition.segments else 0
        is_moving = any(offset > first for offset in (*self.removed, *later.removed))
        return not is_moving and all(self.has_kept_segment(each, later) for each in closed)


def glimpse_of(partition: Partition) -> Glimpse | None:
    """List a partition's directory again; None if it is gone, or has another name by now.

    Raises:
        OSError: as :func:`~kdump.log.partition.read_partition`.
        KdumpError: its log directory is gone, too.
    """
    return _glimpse(partition, read_partition)


def settled_glimpse_of(partition: Partition) -> Glimpse | None:
    """The same, listed until nothing seems to be missing; takes and raises what that does."""
    return _glimpse(partition, read_settled_partition)


def _glimpse(partition: Partition, read: Callable[..., Partition]) -> Glimpse | None:
    try:
        found = read(partition.path, partition.topic_partition, partition.state, keep_entries=True)
    except FileNotFoundError:
        require_log_directory(partition.path.around)
        return None
    files = {each.name: FileStamp.of(each) for each in found.entries if each.kind is EntryKind.FILE}
    parsed = [each for each in map(names.parse_offset_file_name, files) if each is not None]
    return Glimpse(
        replace(found, leftovers=(), entries=()),
        files,
        frozenset(each.offset for each in parsed if each.stage is FileStage.SWAP),
        frozenset(each.offset for each in parsed if each.stage is FileStage.DELETED),
        len(found.leftovers),
    )


def as_in_use(partition: Partition) -> Partition:
    """A partition without the files that its broker is about to put into place.

    They are not finished, or their segments are still under other names. A broker that starts would
    go on with them; this one has not stopped.
    """
    return replace(partition, leftovers=())


def while_it_changes(
    partition: Partition,
    read: Callable[[Partition], Read],
    gone: Gone,
    has_damage: Callable[[Read], bool] = lambda _: False,
) -> Read | Gone:
    """What is read of a partition; if files are gone or truncated, as it is listed then.

    Args:
        partition: as a starting broker loads it.
        gone: what is read of a partition that the broker has deleted meanwhile.
        has_damage: whether damage was met. Of a log that a broker is using, it counts if the log
            has the same segments before and after it was read: else a segment may have been
            replaced by one with other offsets.

    Raises:
        OSError: a file cannot be read, or files are gone of a log that no broker is using.
        KdumpError: its log directory is gone.
    """
    before: Glimpse | None = None
    for _ in range(ATTEMPTS):
        try:
            found = read(partition)
        except (FileNotFoundError, ShortenedFileError):
            if not is_living_around(partition.path):
                raise
            after = settled_glimpse_of(partition)
        else:
            if not (has_damage(found) and is_living_around(partition.path)):
                return found
            after = settled_glimpse_of(partition)
            if before is not None and after is not None and before.has_kept_all(after):
                return found
        if after is None:
            return gone
        before, partition = after, after.partition
    return read(partition)


def is_unreadable(path: Location) -> bool:
    """Whether something is there that cannot be read: no broker has just taken it away."""
    try:
        if path.status().kind is EntryKind.DIRECTORY:
            path.entries()
        else:
            path.open_file().close()
    except FileNotFoundError:
        return _is_broken_link(path)
    except OSError:
        return True
    return False


def _is_broken_link(path: Location) -> bool:
    try:
        entries = path.parent.entries()
    except OSError:
        return False
    return any(each.name == path.name and each.kind is EntryKind.BROKEN_LINK for each in entries)
