"""The copy of the cluster's metadata in a log directory, as the collection has it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from kdump.errors import UsageProblem
from kdump.formats.names import parse_metadata_snapshot_name
from kdump.jobs.metadata.metadata_copies import MetadataCopy, committed_end, read_copies
from kdump.jobs.metadata.metadata_questions import HistoryReading
from kdump.log.directory import LogDirectory
from kdump.log.log_search import Trust, log_end
from kdump.log.partition import Partition
from kdump.state.metadata.disk_collection import (
    CollectedMetadata,
    CollectedRecord,
    CollectedVoter,
    LaterPartition,
    RemovedTopic,
    RewoundMetadata,
)
from kdump.state.metadata.image_records import ImageLoss, all_records_of
from kdump.state.metadata.metadata_image import EntityKind, LogEnd, MetadataImage
from kdump.state.metadata.metadata_nodes import Voter
from kdump.state.metadata.metadata_replay import (
    END,
    CopyReplay,
    MetadataPoint,
    OnProblem,
    UnknownMetadataError,
)
from kdump.state.metadata.rewound_image import later_partitions, later_topics, rewound_image


def collect_metadata(
    directory: LogDirectory, time_ms: int | None = None
) -> CollectedMetadata | None:
    """Read the copy of the metadata in a log directory; None if it has none.

    Args:
        time_ms: take topics, configurations and the like as they were then; None for the end.

    Raises:
        OSError: a file cannot be read.
    """
    copies = read_copies([directory])
    if not copies:
        return None
    copy = copies[0]
    problems = dict.fromkeys(copy.problems)
    replay = CopyReplay(copy.partition, problems.setdefault)
    image = replay.image_at(END)
    unknown = dict.fromkeys(replay.unknown)
    committed, voters = committed_end(copies, image)
    highest = _highest(copy, image)
    removed = _removed_topics(copy, committed, problems.setdefault)
    rewound = None
    if time_ms is not None:
        image, rewound = _rewound(copy, image, removed, time_ms, problems.setdefault)
    return CollectedMetadata(
        epoch=image.end.epoch,
        end_offset=image.end.offset,
        timestamp_ms=image.timestamp_ms,
        committed_end_offset=committed,
        highest_epoch=highest.epoch,
        highest_offset=highest.offset,
        kraft_version=image.kraft_version,
        voters=_voters(voters, copy),
        removed_topics=removed,
        records=_records(image, problems.setdefault),
        problems=tuple(_relative(problem, directory) for problem in problems),
        unknown=tuple(_relative(what, directory) for what in unknown),
        rewound=rewound,
    )


def _rewound(
    copy: MetadataCopy,
    now: MetadataImage,
    removed: Sequence[RemovedTopic],
    time_ms: int,
    on_problem: OnProblem,
) -> tuple[MetadataImage, RewoundMetadata]:
    """The metadata of a moment; those of the end where the copy does not say what they were.

    The log directory may have partitions that no other has, so it is collected all the same.
    """
    if not now.end.offset:
        return now, RewoundMetadata(time_ms, ())  # a directory that was only formatted
    try:
        then = _image_at(copy, time_ms, on_problem)
    except (UsageProblem, UnknownMetadataError) as error:
        problem = str(error).removeprefix(f"{copy.log_dir}/")
        on_problem(problem)
        return now, RewoundMetadata(time_ms, (), problem)
    gone = (each.topic_id for each in removed if each.offset >= then.end.offset)
    return rewound_image(now, then), RewoundMetadata(
        time_ms,
        later_topics(now, then, gone),
        later_partitions=tuple(LaterPartition(*key) for key in later_partitions(now, then)),
    )


def _image_at(copy: MetadataCopy, time_ms: int, on_problem: OnProblem) -> MetadataImage:
    path = copy.partition.path
    replay = CopyReplay(copy.partition, on_problem)
    image = replay.image_at(MetadataPoint(time_ms=time_ms))
    if replay.is_cut:
        end = image.end.offset
        what = f"the log is damaged after offset {end - 1}" if end else "what begins it is missing"
        raise UnknownMetadataError(f"{path}: the metadata of that time is unknown: {what}")
    if not image.of(EntityKind.BROKER):
        raise UsageProblem(f"{path}: no broker had registered at that time")
    return image


def _relative(problem: str, directory: LogDirectory) -> str:
    """A problem without the path of the log directory, which the document names."""
    return problem.removeprefix(f"{directory.path}/")


def _highest(copy: MetadataCopy, image: MetadataImage) -> LogEnd:
    """Above everything in the directory: what a damaged copy hides may be on another disk."""
    partition = copy.partition
    ends = [image.end, copy.highest]
    for name in (each.name for each in partition.leftovers):
        snapshot = parse_metadata_snapshot_name(name)
        if snapshot is not None:
            ends.append(LogEnd(snapshot.epoch, snapshot.end_offset))
    end = log_end(partition, Trust.CHECKSUMS)
    offsets = [*(each.offset for each in ends), end.offset]
    epochs = [each.epoch for each in ends]
    epochs += [copy.outline.highest_epoch, _checkpointed_epoch(partition)]
    return LogEnd(max(epochs), max(offsets))


def _checkpointed_epoch(partition: Partition) -> int:
    return max((entry.epoch for entry in partition.known_leader_epochs()), default=0)


def _voters(voters: list[Voter], copy: MetadataCopy) -> tuple[CollectedVoter, ...]:
    """The voters in the log, or else those in ``quorum-state``."""
    if voters:
        in_order = sorted(voters, key=lambda voter: voter.node_id)
        return tuple(
            CollectedVoter(each.node_id, each.directory_id, tuple(map(str, each.listeners)))
            for each in in_order
        )
    state = copy.quorum_state
    named = () if state is None else state.current_voters or ()
    return tuple(CollectedVoter(node_id) for node_id in sorted(named) if node_id >= 0)


def _removed_topics(
    copy: MetadataCopy, committed: int | None, on_problem: OnProblem
) -> tuple[RemovedTopic, ...]:
    """The topics whose deletion is in the log."""
    found = []
    for event in HistoryReading.of(copy, END, on_problem).events():
        change = event.change
        if change.kind is not EntityKind.TOPIC or change.new is not None or change.record is None:
            continue
        record = change.record
        found.append(
            RemovedTopic(
                topic=change.old.name,
                topic_id=change.old.topic_id,
                offset=record.offset,
                epoch=record.epoch,
                timestamp_ms=None if record.timestamp_ms < 0 else record.timestamp_ms,
                is_committed=True if record.offset < (committed or 0) else None,
            )
        )
    return tuple(found)


def _records(image: MetadataImage, on_problem: OnProblem) -> tuple[CollectedRecord, ...]:
    def on_loss(loss: ImageLoss) -> None:
        on_problem(f"the records of this metadata.version cannot say {loss.value}")

    records = []
    for record in all_records_of(image, on_loss=on_loss):
        node = record.node()
        records.append(CollectedRecord(node["type"], node["version"], _in_json(node["data"])))
    return tuple(records)


def _in_json(value: Any) -> Any:
    """A value of a record as JSON has it: bytes in base64."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {name: _in_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(each) for each in value]
    return value
