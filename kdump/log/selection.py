"""Which partitions of log directories a command works on: its ``--topic`` and ``--partition``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kdump.formats.names import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from kdump.formats.names import TopicPartition
    from kdump.log.partition import Partition


class PartitionSelection(Struct, frozen=True):
    """Selects partitions by globs (``*``, ``?``, ``[...]``), upper and lower case being different.

    A partition is selected if it matches one of ``topics`` and one of ``partitions``; an empty
    tuple matches everything.

    Attributes:
        topics: globs for topic names.
        partitions: globs for partition names, ``TOPIC-PARTITION``. They also match the name of
            the partition's directory, which has more where a replica is deleted, stray or moving.
            A plain number selects the partition with that number in each selected topic.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Whether no glob was given."""
        return not self.topics and not self.partitions

    def matches(self, directory_name: str, key: TopicPartition | None) -> bool:
        """Whether a partition is selected.

        Args:
            key: the partition; None for a copy whose directory is not named after one, which no
                topic glob matches.
        """
        if not _any_matches(self.topics, [] if key is None else [key.topic]):
            return False
        names = [directory_name] if key is None else [directory_name, str(key)]
        return _any_matches(self.partitions, names) or (
            key is not None and any(_is_number(glob, key.partition) for glob in self.partitions)
        )

    def matches_topic(self, topic: str) -> bool:
        """Whether partitions of a topic may be selected, whatever their numbers."""
        globs = [
            "*" if glob.isdecimal() else glob.rpartition("-")[0] or glob for glob in self.partitions
        ]
        return _any_matches(self.topics, [topic]) and _any_matches(tuple(globs), [topic])

    def may_match_cut(self, directory_name: str, key: TopicPartition) -> bool:
        """Whether a topic whose name begins with that of ``key`` may be selected."""
        return _may_match_cut(self.topics, key.topic) and (
            not self.partitions
            or any(
                _is_number(glob, key.partition)
                or fnmatchcase(directory_name, glob)
                or _may_match_cut((glob,), key.topic)
                for glob in self.partitions
            )
        )

    def topics_in(self, partitions: Iterable[Partition]) -> set[str]:
        """The topics of the selected partitions."""
        return {
            each.key.topic
            for each in partitions
            if each.topic_partition is not None and each in self
        }

    def __contains__(self, partition: Partition) -> bool:
        return self.matches(partition.path.name, partition.topic_partition)

    def needs(self, directory_name: str, key: TopicPartition) -> bool:
        """Whether a partition has to be listed: it is selected, or has the settings of all topics.

        Takes what :meth:`matches` does.
        """
        return key.topic == CLUSTER_METADATA_TOPIC or self.matches(directory_name, key)

    def is_futile(self, partitions: Iterable[Partition]) -> bool:
        """Whether there are globs, and none of ``partitions`` is selected."""
        return not self.is_everything and not any(each in self for each in partitions)

    def names(self, key: TopicPartition) -> bool:
        """Whether a partition, or its topic, is given by its exact name rather than a pattern.

        Kafka's own topics, and topics that are not configured for an operation, are worked on
        only then.
        """
        return key.topic in self.topics or str(key) in self.partitions


EVERYTHING: Final = PartitionSelection()


def only_metadata(_directory_name: str, key: TopicPartition) -> bool:
    """Select the copies of the cluster's metadata."""
    return key.topic == CLUSTER_METADATA_TOPIC


def _any_matches(globs: tuple[str, ...], candidates: list[str]) -> bool:
    return not globs or any(fnmatchcase(each, glob) for glob in globs for each in candidates)


def _may_match_cut(globs: tuple[str, ...], beginning: str) -> bool:
    """Whether one of the globs may match a text that begins so."""
    literals = (re.split(r"[*?\[]", glob, maxsplit=1) for glob in globs)
    return not globs or any(
        literal.startswith(beginning) or bool(pattern and beginning.startswith(literal))
        for literal, *pattern in literals
    )


def _is_number(glob: str, partition: int) -> bool:
    return glob.isascii() and glob.isdecimal() and int(glob) == partition
