"""Findings: what a check reports, with a code, a severity, a place and what would be lost."""

from __future__ import annotations

import enum

from msgspec import Struct


class Severity(enum.IntEnum):
    """How bad a finding is, by its consequences."""

    INFO = 0
    """Nothing to do."""
    WARNING = 1
    """A broker copes with it by itself, or it costs time."""
    ERROR = 2
    """Data or state is damaged."""
    SEVERE = 3
    """A broker would refuse to start, or lose valid data."""

    @property
    def label(self) -> str:
        """The word for it: ``info``, ``warning``, ``error`` or ``severe``."""
        return self.name.lower()

    @property
    def is_damage(self) -> bool:
        """Whether a command that found it exits with status 4."""
        return self >= Severity.ERROR


class Place(Struct, frozen=True):
    """Where something was found.

    Attributes:
        path: of the file or directory.
        position: byte of the file; None if it is about no certain byte.
        offset: Kafka offset; None if it is about no certain offset.
    """

    path: str
    position: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        text = self.path
        if self.position is not None:
            text += f" at byte {self.position}"
        if self.offset is not None:
            text += f"{',' if self.position is not None else ''} offset {self.offset}"
        return text


class Finding(Struct, frozen=True):
    """A violation of one invariant.

    Attributes:
        code: of the invariant, as in the manual; stable.
        severity: how bad it is.
        place: where it is.
        what: one sentence for people; programs decide by ``code``.
        expected: what would have been valid, if known.
        found: the actual value.
        loss: what would be lost, in words, if known.
        more: number of others like it that are not reported one by one; ``what`` says so.
    """

    code: str
    severity: Severity
    place: Place
    what: str
    expected: str | None = None
    found: str | None = None
    loss: str | None = None
    more: int = 0
