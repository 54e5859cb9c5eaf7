"""Free space for a plan, and how to make some when there is too little.

Before its first change, a run writes new content and a journal. On a full disk, it first deletes
files that the plan deletes anyway and that need no space (:mod:`kdump.apply.early_removals`), and
only as many of them as make room for the rest. A run that keeps an undo cannot do that, because
the undo keeps what is deleted.
"""

from __future__ import annotations

import errno
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kdump.apply.files import Files, free_bytes_at
from kdump.apply.plan import Plan
from kdump.errors import KdumpError

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_JOURNAL_BYTES_PER_OPERATION: Final = 1024


@dataclass(slots=True)
class DiskSpace:
    """The room for a plan.

    Attributes:
        plan: what is to be done.
        files: through which files are deleted.
        keep_undo: whether the run keeps an undo.
    """

    plan: Plan
    files: Files
    keep_undo: bool
    _left: deque[tuple[Path, ...]] = field(init=False)
    _removed: set[Path] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._left = deque(() if self.keep_undo else self.plan.may_go_early)

    @property
    def rest(self) -> Plan:
        """The plan without what is done already."""
        return self.plan.without_removals(self._removed) if self._removed else self.plan

    @property
    def changed(self) -> str:
        """What has been changed so far."""
        if self._removed:
            return "only files that were to be deleted are gone"
        return "nothing has been changed"

    def require(self) -> None:
        """Make sure that there is room, as far as that can be known before writing.

        Raises:
            KdumpError: there is none; says what has changed, and what to do.
            OSError: a file cannot be deleted.
        """
        while free_bytes_at(self.plan.path) < self.needed_bytes():
            if not self.free_some():
                raise self._too_little()

    def free_some(self) -> bool:
        """Delete some of what may go early; gives whether there was any left."""
        if not self._left:
            return False
        group = self._left.popleft()
        for path in group:
            self.files.unlink(path)
        # Some file systems give space back only then.
        self.files.sync([group[0].parent])
        self._removed.update(group)
        return True

    def needed_bytes(self) -> int:
        """How much free space the rest of the plan takes before it gives any back."""
        operations = len(self.plan.operations) - len(self._removed)
        needed_bytes = self.plan.space_bytes(keep_undo=self.keep_undo)
        return needed_bytes + operations * _JOURNAL_BYTES_PER_OPERATION if operations else 0

    def _too_little(self) -> KdumpError:
        needed_bytes, free_bytes = self.needed_bytes(), free_bytes_at(self.plan.path)
        what = f"{self.plan.path}: needs {needed_bytes} bytes of free space, has {free_bytes}"
        if self.keep_undo:
            return KdumpError(
                f"{what}; there is no room for undo data; {self.changed}; run the command with"
                " --no-undo, which deletes leftover files first, or make room"
            )
        return KdumpError(
            f"{what}; {self.changed}; make room, or repair fewer partitions at a time"
        )
