"""Show consumer groups, their offsets and lag."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from kdump.cli.options.config_options import ConfigArguments, config_options
from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.parameters import now_option, paths_argument
from kdump.cli.options.selection_options import nothing_selected, selection_options
from kdump.cli.output.rendering import OutputFormat, format_option
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus, UsageProblem
from kdump.phases import phase
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.formats.names import TopicPartition
    from kdump.jobs.groups.group_report import GroupsReport
    from kdump.log.directory import LogDirectory
    from kdump.log.selection import PartitionSelection
    from kdump.state.metadata.settings import Settings


class GroupsFormat(enum.Enum):
    """The output formats; the value is the word for ``--output``."""

    TEXT = "text"
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    RESET_CSV = "reset-csv"


@click.command("groups")
@paths_argument("LOG_DIR")
@click.option(
    "--group",
    "group_globs",
    metavar="GLOB",
    multiple=True,
    help="Only groups whose name matches GLOB (*, ?, [...]); may be repeated.",
)
@selection_options
@click.option("--members", is_flag=True, help="Show the members of groups and their assignments.")
@now_option("Report offsets as expired as of TIME")
@format_option(
    GroupsFormat,
    "output",
    "Output format: text (default) or table for people; json, jsonl or csv for programs, with "
    "raw numbers; reset-csv for kafka-consumer-groups --reset-offsets --from-file.",
)
@config_options
@engine_options
def command(
    paths: Sequence[Location],
    group_globs: tuple[str, ...],
    selection: PartitionSelection,
    members: bool,
    now_ms: int,
    output: GroupsFormat,
    config: ConfigArguments,
    engine: EngineOptions,
) -> ExitStatus:
    """Show consumer groups with their committed offsets and lag, from the disks of brokers.

    LOG_DIR is a log directory; name those of all brokers that are there. Groups of all types are
    read from __consumer_offsets and __share_group_state, as a group coordinator loads them, and lag
    is counted to the end of the logs. Nothing is written, and no broker is needed.
    """
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.shared.directories import without_garbage_collection
    from kdump.jobs.groups.build_report import report_groups
    from kdump.jobs.groups.group_report import GroupsRequest
    from kdump.jobs.problems.found_problems import report_all

    diagnostics = Diagnostics()
    with without_garbage_collection():
        directories = list(_directories(paths, selection, diagnostics))
        if not directories:
            return diagnostics.status
        settings = list(config.settings_of(directories).values())
        request = GroupsRequest(
            directories=directories,
            image=next((each.cluster for each in settings if each.cluster is not None), None),
            groups=group_globs,
            selection=selection,
            offsets_retention_ms=_retention_ms(settings),
        )
        with phase("reading the groups"):
            report = report_groups(request, engine)
        report_all(report.problems(), diagnostics)
        _require_found(report, request.groups, selection, directories)
        if output is GroupsFormat.RESET_CSV:
            from kdump.cli.output.reset_csv import write_reset_csv

            write_reset_csv(report)
        else:
            is_filtered = bool(group_globs) or not selection.is_everything
            _write(report, output, now_ms, paths, members=members, is_filtered=is_filtered)
    return diagnostics.status


def _write(
    report: GroupsReport,
    output: GroupsFormat,
    now_ms: int,
    paths: Sequence[Location],
    *,
    members: bool,
    is_filtered: bool,
) -> None:
    from kdump.cli.output.groups_summary import summary_lines
    from kdump.cli.output.sections import open_sections
    from kdump.jobs.groups.group_rows import GROUP, MEMBER, group_rows, summary_row
    from kdump.jobs.groups.offset_rows import OFFSET, SHARE_OFFSET

    output_format = OutputFormat(output.value)
    for_people = output_format.is_for_people
    with open_sections(output_format, (GROUP, MEMBER, OFFSET, SHARE_OFFSET)) as out:
        out.rows(group_rows(report, now_ms, with_members=members, for_people=for_people))
        out.summary(
            summary_row(report, now_ms),
            summary_lines(report, now_ms, paths, is_filtered=is_filtered),
        )


def _directories(
    paths: Sequence[Location], selection: PartitionSelection, diagnostics: Diagnostics
) -> Iterator[LogDirectory]:
    """Read the log directories: the coordinators' partitions and what groups may consume."""
    from kdump.cli.shared.directories import find_log_directories
    from kdump.jobs.groups.coordinator_logs import OFFSETS_TOPIC, SHARE_STATE_TOPIC
    from kdump.jobs.listing.partition_facts import listed_as_loaded

    def is_needed(name: str, key: TopicPartition) -> bool:
        return key.topic in (OFFSETS_TOPIC, SHARE_STATE_TOPIC) or selection.needs(name, key)

    for path, kind in find_log_directories(paths, diagnostics).items():
        found = listed_as_loaded(path, kind, diagnostics, is_needed)
        if found is not None:
            yield found


def _retention_ms(settings: Sequence[Settings]) -> int:
    from kdump.state.metadata.settings import DEFAULT_OFFSETS_RETENTION_MS

    known = (each.offsets_retention_ms for each in settings)
    return next((each for each in known if each is not None), DEFAULT_OFFSETS_RETENTION_MS)


def _require_found(
    report: GroupsReport,
    groups: Sequence[str],
    selection: PartitionSelection,
    directories: Sequence[LogDirectory],
) -> None:
    """Refuse names and globs that match nothing, unless what they match may be missing.

    Raises:
        UsageProblem: they match nothing.
    """
    import shlex

    topic = report.offsets_topic
    named = [each.path for each in directories]
    has_offsets = any(each.offsets or each.share_offsets for each in report.groups)
    if not has_offsets and selection.is_futile(
        partition for each in directories for partition in each.partitions
    ):
        raise nothing_selected(selection, named)
    where = shlex.join(map(str, named))
    if report.absent:
        raise UsageProblem(
            f"no group {', '.join(map(repr, report.absent))} in {where}: list the groups with"
            f" 'kdump groups {where}'"
        )
    if groups and not report.groups and not report.unknown and not topic.missing_count:
        raise UsageProblem(
            f"no group in {where} matches {' '.join(f'--group {each}' for each in groups)}: list"
            f" the groups with 'kdump groups {where}'"
        )
