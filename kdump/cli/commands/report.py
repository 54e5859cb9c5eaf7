"""Write a page with pictures about log directories."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from kdump.cli.options.config_options import ConfigArguments, config_options
from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.out_option import out_option
from kdump.cli.options.parameters import now_option, paths_argument
from kdump.cli.options.selection_options import selection_options
from kdump.cli.output.events import write_line
from kdump.cli.output.out_file import OutFile
from kdump.cli.output.selection_words import selection_words
from kdump.cli.output.value_text import format_bytes
from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.errors import ExitStatus, KdumpError
from kdump.phases import phase
from kdump.storage.location import Location, each_once

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.report.redaction import Redaction
    from kdump.cli.output.report.report_page import ReportContent
    from kdump.cli.shared.verification import Listed, Verification
    from kdump.jobs.problems.found_problems import Problem
    from kdump.log.selection import PartitionSelection


@click.command("report")
@paths_argument("DIR")
@out_option("Write the page")
@click.option("--deep", is_flag=True, help="Also decode every record.")
@click.option(
    "--redact",
    is_flag=True,
    help="Leave out paths and transactional ids, which may name hosts.",
)
@selection_options
@now_option("Report as of TIME")
@config_options
@engine_options
def command(
    paths: Sequence[Location],
    out: OutFile,
    deep: bool,
    redact: bool,
    selection: PartitionSelection,
    now_ms: int,
    config: ConfigArguments,
    engine: EngineOptions,
) -> ExitStatus:
    """Write one page about log directories: verdict, findings with what to do, and pictures.

    DIR is a log directory; if the broker has several, name all of them. The page is one HTML file
    that needs no network. All data is read once, as by kdump verify.
    """
    from kdump.check.part import Level
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.report.report_page import render_report
    from kdump.cli.shared.directories import without_garbage_collection
    from kdump.cli.shared.verification import Verification
    from kdump.jobs.groups.coordinator_logs import OFFSETS_TOPIC, SHARE_STATE_TOPIC
    from kdump.log.lock_holders import ReadAs
    from kdump.state.transactions.transaction_coordinator import TRANSACTION_STATE_TOPIC

    with phase("looking at what is named"):
        paths = each_once(paths)
    verification = Verification(
        paths=paths,
        selection=selection,
        level=Level.DEEP if deep else Level.DEFAULT,
        now_ms=now_ms,
        config=config,
        engine=engine,
        with_statistics=True,
        reading=ReadAs.AS_FOUND,
        also_listed=frozenset({OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC}),
    )
    diagnostics = Diagnostics()
    with without_garbage_collection():
        listed = verification.listed(diagnostics)
        if listed is None:
            return diagnostics.status
        content, status = _content(verification, listed, diagnostics)
        with phase("making the page"):
            redaction = _redaction(content, config, is_redacted=redact)
            page = render_report(content, redaction)
        with phase(f"writing {out.name}"):
            size_bytes = out.write([page])
    _summarize(content, out.name, size_bytes)
    return status | diagnostics.status


def _content(
    verification: Verification, listed: Listed, diagnostics: Diagnostics
) -> tuple[ReportContent, ExitStatus]:
    """Read everything."""
    from kdump.cli.output.advice import AdvisingPrinter
    from kdump.cli.output.report.report_page import ReportContent
    from kdump.jobs.report.collected import CollectedResults

    config, paths = verification.config, verification.paths
    results = CollectedResults()
    printer = AdvisingPrinter(results, paths, config.words)
    status = verification.verified(listed.request, printer)
    content = ReportContent(
        paths=[str(each) for each in paths],
        directories=listed.directories,
        results=results,
        advice=list(printer.advice()),
        lag=None,
        unstable=(),
        space=None,
        notes=(),
        now_ms=verification.now_ms,
        selection=shlex.join(selection_words(verification.selection)),
    )
    return _with_surroundings(content, verification, listed, diagnostics), status


def _with_surroundings(
    content: ReportContent, verification: Verification, listed: Listed, diagnostics: Diagnostics
) -> ReportContent:
    """Add what small files and the brokers' own topics say; what cannot be read is reported.

    Whatever was reported is noted on the page, too.

    This reads little, so it is never a job for Spark.
    """
    from kdump.jobs.listing.partition_facts import with_partitions_as_loaded
    from kdump.jobs.report.consumer_lag import consumer_lag
    from kdump.jobs.report.freeable_space import freeable_space
    from kdump.jobs.report.open_transactions_found import unstable_partitions

    settings, selection = listed.request.settings, verification.selection
    engine = verification.engine
    options = msgspec.structs.replace(engine, choice=EngineChoice.LOCAL, master=None)
    if not selection.is_everything:
        # Otherwise the verification finds them.
        for directory in listed.directories:
            diagnostics.report_unreadable(directory)
    loaded = [with_partitions_as_loaded(each, diagnostics) for each in listed.directories]
    problems: list[Problem] = []
    try:
        with phase("reading the groups"):
            lag = consumer_lag(loaded, list(settings.values()), selection, options)
        content = msgspec.structs.replace(content, lag=lag)
        problems += lag.problems
    except (KdumpError, OSError) as failure:
        diagnostics.report_failure(KdumpError(f"consumer groups cannot be read: {failure}"))
    try:
        unstable, of_transactions = unstable_partitions(
            content.results.reports, loaded, content.now_ms, options
        )
        content = msgspec.structs.replace(content, unstable=unstable)
        problems += of_transactions
    except (KdumpError, OSError) as failure:
        diagnostics.report_failure(KdumpError(f"transactions cannot be read: {failure}"))
    for each in dict.fromkeys(problems):
        diagnostics.report_problem(each.path, each.what, is_damage=each.is_damage)
    space = freeable_space(listed.directories, settings, selection, content.now_ms, options)
    return msgspec.structs.replace(content, space=space, notes=tuple(diagnostics.lines))


def _redaction(content: ReportContent, config: ConfigArguments, *, is_redacted: bool) -> Redaction:
    from kdump.cli.output.report.redaction import redaction

    found = [str(each.path) for each in content.directories]
    parents = [report.log_dir for report in content.results.reports]
    return redaction(
        is_redacted=is_redacted,
        log_dirs=dict.fromkeys([*found, *content.paths, *parents]),
        files=[word.partition("=")[2] for word in config.words if not word.startswith("--config")],
    )


def _summarize(content: ReportContent, name: str, size_bytes: int) -> None:
    """Print the verdict, and where the page is."""
    from kdump.cli.output.report.report_verdict import report_verdict

    write_line(report_verdict(content.results, content.directories).sentence)
    write_line(f"{name}: {format_bytes(size_bytes)}; open it in a browser")
