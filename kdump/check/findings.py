"""What a check says: a finding has a code, a severity, a place and what would be lost."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(enum.IntEnum):
    """How bad a finding is, by what follows from it."""

    INFO = 0
    """Nothing to do."""
    WARNING = 1
    """A broker copes with it by itself, or it costs time."""
    ERROR = 2
    """Data or state is damaged."""
    SEVERE = 3
    """A broker would refuse to start, or lose data that is sound."""

    @property
    def label(self) -> str:
        """As it is shown: ``info``, ``warning``, ``error`` or ``severe``."""
        return self.name.lower()

    @property
    def is_damage(self) -> bool:
        """Whether a command that found it ends as one that found damage."""
        return self >= Severity.ERROR


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was found.

    Attributes:
        path: of the file or directory.
        position: byte of the file, where there is one to point at.
        offset: Kafka offset, where there is one to point at.
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


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken invariant.

    Attributes:
        code: which, as in the manual: lower-case words with dashes, stable.
        severity: how bad.
        place: where.
        what: one sentence.
        expected: what would have been right, where that can be said.
        found: what is there instead.
        loss: what would be lost, in words, where that is known.
        more: how many others like it are not told one by one; ``what`` says so.
    """

    code: str
    severity: Severity
    place: Place
    what: str
    expected: str | None = None
    found: str | None = None
    loss: str | None = None
    more: int = 0
