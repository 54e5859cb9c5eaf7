"""``kdump verify``: what is sound in log directories, what is damaged, what would be lost."""

from __future__ import annotations

import enum
import fnmatch
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdump.cli.config_options import ConfigArguments, config_options
from kdump.cli.engine_options import EngineArguments, engine_options
from kdump.cli.parameters import TIME
from kdump.cli.said import SaidForm, open_printer
from kdump.cli.verify_output import Form, VerifyPrinter, open_verify_printer
from kdump.errors import ExitStatus, UsageProblem

if TYPE_CHECKING:
    from kdump.check.findings import Finding
    from kdump.check.part import Level
    from kdump.cli.directories import Diagnostics
    from kdump.cli.progress import Display
    from kdump.log.directory import LogDirectory
    from kdump.pipeline.verify import Said, Target


class PolicyName(enum.Enum):
    """What becomes of bad data in repairs; the value is the word behind ``--policy``."""

    SALVAGE = "salvage"
    TRUNCATE = "truncate"


@click.command("verify")
@click.argument(
    "paths",
    metavar="PATH...",
    nargs=-1,
    required=True,
    type=click.Path(readable=False, path_type=Path),
)
@click.option("--quick", is_flag=True, help="Only headers of batches, and indexes.")
@click.option("--deep", is_flag=True, help="Decode every record, too.")
@click.option(
    "--topic",
    "globs",
    metavar="GLOB",
    multiple=True,
    help="Only partitions of topics that match (*, ?, [...]); more than one may be given.",
)
@click.option(
    "--now",
    "now_ms",
    type=TIME,
    metavar="TIME",
    help="What time it is: ISO 8601 or epoch milliseconds; later timestamps are in the future.",
)
@click.option("--verbose", "-v", is_flag=True, help="Show people what is only information, too.")
@click.option(
    "--output",
    "form",
    type=click.Choice(Form, case_sensitive=False),
    default=Form.TEXT,
    help="Form of the answer: text (the default) and table for people; json, jsonl and junit "
    "for programs.",
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
    globs: Sequence[str],
    now_ms: int | None,
    verbose: bool,
    form: Form,
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
    from kdump.cli.directories import Diagnostics, without_garbage_collection

    if quick and deep:
        raise UsageProblem("--quick and --deep cannot be had together")
    verification = Verification(
        paths=paths,
        globs=globs,
        level=Level.QUICK if quick else Level.DEEP if deep else Level.DEFAULT,
        now_ms=round(time.time() * 1000) if now_ms is None else now_ms,
        config=config,
        engine=engine,
    )
    if repair:
        from kdump.cli.verify_repair import verify_and_repair
        from kdump.pipeline.repairing import Writing
        from kdump.repair.policies import Policy

        if form not in (Form.TEXT, Form.JSON, Form.JSONL):
            raise UsageProblem(f"--output {form.value} cannot be had with --repair")
        policy = Policy.BROKER if policy_name is None else Policy(policy_name.value)
        writing = Writing("verify --repair", dry_run=dry_run, keep_undo=keep_undo is not False)
        with open_printer(SaidForm(form.value)) as said:
            return verify_and_repair(verification, said, policy, writing, verbose=verbose)
    if policy_name or dry_run or keep_undo is not None:
        raise UsageProblem("--policy, --dry-run, --undo and --no-undo are about --repair")
    diagnostics = Diagnostics()
    with without_garbage_collection(), open_verify_printer(form, verbose=verbose) as printer:
        return verification.run(printer, diagnostics) | diagnostics.status


@dataclass(frozen=True, slots=True)
class Verification:
    """What is to be verified, and how.

    Attributes:
        paths: as they were named.
        globs: of topics; without any, all.
        level: how far to go.
        now_ms: what time it is.
        config: what is said of configuration.
        engine: what does the work.
    """

    paths: Sequence[Path]
    globs: Sequence[str]
    level: Level
    now_ms: int
    config: ConfigArguments
    engine: EngineArguments

    def run(
        self,
        printer: VerifyPrinter,
        diagnostics: Diagnostics,
        take: Callable[[Finding], None] | None = None,
    ) -> ExitStatus:
        """Verify, and say what there is to say.

        Args:
            printer: says it.
            diagnostics: is told of paths that are nothing to be verified.
            take: is given each finding, too.
        """
        from kdump.cli.progress import open_progress
        from kdump.pipeline.verify import Request, verify

        targets, directories = _find(self.paths, self.globs, diagnostics)
        if self.globs and not targets:
            raise UsageProblem(
                f"no topic in {' '.join(map(str, self.paths))} matches {' '.join(self.globs)}: "
                "kdump ls lists them all"
            )
        if not targets and not directories:
            return ExitStatus.SOUND
        request = Request(
            targets=targets,
            # With --topic, partitions that were not asked for are not there to be missed.
            directories=[] if self.globs else directories,
            level=self.level,
            now_ms=self.now_ms,
            settings=self.config.settings(directories),
        )
        progress = open_progress(self.engine.progress)
        said = verify(request, self.engine.options, progress)
        return _print(said, printer, progress, take)


def _find(
    paths: Iterable[Path], globs: Sequence[str], diagnostics: Diagnostics
) -> tuple[list[Target], list[LogDirectory]]:
    """The partitions to verify, and the log directories."""
    from kdump.cli.directories import read_lone_partition
    from kdump.log.directory import directory_kind, read_log_directory
    from kdump.pipeline.verify import Target, segment_alone

    def is_wanted(topic: str) -> bool:
        return not globs or any(fnmatch.fnmatchcase(topic, glob) for glob in globs)

    targets: list[Target] = []
    directories: list[LogDirectory] = []
    for path in paths:
        try:
            if not path.is_dir():
                alone = segment_alone(path)
                if alone is None:
                    diagnostics.report(path, OSError("not the log of a segment, nor a directory"))
                else:
                    targets.append(alone)
                continue
            kind = directory_kind(path)
            if kind.is_log_directory:
                found = read_log_directory(path, kind, select=lambda _, tp: is_wanted(tp.topic))
                directories.append(found)
                targets.extend(Target(partition, found) for partition in found.partitions)
            elif kind.is_partition:
                lone = read_lone_partition(path)
                topic_partition = lone.partition.topic_partition
                if topic_partition is None or is_wanted(topic_partition.topic):
                    targets.append(Target(lone.partition, lone.log_directory))
            else:
                diagnostics.refuse(path)
        except OSError as failure:
            diagnostics.report(path, failure)
    return targets, directories


def _print(
    said: Iterator[Said],
    printer: VerifyPrinter,
    progress: Display,
    take: Callable[[Finding], None] | None,
) -> ExitStatus:
    from kdump.check.findings import Finding
    from kdump.pipeline.verify_partition import PartitionReport

    status = ExitStatus.SOUND
    for each in said:
        progress.hide()
        if isinstance(each, Finding):
            printer.finding(each)
            if take is not None:
                take(each)
        elif isinstance(each, PartitionReport):
            printer.partition(each)
        else:
            printer.summary(each)
            if each.is_damaged:
                status |= ExitStatus.DAMAGE_LEFT
            if each.is_unreadable:
                status |= ExitStatus.OPERATIONAL_ERROR
    return status
