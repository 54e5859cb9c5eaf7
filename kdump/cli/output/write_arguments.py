"""How a command that writes was asked to write, and to report it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from kdump.cli.output.events import EventFormat

if TYPE_CHECKING:
    from kdump.jobs.writing.execution import Writing


class RepairArguments(Struct, frozen=True):
    """How to repair, and how to report it.

    Attributes:
        verbose: whether to list everything, rather than counts of what is harmless.
    """

    dry_run: bool
    keep_undo: bool
    output_format: EventFormat
    verbose: bool

    def writing(self, command: str, *, overwrites: bool = False) -> Writing:
        """Return the same options for :mod:`kdump.jobs.writing.execution`."""
        from kdump.jobs.writing.execution import Writing

        return Writing(command, self.dry_run, self.keep_undo, overwrites)


class DeletionArguments(RepairArguments, frozen=True):
    """How to free space, and how to report it.

    With undo data nothing is freed until that is discarded.

    Attributes:
        now_ms: the current time, or that of ``--now``.
        is_replicated: whether to assume that every log is fully replicated.
    """

    now_ms: int
    is_replicated: bool

    @property
    def is_brief_preview(self) -> bool:
        """Whether people see a preview that only counts what is much alike."""
        return self.dry_run and not self.verbose and self.output_format is EventFormat.TEXT
