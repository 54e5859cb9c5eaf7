"""Check log directories for damage."""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdump.cli.options.config_options import ConfigArguments, config_options
from kdump.cli.options.engine_options import EngineArguments, engine_options
from kdump.cli.options.parameters import TIME, max_record_bytes_option, paths_argument
from kdump.cli.options.selection_options import selection_options
from kdump.cli.output.events import EventFormat, open_printer
from kdump.cli.output.rendering import format_option
from kdump.cli.output.verify_output import VerifyFormat, open_verify_printer
from kdump.cli.shared.verification import Verification
from kdump.errors import ExitStatus, UsageProblem

if TYPE_CHECKING:
    from kdump.log.selection import PartitionSelection


class PolicyName(enum.Enum):
    """What becomes of bad data in repairs; the value is the word behind ``--policy``."""

    SALVAGE = "salvage"
    TRUNCATE = "truncate"


@click.command("verify")
@paths_argument("PATH")
@click.option("--quick", is_flag=True, help="Only headers of batches, and indexes.")
@click.option("--deep", is_flag=True, help="Decode every record, too.")
@max_record_bytes_option
@selection_options
@click.option(
    "--now",
    "now_ms",
    type=TIME,
    metavar="TIME",
    help="What time it is: ISO 8601 or epoch milliseconds; later timestamps are in the future.",
)
@click.option(
    "--verbose", "-v", is_flag=True, help="Show every finding, those that are only information too."
)
@format_option(
    VerifyFormat,
    "output_format",
    "VerifyFormat of the answer: text (the default) and table for people; json, jsonl and junit "
    "for programs.",
)
@click.option(
    "--strict", is_flag=True, help="Exit with 4 where there is a warning, too (default: no)."
)
@click.option(
    "--repair",
    is_flag=True,
    help="Do the least that ends what was found, and then verify again.",
)
@click.option(
    "--policy",
    "policy_name",
    type=click.Choice(PolicyName, case_sensitive=False),
    help="With --repair, what becomes of bad data that a starting broker would not look at: "
    "salvage cuts out the damaged range, truncate ends the log there. Without, it is left.",
)
@click.option("--dry-run", is_flag=True, help="With --repair, only say what would be done.")
@click.option(
    "--undo/--no-undo",
    "keep_undo",
    default=None,
    help="With --repair, keep what it takes to undo this with kdump undo (the default), or do not.",
)
@config_options
@engine_options
def command(
    paths: Sequence[Path],
    quick: bool,
    deep: bool,
    max_record_bytes: int | None,
    selection: PartitionSelection,
    now_ms: int | None,
    verbose: bool,
    output_format: VerifyFormat,
    strict: bool,
    repair: bool,
    policy_name: PolicyName | None,
    dry_run: bool,
    keep_undo: bool | None,
    config: ConfigArguments,
    engine: EngineArguments,
) -> ExitStatus:
    """Check every byte of log directories, partitions or segments, and all that must agree.

    PATH is a log directory (name several for a broker that has several), the directory of one
    partition, or the log of a segment. Without --repair nothing is written.
    """
    from kdump.check.part import Level
    from kdump.cli.output.advice import AdvisingPrinter
    from kdump.cli.shared.directories import Diagnostics, without_garbage_collection

    if quick and deep:
        raise UsageProblem("--quick and --deep cannot be had together")
    verification = Verification(
        paths=paths,
        selection=selection,
        level=Level.QUICK if quick else Level.DEEP if deep else Level.DEFAULT,
        now_ms=round(time.time() * 1000) if now_ms is None else now_ms,
        config=config,
        engine=engine,
        is_strict=strict,
        largest_record_bytes=max_record_bytes,
    )
    if repair:
        from kdump.cli.shared.verify_repair import verify_and_repair
        from kdump.jobs.execution import Writing
        from kdump.repair.policies import Policy

        if output_format not in (VerifyFormat.TEXT, VerifyFormat.JSON, VerifyFormat.JSONL):
            raise UsageProblem(f"--output {output_format.value} cannot be had with --repair")
        policy = Policy.BROKER if policy_name is None else Policy(policy_name.value)
        writing = Writing("verify --repair", dry_run=dry_run, keep_undo=keep_undo is not False)
        with open_printer(EventFormat(output_format.value)) as out:
            return verify_and_repair(verification, out, policy, writing, verbose=verbose)
    if policy_name or dry_run or keep_undo is not None:
        raise UsageProblem("--policy, --dry-run, --undo and --no-undo are about --repair")
    diagnostics = Diagnostics()
    with without_garbage_collection(), open_verify_printer(output_format, verbose=verbose) as shown:
        printer = AdvisingPrinter(shown, paths, config.words)
        status = verification.run(printer, diagnostics) | diagnostics.status
        printer.emit_text(printer.advice())
        return status
