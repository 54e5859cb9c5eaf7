"""Failures of kdump or of the machine, worded for the user.

Damage in the data is never one of these: damage is a value (a finding, or a
:class:`~kdump.formats.errors.FormatError` that the caller turns into one).
"""

from __future__ import annotations

import enum
from typing import Final

AS_WHOM: Final = "run kdump as the user that the broker runs as, or as root"
"""What to do where a permission is missing."""


class ExitStatus(enum.IntFlag):
    """The exit status of a command; the bits are combined as in ``fsck``.

    Bit 1 of ``grep`` and ``diff`` says what that of their namesakes says.
    """

    SOUND = 0
    REPAIRED = 1
    NOTHING_MATCHED = 1
    DIFFERENT = 1
    DAMAGE_LEFT = 4
    OPERATIONAL_ERROR = 8
    USAGE = 16


class KdumpError(Exception):
    """An operational failure; its message says what failed, where, and what to do next.

    Attributes:
        exit_status: of the command that fails with it.
        trace: the traceback of an internal error; otherwise empty.
    """

    exit_status = ExitStatus.OPERATIONAL_ERROR
    trace: str = ""


def reason_of(failure: Exception) -> str:
    """Why something failed: what the system says, without the path, or the message."""
    return (isinstance(failure, OSError) and failure.strerror) or str(failure)


class UsageProblem(KdumpError):
    """The command line is wrong, not the data."""

    exit_status = ExitStatus.USAGE


class StoreGoneError(KdumpError):
    """An object store does not answer any more; to go on asking would take hours."""


class Terminated(KeyboardInterrupt):
    """A signal stopped the command."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number
