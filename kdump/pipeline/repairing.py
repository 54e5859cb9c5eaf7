"""The frame of every command that writes: the locks, what was interrupted, a plan, its execution.

A command computes what its directories should be inside of :func:`for_writing`, and hands that to
:func:`plan_all` and :func:`carry_out`. With ``dry_run`` nothing is made, not even the lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kdump.apply.apply import apply_plan
from kdump.apply.lock import drop_leftover, hold_locks, keep_leftover
from kdump.apply.plan import Plan, WantedDirectory, make_plan
from kdump.apply.undo import Restored, finish_interrupted, unfinished


@dataclass(frozen=True, slots=True)
class Writing:
    """How a command is to write.

    Attributes:
        command: its name, for whoever lists what can be undone.
        dry_run: whether it is only to say what it would do.
        keep_undo: whether that can be undone afterwards.
    """

    command: str
    dry_run: bool = False
    keep_undo: bool = True


@dataclass(frozen=True, slots=True)
class Interrupted:
    """An earlier run that was stopped before its end.

    Attributes:
        log_dir: where.
        command: what was run.
        is_finished: whether it is finished now; a dry run leaves it.
        files: which files that changes; only a dry run says it.
    """

    log_dir: Path
    command: str
    is_finished: bool
    files: tuple[Restored, ...] = ()


@contextlib.contextmanager
def for_writing(log_dirs: Sequence[Path], writing: Writing) -> Iterator[list[Interrupted]]:
    """Hold the locks of ``log_dirs``; what an earlier run was stopped at is finished first.

    Look the directories over inside, not before. Gives what was interrupted.

    Raises:
        LockedError: a broker, or another kdump, works on one of them.
        KdumpError: what was interrupted cannot be finished.
        OSError: the disk does not let us.
    """
    if writing.dry_run:
        yield [
            Interrupted(log_dir, each.run.command, is_finished=False, files=each.files)
            for log_dir in log_dirs
            for each in unfinished(log_dir)
        ]
        return
    with hold_locks(log_dirs):
        for log_dir in log_dirs:
            keep_leftover(log_dir)
        finished = [(log_dir, finish_interrupted(log_dir)) for log_dir in log_dirs]
        yield [
            Interrupted(log_dir, each.command, is_finished=True)
            for log_dir, each in finished
            if each is not None
        ]


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a plan.

    Attributes:
        plan: which.
        is_applied: whether it was carried out; a dry run does not, and an empty one needs not be.
        undo: by which it can be taken back; None where that is not possible.
    """

    plan: Plan
    is_applied: bool
    undo: str | None


def carry_out(wanted: Sequence[WantedDirectory], writing: Writing) -> list[Done]:
    """Let directories become what is wanted, unless the run is a dry one.

    All plans are made before the first is carried out.

    Raises:
        KdumpError: one of them cannot be carried out; says what to do.
        OSError: the disk does not let us.
    """
    plans = [make_plan(each) for each in wanted]
    return [_carried_out(plan, writing) for plan in plans]


def _carried_out(plan: Plan, writing: Writing) -> Done:
    if writing.dry_run or plan.is_empty:
        return Done(plan, is_applied=False, undo=None)
    undo = apply_plan(plan, keep_undo=writing.keep_undo, command=writing.command)
    drop_leftover(plan.path)
    return Done(plan, is_applied=True, undo=undo)
