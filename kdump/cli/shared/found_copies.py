"""Finding the copies of a cluster's metadata named on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kdump.cli.output.events import write_notice
from kdump.errors import ExitStatus, UsageProblem
from kdump.formats.names import CLUSTER_METADATA_TOPIC
from kdump.log.selection import only_metadata
from kdump.phases import phase
from kdump.storage.location import Location, each_once

if TYPE_CHECKING:
    from kdump.jobs.metadata.metadata_copies import MetadataCopy
    from kdump.log.directory import LogDirectory

_MOST_PROBLEMS: Final = 20


class CopyProblems:
    """Report damage as lines on standard error, each once, and collect the exit status."""

    def __init__(self) -> None:
        from kdump.cli.output.diagnostics import Diagnostics

        self.diagnostics = Diagnostics()
        self._reported: set[str] = set()

    @property
    def status(self) -> ExitStatus:
        return self.diagnostics.status

    @status.setter
    def status(self, status: ExitStatus) -> None:
        self.diagnostics.status = status

    def report(self, what: str) -> None:
        """Report a sentence about damage."""
        self.status |= ExitStatus.DAMAGE_LEFT
        if what in self._reported:
            return
        self._reported.add(what)
        if len(self._reported) < _MOST_PROBLEMS:
            write_notice(what)
        elif len(self._reported) == _MOST_PROBLEMS:
            write_notice("there are more problems, which are not listed")


def find_copies(paths: Sequence[Location], problems: CopyProblems) -> list[MetadataCopy]:
    """Return the copies of the metadata in log directories, the most advanced one first.

    There are none if no path can be read, which is reported.

    Raises:
        UsageProblem: the log directories have none, or they belong to several clusters.
    """
    from kdump.jobs.metadata.metadata_copies import read_copies
    from kdump.log.broker import require_one_cluster

    with phase("looking at what is named"):
        paths = each_once(paths)
    directories = [found for path in paths if (found := _directory(path, problems)) is not None]
    copies = []
    for directory in directories:
        try:
            copies += read_copies([directory])
        except OSError as failure:
            problems.diagnostics.report(directory.path, failure)
    copies.sort(key=lambda copy: copy.end, reverse=True)
    for copy in copies:
        for problem in copy.problems:
            problems.report(problem)
    if not copies and not problems.status & ExitStatus.OPERATIONAL_ERROR:
        named = " ".join(map(str, paths))
        raise UsageProblem(
            f"no {CLUSTER_METADATA_TOPIC}-0 in {named}: name a log directory of a"
            f" controller or a broker, or the directory in its metadata.log.dir"
        )
    require_one_cluster((each.log_dir, each.cluster_id) for each in copies)
    return copies


def _directory(path: Location, problems: CopyProblems) -> LogDirectory | None:
    """Read the log directory at a path, or around the partition there; None after a report."""
    from kdump.jobs.listing.partition_facts import read_with_surroundings
    from kdump.log.directory import directory_kind, read_log_directory

    diagnostics = problems.diagnostics
    try:
        with phase(f"listing {path}"):
            kind = directory_kind(path)
            if kind.is_partition:
                lone = read_with_surroundings(path)
                if not lone.partition.is_cluster_metadata:
                    raise UsageProblem(
                        f"{path} is another partition: name the log directory with"
                        f" {CLUSTER_METADATA_TOPIC}-0"
                    )
                return lone.log_directory
            if not kind.is_log_directory:
                diagnostics.refuse(path)
                return None
            found = read_log_directory(path, kind, select=only_metadata)
    except OSError as failure:
        diagnostics.report(path, failure)
        return None
    diagnostics.report_problems(found)
    return found
