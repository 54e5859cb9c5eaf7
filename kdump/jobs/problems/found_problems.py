"""What jobs cannot read or find damaged, as values, and where it is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import methodcaller
from typing import TYPE_CHECKING, Protocol, Self

from msgspec import Struct

from kdump.errors import KdumpError, reason_of
from kdump.formats.errors import FormatError
from kdump.log.problems import FileProblem
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.log.valid_windows import Damage


class Problem(Struct, frozen=True):
    """Something that could not be read, or is damaged.

    Attributes:
        is_damage: whether the data is damaged; otherwise it could not be read.
    """

    path: str
    what: str
    is_damage: bool

    @classmethod
    def of_file(cls, problem: FileProblem) -> Self:
        """Describe the problem of a file."""
        error = problem.error
        if isinstance(error, OSError):
            path = error.filename or str(problem.path)
            return cls(path, reason_of(error), is_damage=False)
        return cls(str(problem.path), str(error), is_damage=True)


class ProblemReporter(Protocol):
    """Takes what cannot be read or is damaged; what is listed has null there."""

    def report(self, path: Location, problem: FormatError | OSError | str, /) -> None:
        """Report that ``path`` cannot be read (an OSError) or is damaged (anything else)."""

    def report_failure(self, failure: KdumpError, /) -> None:
        """Report why something cannot be read."""

    def report_damage(self, damage: Damage, /) -> None:
        """Report a damaged range of a log."""

    def report_problem(self, path: str, what: str, /, *, is_damage: bool) -> None:
        """Report what a job could not read, or found to be damaged."""


class HeldProblems:
    """A reporter that holds what it is given, until it is known where that belongs."""

    def __init__(self) -> None:
        # Calls of a method can be pickled, unlike functions made here: a worker may hold them.
        self._held: list[Callable[[ProblemReporter], None]] = []

    def report(self, path: Location, problem: FormatError | OSError | str, /) -> None:
        self._held.append(methodcaller("report", path, problem))

    def report_failure(self, failure: KdumpError, /) -> None:
        self._held.append(methodcaller("report_failure", failure))

    def report_damage(self, damage: Damage, /) -> None:
        self._held.append(methodcaller("report_damage", damage))

    def report_problem(self, path: str, what: str, /, *, is_damage: bool) -> None:
        self._held.append(methodcaller("report_problem", path, what, is_damage=is_damage))

    def release(self, reporter: ProblemReporter) -> None:
        """Report everything in order."""
        for each in self._held:
            each(reporter)


def report_all(problems: Iterable[Damage | Problem], reporter: ProblemReporter) -> None:
    """Report damage and problems in their order."""
    for each in problems:
        if isinstance(each, Problem):
            reporter.report_problem(each.path, each.what, is_damage=each.is_damage)
        else:
            reporter.report_damage(each)
