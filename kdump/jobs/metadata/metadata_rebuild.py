"""Rebuild the metadata of a cluster that is on one machine: collect, plan, and what to apply.

Nothing is written here: the results have the target states of the directories.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kdump.apply.interrupted_runs import unfinished
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import UsageProblem
from kdump.formats.dynamic_voter import DynamicVoter
from kdump.formats.names import META_PROPERTIES
from kdump.jobs.collect.collect import CollectRequest, collect
from kdump.jobs.metadata.metadata_apply import AppliedPlan, apply_plan_to, image_of_plan
from kdump.log.directory import LogDirectory, directory_kind, read_log_directory
from kdump.phases import phase
from kdump.repair.cluster.cluster_rules import PlanRequest, plan_cluster
from kdump.state.metadata.cluster_plan import ClusterPlan
from kdump.storage.location import Location


class RebuildRequest(Struct, frozen=True):
    """What a cluster is rebuilt from, and where.

    Attributes:
        directories: of the brokers.
        into: the metadata directory of a controller.
        node_id: of the controller, if the directory is empty; None if there is only one.
        controllers: of the new quorum.
        settings: of ``--set``.
        is_loss_accepted: ``--accept-loss``.
        time_ms: take topics, configurations and the like as they were then; None for the end of the
            metadata.
    """

    directories: Sequence[LogDirectory]
    into: Location
    node_id: int | None
    controllers: Sequence[DynamicVoter]
    settings: Sequence[tuple[str, str]]
    is_loss_accepted: bool
    now_ms: int
    time_ms: int | None = None


def plan_rebuild(request: RebuildRequest, options: EngineOptions) -> ClusterPlan:
    """Collect what the disks know, and plan; only reads.

    Raises:
        UsageProblem: the plan cannot be made.
        KdumpError: the engine failed.
        OSError: a file cannot be read.
    """
    own = _own_directory(request)
    directories = [*request.directories]
    if own is not None and own.path not in {each.path for each in directories}:
        # Its records count, too: those of an earlier run, after which copies were moved aside.
        directories.append(own)
    collection = collect(
        CollectRequest(directories, request.now_ms, time_ms=request.time_ms), options
    )
    controllers = _with_own_directory_id(request, own)
    with phase("planning the metadata"):
        return plan_cluster(
            PlanRequest([collection], controllers, request.settings, request.is_loss_accepted)
        )


def directories_to_change(request: RebuildRequest, plan: ClusterPlan) -> list[Location]:
    """The controller's directory, and those of former controllers whose copies move aside."""
    names = {each.log_dir for each in plan.move_aside}
    others = [each.path for each in request.directories if str(each.path) in names]
    return [request.into, *(each for each in others if each != request.into)]


def rebuilt_directories(
    request: RebuildRequest, plan: ClusterPlan, paths: Sequence[Location]
) -> list[AppliedPlan]:
    """Compute what the directories become that :func:`directories_to_change` has returned.

    Raises:
        UsageProblem: the controller's directory is not of one of the plan's controllers.
        KdumpError: it has newer records.
        OSError: a file cannot be read.
    """
    image = image_of_plan(plan)
    return [
        apply_plan_to(path, plan, request.node_id if path == request.into else None, image)
        for path in paths
    ]


def interrupted_directories(paths: Iterable[Location]) -> list[Location]:
    """Those of some directories in which a run was interrupted; none is on other storage."""
    return [each for each in paths if each.is_directory() and unfinished(each.local_path)]


def _own_directory(request: RebuildRequest) -> LogDirectory | None:
    """The controller's directory, if it says which node it is of."""
    path = request.into
    with phase(f"reading {path}"):
        kind = directory_kind(path)
        if not kind.is_log_directory:
            return None
        directory = read_log_directory(path, kind)
    return None if directory.node_id is None else directory


def _with_own_directory_id(request: RebuildRequest, own: LogDirectory | None) -> list[DynamicVoter]:
    """The controllers; that of a formatted directory has its id, whether it was given or not."""
    properties = None if own is None else own.meta_properties
    if properties is None or properties.directory_id is None:
        return list(request.controllers)
    if properties.node_id not in {each.node_id for each in request.controllers}:
        raise UsageProblem(
            f"{request.into} is of node {properties.node_id} ({META_PROPERTIES}), which"
            " --controller does not name"
        )
    return [
        replace(each, directory_id=properties.directory_id)
        if each.node_id == properties.node_id and each.directory_id is None
        else each
        for each in request.controllers
    ]
