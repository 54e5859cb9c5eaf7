"""Logs in use that are damaged, and that only the clean shutdown marker keeps as they are.

With the marker, a broker does not look at the records of a log. Without it, it checks each from its
recovery point on, which is in the last segment after a clean shutdown (``LogLoader.recoverLog``).
So a command that removes the marker says which logs the next start then truncates or refuses.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.loader.checkpoints import is_loaded
from kdump.broker.loader.load_context import load_context
from kdump.broker.loader.loader import load_directory
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.phases import phase
from kdump.target.refusal import Refusal
from kdump.target.virtual_directory import VirtualDirectory


class LogAtRisk(Struct, frozen=True):
    """A log in use that the next start truncates or refuses, but only without the marker.

    Attributes:
        partition: its directory.
        end_offset: where a start after a clean shutdown ends it.
        truncated_to: where the next start ends it; None if the broker does not start.
        why: a sentence about that.
    """

    partition: Partition
    end_offset: int
    truncated_to: int | None
    why: str


def logs_at_risk(directory: LogDirectory) -> Iterator[LogAtRisk]:
    """The logs of a clean directory that lose records, or stop the broker, without the marker.

    Args:
        directory: with all its partitions, and the recovery points of the next start.
    """
    in_use = [each for each in directory.partitions if is_loaded(each) and each.topic_partition]
    with phase(f"checking the other logs of {directory.path}", len(in_use)) as checking:
        for partition in checking.over(in_use):
            try:
                found = _at_risk(directory, partition)
            except OSError:
                continue  # nor can the broker read it, with the marker or without
            if found is not None:
                yield found


def _at_risk(directory: LogDirectory, partition: Partition) -> LogAtRisk | None:
    context = load_context(directory, partition.key)
    kept = load_directory(VirtualDirectory(partition.path), context)
    if isinstance(kept, Refusal):
        return None
    end = kept.log_end_offset
    outcome = load_directory(VirtualDirectory(partition.path), replace(context, is_clean=False))
    if isinstance(outcome, Refusal):
        return LogAtRisk(partition, end, None, f"a broker does not start with it: {outcome}")
    if outcome.log_end_offset >= end:
        return None
    why = f"a broker truncates it to offset {outcome.log_end_offset}, from {end}"
    return LogAtRisk(partition, end, outcome.log_end_offset, why)
