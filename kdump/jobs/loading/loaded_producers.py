"""The producers of a partition, as a broker that starts on it has them."""

from __future__ import annotations

from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.jobs.loading.load_partition import RecoverJob
from kdump.jobs.loading.load_split import load_split
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.state.metadata.settings import Settings


def loaded_producers(
    partition: Partition, around: LogDirectory
) -> tuple[ProducerEntry, ...] | Unreadable | str:
    """The producers after a start, which recovers the log if need be.

    Args:
        around: the log directory of the partition.

    Returns:
        The producers; what cannot be read, or why a broker does not load the partition.

    Raises:
        OSError: the log directory cannot be read.
    """
    outcome = RecoverJob().run(load_split(partition, around, Settings()))
    if isinstance(outcome, Recovered):
        return outcome.producers
    return outcome if isinstance(outcome, Unreadable) else str(outcome)
