"""Restore -stray and -delete directories as partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from kdump.cli.options.conflicts import require_at_most_one
from kdump.cli.options.parameters import (
    LocationParameter,
    NotParsedError,
    WordParameter,
    paths_argument,
)
from kdump.cli.options.repair_options import repair_options
from kdump.cli.options.selection_options import nothing_selected, selection_options
from kdump.cli.output.write_arguments import RepairArguments
from kdump.errors import ExitStatus, KdumpError, UsageProblem, reason_of
from kdump.formats.names import CLUSTER_METADATA_TOPIC
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.log.directory import LogDirectory
    from kdump.log.selection import PartitionSelection
    from kdump.state.metadata.cluster import ClusterImage
    from kdump.state.metadata.cluster_plan import ClusterPlan
    from kdump.state.metadata.settings import ClusterMetadata


class NameParameter(WordParameter[tuple[str, str]]):
    """The full name of a directory's topic: ``DIRECTORY=TOPIC``."""

    name = "name"

    def parse(self, text: str) -> tuple[str, str]:
        directory, sign, topic = text.rpartition("=")
        if not (sign and directory and topic):
            raise NotParsedError(f"{text!r} is not DIRECTORY=TOPIC")
        return directory.rstrip("/").rpartition("/")[2], topic


@click.command("undelete")
@paths_argument("LOG_DIR", written=True)
@selection_options
@click.option(
    "--metadata",
    metavar="DIR",
    type=LocationParameter(readable=False),
    help="Read the cluster's metadata, as it will be at the next start, from"
    " __cluster_metadata-0 in DIR (default: from the log directories themselves).",
)
@click.option(
    "--plan",
    "plan_file",
    metavar="FILE",
    type=LocationParameter(readable=False),
    help="Read the cluster's metadata, as it will be at the next start, from a plan of kdump"
    " metadata plan.",
)
@click.option(
    "--name",
    "given_names",
    metavar="DIRECTORY=TOPIC",
    type=NameParameter(),
    multiple=True,
    help="Use TOPIC as the topic of DIRECTORY, where its name was cut short; may be repeated.",
)
@repair_options
def command(
    paths: Sequence[Location],
    selection: PartitionSelection,
    metadata: Location | None,
    plan_file: Location | None,
    given_names: Sequence[tuple[str, str]],
    repair: RepairArguments,
) -> ExitStatus:
    """Restore -stray and -delete directories as partitions.

    LOG_DIR is a log directory. If the broker has several, name all of them.
    """
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.undelete_output import report_undelete
    from kdump.cli.shared.change_run import changing
    from kdump.cli.shared.directories import find_log_directories
    from kdump.jobs.undelete import UndeleteRequest, is_candidate, undelete
    from kdump.log.directory import read_log_directory
    from kdump.state.metadata.settings import read_cluster_metadata

    require_at_most_one({"--metadata": metadata is not None, "--plan": plan_file is not None})
    diagnostics = Diagnostics()
    plan = None if plan_file is None else _read_plan(plan_file)
    log_dirs = find_log_directories(paths, diagnostics)
    with changing("undelete", log_dirs, repair) as run:
        found = [
            read_log_directory(path, kind, select=is_candidate) for path, kind in log_dirs.items()
        ]
        for directory in found:
            diagnostics.report_directory(directory)
        given = None if metadata is None else read_cluster_metadata(metadata)
        request = UndeleteRequest(
            directories=found,
            clusters=_clusters(found, given, plan),
            topic_names=_topic_names(found, given, plan),
            selection=selection,
            given_names=dict(given_names),
        )
        _require_named(found, request.given_names)
        outcomes = undelete(request)
        if log_dirs and not any(each.candidates for each in outcomes):
            _require_selected(found, selection)
        run.apply(each.target for each in outcomes)
    with run.report() as printer:
        run.emit_failures(printer)
        status = report_undelete(
            printer, outcomes, run.changed(outcomes), run.operations(), metadata, repair
        )
    return diagnostics.status | run.status(status)


def _require_selected(directories: Sequence[LogDirectory], selection: PartitionSelection) -> None:
    """Refuse a selection that matches no partition at all, whatever its state."""
    keys = {key for directory in directories for key, _ in directory.identities}
    if not selection.is_everything and not any(selection.matches(str(key), key) for key in keys):
        raise nothing_selected(selection, [directory.path for directory in directories])


def _read_plan(path: Location) -> ClusterPlan:
    from kdump.formats.json_document import DocumentError
    from kdump.state.metadata.cluster_plan_json import decode_plan

    try:
        return decode_plan(path.read())
    except DocumentError as problem:
        raise KdumpError(f"--plan {path}: {problem}") from problem
    except OSError as failure:
        raise KdumpError(f"--plan {path}: {reason_of(failure)}") from failure


def _clusters(
    directories: Sequence[LogDirectory], given: ClusterMetadata | None, plan: ClusterPlan | None
) -> Mapping[Location, ClusterImage | None]:
    """The metadata that each broker will have, by path of the log directory."""
    from kdump.state.metadata.settings import read_settings
    from kdump.state.metadata.topic_names import topics_of_plan

    if plan is not None:
        for directory in directories:
            if directory.cluster_id not in (None, plan.cluster_id):
                raise UsageProblem(
                    f"--plan is for the cluster {plan.cluster_id}, but {directory.path} belongs to"
                    f" {directory.cluster_id}"
                )
        return dict.fromkeys((each.path for each in directories), topics_of_plan(plan))
    settings = read_settings(directories, metadata=given)
    return {path: each.cluster for path, each in settings.items()}


def _topic_names(
    directories: Iterable[LogDirectory], given: ClusterMetadata | None, plan: ClusterPlan | None
) -> dict[str, str]:
    """The names of topics by id, also of those that are deleted by now."""
    from kdump.state.metadata.topic_names import read_topic_names

    names = {} if plan is None else {each.topic_id: each.name for each in plan.topics}
    sources = [*directories]
    if given is not None:
        sources.append(given.directory)
    for directory in sources:
        for partition in directory.partitions:
            key = partition.topic_partition
            if key is not None and key.topic == CLUSTER_METADATA_TOPIC:
                names = read_topic_names(partition) | names
    return names


def _require_named(directories: Iterable[LogDirectory], given: Mapping[str, str]) -> None:
    """Refuse a name for a directory that is not there."""
    there = {partition.path.name for directory in directories for partition in directory.partitions}
    for name in given:
        if name not in there:
            raise UsageProblem(f"--name {name}: no log directory has a directory of this name")
