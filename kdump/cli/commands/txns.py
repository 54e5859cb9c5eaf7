"""Show open transactions and what pins last stable offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.parameters import NumberParameter, now_option, paths_argument
from kdump.cli.options.selection_options import require_selected, selection_options
from kdump.cli.output.rendering import OutputFormat, output_option
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.cli.output.sections import SectionedOutput
    from kdump.jobs.transactions.shown_transactions import ShownTransactions
    from kdump.log.selection import PartitionSelection

_MINUTE_MS = 60_000
_MOST_MINUTES = 2**31 - 1


@click.command("txns")
@paths_argument("LOG_DIR")
@selection_options
@click.option("--hanging", is_flag=True, help="Only transactions that no coordinator will end.")
@click.option(
    "--transactional-id",
    "id_globs",
    metavar="GLOB",
    multiple=True,
    help="Only transactional ids that match GLOB; may be repeated.",
)
@click.option(
    "--max-transaction-timeout",
    "max_timeout_minutes",
    type=NumberParameter(most=_MOST_MINUTES),
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="Report a transaction as hanging only if its producer wrote nothing for longer than this.",
)
@now_option("Evaluate timeouts as of TIME")
@output_option
@engine_options
def command(
    paths: Sequence[Location],
    selection: PartitionSelection,
    hanging: bool,
    id_globs: tuple[str, ...],
    max_timeout_minutes: int,
    now_ms: int,
    output: OutputFormat,
    engine: EngineOptions,
) -> ExitStatus:
    """Show open and hanging transactions, and what pins the last stable offset.

    LOG_DIR is a log directory. To judge whether a transaction hangs, name those of all brokers:
    its coordinator's partition of __transaction_state may be on any of them. Nothing is written.
    """
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.sections import open_sections
    from kdump.cli.output.txns_summary import summary_lines
    from kdump.cli.shared.directories import find_log_directories, without_garbage_collection
    from kdump.jobs.problems.found_problems import report_all
    from kdump.jobs.transactions.open_transactions import TxnsRequest, is_needed, txns
    from kdump.jobs.transactions.shown_transactions import ShownTransactions
    from kdump.jobs.transactions.stable_offset_rows import STABLE_OFFSET, summary_row
    from kdump.jobs.transactions.transaction_rows import OPEN_TRANSACTION, TRANSACTION
    from kdump.log.directory import read_log_directory

    diagnostics = Diagnostics()
    log_dirs = find_log_directories(paths, diagnostics)
    if not log_dirs:
        return diagnostics.status
    with without_garbage_collection():
        directories = [
            read_log_directory(path, kind, select=lambda name, key: is_needed(selection, name, key))
            for path, kind in log_dirs.items()
        ]
        for directory in directories:
            diagnostics.report_problems(directory)
        require_selected(selection, directories)
        request = TxnsRequest(directories, selection, now_ms, max_timeout_minutes * _MINUTE_MS)
        report = txns(request, engine)
    report_all((*report.damages, *report.problems), diagnostics)
    shown = ShownTransactions(
        report,
        selection,
        id_globs,
        only_hanging=hanging,
        is_for_people=output.is_for_people,
    )
    with open_sections(output, (TRANSACTION, OPEN_TRANSACTION, STABLE_OFFSET)) as out:
        _write(shown, out)
        out.summary(summary_row(shown), summary_lines(shown, now_ms))
    return diagnostics.status


def _write(shown: ShownTransactions, out: SectionedOutput) -> None:
    from kdump.jobs.listing.certain_end import with_marked_end
    from kdump.jobs.transactions.stable_offset_rows import stable_offset_row
    from kdump.jobs.transactions.transaction_rows import open_transaction_row, transaction_row

    if not shown.only_hanging:
        for number, transaction in shown.transactions():
            out.row(transaction_row(shown, number, transaction))
    for partition, each in shown.open_transactions():
        if each.judgement.is_hanging or not shown.only_hanging:
            out.row(open_transaction_row(partition, each))
    if not shown.only_hanging:
        rows = map(stable_offset_row, shown.listed_partitions())
        out.rows(map(with_marked_end, rows) if shown.is_for_people else rows)
