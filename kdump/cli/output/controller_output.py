"""What commands print that write a controller's metadata: quorum reset, metadata apply, rebuild."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kdump.cli.output.events import Event
from kdump.cli.output.metadata_output import committed_line
from kdump.cli.output.value_text import format_bytes
from kdump.cli.output.write_report import Operations, plan_lines, plan_row
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.cli.output.write_arguments import RepairArguments
    from kdump.jobs.metadata.metadata_apply import AppliedPlan
    from kdump.jobs.quorum.quorum_reset import QuorumReset, ResetRequest
    from kdump.jobs.writing.execution import PlanResult
    from kdump.repair.rebuild.controller_snapshot import ControllerSnapshot
    from kdump.state.metadata.cluster_plan import ClusterPlan
    from kdump.state.metadata.metadata_nodes import Voter
    from kdump.storage.location import Location


def snapshot_fields(snapshot: ControllerSnapshot, voters: Iterable[Voter]) -> dict[str, Any]:
    """Return the fields about a new snapshot."""
    return {
        "snapshot": str(snapshot.name),
        "end_offset": snapshot.name.end_offset,
        "epoch": snapshot.name.epoch,
        "records": snapshot.records,
        "snapshot_bytes": len(snapshot.data),
        "lost": [each.value for each in snapshot.losses],
        "voters": [voter.row() for voter in voters],
    }


_SNAPSHOT_FIELDS: Final = (
    *("snapshot", "end_offset", "epoch", "records", "snapshot_bytes", "lost", "voters"),
)


def snapshot_line(path: object, snapshot: ControllerSnapshot, *, is_written: bool) -> str:
    """Say which snapshot a directory gets."""
    name = snapshot.name
    return (
        f"{path}: {'has' if is_written else 'gets'} a snapshot of"
        f" {counted(snapshot.records, 'record')} ({format_bytes(len(snapshot.data))}), epoch"
        f" {name.epoch}, before offset {name.end_offset}"
    )


def voter_lines(
    kraft_version: int, voters: Sequence[Voter], addresses: Sequence[str]
) -> Iterator[str]:
    """Say who votes, where that is written, and what to do next.

    Args:
        kraft_version: 0 or 1.
        addresses: ID@HOST:PORT of each.
    """
    if kraft_version:
        nodes = ", ".join(str(voter.node_id) for voter in voters)
        yield f"{counted(len(voters), 'voter')} in the snapshot: {nodes}"
        servers = ",".join(each.partition("@")[2] for each in addresses)
        setting = f"controller.quorum.bootstrap.servers={servers}"
    else:
        yield "kraft.version is 0: the voters are in the configuration, not in the snapshot"
        setting = f"controller.quorum.voters={','.join(addresses)}"
    yield f"next: set {setting} on every controller and broker, and start the controllers first"
    majority = len(voters) // 2 + 1
    if not kraft_version and len(voters) > majority:
        yield (
            f"start at most {majority - 1} of the controllers with empty disks before there is a"
            f" leader: {majority} are a majority, and would elect a leader without any metadata"
        )


def applied_row(result: AppliedPlan, plan: ClusterPlan) -> dict[str, Any]:
    """Return the fields about a plan that was applied to a directory."""
    snapshot = result.snapshot
    written = None if snapshot is None else snapshot_fields(snapshot, result.voters)
    return {
        "node_id": result.node_id,
        "cluster_id": plan.cluster_id,
        "kraft_version": plan.kraft_version,
        "topics": len(plan.topics),
        "partitions": sum(len(topic.partitions) for topic in plan.topics),
        **(written or dict.fromkeys(_SNAPSHOT_FIELDS)),
        "moved_to": result.moved_to,
    }


def applied_lines(
    path: object, result: AppliedPlan, plan: ClusterPlan, *, is_written: bool
) -> Iterator[str]:
    """Yield what applying a plan does, for people."""
    if result.snapshot is None:
        if result.moved_to is not None:
            yield (
                f"{path}: the copy of the metadata of broker {result.node_id}"
                f" {'is' if is_written else 'gets'} moved aside as {result.moved_to}; with it the"
                " broker would elect itself"
            )
        return
    topics = counted(len(plan.topics), "topic")
    partitions = counted(sum(len(topic.partitions) for topic in plan.topics), "partition")
    yield f"{path}: controller {result.node_id} of cluster {plan.cluster_id}"
    yield f"{snapshot_line(path, result.snapshot, is_written=is_written)}: {topics}, {partitions}"
    for loss in result.snapshot.losses:
        yield f"lost: {loss.value}, which the metadata.version cannot hold"
    addresses = [controller.voter.address for controller in plan.controllers]
    yield from voter_lines(plan.kraft_version, result.voters, addresses)
    if plan.first_leaders:
        partitions = counted(len(plan.first_leaders), "partition")
        yield (
            f"{partitions} may elect an unclean leader: start the brokers in the order that"
            " first_leaders in the plan names"
        )


def applied_event(
    path: Location,
    plan: Location | None,
    result: AppliedPlan,
    cluster: ClusterPlan,
    done: PlanResult,
    repair: RepairArguments,
) -> Event:
    """Return what applying a plan to a directory did, or would do.

    Args:
        plan: the plan's file; None without one.
        result: the new state of the directory.
    """
    operations = Operations([done], verbose=repair.verbose)
    directories = [result.target.path, *result.changed_directories]
    row = {
        "log_dir": str(path),
        "plan": None if plan is None else str(plan),
        **applied_row(result, cluster),
        **plan_row(done),
        "is_dry_run": repair.dry_run,
        "operations": [row for each in directories for row in operations.rows(each)],
    }
    listed = [line for each in directories for line in operations.lines(each)]
    lines = [
        *applied_lines(path, result, cluster, is_written=done.is_applied or done.plan.is_empty),
        *(listed if repair.dry_run or repair.verbose else ()),
        *operations.counts(done),
        *plan_lines(done),
    ]
    return Event("apply", row, lines)


def reset_event(
    path: Location,
    request: ResetRequest,
    reset: QuorumReset,
    done: PlanResult,
    repair: RepairArguments,
) -> Event:
    """Return what a reset did to a directory, or would do.

    Args:
        reset: the new state of the directory.
    """
    operations = Operations([done], verbose=repair.verbose)
    directory = reset.target.partitions[0].path
    row = {
        "log_dir": str(path),
        "node_id": request.copy.node_id,
        "cluster_id": request.copy.cluster_id,
        **_reset_fields(reset),
        **plan_row(done),
        "is_dry_run": repair.dry_run,
        "operations": operations.rows(directory),
    }
    addresses = [voter.address for voter in request.voters]
    lines = [
        *_reset_lines(path, reset, addresses, is_written=done.is_applied or done.plan.is_empty),
        *(operations.lines(directory) if repair.dry_run or repair.verbose else ()),
        *operations.counts(done),
        *plan_lines(done),
    ]
    return Event("reset", row, lines)


def _reset_fields(reset: QuorumReset) -> Mapping[str, Any]:
    from kdump.state.metadata.metadata_image import EntityKind

    return {
        **snapshot_fields(reset.snapshot, reset.voters),
        "kraft_version": reset.kraft_version,
        "topics": len(reset.image.of(EntityKind.TOPIC)),
        "partitions": len(reset.image.of(EntityKind.PARTITION)),
        "old_end_offset": reset.image.end.offset,
        "old_epoch": reset.image.end.epoch,
        "committed_end_offset": reset.committed_end,
        "later_epoch": reset.later_epoch,
        "open_transaction_offset": reset.image.pending,
        "dropped_controllers": list(reset.dropped_controllers),
    }


def _reset_lines(
    path: object, reset: QuorumReset, addresses: Sequence[str], *, is_written: bool
) -> Iterator[str]:
    """Yield what a reset does, for people."""
    from kdump.state.metadata.metadata_image import EntityKind

    image = reset.image
    yield snapshot_line(path, reset.snapshot, is_written=is_written)
    topics = counted(len(image.of(EntityKind.TOPIC)), "topic")
    partitions = counted(len(image.of(EntityKind.PARTITION)), "partition")
    yield (
        f"it is the metadata before offset {image.end.offset} of epoch {image.end.epoch}: {topics},"
        f" {partitions}; {committed_line(reset.committed_end, image.end.offset)}"
    )
    if reset.later_epoch is not None:
        yield (
            f"the controller knew epoch {reset.later_epoch}: what was written in it, from offset"
            f" {image.end.offset} on, is missing; the disks of other controllers and brokers may"
            " have it: compare them with kdump quorum show"
        )
    if image.pending is not None:
        yield (
            f"the metadata transaction that began at offset {image.pending} is open: its records"
            f" are left out"
        )
    if reset.dropped_controllers:
        nodes = ", ".join(map(str, reset.dropped_controllers))
        yield f"left out are the registrations of controllers {nodes}, which are no voters now"
    for loss in reset.snapshot.losses:
        yield f"lost: {loss.value}, which the metadata.version cannot hold"
    yield from voter_lines(reset.kraft_version, reset.voters, addresses)
