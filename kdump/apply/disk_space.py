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


def with_journal(space_bytes: int, operations: int) -> int:
    """How much space a run needs before it frees any, in bytes.

    Args:
        space_bytes: for the operations themselves.
        operations: how many the journal has.
    """
    return space_bytes + operations * _JOURNAL_BYTES_PER_OPERATION


@dataclass(slots=True)
class DiskSpace:
    """Free space for one plan.

    Attributes:
        is_first: whether the command has changed nothing before.
    """

    plan: Plan
    files: Files
    keep_undo: bool
    is_first: bool = True
    _left: deque[tuple[Path, ...]] = field(init=False)
    _removed: set[Path] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._left = deque(() if self.keep_undo else self.plan.early_removals)

    @property
    def rest(self) -> Plan:
        """The plan without the removals that are already done."""
        return self.plan.without_removals(self._removed) if self._removed else self.plan

    @property
    def changed(self) -> str:
        """What has been changed so far, for messages."""
        if self._removed:
            return "only files that the plan deletes are gone"
        return "nothing has been changed" if self.is_first else "nothing more has been changed"

    def require(self) -> None:
        """Make sure that there is enough free space, as far as that can be known in advance.

        Raises:
            KdumpError: there is not; says what has changed, and what to do.
            OSError: a file cannot be deleted.
        """
        while free_bytes_at(self.plan.path) < self.needed_bytes():
            if not self.free_some():
                raise self._too_little()

    def free_some(self) -> bool:
        """Delete the next group of early removals; returns whether there was one."""
        if not self._left:
            return False
        group = self._left.popleft()
        for path in group:
            self.files.unlink(path)
        # Some file systems free the space only then.
        self.files.sync([group[0].parent])
        self._removed.update(group)
        return True

    def needed_bytes(self) -> int:
        """Free space that the rest of the plan needs before it frees any, in bytes."""
        operations = len(self.plan.operations) - len(self._removed)
        needed_bytes = self.plan.space_bytes(keep_undo=self.keep_undo)
        needed_bytes -= sum(self.plan.early_content.values())
        return with_journal(needed_bytes, operations) if operations else 0

    def advice(self, failure: OSError) -> str:
        """What to do after a write failed because the disk, or a quota, is full."""
        undo = ""
        if self.keep_undo and not self.plan.needs_undo:
            undo = ", or run it with --no-undo, which writes fewer files"
        if failure.errno == errno.EDQUOT:
            return f"a quota is exhausted: raise it, and run the command again{undo}"
        needed_bytes, free_bytes = self.needed_bytes(), free_bytes_at(self.plan.path)
        what = f"needs {needed_bytes} bytes of free space"
        if free_bytes < needed_bytes:
            return f"{what}; free some and run the command again{undo}"
        return (
            f"{what}, has {free_bytes}, so inodes (see df -i) or a quota are exhausted; delete"
            f" files that nobody needs, and run the command again{undo}"
        )

    def _too_little(self) -> KdumpError:
        needed_bytes, free_bytes = self.needed_bytes(), free_bytes_at(self.plan.path)
        what = f"{self.plan.path}: needs {needed_bytes} bytes of free space, has {free_bytes}"
        if self.keep_undo and not self.plan.needs_undo:
            without = DiskSpace(self.plan, self.files, keep_undo=False)
            first = ", which deletes leftover files first," if self.plan.early_removals else ""
            if first or without.needed_bytes() <= free_bytes:
                return KdumpError(
                    f"{what}; there is no space for undo data; {self.changed}; run the command"
                    f" with --no-undo{first} or free some space"
                )
        if self.keep_undo:
            return KdumpError(f"{what}; {self.changed}; free some space, and run the command again")
        return KdumpError(
            f"{what}; {self.changed}; free some space, or select fewer partitions at a time"
        )
