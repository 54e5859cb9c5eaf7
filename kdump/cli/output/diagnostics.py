"""Report what is wrong with what was named, as lines on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kdump.cli.output.colour import failure_line
from kdump.cli.output.events import write_line
from kdump.errors import AS_WHOM, ExitStatus, KdumpError, reason_of
from kdump.formats.errors import FormatError
from kdump.formats.names import OF_FILE_SYSTEMS, is_accepted_name
from kdump.log import directory
from kdump.log.directory import LogDirectory
from kdump.storage.local_disk import LOCAL_DISK
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.log.valid_windows import Damage


class Diagnostics:
    """Report problems as lines on standard error, and collect the exit status.

    Attributes:
        lines: what was reported, without the name of the program.
    """

    def __init__(self) -> None:
        self.status = ExitStatus.SOUND
        self.lines: list[str] = []

    def report(self, path: Location, problem: FormatError | OSError | str) -> None:
        """Report that ``path`` cannot be read (an OSError) or is damaged (anything else)."""
        if isinstance(problem, OSError):
            what = reason_of(problem)
            if isinstance(problem, PermissionError) and path.storage == LOCAL_DISK:
                what += f"; {AS_WHOM}"
            self._report(problem.filename or path, what, ExitStatus.OPERATIONAL_ERROR)
        else:
            self._report(path, str(problem), ExitStatus.DAMAGE_LEFT)

    def report_damage(self, damage: Damage) -> None:
        """Report a damaged range of a log."""
        self._write(str(damage), ExitStatus.DAMAGE_LEFT)

    def report_problem(self, path: str, what: str, *, is_damage: bool) -> None:
        """Report what a job could not read, or found to be damaged."""
        status = ExitStatus.DAMAGE_LEFT if is_damage else ExitStatus.OPERATIONAL_ERROR
        self._report(path, what, status)

    def report_failure(self, failure: KdumpError) -> None:
        """Report why something cannot be read."""
        self._write(str(failure), failure.exit_status)

    def report_problems(self, found: LogDirectory) -> None:
        """Report the unreadable and malformed files of a log directory."""
        for problem in found.problems:
            self.report(problem.path, problem.error)

    def report_unreadable(self, found: LogDirectory) -> None:
        """Report the unreadable files of a log directory."""
        for problem in found.problems:
            if not problem.is_damage:
                self.report(problem.path, problem.error)

    def report_directory(self, found: LogDirectory) -> None:
        """Report the unreadable and malformed files, and the names that a broker refuses."""
        self.report_problems(found)
        for name in found.refused:
            what = f"not a partition name: a broker does not start with it; {_way_out(name)}"
            if is_accepted_name(name):
                what = "no partition can have this name; move the directory elsewhere"
            self.report(found.path / name, what)

    def report_operational(self, what: str) -> None:
        """Report what could not be read or written, in words that name it."""
        self._write(what, ExitStatus.OPERATIONAL_ERROR)

    def report_damaged(self, what: str) -> None:
        """Report what is damaged, in words that name it."""
        self._write(what, ExitStatus.DAMAGE_LEFT)

    def refuse(self, path: Location) -> None:
        """Report that ``path`` is not a log directory or a partition."""
        what = f"not a Kafka log directory or partition{directory.what_is_there_instead(path)}"
        self._report(path, what, ExitStatus.OPERATIONAL_ERROR)

    def _report(self, path: Location | str, what: str, status: ExitStatus) -> None:
        self._write(f"{path}: {what}", status)

    def _write(self, line: str, status: ExitStatus) -> None:
        self.status |= status
        self.lines.append(line)
        write_line(failure_line(f"kdump: {line}"), sys.stderr)


def _way_out(name: str) -> str:
    if name in OF_FILE_SYSTEMS:
        return (
            "it belongs to the file system: move everything else into a subdirectory,"
            " and name that in log.dirs"
        )
    return "move the directory elsewhere"
