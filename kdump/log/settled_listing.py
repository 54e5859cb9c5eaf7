"""List a partition that its broker is using, until nothing seems to be missing.

The cleaner renames the files of a segment one by one, and for a moment the log is under no name of
its own. A listing that runs meanwhile may see a renamed file twice, or not at all. Whoever plans a
reading by it would miss records.
"""

from __future__ import annotations

import time
from typing import Final

from kdump.formats.names import PartitionState, TopicPartition
from kdump.log.partition import LeftoverKind, Partition, read_partition
from kdump.storage.location import Location

ATTEMPTS: Final = 6
"""How often a partition is read that keeps changing, before what changes is not judged."""
_WAIT_S: Final = 0.02
"""How long the cleaner may take to rename the files of a segment; each wait is twice as long."""


def read_settled_partition(
    path: Location,
    topic_partition: TopicPartition | None,
    state: PartitionState = PartitionState.LIVE,
    *,
    keep_entries: bool = False,
) -> Partition:
    """List a partition until two listings in a row have the same segments, and none is replaced.

    After some attempts, what was found last counts. Takes and raises what
    :func:`~kdump.log.partition.read_partition` does.
    """
    found = None
    for attempt in range(ATTEMPTS):
        again = read_partition(path, topic_partition, state, keep_entries=keep_entries)
        is_replaced = bool(again.leftover_counts.get(LeftoverKind.SWAP))
        if found is not None and not is_replaced and _bases(found) == _bases(again):
            return again
        found = again
        if is_replaced:
            wait(attempt)
    assert found is not None
    return found


def wait(attempt: int) -> None:
    """Give the broker time to go on, more from attempt to attempt."""
    time.sleep(_WAIT_S * 2**attempt)


def _bases(partition: Partition) -> list[int]:
    return [each.base_offset for each in partition.segments]
