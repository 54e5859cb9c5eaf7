"""What commands that remove the clean shutdown marker report of other logs that are damaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kdump.cli.output.brief import BriefList
from kdump.cli.output.events import Event, Printer
from kdump.rows.common_rows import directory_values
from kdump.rows.row_type import INT, INTEGER, TEXT, Field, RowType
from kdump.words import counted, shell_command

if TYPE_CHECKING:
    from kdump.cli.output.rendering import Row
    from kdump.jobs.loading.logs_at_risk import LogAtRisk

OTHER_LOG: Final = RowType(
    "other_log",
    "A log in use that is damaged, which a start with the clean shutdown marker does not look at.",
    (
        Field("log_dir", TEXT, "The log directory."),
        Field("directory", TEXT, "Name of the partition's directory in it."),
        Field("topic", TEXT),
        Field("partition", INT),
        Field("log_end_offset", INTEGER, "Where a start with the marker ends it."),
        Field(
            "next_start_end_offset",
            INTEGER.or_null,
            "Where the next start ends it; null if the broker does not start.",
        ),
        Field("next_start_why", TEXT, "A sentence about that."),
    ),
)


def report_at_risk(printer: Printer, others: Sequence[LogAtRisk], *, verbose: bool) -> None:
    """Print each log, for people only the first few."""
    brief = BriefList(verbose=verbose)
    for each in others:
        line = (
            f"{each.partition.path}: damaged, too: {each.why}, because the clean shutdown marker"
            " is removed"
        )
        printer.emit(Event("other_log", _row(each), brief.take([line])))
    printer.emit_text(brief.rest())


def at_risk_summary(others: Sequence[LogAtRisk], log_dirs: Sequence[object]) -> str:
    """Return how many would lose records, and which command says where."""
    return (
        f"{counted(len(others), 'other log')} in use would lose records, or keep the broker"
        f" from starting; '{shell_command('verify', log_dirs)}' says where they are damaged"
    )


def _row(each: LogAtRisk) -> Row:
    path = each.partition.path
    return {
        **directory_values(path.parent, path.name, each.partition.key),
        "log_end_offset": each.end_offset,
        "next_start_end_offset": each.truncated_to,
        "next_start_why": each.why,
    }
