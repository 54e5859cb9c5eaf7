"""Each command reports a directory that could not be changed once, in its own words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from kdump.apply.plan import TargetDirectory, make_plan
from kdump.cli.output import write_report
from kdump.cli.output.events import Event, EventFormat, Printer
from kdump.errors import KdumpError
from kdump.jobs.writing.execution import PlanResult


class Events(Printer):
    """A printer that keeps what is emitted."""

    def __init__(self) -> None:
        self.types: list[str] = []

    def emit(self, event: Event) -> None:
        self.types.append(event.type)

    def emit_text(self, lines: Iterable[str]) -> None:
        raise AssertionError(list(lines))


@pytest.fixture
def failed(tmp_path: Path) -> PlanResult:
    plan = make_plan(TargetDirectory(tmp_path, (), {}))
    return PlanResult(plan, is_applied=False, undo=None, failure=KdumpError("no space"))


def test_a_report_says_nothing_of_directories_by_itself(
    failed: PlanResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some commands have an event of their own about each directory, whatever became of it."""
    events = Events()
    monkeypatch.setattr(write_report, "open_printer", lambda _: contextlib.nullcontext(events))
    with write_report.open_report(EventFormat.JSONL, (), [failed]) as printer:
        printer.emit(Event("apply", {}))

    assert events.types == ["apply"]


def test_a_directory_that_could_not_be_changed_has_its_failure(failed: PlanResult) -> None:
    (event,) = write_report.failure_events([failed])
    assert event.row["failure"] == "no space"
    assert not event.lines
