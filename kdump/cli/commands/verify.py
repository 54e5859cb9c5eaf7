"""Check log directories for damage."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from kdump.cli.options.config_options import ConfigArguments, config_options
from kdump.cli.options.conflicts import require_at_most_one, require_with
from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.parameters import max_record_bytes_option, now_option, paths_argument
from kdump.cli.options.remote_option import remote_option
from kdump.cli.options.repair_options import optional_repair_options, require_repair
from kdump.cli.options.scrub_options import ScrubArguments, scrub_options
from kdump.cli.options.selection_options import selection_options
from kdump.cli.output.events import EventFormat, open_printer
from kdump.cli.output.rendering import format_option
from kdump.cli.output.verify_output import VerifyFormat, open_verify_printer
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus, UsageProblem
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.cli.output.prometheus_output import MetricsPrinter
    from kdump.jobs.verify.check_history import CheckHistory
    from kdump.log.remote_files import RemotePlace
    from kdump.log.selection import PartitionSelection


class RepairPolicy(enum.Enum):
    """What a repair does with damaged data; the value is the word for ``--policy``."""

    SALVAGE = "salvage"
    TRUNCATE = "truncate"


@click.command("verify")
@paths_argument("PATH", written=lambda given: bool(given["repair"]))
@click.option("--quick", is_flag=True, help="Check only batch headers and indexes.")
@click.option("--deep", is_flag=True, help="Also decode every record.")
@max_record_bytes_option
@selection_options
@remote_option
@scrub_options
@now_option("Report timestamps after TIME as in the future")
@click.option(
    "--live",
    is_flag=True,
    help="Read the directories as a running broker changes them (default: if one is in use).",
)
@click.option("--stopped", is_flag=True, help="Report everything, even if a directory is in use.")
@click.option("--verbose", "-v", is_flag=True, help="Show every finding, including info.")
@format_option(
    VerifyFormat,
    "output_format",
    "Output format: text (default) or table for people; json, jsonl, junit or prometheus for"
    " programs.",
)
@click.option(
    "--out",
    "out_name",
    type=click.Path(),
    metavar="FILE",
    help="With --output prometheus, replace FILE, which all can read, and print text.",
)
@click.option(
    "--strict", is_flag=True, help="Also exit with status 4 on warnings (default: only on damage)."
)
@click.option(
    "--repair",
    is_flag=True,
    is_eager=True,
    help="Apply the minimal repair, then verify again.",
)
@click.option(
    "--policy",
    "policy_name",
    type=click.Choice(RepairPolicy, case_sensitive=False),
    help="With --repair, handle damaged data that a starting broker would not check: salvage "
    "quarantines the damaged range, truncate ends the log before it (default: leave it unchanged).",
)
@optional_repair_options
@config_options
@engine_options
def command(
    paths: Sequence[Location],
    quick: bool,
    deep: bool,
    largest_record_bytes: int,
    selection: PartitionSelection,
    remote: RemotePlace | None,
    scrub: ScrubArguments,
    now_ms: int,
    live: bool,
    stopped: bool,
    verbose: bool,
    output_format: VerifyFormat,
    out_name: str | None,
    strict: bool,
    repair: bool,
    policy_name: RepairPolicy | None,
    dry_run: bool,
    keep_undo: bool | None,
    config: ConfigArguments,
    engine: EngineOptions,
) -> ExitStatus:
    """Check every byte of log directories, partitions or segments, and that files agree.

    PATH is a log directory (if the broker has several, name all of them), the directory of one
    partition, or a segment's log. Nothing is written without --repair.
    """
    from kdump.check.part import Level
    from kdump.cli.output.advice import AdvisingPrinter
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.shared.directories import without_garbage_collection
    from kdump.cli.shared.verification import Verification
    from kdump.log.lock_holders import ReadAs

    require_at_most_one({"--quick": quick, "--deep": deep})
    require_at_most_one({"--remote": remote is not None, "--repair": repair})
    require_at_most_one({"--live": live, "--stopped": stopped})
    require_at_most_one({"--live": live, "--repair": repair})
    if (option := scrub.given()) is not None:
        for name, is_given in (("--remote", remote is not None), ("--repair", repair)):
            require_at_most_one({option: True, name: is_given})
    require_at_most_one({"--quick": quick, "--state": scrub.state is not None})
    engine = scrub.engine(engine)
    if output_format is not VerifyFormat.PROMETHEUS:
        require_with("--output prometheus", {"--out": out_name is not None})
    reading = ReadAs.LIVING if live else ReadAs.STOPPED if stopped else ReadAs.AS_FOUND
    verification = Verification(
        paths=paths,
        selection=selection,
        level=Level.QUICK if quick else Level.DEEP if deep else Level.DEFAULT,
        now_ms=now_ms,
        config=config,
        engine=engine,
        is_strict=strict,
        largest_record_bytes=largest_record_bytes,
        remote=remote,
        reading=ReadAs.STOPPED if repair else reading,
        bandwidth=scrub.bandwidth(paths),
    )
    if repair:
        from kdump.cli.shared.verify_repair import verify_and_repair
        from kdump.jobs.writing.execution import Writing
        from kdump.repair.policies import Policy

        if output_format not in (VerifyFormat.TEXT, VerifyFormat.JSON, VerifyFormat.JSONL):
            raise UsageProblem(
                f"--output {output_format.value} and --repair are mutually exclusive"
            )
        policy = Policy.BROKER if policy_name is None else Policy(policy_name.value)
        writing = Writing("verify --repair", dry_run=dry_run, keep_undo=keep_undo is not False)
        with open_printer(EventFormat(output_format.value)) as out:
            return verify_and_repair(verification, out, policy, writing, verbose=verbose)
    require_repair({"--policy": policy_name}, dry_run=dry_run, keep_undo=keep_undo)
    diagnostics = Diagnostics()
    metrics = None
    with contextlib.ExitStack() as opened:
        history = opened.enter_context(_kept_history(scrub, paths))
        opened.enter_context(without_garbage_collection())
        if output_format is VerifyFormat.PROMETHEUS:
            metrics = opened.enter_context(_metrics_printer(out_name, paths, now_ms, verbose))
        shown = metrics or opened.enter_context(open_verify_printer(output_format, verbose=verbose))
        verification = replace(verification, scrub=scrub.chosen(history))
        printer = AdvisingPrinter(shown, paths, config.words)
        status = verification.run(printer, diagnostics) | diagnostics.status
        printer.emit_text(printer.advice())
    if metrics is not None:
        metrics.write(status)
    return status


def _metrics_printer(
    out_name: str | None, paths: Sequence[Location], now_ms: int, verbose: bool
) -> contextlib.AbstractContextManager[MetricsPrinter]:
    # Imported here, because few runs write metrics.
    from kdump.cli.output.prometheus_output import open_metrics_printer

    return open_metrics_printer(out_name, paths, now_ms, verbose=verbose)


def _kept_history(
    scrub: ScrubArguments, paths: Sequence[Location]
) -> contextlib.AbstractContextManager[CheckHistory | None]:
    if scrub.state is None:
        return contextlib.nullcontext()
    # Imported here, because only a scrub keeps one.
    from kdump.cli.shared.check_history_file import kept_history

    return kept_history(scrub.state, paths)
