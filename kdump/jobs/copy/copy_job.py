"""Write some files of a copy: the job, which checks a log as its bytes pass.

Each file gets a temporary name, and whoever runs the job syncs it, together with others, and gives
it its own. A file that is not renamed is deleted by the next run. Runs on this machine only: the
copy is on its disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.apply.unfinished_copy import TEMPORARY_PREFIX
from kdump.check.batches import SegmentScope
from kdump.check.part import Level, SegmentPart
from kdump.check.segment_check import check_part
from kdump.engine.job import Split
from kdump.errors import reason_of
from kdump.jobs.copy.copy_plan import CopiedFile
from kdump.storage.location import Location, StoredFile
from kdump.storage.passing_storage import PassingStorage
from kdump.storage.sparse_writer import SparseWriter, WriteFailedError, close_written, writing
from kdump.storage.unfinished_file import UnfinishedFile

_MODE: Final = 0o666
"""From which the mask of the process is taken away."""
_BUFFER_BYTES: Final = 64 << 10


class CopySplit(Split, frozen=True, kw_only=True):
    """Files to copy: those of a segment, or others of one directory.

    Attributes:
        files: the log is the last one.
        scope: what to check the log against, by the names in the copy; None to check nothing.
            Without files, the log is there already.
    """

    files: tuple[CopiedFile, ...]
    scope: SegmentScope | None = None

    def read_places(self) -> Iterator[Location]:
        return (each.source for each in self.files)

    def small_files(self) -> Iterator[Location]:
        return (each.source for each in self.files)


class WrittenFiles(Struct, frozen=True):
    """What was written for a split.

    Attributes:
        temporary: the path of each file, in the order of the split; None if it was not written.
        unreadable: why files were not written.
        part: the result of the check; None if there was none.
        unwritable: why the job ended: the disk of the copy fails.
    """

    temporary: tuple[str | None, ...] = ()
    unreadable: tuple[str, ...] = ()
    part: SegmentPart | None = None
    unwritable: str | None = None


class CopyJob(Struct, frozen=True):
    """Copies files.

    Attributes:
        folder: where files are before they have their names.
    """

    folder: str
    now_ms: int

    def run(self, split: CopySplit, /) -> WrittenFiles:
        """Copy the files of a split, each complete or not at all; small ones are not synced."""
        with contextlib.ExitStack() as stack:
            run = _Run(self, split, stack)
            try:
                return run.written()
            except WriteFailedError as failure:
                return WrittenFiles(unwritable=str(failure))


class _Run:
    """The files of one split while they are written."""

    def __init__(self, job: CopyJob, split: CopySplit, stack: contextlib.ExitStack) -> None:
        self.job = job
        self.split = split
        self.stack = stack
        self.unreadable: list[str] = []
        self.part: SegmentPart | None = None
        self.arrived: dict[str, str] = {}

    def written(self) -> WrittenFiles:
        done = [self._file(each) for each in self.split.files]
        if not done and self.split.scope is not None:
            self.part = _checked(self.job, self.split.scope)
        for each in done:
            if each is not None:
                close_written(each)
        kept = tuple(None if each is None else each.keep() for each in done)
        return WrittenFiles(kept, tuple(self.unreadable), self.part)

    def _file(self, file: CopiedFile) -> UnfinishedFile | None:
        """Write one file; None if it cannot be read."""
        new = self._new()
        try:
            writer = SparseWriter(new.stream)
            if file.content is not None:
                writer.write(memoryview(file.content))
            else:
                with file.source.open_file() as source:
                    _require_size(source, file)
                    if self.split.scope is not None and file is self.split.files[-1]:
                        self._check(source, self.split.scope, writer)
                    writer.append(source, file.size_bytes)
            _finish(new, writer, file)
        except (OSError, EOFError) as failure:
            self.unreadable.append(f"{file.source}: {reason_of(failure)}")
            return None
        if self.split.scope is not None:
            self.arrived[str(self.split.scope.log.parent / file.source.name)] = str(new.path)
        return new

    def _new(self) -> UnfinishedFile:
        with writing():
            folder = Path(self.job.folder)
            new = UnfinishedFile.beside(
                folder / "file", TEMPORARY_PREFIX, mode=_MODE, buffer_bytes=_BUFFER_BYTES
            )
        return self.stack.enter_context(new)

    def _check(self, source: StoredFile, scope: SegmentScope, writer: SparseWriter) -> None:
        """Check a log while it is copied; what the check does not read is not copied yet."""
        path = scope.log.path
        passing = PassingStorage(path, source, writer, self.arrived)
        self.part = _checked(self.job, replace(scope, log=Location(passing, path)))


def _checked(job: CopyJob, scope: SegmentScope) -> SegmentPart:
    return check_part(scope, 0, None, Level.DEFAULT, job.now_ms)


def _require_size(source: StoredFile, file: CopiedFile) -> None:
    """Notice a file that changed since it was listed.

    Raises:
        OSError: a store says that it has another size than it listed.
        EOFError: it has another size.
    """
    if not file.size_bytes:
        # Nothing of it is read: a store has to say itself that it is empty, not only its listing.
        source.identity()
    if source.size_bytes != file.size_bytes:
        raise EOFError(f"has {source.size_bytes} bytes now, not {file.size_bytes}: it is in use")


def _finish(new: UnfinishedFile, writer: SparseWriter, file: CopiedFile) -> None:
    """Give a file its size and time."""
    writer.finish(file.size_bytes)
    with writing():
        new.set_modified(file.modified_ns)
