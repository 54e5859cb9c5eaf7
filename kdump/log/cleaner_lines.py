"""Lines in the checkpoints of a broker's log cleaner about logs that are in other directories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from kdump.formats.names import CLUSTER_METADATA_TOPIC, PartitionState, TopicPartition
from kdump.log.directory import LogDirectory
from kdump.storage.location import Location


class MisplacedLine(Struct, frozen=True):
    """Lines of a partition in the cleaner's checkpoints of directories that lack its log.

    With lines in two directories ``LogCleanerManager.allCleanerCheckpoints`` throws an exception,
    which ends the thread of the cleaner: nothing is cleaned any more. If the directory with the log
    has no line, the cleaner adds one after the next round on that log.

    Attributes:
        directories: which have a line.
        without_log: those of them that do not have the log.
        has_log: whether another of the broker's directories has the log.
    """

    key: TopicPartition
    directories: tuple[Location, ...]
    without_log: tuple[Location, ...]
    has_log: bool

    @property
    def is_repeated(self) -> bool:
        """Whether there are two lines already."""
        return len(self.directories) > 1


def cleaner_lines(
    directories: Iterable[LogDirectory],
) -> dict[TopicPartition, dict[Location, int]]:
    """The lines of the cleaner's checkpoints, by partition and directory."""
    lines = defaultdict[TopicPartition, dict[Location, int]](dict)
    for directory in directories:
        for key, offset in (directory.checkpoints.cleaner_offsets or {}).items():
            lines[key][directory.path] = offset
    return lines


def cleanable_logs(directory: LogDirectory) -> Iterator[TopicPartition]:
    """The logs that a broker's log manager has (``LogManager.currentLogs``), by their names."""
    for key, state in directory.identities:
        if state is PartitionState.LIVE and key.topic != CLUSTER_METADATA_TOPIC:
            yield key


def misplaced_lines(directories: Iterable[LogDirectory]) -> Iterator[MisplacedLine]:
    """Yield what is misplaced in the cleaner's checkpoints of one broker.

    A line about a log that no directory has is harmless: the cleaner drops it.

    Args:
        directories: of one broker.
    """
    every = list(directories)
    logs = {(key, each.path) for each in every for key in cleanable_logs(each)}
    somewhere = {key for key, _ in logs}
    for key, own in cleaner_lines(every).items():
        without_log = tuple(path for path in own if (key, path) not in logs)
        if len(own) > 1 or (without_log and key in somewhere):
            yield MisplacedLine(key, tuple(own), without_log, key in somewhere)
