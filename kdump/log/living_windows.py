"""The valid batches of logs that a broker may change while they are read.

Readers of records stream: what they have passed on cannot be taken back. But offsets only grow, so
that a log can be read on from the next offset, wherever the broker has put it meanwhile. A segment
may be gone because retention deleted it, or because the cleaner put its records into the segment
before it; or another file has its name. Damage counts if the file that has it is still in its
place. What is half written at the end of the log is no damage: it is not there yet. The broker's
pages stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kdump.formats.names import FileKind
from kdump.log.batch_validity import LogPart
from kdump.log.directory import read_lone_partition
from kdump.log.living import Glimpse, settled_glimpse_of
from kdump.log.lock_holders import is_in_use_around, require_log_directory
from kdump.log.partition import Partition
from kdump.log.settled_listing import ATTEMPTS, wait
from kdump.log.valid_windows import Damage, segment_part, valid_windows
from kdump.scan.batches import Bytes, Window
from kdump.scan.source import ShortenedFileError
from kdump.storage.gentle_disk import gently
from kdump.storage.location import Location, StoredFile


class _Piece(NamedTuple):
    """A log, and the part of it to read; it is of the segment with the least offset of the part."""

    log: Location
    part: LogPart


def log_windows(
    log: Location,
    part: LogPart,
    *,
    buffer: Bytes | None = None,
) -> Iterator[Window | Damage]:
    """Yield the valid batches of a part of a log and the damage between them, in order.

    As :func:`~kdump.log.valid_windows.valid_windows`. If a broker is using the log, and the part is
    the whole segment, the offsets of the part are read from wherever they are by then.

    Raises:
        OSError: the log cannot be read.
    """
    is_whole = part.start == 0 and part.end is None
    source = _opened(log) if is_whole else log.open_file()
    if source is not None:
        with source:
            yield from valid_windows(source, part, buffer=buffer)
        return
    first = [_Piece(log, part)]
    yield from _Reading(log.parent, part, buffer).steps(first)


def partition_windows(partition: Partition, first: int = 0) -> Iterator[Window | Damage]:
    """Yield the valid batches of a partition and the damage between them, in order.

    Args:
        partition: as a starting broker loads it.
        first: the number of the segment to begin with.

    Raises:
        OSError: a log cannot be read.
    """
    for segment, following in list(partition.with_following())[first:]:
        source = _opened(partition.segment_path(segment, FileKind.LOG))
        if source is None:
            yield from living_windows_from(partition.path, segment.base_offset)
            return
        with source:
            yield from valid_windows(source, segment_part(segment, following))


def _opened(log: Location) -> StoredFile | None:
    """Open a log; None if a broker is using it, or was started before it was to be opened.

    Raises:
        OSError: it cannot be opened.
    """
    if is_in_use_around(log.parent):
        return None
    try:
        return log.open_file()
    except FileNotFoundError:
        if not is_in_use_around(log.parent):
            raise
        return None


def living_windows_from(
    path: Location, offset: int, end_offset: int | None = None
) -> Iterator[Window | Damage]:
    """Yield the valid batches of a log that a broker is using, and the damage, from an offset on.

    Args:
        path: of the partition.
        end_offset: after the last batch to read; None for all that are there by then.

    Raises:
        OSError: a log cannot be read.
    """
    whole = LogPart(least_offset=offset, end_offset=end_offset, may_be_padded=True)
    yield from _Reading(path, whole).steps(None)


def _pieces(partition: Partition) -> list[_Piece]:
    return [
        _Piece(partition.segment_path(segment, FileKind.LOG), segment_part(segment, following))
        for segment, following in partition.with_following()
    ]


class _Changed(Exception):
    """What was listed is not there any more."""


class _Reading:
    """One reading of a range of offsets of a log that a broker is using.

    Args:
        path: of the partition.
        part: has the offsets to read.
    """

    def __init__(self, path: Location, part: LogPart, buffer: Bytes | None = None) -> None:
        self._path = path
        self._next_offset = part.least_offset
        self._end_offset = part.end_offset
        self._buffer = buffer
        self._listed: Glimpse | None = None

    def steps(self, pieces: list[_Piece] | None) -> Iterator[Window | Damage]:
        """Yield the batches and the damage.

        Args:
            pieces: where they were when they were planned; None to list them.
        """
        failures = 0
        while True:
            if pieces is None:
                self._listed = self._list()
                if self._listed is None:
                    return  # the broker has deleted the partition, and its records with it
                pieces = _pieces(self._listed.partition)
            before = self._next_offset
            try:
                for piece in self._with_rest(pieces):
                    yield from self._of(piece, is_last_attempt=failures == ATTEMPTS)
            except (_Changed, FileNotFoundError, ShortenedFileError):
                failures = 1 if self._next_offset > before else failures + 1
                if failures > ATTEMPTS:
                    raise
            else:
                return
            wait(failures)
            pieces = None

    def _with_rest(self, pieces: list[_Piece]) -> Iterator[_Piece]:
        """The pieces that have some of the offsets that are still to be read."""
        for piece in pieces:
            end_offset = piece.part.end_offset
            is_before = end_offset is not None and end_offset <= self._next_offset
            is_after = self._end_offset is not None and piece.part.least_offset >= self._end_offset
            if not is_before and not is_after:
                yield piece

    def _of(self, piece: _Piece, *, is_last_attempt: bool) -> Iterator[Window | Damage]:
        with gently(piece.log).open_file() as source:
            for step in valid_windows(source, piece.part, buffer=self._buffer):
                if isinstance(step, Window):
                    window = self._still_to_read(step)
                    if window.batches.count:
                        self._next_offset = int(window.batches.last_offset[-1]) + 1
                        yield window
                elif is_last_attempt or self._is_true(step, piece):
                    yield step

    def _still_to_read(self, window: Window) -> Window:
        """The batches of a window that were not read before, and that are to be read."""
        batches = window.batches
        is_left = batches.last_offset >= self._next_offset
        if self._end_offset is not None:
            is_left &= batches.last_offset < self._end_offset
        return window if is_left.all() else window.rows(is_left)

    def _is_true(self, damage: Damage, piece: _Piece) -> bool:
        """Whether damage is of the file that was listed, and not just what is being written.

        Raises:
            _Changed: it is not known: the file was replaced, or there is another one after it.
        """
        before, after = self._listed, self._list()
        if before is None or after is None:
            raise _Changed
        if before.has_kept_segment(piece.part.least_offset, after):
            return True
        stamp, later = (each.files.get(piece.log.name) for each in (before, after))
        is_last = piece.part.least_offset == after.last_base_offset
        if not is_last or stamp is None or later is None or stamp.file_id != later.file_id:
            raise _Changed
        return damage.end < stamp.size_bytes

    def _list(self) -> Glimpse | None:
        try:
            partition = read_lone_partition(self._path, self._path.as_absolute().name)
        except FileNotFoundError:
            require_log_directory(self._path.around)
            return None
        return settled_glimpse_of(partition)
