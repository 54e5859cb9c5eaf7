"""Write new content beside the old files while the target state is still being computed.

The indexes of a terabyte take five gigabytes. So large content does not wait in memory for its
plan: it is written to the log directory at once, under the names that new content of the next run
has. If the machine stops, these are files of a run without a journal, which the next run removes.
Nothing else is touched, and a preview writes nothing.

Spark may run a task again, or twice at the same time, and kill either. So no attempt writes to a
file of another one: each file has a random number. The file of an attempt that does not count is
removed with those that no plan uses.

A node of a cluster may have another directory at the same path, even that of a broker that runs. So
content is written only where the lock file is the one that the driver holds.
"""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from kdump.apply.disk_space import DISK_FULL
from kdump.apply.files import DISK, Files
from kdump.apply.journal import own_name
from kdump.apply.journal_file import next_run_number
from kdump.apply.pinned_directory import pinned, status_of
from kdump.formats.names import LOCK_FILE
from kdump.storage.local_disk import local
from kdump.storage.location import StoredFile
from kdump.target.content_store import is_large
from kdump.target.target_file import NewBytes, StagedBytes, TargetFile

_LEAST_NUMBER: Final = 10**9
"""Files that are written with the plan have smaller numbers."""
_RANDOM_BYTES: Final = 7
_KEPT_IN_MEMORY: Final = DISK_FULL | {errno.EROFS, errno.EACCES}
"""Why a task cannot write that the plan may be able to: it first deletes files that go anyway, and
the node of a cluster that runs the task may have the log directory for reading only."""


class EarlyContent(Struct, frozen=True):
    """Large content of a run in a locked log directory: a ``ContentStore``.

    A value that can be pickled: tasks on partitions write the content of the same run.

    Attributes:
        run: number of the run; it has no other files yet.
        lock: inode and modification time, in nanoseconds, of the lock file; None if there is none.
    """

    log_dir: Path
    run: int
    lock: tuple[int, int] | None
    files: Files = DISK

    @classmethod
    def of_next_run(cls, log_dir: Path, files: Files = DISK) -> EarlyContent:
        """The content of the next run.

        Raises:
            KdumpError: the run cannot have a number.
            OSError: the directory cannot be read.
        """
        return cls(log_dir, next_run_number(log_dir), _lock_in(log_dir), files)

    def staged(self, target: TargetFile) -> TargetFile:
        """The same target file, whose content is on disk, if it is large.

        Raises:
            OSError: writing fails.
        """
        if not isinstance(target, NewBytes) or not is_large(target.size_bytes):
            return target
        number = self.put(target.data)
        return target if number is None else self.target(number, target.size_bytes)

    def put(self, data: bytes) -> int | None:
        """Write content; returns its number, or None if it has to stay in memory.

        Raises:
            OSError: writing fails.
        """
        number = _LEAST_NUMBER + int.from_bytes(os.urandom(_RANDOM_BYTES))
        path = self._path(number)
        with pinned(self.log_dir):
            if _lock_in(self.log_dir) != self.lock:
                return None
            try:
                self.files.create(path, [data])
            except OSError as failure:
                with suppress(OSError):  # where nothing can be written, there is nothing to delete
                    self.files.unlink(path)
                if failure.errno not in _KEPT_IN_MEMORY:
                    raise
                return None
        return number

    def source(self, number: int) -> AbstractContextManager[StoredFile]:
        """Open the content that was written as ``number``."""
        return local(self._path(number)).open_file()

    def target(self, number: int, size_bytes: int) -> StagedBytes:
        """The target state of a file that gets it."""
        return StagedBytes(size_bytes, self._path(number).name)

    def _path(self, number: int) -> Path:
        return self.log_dir / own_name(self.run, f"-new-{number}")


def _lock_in(log_dir: Path) -> tuple[int, int] | None:
    status = status_of(log_dir / LOCK_FILE)
    return None if status is None else (status.st_ino, status.st_mtime_ns)
