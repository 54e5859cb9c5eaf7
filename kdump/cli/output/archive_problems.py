"""What was left out of the archives that a command read."""

from __future__ import annotations

import sys

from kdump.cli.output.events import write_line
from kdump.errors import ExitStatus
from kdump.storage.places import named_archives


def report_archives() -> ExitStatus:
    """Report the problems of all archives that were named; returns the exit status for them."""
    status = ExitStatus.SOUND
    for archive in named_archives():
        for problem in archive.problems:
            write_line(f"kdump: {archive.name}: {problem.what}", sys.stderr)
            if problem.is_failure:
                status |= ExitStatus.OPERATIONAL_ERROR
    return status
