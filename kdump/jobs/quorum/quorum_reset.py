"""Give a controller's metadata new voters: the target state for ``kdump quorum reset``.

The metadata of the best surviving controller becomes a snapshot above everything, under the new
voters. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from kdump.apply.plan import TargetDirectory, TargetPartition
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.formats.dynamic_voter import DynamicVoter
from kdump.formats.uuids import format_uuid
from kdump.jobs.metadata.metadata_copies import (
    MetadataCopy,
    committed_end,
    require_no_directory_as_snapshot,
)
from kdump.log.log_search import Trust, log_end
from kdump.phases import phase
from kdump.repair.rebuild.controller_snapshot import (
    ControllerSnapshot,
    end_above,
    files_with_snapshot,
    snapshot_of_image,
    with_margins,
    without_lost_controllers,
)
from kdump.repair.rebuild.new_voters import require_distinct
from kdump.state.metadata.metadata_image import EntityKind, MetadataImage
from kdump.state.metadata.metadata_nodes import SUPPORTED_KRAFT_VERSIONS, Listener, Voter
from kdump.state.metadata.metadata_replay import END, CopyReplay
from kdump.storage.entries import EntryKind


class DamagedMetadataError(KdumpError):
    """The metadata of the directory is damaged."""

    exit_status = ExitStatus.DAMAGE_LEFT


class ResetRequest(Struct, frozen=True):
    """A quorum to reset.

    Attributes:
        copy: the copy of the metadata in the controller's directory.
        others: other copies, which must not be ahead of it.
        listener: name of their listener; None for that of the old voters.
        without_this_node: whether the voters need not include the controller's own node.
    """

    copy: MetadataCopy
    others: Sequence[MetadataCopy]
    voters: Sequence[DynamicVoter]
    listener: str | None
    without_this_node: bool
    now_ms: int


class QuorumReset(Struct, frozen=True):
    """What resetting a quorum leads to.

    Attributes:
        target: the target state of the controller's directory.
        kraft_version: with 0, the configuration names the voters, not the snapshot.
        voters: the new voters; without directory ids with kraft.version 0.
        dropped_controllers: node ids of the registered controllers that are not among them.
        committed_end: up to where records are known to be committed; None if unknown.
        later_epoch: of ``quorum-state``, if the log ends in an older one: its records are missing.
        problems: what is incomplete at the end of the log, with the file.
    """

    target: TargetDirectory
    snapshot: ControllerSnapshot
    image: MetadataImage
    kraft_version: int
    voters: tuple[Voter, ...]
    dropped_controllers: tuple[int, ...]
    committed_end: int | None
    later_epoch: int | None
    problems: tuple[str, ...]


def reset_quorum(request: ResetRequest) -> QuorumReset:
    """Compute what the controller's directory becomes.

    Raises:
        DamagedMetadataError: the metadata is damaged.
        UsageProblem: the voters cannot be these.
        KdumpError: another copy is ahead, or the metadata cannot be written.
        OSError: a file cannot be read.
    """
    copy = request.copy
    problems: list[str] = []
    with phase(f"reading {copy.partition.path}"):
        require_no_directory_as_snapshot(copy)
        replay = CopyReplay(copy.partition, problems.append)
        image = replay.image_at(END)
        _require_newest(copy, request.others, image)
        # A damaged snapshot may be the only one at the end of the copy, and a batch may be readable
        # that cannot be checked: its magic, which no checksum covers, is unknown.
        if replay.is_cut or image.end.offset != copy.end.offset:
            raise DamagedMetadataError(
                f"{[*copy.problems, *problems][-1]}; the records after it would be lost; use the"
                " disk of another controller, or run kdump recover, which drops them, and then this"
                " again"
            )
        committed, _ = committed_end([copy, *request.others], image)
    if replay.unknown:
        raise KdumpError(
            f"{replay.unknown[0]}; the new snapshot would lack what it says, and nothing has been"
            " changed; use a kdump that knows it"
        )
    if image.kraft_version > SUPPORTED_KRAFT_VERSIONS[1]:
        raise KdumpError(
            f"{copy.partition.path}: kraft.version {image.kraft_version} is unknown to this kdump"
        )
    voters = _voters(request, image)
    node_ids = [voter.node_id for voter in voters]
    dropped = tuple(sorted(set(image.of(EntityKind.CONTROLLER)) - set(node_ids)))
    kept = with_margins(without_lost_controllers(image, node_ids))
    in_snapshot = voters if image.kraft_version else ()
    is_done = not dropped and _is_reset(request, image, in_snapshot)
    with phase("writing the snapshot"):
        copies = (copy, *request.others)
        end = image.end if is_done else end_above(each.highest for each in copies)
        snapshot = snapshot_of_image(kept, end, in_snapshot, now_ms=request.now_ms)
        path = copy.partition.path
        names = [each.name for each in path.entries() if each.kind is not EntryKind.DIRECTORY]
    files = {} if is_done else files_with_snapshot(names, snapshot)
    partition = TargetPartition(path.local_path, files)
    return QuorumReset(
        target=TargetDirectory(copy.log_dir.local_path, (partition,), {}, needs_undo=True),
        snapshot=snapshot,
        image=kept,
        kraft_version=image.kraft_version,
        voters=voters,
        dropped_controllers=dropped,
        committed_end=committed,
        later_epoch=_later_epoch(copy),
        problems=tuple(problems),
    )


def _require_newest(
    copy: MetadataCopy, others: Iterable[MetadataCopy], image: MetadataImage
) -> None:
    """Refuse a copy that is behind another one.

    Raises:
        DamagedMetadataError: damage in another one hides later records.
        KdumpError: it is.
    """
    for each in others:
        is_longer = each.end.offset > copy.end.offset
        if is_longer and each.end.epoch < copy.end.epoch <= each.outline.highest_epoch:
            raise DamagedMetadataError(
                f"{each.log_dir}: its records up to offset {each.end.offset - 1} may be lost: they"
                f" have epoch {each.end.epoch} after epoch {each.outline.highest_epoch}, which is"
                " damage; use the disk of another controller, or leave this one out"
            )
        last = log_end(each.partition, Trust.CHECKSUMS)
        if last.offset > each.end.offset and (last.leader_epoch, last.offset) > copy.end:
            raise DamagedMetadataError(
                f"{each.log_dir}: its records up to offset {last.offset - 1} of epoch"
                f" {last.leader_epoch} would be lost, and are damaged after offset"
                f" {each.end.offset - 1}; use the disk of another controller, or leave this one out"
            )
    other = max(others, key=lambda each: each.end, default=copy)
    if other.end <= copy.end:
        return
    advice = "reset that one instead"
    if other.node_id not in image.of(EntityKind.VOTER):
        advice = (
            "that is no voter's, so plan the metadata from both: kdump metadata collect, plan and"
            " apply"
        )
    raise KdumpError(
        f"{copy.log_dir}: its metadata ends at offset {copy.end.offset} of epoch"
        f" {copy.end.epoch}, that of {other.log_dir} at offset {other.end.offset} of epoch"
        f" {other.end.epoch}; {advice}"
    )


def _later_epoch(copy: MetadataCopy) -> int | None:
    """The epoch that the controller knew last, if its log ends in an older one."""
    known = copy.quorum_epoch
    return None if known is None or known <= copy.end.epoch else known


def _is_reset(request: ResetRequest, image: MetadataImage, voters: Sequence[Voter]) -> bool:
    """Whether the directory is already as a reset leaves it: so is one that was run twice."""
    copy = request.copy
    if copy.partition.segments or len(copy.outline.snapshots) != 1 or copy.quorum_state:
        return False
    if tuple(image.of(EntityKind.VOTER).values()) != tuple(voters):
        return False
    return all(
        other.end.offset < copy.end.offset and other.highest.epoch < copy.end.epoch
        for other in request.others
    )


def _voters(request: ResetRequest, image: MetadataImage) -> tuple[Voter, ...]:
    require_distinct(request.voters)
    copy = request.copy
    if copy.node_id is None:
        raise KdumpError(
            f"{copy.log_dir}: nothing says which node this is: meta.properties is missing or"
            " damaged; run kdump identity"
        )
    ids = [each.node_id for each in request.voters]
    if copy.node_id not in ids and not request.without_this_node:
        raise UsageProblem(
            f"{copy.log_dir} is of node {copy.node_id}, which is not among the voters; add"
            f" --voter {copy.node_id}@HOST:PORT, or give --without-this-node"
        )
    if not image.kraft_version:
        return tuple(Voter(each.node_id) for each in request.voters)
    name = request.listener.upper() if request.listener else _old_listener(image)
    return tuple(
        Voter(
            each.node_id,
            _directory_id(each, copy),
            (Listener(name, each.host, each.port),),
            SUPPORTED_KRAFT_VERSIONS,
        )
        for each in request.voters
    )


def _directory_id(voter: DynamicVoter, copy: MetadataCopy) -> str:
    """The directory id of a voter, which with kraft.version 1 has to be the right one.

    Raises:
        UsageProblem: it is not known, or contradicts ``meta.properties``.
    """
    given = None if voter.directory_id is None else format_uuid(voter.directory_id)
    if voter.node_id != copy.node_id:
        if given is None:
            raise UsageProblem(
                f"--voter {voter}: add :DIRECTORY_ID, which is directory.id in the"
                f" meta.properties of node {voter.node_id}; with kraft.version 1 a voter with"
                " another one never joins"
            )
        return given
    if copy.directory_id is None:
        raise KdumpError(
            f"{copy.log_dir}: meta.properties has no directory.id, which kraft.version 1 needs;"
            " run kdump identity"
        )
    if given not in (None, copy.directory_id):
        raise UsageProblem(
            f"--voter {voter}: meta.properties in {copy.log_dir} has the directory id"
            f" {copy.directory_id}; a voter with another one never joins"
        )
    return copy.directory_id


def _old_listener(image: MetadataImage) -> str:
    """The name of the listener that the old voters have.

    Raises:
        UsageProblem: they have none, or several.
    """
    names: set[str] = {
        listener.name
        for voter in image.of(EntityKind.VOTER).values()
        for listener in voter.listeners
    }
    if len(names) == 1:
        return names.pop()
    what = "no voter in the metadata has one" if not names else f"the voters have {sorted(names)}"
    raise UsageProblem(
        f"give --listener-name, which is the first of controller.listener.names: {what}"
    )
