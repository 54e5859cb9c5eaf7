"""Load the cluster metadata log as the Raft layer does.

Follows ``KafkaRaftLog.createLog``. That log is always loaded as after an unclean shutdown, and from
its first offset on, whatever the checkpoints and the clean shutdown marker say. Then snapshots that
were being written or deleted are removed, and those before the log start. If the newest remaining
snapshot is ahead of the log, the whole log is deleted and starts again at the end of the snapshot.
When the log is closed, the indexes of its active segment keep the size of an index
(:data:`~kdump.formats.offset_index.METADATA_INDEXES_IN_FULL`).
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from kdump.broker.loader.load_context import IndexSettings, LoadContext
from kdump.broker.loader.load_report import Dropped, HandledLeftover, LeftoverOutcome, measure_loss
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats import names, offset_index, time_index
from kdump.formats.checkpoints import encode_leader_epoch_checkpoint
from kdump.formats.names import FileKind, MetadataSnapshotName, SnapshotStage
from kdump.formats.offset_index import METADATA_INDEXES_IN_FULL
from kdump.log.partition import Partition
from kdump.storage.entries import EntryKind
from kdump.storage.location import Location
from kdump.target.refusal import Refusal
from kdump.target.target_file import Gone, Kept, KeptUpTo, NewBytes, TargetFile
from kdump.target.virtual_directory import VirtualDirectory, file_name

_ENTRY_BYTES = {
    FileKind.OFFSET_INDEX: offset_index.ENTRY_BYTES,
    FileKind.TIME_INDEX: time_index.ENTRY_BYTES,
}


def metadata_context(context: LoadContext) -> LoadContext:
    """The context for loading that log: only the settings of ``context``."""
    return LoadContext(settings=context.settings)


def finish_metadata_log(
    partition: Partition, outcome: Recovered, settings: IndexSettings
) -> Recovered | Refusal:
    """Apply the rules for snapshots and indexes to the log as the loader leaves it.

    Args:
        outcome: of the loader, with :func:`metadata_context`.
        settings: of its indexes, and of the controller.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    finished = _with_snapshots(partition, outcome)
    if isinstance(finished, Refusal) or not METADATA_INDEXES_IN_FULL.holds_in(
        settings.kafka_version
    ):
        return finished
    indexes: dict[str, TargetFile] = {}
    for kind, entry_bytes in _ENTRY_BYTES.items():
        name = file_name(finished.active_base_offset, kind)
        full_bytes = settings.max_bytes // entry_bytes * entry_bytes
        indexes |= _in_full(partition, name, finished.files.get(name), full_bytes)
    return replace(finished, files=finished.files | indexes)


def _in_full(
    partition: Partition, name: str, target: TargetFile | None, full_bytes: int
) -> dict[str, TargetFile]:
    """The target of an index that has its full size on disk: it keeps that."""
    directory = VirtualDirectory(partition.path)
    is_full = name in directory and directory.content(name).size_bytes == full_bytes
    if not isinstance(target, NewBytes | KeptUpTo) or not is_full:
        return {}
    found = (partition.path / name).read()
    entries = target.data if isinstance(target, NewBytes) else found[: target.size_bytes]
    content = entries.ljust(full_bytes, b"\0")
    return {name: Kept() if content == found else NewBytes(content)}


def _with_snapshots(partition: Partition, outcome: Recovered) -> Recovered | Refusal:
    """Apply the rules for snapshots."""
    kept: list[MetadataSnapshotName] = []
    directories: list[MetadataSnapshotName] = []
    gone: list[str] = []
    for name in (*outcome.files, *partition.foreign):
        snapshot = names.parse_metadata_snapshot_name(name)
        if snapshot is None and name.endswith(names.METADATA_SNAPSHOT_SUFFIXES):
            return Refusal(
                "the name of a snapshot has no offset and epoch", name, "NumberFormatException"
            )
        if snapshot is None:
            continue
        is_live = snapshot.stage is SnapshotStage.LIVE
        is_kept = is_live and snapshot.end_offset >= outcome.log_start_offset
        if name in outcome.files:
            if is_kept:
                kept.append(snapshot)
            else:
                gone.append(name)
        elif is_kept:
            directories.append(snapshot)  # ``recoverSnapshots`` does not ask what has the name
        elif _is_full_directory(partition.path, name):
            return Refusal(
                "a directory that is not empty has the name of a snapshot that is to be deleted",
                name,
                "DirectoryNotEmptyException",
            )
    newest = max((*kept, *directories), key=_age, default=None)
    if newest is not None and newest in directories and _is_ahead(newest, outcome):
        return Refusal(
            "a directory has the name of a snapshot past the end of the log: a starting node"
            " deletes the log for it, and has no metadata then; remove the directory first",
            str(newest),
            "refused by kdump",
        )
    if outcome.log_start_offset > 0 and newest is None:
        return Refusal(
            f"the log starts at offset {outcome.log_start_offset}, and there is no snapshot of what"
            " was before",
            partition.path.name,
            "IllegalStateException",
        )
    if newest is not None and _is_ahead(newest, outcome):
        gone.extend(str(snapshot) for snapshot in kept if _age(snapshot) < _age(newest))
        outcome = _restarted(partition, outcome, newest.end_offset)
    leftovers = tuple(HandledLeftover(name, LeftoverOutcome.DELETED) for name in gone)
    return replace(
        outcome,
        files=outcome.files | dict.fromkeys(gone, Gone()),
        report=replace(outcome.report, leftovers=(*outcome.report.leftovers, *leftovers)),
    )


def _is_full_directory(path: Location, name: str) -> bool:
    """Whether a name is that of a directory with something in it, and not of a link to one."""
    return any(
        each.name == name and each.kind is EntryKind.DIRECTORY and not each.is_link
        for each in path.entries()
    ) and bool((path / name).entries())


def _age(snapshot: MetadataSnapshotName) -> tuple[int, int]:
    return snapshot.epoch, snapshot.end_offset


def _is_ahead(snapshot: MetadataSnapshotName, outcome: Recovered) -> bool:
    latest_epoch = outcome.leader_epochs[-1].epoch if outcome.leader_epochs else 0
    return _age(snapshot) > (latest_epoch, outcome.log_end_offset)


def _restarted(partition: Partition, outcome: Recovered, offset: int) -> Recovered:
    """The log deleted and started again at ``offset``."""
    parsed = {name: names.parse_offset_file_name(name) for name in outcome.files}
    old = [name for name, of in parsed.items() if of is not None and str(of) == name]
    made = [
        file_name(offset, kind)
        for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
    ]
    return replace(
        outcome,
        files={
            **outcome.files,
            **dict.fromkeys(old, Gone()),
            **dict.fromkeys(made, NewBytes(b"")),
            names.LEADER_EPOCH_CHECKPOINT: NewBytes(encode_leader_epoch_checkpoint([])),
        },
        log_start_offset=offset,
        log_end_offset=offset,
        recovery_point=offset,
        active_base_offset=offset,
        leader_epochs=(),
        producers=(),
        first_unstable_offset=None,
        report=replace(outcome.report, dropped=_dropped(partition, old, offset)),
    )


def _dropped(partition: Partition, old: Collection[str], offset: int) -> tuple[Dropped, ...]:
    directory = VirtualDirectory(partition.path)
    why = f"the newest snapshot ends at {offset}, after the end of the log"
    return tuple(
        Dropped(name, why, measure_loss(directory, directory.content(name)))
        for name in old
        if name.endswith(FileKind.LOG.value) and name in directory
    )
