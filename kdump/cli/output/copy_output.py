"""What kdump copy has copied, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kdump.cli.output.brief import BriefFindings
from kdump.cli.output.events import Event, write_notice
from kdump.cli.output.other_nodes import ABSENT_BROKER, ABSENT_CONTROLLER
from kdump.cli.output.value_text import format_bytes
from kdump.cli.output.write_report import finding_events
from kdump.errors import ExitStatus
from kdump.jobs.verify.finding_row import FINDING
from kdump.rows.row_type import (
    COUNT,
    FLAG,
    INT,
    INTEGER,
    SIZE,
    TEXT,
    Field,
    JsonAnswer,
    RowType,
    map_of,
    one_of,
    values_of,
)
from kdump.storage.location import Location
from kdump.storage.places import cut_places
from kdump.words import counted, shell_command

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.jobs.copy.copy import CopyRequest, CopyResult

_DAMAGE = ("error", "severe")
_MAX_PROBLEMS = 20

PROBLEM: Final = RowType(
    "problem",
    "A file that changed, or that was not copied.",
    (
        Field(
            "kind",
            one_of("left out", "changed", "gone", "unreadable", "source incomplete"),
            "source incomplete: the source did not come whole, as a cut archive; left out: it is"
            " no regular file; changed, gone: since an earlier run, in the source; unreadable: it"
            " cannot be read or listed, or changed while it was copied.",
        ),
        Field(
            "path",
            TEXT.or_null,
            "The file: in the source if it was left out, in the copy if it changed or is gone;"
            " null if it is unreadable: what names it.",
        ),
        Field("what", TEXT, "What is wrong."),
    ),
)

COPIED_PARTITION: Final = RowType(
    "partition",
    "A partition whose files are all copied.",
    (
        Field("directory", TEXT, "The name of its directory."),
        Field("files", COUNT, "How many files it has in the source."),
        Field("size_bytes", SIZE, "Of all its files."),
        Field("topic", TEXT.or_null, "The topic; null if the name is not that of a partition."),
        Field("partition", INT.or_null, "Its number, likewise."),
        Field("segments", COUNT, "How many segments it has."),
        Field(
            "rebuilt_indexes",
            COUNT,
            "Of how many segments the indexes were rebuilt: parts of remote segments.",
        ),
        Field("batches", COUNT, "The number of valid batches."),
        Field(
            "records", INTEGER.or_null, "In them; null if a compressed message set was not decoded."
        ),
        Field("end_offset", COUNT, "One above its last offset."),
        Field("damaged_bytes", SIZE, "How many bytes are damaged, as in the source."),
        Field(
            "worst",
            one_of("info", "warning", "error", "severe").or_null,
            "The worst severity of its findings; null without findings.",
        ),
        Field("findings", map_of(INTEGER.limited(minimum=1)), "The number of findings by code."),
    ),
)

SUMMARY: Final = RowType(
    "summary",
    "Everything together.",
    (
        Field("source", TEXT, "The source, as typed."),
        Field("local_dir", TEXT, "The directory of the copy, as typed."),
        Field("is_complete", FLAG, "Whether the copy is complete."),
        Field(
            "is_source_complete",
            FLAG,
            "Whether the source came whole; if not, as a cut archive, more may be missing than is"
            " known.",
        ),
        Field("is_dry_run", FLAG, "Whether nothing was written."),
        Field("partitions", COUNT, "How many partitions the source has, as selected."),
        Field("damaged", COUNT, "How many of them are damaged."),
        Field("copied_files", COUNT, "How many files were copied by this run, or would be."),
        Field("copied_bytes", SIZE, "In them."),
        Field("kept_files", COUNT, "How many files earlier runs had copied."),
        Field("kept_bytes", SIZE, "In them."),
        Field("needed_bytes", SIZE, "How much space was needed for the files to copy."),
        Field("free_bytes", SIZE, "How much was free before."),
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "copy",
        (
            FINDING,
            PROBLEM,
            COPIED_PARTITION,
            SUMMARY,
            ABSENT_BROKER,
            ABSENT_CONTROLLER,
        ),
    ),
)


def report_begin(request: CopyRequest, result: CopyResult) -> None:
    """Say on standard error what is to be copied, and how much space there is."""
    what = f"{counted(result.copied_files, 'file')}, {format_bytes(result.copied_bytes)}"
    free = f"{format_bytes(result.free_bytes)} are free"
    write_notice(f"copying {what}, to {request.target}, where {free}")


class CopyReport:
    """The report of a run.

    Attributes:
        source: as typed.
    """

    def __init__(
        self, result: CopyResult, source: str, target: Location, *, is_dry_run: bool, verbose: bool
    ) -> None:
        self.result = result
        self.source = source
        self.target = target
        self.is_dry_run = is_dry_run
        self.is_verbose = verbose
        self._problems = [
            *((path, "left out", f"not copied: {why}") for path, why in result.left_out.items()),
            *((path, "changed", "changed since it was copied") for path in result.changed),
            *((path, "gone", "not in the source any more") for path in result.gone),
            *((None, "unreadable", why) for why in result.unreadable),
        ]

    @property
    def damaged(self) -> int:
        """How many partitions are damaged."""
        return sum(each["worst"] in _DAMAGE for each in self.result.reports)

    def report_problems(self, diagnostics: Diagnostics) -> None:
        """Report on standard error what is not as it should be, and set the exit status."""
        if self.result.left_out or self.result.unreadable or self.result.cut:
            diagnostics.status |= ExitStatus.OPERATIONAL_ERROR
        if self.damaged:
            diagnostics.status |= ExitStatus.DAMAGE_LEFT
        of_places = cut_places()  # each is reported by itself
        for what in self.result.cut:
            if what not in of_places:
                write_notice(what)
        shown = self._problems if self.is_verbose else self._problems[:_MAX_PROBLEMS]
        for path, _, what in shown:
            write_notice(f"{what if path is None else f'{path}: {what}'}")
        if more := len(self._problems) - len(shown):
            what = counted(more, "more problem")
            write_notice(f"… and {what} like these (--verbose shows all)")

    def events(self) -> Iterator[Event]:
        """Yield an event for each finding, problem and partition, and the summary."""
        brief = BriefFindings(verbose=self.is_verbose)
        yield from finding_events(self.result.findings, brief)
        rest = list(brief.rest())
        for what in self.result.cut:
            yield Event("problem", {"kind": "source incomplete", "path": None, "what": what})
        for path, kind, what in self._problems:
            yield Event("problem", {"kind": kind, "path": path, "what": what})
        for report in self.result.reports:
            line = f"{report['directory']}: {_size_of(report)}"
            yield Event("partition", report, [*rest, *([line] if self.is_verbose else [])])
            rest = []
        yield Event("summary", self._summary(), [*rest, *self._lines()])

    def _summary(self) -> dict[str, Any]:
        return values_of(
            SUMMARY.fields,
            self.result,
            source=self.source,
            local_dir=str(self.target),
            is_source_complete=not self.result.cut,
            is_dry_run=self.is_dry_run,
            damaged=self.damaged,
        )

    def _lines(self) -> Iterator[str]:
        result = self.result
        files = counted(result.copied_files, "file")
        what = f"{counted(result.partitions, 'partition')}, {files}"
        what += f", {format_bytes(result.copied_bytes)}"
        earlier = ""
        if result.kept_files:
            earlier = (
                f"; {counted(result.kept_files, 'file')}, {format_bytes(result.kept_bytes)}, were"
                " copied before"
            )
        if self.is_dry_run:
            yield (
                f"{self.target}: {what} to copy{earlier}; needs"
                f" {format_bytes(result.needed_bytes)}, {format_bytes(result.free_bytes)} are free;"
                " nothing was written"
            )
            return
        yield f"{self.target}: {what} copied{earlier}"
        if self.damaged:
            command = shell_command("recover --dry-run", [self.target])
            yield (
                f"{counted(self.damaged, 'partition')} damaged, and copied as in the source:"
                f" '{command}' shows what a broker would make of it"
            )
        elif result.is_complete:
            yield "no damage found in its partitions"
        if result.is_complete:
            yield f"{self.target}: complete"
        elif result.cut:
            yield (
                f"{self.target}: source incomplete: more may be missing than is known, and no"
                " broker starts with this copy: copy from a whole source, or remove .kdump_copy and"
                " .kdump-copy.jsonl to work with what there is"
            )
        else:
            yield (
                f"{self.target}: not complete, and no broker starts with it: run the same command"
                " again once everything can be read"
            )


def _size_of(report: dict[str, Any]) -> str:
    text = f"{counted(report['segments'], 'segment')}, {format_bytes(report['size_bytes'])}"
    if report["rebuilt_indexes"]:
        text += f", indexes of {counted(report['rebuilt_indexes'], 'segment')} rebuilt"
    return text
