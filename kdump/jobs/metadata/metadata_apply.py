"""Write a plan's metadata for a controller: what ``kdump metadata apply`` makes of a directory.

Nothing is written here: the result is the target state of the directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from kdump.apply.directory_changes import (
    CreatedDirectory,
    DirectoryChange,
    NewFile,
    RenamedDirectory,
    aside_name,
)
from kdump.apply.plan import TargetDirectory, TargetPartition
from kdump.errors import KdumpError, UsageProblem
from kdump.formats.message_json import MessageJsonError
from kdump.formats.meta_properties import MetaProperties, encode_meta_properties
from kdump.formats.names import (
    CLUSTER_METADATA_PARTITION,
    CLUSTER_METADATA_TOPIC,
    KDUMP_PREFIX,
    LOCK_FILE,
    META_PROPERTIES,
    OF_FILE_SYSTEMS,
    is_topic_name,
)
from kdump.jobs.metadata.edited_plan import UnacceptedLossError, require_fits_disks
from kdump.jobs.metadata.metadata_copies import (
    MetadataCopy,
    read_copies,
    require_no_directory_as_snapshot,
)
from kdump.log.directory import LogDirectory, directory_kind, read_log_directory
from kdump.phases import phase
from kdump.repair.cluster.notice_codes import LEVEL_LOSS, unaccepted
from kdump.repair.cluster.overrides import RESERVED_TOPIC_IDS
from kdump.repair.rebuild.controller_snapshot import (
    ControllerSnapshot,
    files_with_snapshot,
    snapshot_of_image,
)
from kdump.repair.rebuild.new_voters import require_distinct
from kdump.repair.rebuild.node_directories import derived_directory_id
from kdump.state.metadata.cluster_plan import ClusterPlan, MovedAside, PlannedController
from kdump.state.metadata.image_records import ImageLoss, record_from_json
from kdump.state.metadata.metadata_image import (
    LogEnd,
    MetadataImage,
    MetadataRecord,
    MetadataReplay,
)
from kdump.state.metadata.metadata_nodes import SUPPORTED_KRAFT_VERSIONS, Listener, Voter
from kdump.storage.entries import EntryKind
from kdump.storage.location import Location
from kdump.target.target_file import NewBytes, TargetFile

METADATA_DIRECTORY = str(CLUSTER_METADATA_PARTITION)
_PROPERTIES_VERSION = 1
_IGNORED = OF_FILE_SYSTEMS | {LOCK_FILE}
"""What an empty directory may have."""


class AppliedPlan(Struct, frozen=True):
    """What a plan makes of a directory.

    Attributes:
        target: the target state of the directory.
        snapshot: for a controller; None for a broker.
        voters: the plan's; without directory ids with kraft.version 0.
        moved_to: name under which a broker's own copy is moved aside; None for a controller, and
            if that has been done.
    """

    target: TargetDirectory
    node_id: int
    snapshot: ControllerSnapshot | None
    voters: tuple[Voter, ...]
    moved_to: str | None = None

    @property
    def changed_directories(self) -> Iterator[Path]:
        """The directories in the target whose files change or are new."""
        yield from (each.path for each in self.target.partitions)
        for name, change in self.target.directories.items():
            if isinstance(change, CreatedDirectory):
                yield self.target.path / name


def apply_plan_to(
    path: Location, plan: ClusterPlan, node_id: int | None, image: MetadataImage | None = None
) -> AppliedPlan:
    """Compute what a directory becomes.

    Args:
        path: the metadata directory of one of the plan's controllers, formatted or empty, or the
            log directory of a broker whose copy is to be moved aside.
        node_id: of an empty directory; None if the plan has a single controller.
        image: what :func:`image_of_plan` makes of the plan; None to make it here.

    Raises:
        UnacceptedLossError: the plan loses something that nobody accepted.
        UsageProblem: the directory is not of a node of this plan.
        KdumpError: the directory has newer records, or the plan cannot be written.
        OSError: a file cannot be read.
    """
    _require_accepted(plan)
    require_fits_disks(plan)
    with phase(f"reading {path}"):
        directory = _directory(path)
        copies = [] if directory is None else read_copies([directory])
    image = image or image_of_plan(plan)
    if directory is None:
        controller = _controller_of_empty(path, plan, node_id)
    else:
        owner = _owner(directory, plan, node_id)
        if not isinstance(owner, PlannedController):
            return _moved_aside(path, owner, plan)
        controller = owner
    for copy in copies:
        require_no_directory_as_snapshot(copy)
        _require_older(copy, plan)
    voters = _voters(plan)
    with phase("writing the snapshot"):
        end = LogEnd(plan.snapshot_epoch, plan.snapshot_offset)
        in_snapshot = voters if plan.kraft_version else ()
        snapshot = snapshot_of_image(image, end, in_snapshot, now_ms=plan.created_ms)
        _require_known(plan, snapshot.losses)
        target = _target(path, snapshot, _new_properties(plan, controller, directory))
    return AppliedPlan(target, controller.node_id, snapshot, voters)


def _require_accepted(plan: ClusterPlan) -> None:
    losses = [each.what for each in unaccepted(plan.notices)]
    if losses and not plan.is_loss_accepted:
        more = f" (and {len(losses) - 1} more)" if len(losses) > 1 else ""
        raise UnacceptedLossError(
            f"the plan loses something: {losses[0]}{more}; make it again with --accept-loss, or"
            f" decide otherwise with --set"
        )


def _require_known(plan: ClusterPlan, losses: Iterable[ImageLoss]) -> None:
    """Refuse a loss that the plan does not name: its metadata.version was edited.

    Raises:
        UnacceptedLossError: there is one.
    """
    named = {each.what for each in plan.notices if each.code == LEVEL_LOSS.code}
    lost = [each.value for each in losses if each.is_lost and each.value not in named]
    if lost:
        raise UnacceptedLossError(
            f"the plan loses something: {lost[0]}, which records of its metadata.version cannot"
            " say; make it again with --set feature.metadata.version=LEVEL"
        )


def image_of_plan(plan: ClusterPlan) -> MetadataImage:
    """The metadata that a plan describes.

    Raises:
        UsageProblem: no topic can have the name or id of one.
        KdumpError: a record in the plan is invalid, or has no effect.
    """

    def refuse(record: MetadataRecord, what: str) -> None:
        raise KdumpError(f"the plan contradicts itself: a {record.name} has no effect: {what}")

    for topic in plan.topics:
        # Brokers make directories of these names.
        is_possible = is_topic_name(topic.name) and topic.name != CLUSTER_METADATA_TOPIC
        if not is_possible or topic.topic_id in RESERVED_TOPIC_IDS:
            raise UsageProblem(
                f"the plan has a topic {topic.name!r} with the id {topic.topic_id}, which no topic"
                " can have"
            )
    replay = MetadataReplay(on_fault=refuse)
    for at, each in enumerate(plan.records()):
        node = {"type": each.type, "version": each.version, "data": each.data}
        try:
            record = record_from_json(node)
        except MessageJsonError as error:
            raise KdumpError(f"the plan has an invalid {each.type}: {error}") from error
        replay.take(
            MetadataRecord(at, plan.snapshot_epoch, plan.created_ms, record.name, record.fields)
        )
    replay.timestamp_ms = plan.created_ms
    return replay.image()


# --- which directory it is


def _directory(path: Location) -> LogDirectory | None:
    """The directory as it is; None if it is empty.

    Raises:
        UsageProblem: it is neither empty nor Kafka's.
        OSError: it cannot be listed.
    """
    kind = directory_kind(path)
    if kind.is_partition:
        raise UsageProblem(
            f"{path} is a partition: name its directory, {path.as_absolute().parent}"
        )
    if kind.is_log_directory:
        select = lambda _name, key: key == CLUSTER_METADATA_PARTITION  # noqa: E731
        return read_log_directory(path, kind, select=select)
    others = [
        each.name
        for each in path.entries()
        if each.name not in _IGNORED and not each.name.startswith(KDUMP_PREFIX)
    ]
    if others:
        raise UsageProblem(
            f"{path} is neither empty nor a directory of Kafka's: it has {min(others)!r}"
        )
    return None


def _controller_of_empty(
    path: Location, plan: ClusterPlan, node_id: int | None
) -> PlannedController:
    known = {each.node_id: each for each in plan.controllers}
    if node_id is None and len(known) == 1:
        (node_id,) = known
    if node_id is None:
        raise UsageProblem(
            f"{path} is empty: say which controller it is with --node-id, one of"
            f" {', '.join(map(str, sorted(known)))}"
        )
    if node_id not in known:
        raise UsageProblem(
            f"the plan has no controller {node_id}, only {', '.join(map(str, sorted(known)))}"
        )
    return known[node_id]


def _owner(
    directory: LogDirectory, plan: ClusterPlan, node_id: int | None
) -> PlannedController | MovedAside:
    """The controller that a directory is of, or what the plan says of a broker's copy."""
    path, properties = directory.path, directory.meta_properties
    if properties is None or properties.node_id is None or properties.cluster_id is None:
        raise KdumpError(
            f"{path}: nothing says which node this is: {META_PROPERTIES} is missing, damaged or of"
            " an old version; run kdump identity"
        )
    if properties.cluster_id != plan.cluster_id:
        raise UsageProblem(
            f"{path} is of the cluster {properties.cluster_id}, the plan of {plan.cluster_id}"
        )
    own = properties.node_id
    if node_id not in (None, own):
        raise UsageProblem(f"{path} is of node {own}, not of node {node_id}")
    text = properties.directory_id_text
    for controller in plan.controllers:
        if controller.node_id == own:
            if plan.kraft_version and controller.directory_id != text:
                raise UsageProblem(
                    f"{path} has the directory id {text}, controller {own} in the plan"
                    f" {controller.directory_id}; make the plan again with --controller"
                    f" {own}@{controller.host}:{controller.port}:{text}"
                )
            return controller
    for each in plan.move_aside:
        is_its_directory = each.directory_id == text if text else each.log_dir == str(path)
        if each.node_id == own and is_its_directory:
            return each
    raise UsageProblem(
        f"{path} is of node {own}, which is no controller of the plan; its copy of the metadata"
        " can stay"
    )


def _require_older(copy: MetadataCopy, plan: ClusterPlan) -> None:
    """Refuse to replace records that are newer than the plan's snapshot."""
    epoch, offset = copy.highest
    is_same = not copy.partition.segments and copy.end == (
        plan.snapshot_epoch,
        plan.snapshot_offset,
    )
    if is_same or (offset < plan.snapshot_offset and epoch < plan.snapshot_epoch):
        return
    raise KdumpError(
        f"{copy.log_dir}: its metadata reaches offset {offset} of epoch {epoch}, the plan's"
        f" snapshot is at offset {plan.snapshot_offset} of epoch {plan.snapshot_epoch}; nothing"
        " newer is replaced: collect this disk, too, and make the plan again"
    )


# --- what it becomes


def _voters(plan: ClusterPlan) -> tuple[Voter, ...]:
    """The voters of a plan.

    Raises:
        UsageProblem: two have one directory id, or a reserved one.
    """
    require_distinct([each.voter for each in plan.controllers])
    name = plan.controller_listener.upper()
    return tuple(
        Voter(
            each.node_id,
            each.directory_id if plan.kraft_version else None,
            (Listener(name, each.host, each.port),) if plan.kraft_version else (),
            SUPPORTED_KRAFT_VERSIONS if plan.kraft_version else None,
        )
        for each in plan.controllers
    )


def _new_properties(
    plan: ClusterPlan, controller: PlannedController, directory: LogDirectory | None
) -> dict[str, TargetFile]:
    """``meta.properties`` of an empty directory, as Kafka's ``Formatter`` writes it."""
    if directory is not None:
        return {}
    seed = f"{plan.cluster_id} {plan.snapshot_offset} {plan.created_ms} {controller.node_id}"
    directory_id = controller.voter.directory_id or derived_directory_id(seed)
    properties = MetaProperties(
        _PROPERTIES_VERSION, plan.cluster_id, controller.node_id, directory_id
    )
    return {META_PROPERTIES: NewBytes(encode_meta_properties(properties))}


def _target(
    path: Location, snapshot: ControllerSnapshot, root: Mapping[str, TargetFile]
) -> TargetDirectory:
    here = path / METADATA_DIRECTORY
    if here.kind() is None:
        created = CreatedDirectory({str(snapshot.name): NewFile(NewBytes(snapshot.data))})
        changes: dict[str, DirectoryChange] = {METADATA_DIRECTORY: created}
        return TargetDirectory(path.local_path, (), root, directories=changes)
    names = [each.name for each in here.entries() if each.kind is not EntryKind.DIRECTORY]
    files = files_with_snapshot(names, snapshot)
    partition = TargetPartition(here.local_path, files)
    return TargetDirectory(path.local_path, (partition,), root, needs_undo=True)


def _moved_aside(path: Location, moved: MovedAside, plan: ClusterPlan) -> AppliedPlan:
    """Move a broker's copy aside, with which it would elect itself."""
    here = path / METADATA_DIRECTORY
    changes: dict[str, DirectoryChange] = {}
    name = None
    if here.kind() is not None:
        name = aside_name(here.local_path)
        changes[name] = RenamedDirectory(METADATA_DIRECTORY)
    target = TargetDirectory(path.local_path, (), {}, directories=changes)
    return AppliedPlan(target, moved.node_id, None, _voters(plan), name)
