"""Find what ``kdump transplant`` makes of a partition and of the log directory that gets it."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from kdump.apply.directory_changes import (
    CreatedDirectory,
    NewFile,
    RemovedDirectory,
    StreamedFrom,
)
from kdump.apply.files import attributes_of
from kdump.apply.plan import TargetDirectory
from kdump.broker.loader.checkpoints import require_readable, with_lines
from kdump.broker.loader.load_context import LoadContext, load_context
from kdump.errors import KdumpError, UsageProblem
from kdump.formats import names
from kdump.formats.checksum import crc32c
from kdump.formats.errors import FormatError
from kdump.formats.names import PartitionState, TopicPartition
from kdump.formats.uuids import format_uuid, parse_uuid
from kdump.jobs.transplant.transplant_target import (
    TargetTopic,
    refuse_damage,
    require_replica_here,
    topic_on,
)
from kdump.log.directory import LogDirectory
from kdump.log.log_search import Trust, log_end
from kdump.log.partition import Partition
from kdump.phases import phase
from kdump.repair.transplant.lowered_epochs import StoredRange, TransplantedFile
from kdump.repair.transplant.transplanted_log import (
    Destination,
    NotTransplantableError,
    OpenTransactions,
    TransplantedLog,
    transplanted,
)
from kdump.target.target_file import NewBytes, TargetFile
from kdump.words import counted


class TransplantRequest(Struct, frozen=True):
    """What to transplant, and where to.

    Attributes:
        source_directory: the log directory around it; None if it cannot be read.
        target: the log directory that gets it.
        topic: in the target; None for the source's.
        partition: likewise.
        topic_id: in the target; None to look it up in the target's metadata.
        leader_epoch: of the partition in the target; likewise.
    """

    source: Partition
    source_directory: LogDirectory | None
    target: LogDirectory
    topic: str | None
    partition: int | None
    topic_id: UUID | None
    leader_epoch: int | None
    open_transactions: OpenTransactions
    now_ms: int


class Transplant(Struct, frozen=True):
    """What a transplant does.

    Attributes:
        key: the partition in the target.
        is_topic_id_given: whether the user named it; otherwise it is from the metadata.
        highest_epoch: no batch has a higher leader epoch afterwards; None if epochs are kept.
        keeps_producers: whether producer snapshots are kept.
        topic: what the target's metadata says; None without a copy.
        removal: removes the empty directory that has the partition's name; None if there is none.
        creation: creates the partition; None if the target has the very copy already.
    """

    key: TopicPartition
    topic_id: UUID
    is_topic_id_given: bool
    highest_epoch: int | None
    keeps_producers: bool
    log: TransplantedLog
    topic: TargetTopic | None
    removal: TargetDirectory | None
    creation: TargetDirectory | None


def transplant(request: TransplantRequest) -> Transplant:
    """Compute what to do; reads all of the source, and writes nothing.

    Raises:
        UsageProblem: something has to be given, or contradicts the target's metadata.
        NotTransplantableError: the source is damaged, or has open transactions.
        KdumpError: the target has other records of this partition.
        OSError: a file cannot be read.
    """
    key = _key(request)
    topic = topic_on(request.target, key, refuse_damage)
    _require_local_storage(request, topic)
    existing = _existing(request.target, key)
    topic_id = _topic_id(request, key, topic, existing)
    require_replica_here(request.target, key, topic)
    destination = Destination(
        topic_id=topic_id,
        highest_epoch=_known_epoch(request, topic, existing),
        keeps_producers=_is_same_cluster(request),
        open_transactions=request.open_transactions,
        now_ms=request.now_ms,
    )
    with phase(f"reading {request.source.path}"):
        log = transplanted(request.source, _context(request), destination)
    if log.log_end_offset == log.log_start_offset:
        raise UsageProblem(f"{request.source.path}: has no records")
    if destination.highest_epoch is None and log.highest_epoch:
        raise UsageProblem(
            f"{request.source.path}: has batches of leader epoch {log.highest_epoch}, and"
            f" {request.target.path} does not say the epoch of {key}: give --leader-epoch, as"
            " kafka-metadata-quorum.sh or the controller's metadata show it; kdump metadata show"
            " prints it from a controller's directory"
        )
    is_there = existing is not None and _has_records(existing)
    if existing is not None and is_there:
        _require_same(existing, log)
    elif existing is not None:
        _require_no_end_after(existing, request.target, log)
    is_lowered = destination.highest_epoch is not None and (
        (log.highest_epoch or 0) > destination.highest_epoch
    )
    return Transplant(
        key=key,
        topic_id=topic_id,
        is_topic_id_given=request.topic_id is not None,
        highest_epoch=destination.highest_epoch if is_lowered else None,
        keeps_producers=destination.keeps_producers,
        log=log,
        topic=topic,
        removal=None if existing is None or is_there else _removal(request.target, existing),
        creation=None if is_there else _creation(request, key, log),
    )


# ---- What the partition is called in the target


def _key(request: TransplantRequest) -> TopicPartition:
    own = request.source.topic_partition
    topic = request.topic or (own and own.topic)
    number = request.partition if request.partition is not None else own and own.partition
    if topic is None or number is None:
        raise UsageProblem(
            f"{request.source.path}: its name is not that of a partition: give --topic and"
            " --partition"
        )
    key = TopicPartition(topic, number)
    if not (names.is_accepted_name(str(key)) and names.is_kafkas_name(str(key))):
        raise UsageProblem(f"{key}: no partition can have this name")
    if key.topic == names.CLUSTER_METADATA_TOPIC or request.source.is_cluster_metadata:
        raise UsageProblem("the cluster's metadata cannot be transplanted: see kdump metadata")
    if request.source.is_0_7:
        raise UsageProblem(f"{request.source.path}: a log of Kafka 0.7: recover it first")
    return key


def _require_local_storage(request: TransplantRequest, topic: TargetTopic | None) -> None:
    """Refuse topics whose logs begin in remote storage, in the source or the target."""
    own, around = request.source.topic_partition, request.source_directory
    known = [topic]
    if own is not None and around is not None:
        known.append(topic_on(around, own, lambda _damage: None))
    if any(each is not None and each.is_remote for each in known):
        raise NotTransplantableError(
            f"{request.source.path}: remote.storage.enable is set for its topic: remote storage"
            " also decides where its log begins"
        )


def _topic_id(
    request: TransplantRequest,
    key: TopicPartition,
    topic: TargetTopic | None,
    existing: Partition | None,
) -> UUID:
    """The id as given, as the target's metadata has it, or as in the empty directory there."""
    given, known = request.topic_id, None
    if topic is not None and topic.topic_id is not None:
        known = parse_uuid(topic.topic_id)
    elif existing is not None and topic is None:
        known = _id_in(existing)
    if given is not None and known is not None and given != known:
        raise UsageProblem(
            f"--topic-id {format_uuid(given)}: {key.topic} has the id {format_uuid(known)} in"
            f" {request.target.path}: a broker would rename the directory to -stray"
        )
    found = given or known
    if found is not None:
        return found
    if topic is None:
        raise UsageProblem(
            f"{request.target.path}: has no copy of the cluster's metadata: give --topic-id, as"
            f" kafka-topics.sh --describe --topic {key.topic} prints it, and --leader-epoch"
        )
    raise UsageProblem(
        f"{key.topic}: no such topic in the target's metadata: create it first, with at least"
        f" {counted(key.partition + 1, 'partition')}; a broker would rename the directory to -stray"
    )


def _id_in(existing: Partition) -> UUID | None:
    try:
        metadata = existing.read_metadata()
    except FormatError:
        return None
    return None if metadata is None else metadata.topic_id


def _known_epoch(
    request: TransplantRequest, topic: TargetTopic | None, existing: Partition | None
) -> int | None:
    """A leader epoch that the partition has reached in the target; None if nothing says one."""
    if request.leader_epoch is not None:
        return request.leader_epoch
    if topic is not None and topic.registration is not None:
        return topic.registration.leader_epoch
    if existing is None:
        return None
    entries = existing.known_leader_epochs()
    return max((entry.epoch for entry in entries if entry.epoch >= 0), default=None)


def _is_same_cluster(request: TransplantRequest) -> bool:
    """Whether source and target are of one cluster, which gives producers their ids."""
    ids = {
        None if each is None else each.cluster_id
        for each in (request.source_directory, request.target)
    }
    return len(ids) == 1 and None not in ids


# ---- Source and target


def _context(request: TransplantRequest) -> LoadContext:
    """How a broker would load the source; a copy without a log directory is not clean."""
    source, around = request.source, request.source_directory
    if around is None or source.topic_partition is None:
        return LoadContext(now_ms=request.now_ms)
    context = load_context(around, source.topic_partition, now_ms=request.now_ms)
    if source.state in (PartitionState.STRAY, PartitionState.DELETE):
        # The lines of the checkpoints are of another log, if there are any.
        return replace(context, recovery_point=0, log_start_offset=0, high_watermark=0)
    return context


def _existing(target: LogDirectory, key: TopicPartition) -> Partition | None:
    """The directory that the partition has in the target already.

    Raises:
        KdumpError: it is on its way from another disk, or cannot be listed.
    """
    found = None
    for partition in target.partitions:
        if partition.topic_partition != key:
            continue
        if partition.state is PartitionState.FUTURE:
            raise KdumpError(
                f"{partition.path}: the partition is being moved here from another log directory;"
                " nothing has been changed; let its broker finish first"
            )
        if partition.state is PartitionState.LIVE:
            found = partition
    if str(key) in (*target.unreadable, *target.absent):
        raise KdumpError(f"{target.path / str(key)}: cannot be listed; nothing has been changed")
    return found


def _require_same(existing: Partition, log: TransplantedLog) -> None:
    """Refuse to replace records, unless they are the very ones of a run that was completed.

    Raises:
        KdumpError: they are others.
        OSError: a file cannot be read.
    """
    found = {entry.name: entry.size_bytes for entry in existing.path.entries()}
    expected = {name: content.size_bytes for name, content in log.files.items()}
    if found == expected:
        with phase(f"comparing {existing.path}"):
            if all(
                _checksum(_pieces(content))
                == _checksum(StoredRange.of(existing.path / name).pieces())
                for name, content in log.files.items()
            ):
                return
    raise KdumpError(
        f"{existing.path}: has records already; nothing has been changed; move the directory out of"
        " the log directory first, or give another --partition"
    )


def _require_no_end_after(existing: Partition, target: LogDirectory, log: TransplantedLog) -> None:
    """Refuse to replace an empty log that ended later, such as one whose records were deleted.

    Raises:
        KdumpError: its offsets would be given out again.
        OSError: a file cannot be read.
    """
    starts = target.checkpoints.log_start_offsets or {}
    end = max(log_end(existing, Trust.CHECKSUMS).offset, starts.get(existing.key, 0))
    if end > log.log_end_offset:
        raise KdumpError(
            f"{existing.path}: had records up to offset {end - 1}, which were deleted, and the copy"
            f" ends at {log.log_end_offset}: offsets would be given out again; nothing has been"
            " changed; delete and create the topic, or give another --partition"
        )


def _pieces(content: NewBytes | TransplantedFile) -> Iterable[bytes]:
    return [content.data] if isinstance(content, NewBytes) else content.pieces()


def _checksum(pieces: Iterable[bytes]) -> int:
    checksum = 0
    for piece in pieces:
        checksum = crc32c(piece, checksum)
    return checksum


def _has_records(partition: Partition) -> bool:
    if partition.is_0_7 or partition.leftovers:
        return True
    if not partition.segments:
        return False
    end = log_end(partition, Trust.CHECKSUMS)
    return bool(end.damage) or end.offset > partition.segments[0].base_offset


def _removal(target: LogDirectory, existing: Partition) -> TargetDirectory:
    return TargetDirectory(
        target.path.local_path, (), {}, directories={existing.path.name: RemovedDirectory()}
    )


def _creation(
    request: TransplantRequest, key: TopicPartition, log: TransplantedLog
) -> TargetDirectory:
    path = request.source.path
    source = path.storage.local_path(path.path)
    files = {
        name: NewFile(
            content if isinstance(content, NewBytes) else StreamedFrom(content),
            like=None if source is None else source / name,
        )
        for name, content in log.files.items()
    }
    with phase(f"reading {path}"):
        attributes = () if source is None else attributes_of(source)
    root = _root(request, key, log)
    early = (names.RECOVERY_POINT_CHECKPOINT, names.LOG_START_OFFSET_CHECKPOINT)
    return TargetDirectory(
        request.target.path.local_path,
        (),
        root,
        interim={name: root[name] for name in early},
        directories={str(key): CreatedDirectory(files, attributes=attributes)},
        freed=frozenset({str(key)}),
    )


def _root(
    request: TransplantRequest, key: TopicPartition, log: TransplantedLog
) -> dict[str, TargetFile]:
    """The checkpoints of the target, with the lines of the source.

    Raises:
        KdumpError: one is damaged, and its other lines would be lost.
    """
    end = log.log_end_offset
    lines = {
        names.RECOVERY_POINT_CHECKPOINT: end,
        names.LOG_START_OFFSET_CHECKPOINT: log.checkpointed_log_start_offset,
        names.REPLICATION_OFFSET_CHECKPOINT: end,
        names.CLEANER_OFFSET_CHECKPOINT: _cleaner_offset(request, end),
    }
    require_readable(request.target, lines)
    root: dict[str, TargetFile] = {}
    for name, offset in lines.items():
        root |= with_lines(request.target, name, {key: offset})
    return root


def _cleaner_offset(request: TransplantRequest, end: int) -> int | None:
    """Up to where the cleaner has cleaned the source; None if it has not."""
    source, around = request.source, request.source_directory
    if around is None or source.state is not PartitionState.LIVE or source.topic_partition is None:
        return None
    offset = (around.checkpoints.cleaner_offsets or {}).get(source.topic_partition)
    return None if offset is None or not 0 <= offset <= end else offset
