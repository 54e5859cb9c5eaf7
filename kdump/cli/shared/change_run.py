"""How every command changes log directories: lock, read, plan, apply, report, exit status.

A command adds what differs: what it asks of its job, and the rows of what it did. ::

    with changing("recover", log_dirs, repair) as run:
        results = ...  # of its job, from the directories as they are read here
        run.apply(result.target for result in results)
    with run.report() as printer:
        for result, done in run.changed(results):
            ...
    return run.status(status)

Apart from compaction, which writes while its jobs run, and from repairs in several rounds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from kdump.apply.plan import TargetDirectory
from kdump.cli.output.events import Printer
from kdump.cli.output.write_arguments import RepairArguments
from kdump.cli.output.write_report import (
    Operations,
    failure_events,
    open_report,
    outcome_notes,
    planned_event,
    preview_status,
    report_failures,
)
from kdump.cli.shared.directories import without_garbage_collection
from kdump.errors import ExitStatus
from kdump.jobs.writing.execution import (
    Interrupted,
    PlanResult,
    Writing,
    locked_for_writing,
    plan_and_apply,
    preview,
)
from kdump.storage.location import Location

Result = TypeVar("Result")


class ChangeRun:
    """One run of a command that changes log directories.

    Attributes:
        done: what came of the plan of each directory, in order, after :meth:`apply`.
    """

    def __init__(
        self, arguments: RepairArguments, writing: Writing, interrupted: Sequence[Interrupted]
    ) -> None:
        self.writing = writing
        self.done: Sequence[PlanResult] = ()
        self._arguments = arguments
        self._interrupted = interrupted

    @property
    def interrupted(self) -> Sequence[Interrupted]:
        """The earlier runs that were interrupted."""
        return self._interrupted

    def apply(self, targets: Iterable[TargetDirectory]) -> None:
        """Change the directories, or preview that.

        Raises:
            KdumpError: a plan cannot be made, or none can be applied; says what to do.
            OSError: the disk fails.
        """
        self.done = plan_and_apply(list(targets), self.writing)

    def preview(self, targets: Iterable[TargetDirectory]) -> None:
        """Plan the changes for a dry run; a plan that cannot be made is a failure of its directory.

        Raises:
            OSError: the disk fails.
        """
        self.done = preview(list(targets), self.writing)

    def changed(self, results: Iterable[Result]) -> list[tuple[Result, PlanResult]]:
        """The results with their plans, without the directories that could not be changed.

        Args:
            results: as many as there were targets, in the same order.
        """
        both = zip(results, self.done, strict=True)
        return [(result, done) for result, done in both if done.failure is None]

    def operations(self, *, verbose: bool | None = None) -> Operations:
        """The operations of all plans; listed with ``--verbose`` unless ``verbose`` says."""
        listed = self._arguments.verbose if verbose is None else verbose
        with outcome_notes(self.done):
            return Operations(self.done, verbose=listed)

    @contextlib.contextmanager
    def report(self) -> Iterator[Printer]:
        """Open the report, which begins with earlier runs that were interrupted."""
        done, output_format = self.done, self._arguments.output_format
        with open_report(output_format, self._interrupted, done) as printer:
            yield printer

    def emit_failures(self, printer: Printer) -> None:
        """Tell programs which directories could not be changed; :meth:`status` tells people."""
        printer.emit_all(failure_events(self.done))

    def emit_plans(self, printer: Printer, operations: Operations) -> ExitStatus:
        """Report the changes to each directory one by one; returns whether there are any."""
        self.emit_failures(printer)
        status = ExitStatus.SOUND
        for done in self.done:
            if done.failure is None:
                printer.emit(planned_event(done, operations))
                status |= ExitStatus.SOUND if done.plan.is_empty else ExitStatus.REPAIRED
        return status

    def status(self, status: ExitStatus) -> ExitStatus:
        """Return the exit status, and say which directories could not be changed.

        Args:
            status: of everything else.
        """
        status |= report_failures(self.done)
        return preview_status(status) if self.writing.dry_run else status


@contextlib.contextmanager
def changing(
    command: str,
    log_dirs: Iterable[Location],
    arguments: RepairArguments,
    *,
    overwrites: bool = False,
) -> Iterator[ChangeRun]:
    """Lock log directories and finish interrupted runs; read the directories inside.

    Args:
        command: its name, which the list of undo data shows.
        log_dirs: all directories that may change.
        overwrites: whether to overwrite what is replaced, where no undo data is kept.

    Raises:
        NotLocalError: a directory is not on a local disk.
        LockedError: a broker or another kdump works on a directory.
        KdumpError: an interrupted run cannot be finished.
        OSError: the disk fails.
    """
    writing = arguments.writing(command, overwrites=overwrites)
    with locked_for_writing(log_dirs, writing) as interrupted, without_garbage_collection():
        yield ChangeRun(arguments, writing, interrupted)
