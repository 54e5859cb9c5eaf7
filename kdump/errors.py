"""Failures of kdump or of the machine, worded for the person who typed the command.

Damage in the data is never one of these: damage is a value (a finding, or a
:class:`~kdump.formats.errors.FormatError` that the caller turns into one).
"""

from __future__ import annotations

import enum


class ExitStatus(enum.IntFlag):
    """What a command's exit status says, or-ed together as ``fsck`` does."""

    SOUND = 0
    REPAIRED = 1
    DAMAGE_LEFT = 4
    OPERATIONAL_ERROR = 8
    USAGE = 16


class KdumpError(Exception):
    """An operational failure: one sentence with what, where, and what to do next.

    Attributes:
        exit_status: of a command that ends with it.
        trace: where in the code it happened, if nobody foresaw it; else empty.
    """

    exit_status = ExitStatus.OPERATIONAL_ERROR
    trace: str = ""


class UsageProblem(KdumpError):
    """The command was asked for something that cannot be: wrong words, not wrong data."""

    exit_status = ExitStatus.USAGE


class Terminated(KeyboardInterrupt):
    """A signal stopped the command.

    Attributes:
        signal_number: which.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number
