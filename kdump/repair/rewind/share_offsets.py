"""What share groups have delivered beyond the end of a log, and the records that say so no more.

A share coordinator deletes records that later ones replace by raising the log start of
``__share_group_state`` (``ShareCoordinatorService.setupRecordPruning``). So a cut may leave less
than a coordinator had at that moment. Deleted records stay on disk as long as their segment, and
what they add up to is written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from kdump.formats.coordinator_records import decode_key, decode_value
from kdump.formats.java.java_text import coordinator_partition
from kdump.formats.message_encoder import encode
from kdump.formats.names import TopicPartition
from kdump.formats.schemas import share
from kdump.formats.schemas.group_coordinator import (
    RECORD_TYPES,
    SHARE_GROUP_STATE_PARTITION_METADATA,
)
from kdump.repair.rewind.log_facts import NotRewindableError, valid_windows_of
from kdump.state.compacted.latest_records import LatestRecords
from kdump.state.groups.share_groups import (
    UNKNOWN,
    ShareBatch,
    SharePartition,
    ShareRecords,
    combined,
    read_share_partitions,
)
from kdump.target.virtual_directory import VirtualDirectory

_VERSION = 0
_NO_EPOCH = 0
"""``ShareGroupOffset.UNINITIALIZED_EPOCH``."""

ShareKey = tuple[str, str, int]
"""A group, the id of a topic, and the number of a partition."""


class ShareStates(Struct, frozen=True):
    """What the records of a log of ``__share_group_state`` add up to, before a cut.

    Attributes:
        first_offset: of what is on disk.
        end_offset: where they end.
        on_disk: of all records on disk.
        kept: of those that a coordinator loads.
    """

    first_offset: int
    end_offset: int
    on_disk: Mapping[ShareKey, SharePartition]
    kept: Mapping[ShareKey, SharePartition]


class WrittenShare(Struct, frozen=True):
    """What a share group has delivered of a partition, as a snapshot says it that is appended.

    Attributes:
        partition: that it consumes; None if nobody knows the name of the topic.
        number: of the partition.
        before: what it had delivered at the moment.
        after: what the snapshot says.
        key: of its record.
        value: likewise.
    """

    group: str
    topic_id: str
    partition: TopicPartition | None
    number: int
    before: SharePartition
    after: SharePartition
    key: bytes
    value: bytes

    @property
    def is_lowered(self) -> bool:
        """Whether it lay beyond the end of its log; otherwise its records had been deleted."""
        return _said(self.before) != _said(self.after)


def read_share_states(
    directory: VirtualDirectory, log_start_offset: int, end: int | None
) -> ShareStates:
    """Read a log of ``__share_group_state``.

    Args:
        directory: of the log.
        log_start_offset: where a coordinator begins to load it.
        end: batches from there on are left out; None leaves out none.

    Raises:
        NotRewindableError: a record cannot be read.
        OSError: a file cannot be read.
    """
    on_disk, kept = ShareRecords(), ShareRecords()
    bases = directory.base_offsets()

    def refuse(damage: object) -> None:
        raise NotRewindableError(f"{damage}; repair it first")

    first = bases[0] if bases else 0
    last = first if end is None else min(first, end)
    for window, _ in valid_windows_of(directory, to_offset=end):
        batches = window.batches
        before = window if end is None else window.rows(batches.base_offset < end)
        if not before.batches.count:
            continue
        last = int(before.batches.last_offset[-1]) + 1
        on_disk.add(before, refuse)
        kept.add(before.rows(before.batches.last_offset >= log_start_offset), refuse)
    return ShareStates(first, last, _by_key(directory, on_disk), _by_key(directory, kept))


def _by_key(directory: VirtualDirectory, records: ShareRecords) -> dict[ShareKey, SharePartition]:
    found = read_share_partitions(records, lambda _: True)
    if found.problems:
        raise NotRewindableError(
            f"{directory.path}: a share coordinator does not load it: {found.problems[0]}"
        )
    return {each.key: each for each in found.partitions}


def written_shares(
    states: Mapping[ShareKey, SharePartition],
    kept: Mapping[ShareKey, SharePartition],
    ends: Mapping[TopicPartition, int],
    topics: Mapping[str, str],
) -> list[WrittenShare]:
    """Find what a log does not say as it was, or what lies beyond the ends of logs.

    Args:
        states: as they were at the moment.
        kept: what the log says.
        ends: where logs end; others are not known.
        topics: names by id.

    Returns:
        What to append, in a fixed order.
    """
    found = []
    for key, state in sorted(states.items()):
        if state.write_timestamp_ms is None:
            continue  # its snapshot is gone
        group, topic_id, number = key
        topic = topics.get(topic_id)
        partition = None if topic is None else TopicPartition(topic, number)
        end = None if partition is None else ends.get(partition)
        after = state if end is None else _ended(state, end)
        known = kept.get(key)
        if known is not None and _said(known) == _said(after):
            continue
        after = replace(after, snapshot_epoch=state.snapshot_epoch + 1)
        found.append(
            WrittenShare(
                group,
                topic_id,
                partition,
                number,
                state,
                after,
                _key_of(after),
                _value_of(after),
            )
        )
    return found


def _said(state: SharePartition) -> SharePartition:
    """What counts of a state: the same for two that were written differently."""
    return replace(
        state,
        snapshot_epoch=0,
        record_offset=0,
        batches=combined(state.batches, state.start_offset),
        write_timestamp_ms=None if state.write_timestamp_ms is None else 0,
        create_timestamp_ms=0,
    )


def _ended(state: SharePartition, end: int) -> SharePartition:
    """The state without what was delivered at or after the end of its log."""
    start = min(state.start_offset, end)
    batches = tuple(
        ShareBatch(each.first, min(each.last, end - 1), each.state, each.count)
        for each in state.batches
        if each.first < end
    )
    undone = sum(
        each.last - max(each.first, end) + 1
        for each in state.batches
        if each.is_done and each.last >= end
    )
    count = state.delivery_complete_count
    if count != UNKNOWN:
        count = 0 if start < state.start_offset else max(count - undone, 0)
    return replace(state, start_offset=start, batches=batches, delivery_complete_count=count)


def _key_of(state: SharePartition) -> bytes:
    schema = share.SHARE_SNAPSHOT.key
    assert schema is not None
    fields = {"groupId": state.group_id, "topicId": state.topic_id, "partition": state.partition}
    return share.SHARE_SNAPSHOT.id.to_bytes(2, "big") + encode(schema, fields, _VERSION)


def _value_of(state: SharePartition) -> bytes:
    fields = {
        "snapshotEpoch": state.snapshot_epoch,
        "stateEpoch": _NO_EPOCH if state.state_epoch == UNKNOWN else state.state_epoch,
        "leaderEpoch": state.leader_epoch,
        "startOffset": state.start_offset,
        "deliveryCompleteCount": state.delivery_complete_count,
        "createTimestamp": state.create_timestamp_ms or 0,
        "writeTimestamp": state.write_timestamp_ms or 0,
        "stateBatches": [
            {
                "firstOffset": each.first,
                "lastOffset": each.last,
                "deliveryState": each.state,
                "deliveryCount": each.count,
            }
            for each in state.batches
        ],
    }
    return _VERSION.to_bytes(2, "big") + encode(share.SHARE_SNAPSHOT.value, fields, _VERSION)


def lowered_share_end(
    states: Mapping[ShareKey, SharePartition], key: bytes | None, value: bytes | None
) -> tuple[ShareKey, int] | None:
    """Where a log must have ended, if a record says only that of what a share group has delivered.

    Args:
        states: before the record.
        key: of the record.
        value: of the record.

    Returns:
        The lowest end that fits; None if the record says anything else.

    Raises:
        FormatError: it cannot be read.
    """
    if key is None or value is None:
        return None
    record_type, fields = decode_key(share.RECORD_TYPES, key)
    if record_type is not share.SHARE_SNAPSHOT:
        return None
    share_key = fields["groupId"], fields["topicId"], fields["partition"]
    before = states.get(share_key)
    if before is None:
        return None
    new = decode_value(share.SHARE_SNAPSHOT, value)
    lasts = [each["lastOffset"] for each in new["stateBatches"]]
    end = max([new["startOffset"], *(last + 1 for last in lasts)])
    after = replace(_ended(before, end), snapshot_epoch=before.snapshot_epoch + 1)
    if _value_of(after) != value or _said(after) == _said(before):
        return None
    return share_key, end


def initialized_shares(latest: LatestRecords) -> Iterator[ShareKey]:
    """The partitions whose state share groups expect to find.

    Args:
        latest: the records of a partition of ``__consumer_offsets``.

    Raises:
        FormatError: a record cannot be read.
    """
    for key, record in latest.values.items():
        if record.value is None or latest.tombstones.get(key, -1) > record.offset:
            continue
        record_type, fields = decode_key(RECORD_TYPES, key)
        if record_type is not SHARE_GROUP_STATE_PARTITION_METADATA:
            continue
        value = decode_value(record_type, record.value)
        for topic in value["initializedTopics"]:
            for number in topic["partitions"]:
                yield fields["groupId"], topic["topicId"], number


def share_log_of(key: ShareKey, partitions: int) -> int:
    """The partition of ``__share_group_state`` that has a state (``SharePartitionKey``)."""
    group, topic_id, number = key
    return coordinator_partition(f"{group}:{topic_id}:{number}", partitions)
