"""Write new content beside the old files while the target state is still being computed.

The indexes of a terabyte take five gigabytes. So large content does not wait in memory for its
plan: it is written to the log directory at once, under the names that new content of the next run
has. If the machine stops, these are files of a run without a journal, which the next run removes.
Nothing else is touched, and a preview writes nothing.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kdump.apply.disk_space import DISK_FULL
from kdump.apply.files import DISK, Files
from kdump.apply.journal import own_name
from kdump.apply.journal_file import next_run_number
from kdump.apply.pinned_directory import pinned
from kdump.storage.local_disk import local
from kdump.storage.location import StoredFile
from kdump.target import content_store
from kdump.target.target_file import NewBytes, StagedBytes, TargetFile

_NUMBERS_OF_A_TASK: Final = 10**9
"""Files that are written with the plan have smaller numbers than those of any task."""


def without_content(target: TargetFile) -> TargetFile:
    """The same target file without its content, if that is large; for a preview."""
    if isinstance(target, NewBytes) and target.size_bytes >= content_store.LEAST_BYTES:
        return StagedBytes(target.size_bytes)
    return target


@dataclass(slots=True)
class EarlyContent:
    """Large content of a run in a locked log directory.

    A value that can be pickled: tasks on partitions write the content of the same run.

    Attributes:
        log_dir: the log directory.
        run: number of the run; it has no other files yet.
        task: tells the tasks that write for the run from each other.
        files: through which the content is written.
    """

    log_dir: Path
    run: int
    task: int = 0
    files: Files = DISK
    _count: int = 0

    @classmethod
    def of_next_run(cls, log_dir: Path, files: Files = DISK) -> EarlyContent:
        """The content of the next run.

        Raises:
            KdumpError: the run cannot have a number.
            OSError: the directory cannot be read.
        """
        return cls(log_dir, next_run_number(log_dir), files=files)

    def staged(self, target: TargetFile) -> TargetFile:
        """The same target file, whose content is on disk, if it is large.

        Raises:
            OSError: writing fails.
        """
        if not isinstance(target, NewBytes) or target.size_bytes < content_store.LEAST_BYTES:
            return target
        number = self.put(target.data)
        return target if number is None else self.target(number, target.size_bytes)

    def put(self, data: bytes) -> int | None:
        """Write content, unless the disk is full: the plan first deletes files that go anyway.

        Raises:
            OSError: writing fails.
        """
        number = (self.task + 1) * _NUMBERS_OF_A_TASK + self._count
        path = self._path(number)
        with pinned(self.log_dir):
            try:
                self.files.unlink(path)  # of an earlier attempt of the task
                self.files.create(path, [data])
            except OSError as failure:
                self.files.unlink(path)
                if failure.errno not in DISK_FULL:
                    raise
                return None
        self._count += 1
        return number

    def source(self, number: int) -> AbstractContextManager[StoredFile]:
        """Open the content that was written as ``number``."""
        return local(self._path(number)).open_file()

    def target(self, number: int, size_bytes: int) -> StagedBytes:
        """The target state of a file that gets it."""
        return StagedBytes(size_bytes, self._path(number).name)

    def _path(self, number: int) -> Path:
        return self.log_dir / own_name(self.run, f"-new-{number}")
