"""Which logs a starting broker deletes because their copies on other disks become the logs.

A broker moves a partition to another disk by a ``-future`` copy. When the copy has caught up, the
controllers assign the replica to its directory, and the broker makes the copy the log. If it stops
between the two, the next start does so, whatever the copy has by then: after a power failure that
can be less than the log (``LogManager.recoverAbandonedFutureLogs``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kdump.check.scope import ReplacedLog, becomes_log
from kdump.jobs.loading.load_split import load_split
from kdump.log.broker import unfinished_moves
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.state.metadata.settings import DirectorySettings, Settings
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.broker.loader.recovered_partition import Recovered


def replaced_logs(
    directories: Sequence[LogDirectory],
    settings: DirectorySettings,
    now_ms: int = 0,
) -> dict[Location, ReplacedLog]:
    """Map the directory of each such log to the copy that takes its place.

    Reads the log and the copy as a starting broker does, where there is one.

    Args:
        directories: all log directories, also of several brokers.
    """
    found = {}
    for each in unfinished_moves(directories):
        known = settings[each.directory.path]
        if each.log is None or not becomes_log(each.copy, each.directory, known.cluster):
            continue
        directory, log = each.log
        if directory is each.directory:  # the broker fails: see partitions_twice
            continue
        before = _loaded(log, directory, settings[directory.path], now_ms)
        after = _loaded(each.copy, each.directory, known, now_ms)
        if after is not None:
            lost = "" if before is None else " and ".join(_only_in(before, after))
            found[log.path] = ReplacedLog(each.copy.path, lost)
    return found


def _loaded(
    partition: Partition, directory: LogDirectory, settings: Settings, now_ms: int
) -> Recovered | None:
    """What a broker makes of a partition; None if it does not load it."""
    # Imported here, because hardly any broker stops at that moment.
    from kdump.broker.loader.recovered_partition import Recovered
    from kdump.jobs.loading.load_partition import RecoverJob

    outcome = RecoverJob().run(load_split(partition, directory, settings, now_ms=now_ms))
    return outcome if isinstance(outcome, Recovered) else None


def _only_in(log: Recovered, copy: Recovered) -> Iterator[str]:
    """The offsets at both ends that a log has and its copy has not."""
    start, end = log.log_start_offset, log.log_end_offset
    if start < (stop := min(copy.log_start_offset, end)):
        yield f"{start} to {stop - 1}"
    if (first := max(copy.log_end_offset, start)) < end:
        yield f"{first} to {end - 1}"
