"""Which ``-stray`` and ``-delete`` directories become partitions again, and which cannot.

A broker renames the directory of a partition to ``-stray`` if the cluster's metadata does not have
it on this broker, and to ``-delete`` if its topic is deleted. Neither is closed at a shutdown
(``LogManager.shutdown`` closes current and future logs), and their lines leave the checkpoints when
those are written next.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.apply.directory_changes import run_directory
from kdump.apply.journal import RunState
from kdump.formats.names import (
    CLUSTER_METADATA_TOPIC,
    KDUMP_PREFIX,
    PartitionState,
    TopicPartition,
    is_kafkas_name,
    may_be_cut,
    parse_partition_directory_name,
)
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.state.metadata.cluster import ClusterImage
from kdump.state.metadata.config_keys import REMOTE_STORAGE_ENABLE, is_true
from kdump.storage.location import Location
from kdump.words import counted, shell_command, undo_command

GONE_STATES: Final = (PartitionState.STRAY, PartitionState.DELETE)
"""States of partitions that a broker does not use."""


class Obstacle(enum.Enum):
    """Why a directory is left unchanged; the value is its code in output."""

    SEVERAL = "several-candidates"
    """Several directories could become the same partition."""
    EXISTS = "exists"
    """The partition has a directory that the broker uses, or a copy that it is making."""
    OTHER_DIRECTORY = "other-directory"
    """The metadata has the partition in a log directory of the broker that was not named."""
    NAME_CUT = "name-cut"
    """The name of the topic was cut short, and nothing says what it was."""
    NAME_DIFFERS = "name-differs"
    """The metadata, or the user, gives the topic another name than the directory has."""
    METADATA_LOG = "metadata-log"
    """A copy of the cluster's metadata that was moved aside."""
    UNDO_DATA = "undo-data"
    """A directory that a run of kdump removed, and keeps for an undo."""
    INCOMPLETE = "incomplete"
    """A directory that a run of kdump was filling or deleting, or without files."""

    @property
    def is_expected(self) -> bool:
        """Whether the directory is right as it is, and nobody has to do anything."""
        return self in (Obstacle.METADATA_LOG, Obstacle.UNDO_DATA)


class NextStart(enum.Enum):
    """What the next start of the broker does; the value is the word in output."""

    KEPT = "kept"
    STRAY = "stray"
    """It renames the directory to ``-stray``."""
    DAMAGED = "damaged"
    """It refuses the log, or truncates it: it checks the log now."""
    UNKNOWN = "unknown"
    """There is no copy of the metadata that can be read."""


class StrayCause(enum.Enum):
    """Why the next start renames a restored partition to ``-stray``; the value is its code."""

    NO_TOPIC = "no-topic"
    """The metadata has no topic with its id."""
    CREATED_AGAIN = "created-again"
    """The metadata has another topic of its name."""
    NO_PARTITION = "no-partition"
    """The topic has fewer partitions."""
    OTHER_BROKERS = "other-brokers"
    """The partition has its replicas elsewhere."""
    NO_TOPIC_ID = "no-topic-id"
    """``partition.metadata`` is missing or malformed."""


class StartForecast(Struct, frozen=True):
    """What the next start does with a restored partition, and why.

    Attributes:
        outcome: what it does.
        cause: why it renames the partition; None if it does not.
        why: the same as a sentence.
    """

    outcome: NextStart
    cause: StrayCause | None = None
    why: str = ""


class Candidate(Struct, frozen=True):
    """A directory that may become a partition again.

    Attributes:
        partition: the directory as it is listed; its topic may be cut short.
        topic: the full name of its topic; None if it is not known.
        topic_id: from ``partition.metadata``, as Kafka writes it; None if it cannot be read.
        obstacle: why it is left unchanged; None if it is restored.
        why: a sentence about that.
        forecast: what the next start does with it.
        is_remote: whether the metadata says that its topic has remote storage, which this directory
            is only the last part of.
    """

    log_dir: LogDirectory
    partition: Partition
    topic: str | None
    topic_id: str | None
    obstacle: Obstacle | None = None
    why: str = ""
    forecast: StartForecast = StartForecast(NextStart.UNKNOWN)
    is_remote: bool = False

    @property
    def number(self) -> int:
        return self.partition.key.partition

    @property
    def key(self) -> TopicPartition | None:
        """The partition that it becomes; None if that is not known."""
        return None if self.topic is None else TopicPartition(self.topic, self.number)

    def left(self, obstacle: Obstacle, why: str) -> Candidate:
        """The same, to be left unchanged."""
        return replace(self, obstacle=obstacle, why=why)


def of_a_run(candidate: Candidate) -> Candidate:
    """Leave the directories of kdump's own runs unchanged.

    What such a run has filled or deleted only in part would be a partition with holes. Undo data
    is complete, and is restored by an undo, as long as that is possible.
    """
    path, partition = candidate.partition.path, candidate.partition
    if not (partition.segments or partition.leftovers or partition.total_bytes):
        undos = shell_command("undo --list", [candidate.log_dir.path])
        what = f"it has no files; if kdump resolve deleted them, '{undos}' names the run to undo"
        return candidate.left(Obstacle.INCOMPLETE, what)
    run = run_directory(parse_partition_directory_name(path.name))
    if run is None:
        return candidate
    if not run.is_complete:
        what = f"run {run.number} of kdump was creating or deleting it, so files may be missing"
        return candidate.left(Obstacle.INCOMPLETE, what)
    journals = [f"{KDUMP_PREFIX}{run.number}{state.value}" for state in RunState]
    if all((candidate.log_dir.path / name).kind() is None for name in journals):
        return candidate  # its undo data was discarded, or did not come along with a copy
    undo = undo_command(candidate.log_dir.path, run.number)
    return candidate.left(Obstacle.UNDO_DATA, f"it is undo data; '{undo}' restores it")


def with_full_name(candidate: Candidate, names: Mapping[str, str], given: str | None) -> Candidate:
    """Find the full name of a directory's topic.

    ``LocalLog.logDeleteDirName`` cuts a topic short so that the directory's name has 255
    characters. A name with fewer is complete. Otherwise the topic's id in ``partition.metadata``
    leads to it.

    Args:
        names: names of topics by id.
        given: the name that the user gives; None if there is none.
    """
    key = candidate.partition.key
    if candidate.obstacle is not None:
        return candidate
    if key.topic == CLUSTER_METADATA_TOPIC:
        what = "a copy of the cluster's metadata that was moved aside, not a partition"
        return candidate.left(Obstacle.METADATA_LOG, what)
    is_cut = may_be_cut(candidate.partition.path.name)
    by_id = names.get(candidate.topic_id or "")
    name = given or by_id or (None if is_cut else key.topic)
    if name is None:
        return candidate.left(
            Obstacle.NAME_CUT,
            "the name of its topic was cut short, and no metadata has its id; give the whole name"
            f" with --name {candidate.partition.path.name}=TOPIC",
        )
    is_possible = name.startswith(key.topic) if is_cut else name == key.topic
    if not is_possible or by_id not in (None, name) or not is_kafkas_name(f"{name}-0"):
        source = f"--name says {given!r}" if given else f"the metadata calls its id {by_id!r}"
        return candidate.left(Obstacle.NAME_DIFFERS, f"{source}, which does not fit its name")
    return replace(candidate, topic=name)


def without_conflicts(
    candidates: Sequence[Candidate],
    directories: Iterable[LogDirectory],
    brokers: Mapping[str, object],
) -> list[Candidate]:
    """Leave those unchanged that are not the only directory of their partition on their broker.

    A broker does not start with two of them ("Duplicate log directories"), and nothing on the disks
    says which one is right. A *-future* copy without a log becomes the log
    (``LogManager.recoverAbandonedFutureLogs``); beside one, it is truncated to it.

    Args:
        candidates: all of them, with full names.
        directories: all log directories, also those without candidates.
        brokers: the broker of each log directory, by its path as text.
    """
    used = {
        (brokers[str(directory.path)], key): (directory.path, wanted)
        for wanted in (PartitionState.FUTURE, PartitionState.LIVE)
        for directory in directories
        for key, state in directory.identities
        if state is wanted
    }
    rivals: dict[tuple[object, TopicPartition], list[Candidate]] = defaultdict(list)
    for each in candidates:
        if each.key is not None and each.obstacle is None:
            rivals[brokers[str(each.log_dir.path)], each.key].append(each)
    return [_checked(each, used, rivals, brokers) for each in candidates]


def _checked(
    each: Candidate,
    used: Mapping[tuple[object, TopicPartition], tuple[Location, PartitionState]],
    rivals: Mapping[tuple[object, TopicPartition], Sequence[Candidate]],
    brokers: Mapping[str, object],
) -> Candidate:
    if each.key is None or each.obstacle is not None:
        return each
    of_partition = brokers[str(each.log_dir.path)], each.key
    if of_partition in used:
        where, state = used[of_partition]
        what = f"directory {each.key} that the broker uses"
        if state is PartitionState.FUTURE:
            what = f"-future copy of {each.key}, which the broker may make its log"
        return each.left(
            Obstacle.EXISTS,
            f"{where} has a {what}; if this one is to replace it, move that one out of the log"
            " directory first",
        )
    others = rivals[of_partition]
    if len(others) > 1:
        places = ", ".join(str(other.partition.path) for other in others)
        return each.left(
            Obstacle.SEVERAL,
            f"{counted(len(others), 'directory', 'directories')} can become {each.key}: {places};"
            " choose one: --partition with the name of its directory",
        )
    return each


def forecast(
    candidate: Candidate, cluster: ClusterImage | None, node_id: int | None
) -> StartForecast:
    """Predict whether a starting broker renames the restored partition to ``-stray``.

    Follows ``BrokerMetadataPublisher.initializeManagers`` and ``LogManager.isStrayReplica``: the
    topic's id must be in the metadata, with a replica on this broker. The topic's name is not
    compared.

    Args:
        cluster: the metadata that the broker will have; None if it is not known.
        node_id: of the broker; None if it is not known.
    """
    if candidate.topic_id is None:
        return _stray(StrayCause.NO_TOPIC_ID, "it has no readable partition.metadata")
    if cluster is None:
        return StartForecast(NextStart.UNKNOWN)
    topic = cluster.topic_of(candidate.topic_id)
    if topic is None:
        again = cluster.topics.get(candidate.topic or "")
        if again is None:
            return _stray(StrayCause.NO_TOPIC, "the metadata has no topic with its id")
        what = "the metadata has another topic of this name: it was created again"
        return _stray(StrayCause.CREATED_AGAIN, what)
    assigned = topic.partitions.get(candidate.number)
    if assigned is None:
        what = "the metadata has the topic without this partition"
        return _stray(StrayCause.NO_PARTITION, what)
    if node_id is None:
        return StartForecast(NextStart.UNKNOWN)
    if node_id not in assigned.replicas:
        replicas = ", ".join(map(str, assigned.replicas)) or "no broker"
        what = f"the metadata has its replicas on {replicas}, not on {node_id}"
        return _stray(StrayCause.OTHER_BROKERS, what)
    return StartForecast(NextStart.KEPT)


def assigned_here(
    candidate: Candidate,
    cluster: ClusterImage | None,
    node_id: int | None,
    named: Container[str | None],
) -> Candidate:
    """Leave a directory unchanged whose partition is probably in a directory that is not seen.

    A move to another log directory leaves the original as ``-delete``, and a broker does not start
    with two of them. A directory with which the broker did not register last does not count.

    Args:
        candidate: without an obstacle so far, or it stays as it is.
        cluster: the metadata that the broker will have; None if it is not known.
        node_id: of the broker; None if it is not known.
        named: ids of the log directories that are seen; None if one of them has none.
    """
    topic = None if cluster is None else cluster.topic_of(candidate.topic_id or "")
    partition = None if topic is None else topic.partitions.get(candidate.number)
    if candidate.obstacle is not None or partition is None or cluster is None or node_id is None:
        return candidate
    assigned = partition.directory_on(node_id)
    if assigned in named or None in named or assigned not in cluster.log_dirs.get(node_id, ()):
        return candidate
    return candidate.left(
        Obstacle.OTHER_DIRECTORY,
        f"the metadata has {candidate.key} in the log directory of node {node_id} with the id"
        f" {assigned}, and a broker does not start with both: name all log directories of the"
        " broker; if that one is lost, start the broker once without it first",
    )


def is_remote(candidate: Candidate, cluster: ClusterImage | None) -> bool:
    """Whether the metadata says that the topic of a directory has remote storage."""
    topic = None if cluster is None else cluster.topic_of(candidate.topic_id or "")
    if topic is None:
        return False
    return is_true(topic.configs.get(REMOTE_STORAGE_ENABLE, ""))


def _stray(cause: StrayCause, why: str) -> StartForecast:
    return StartForecast(NextStart.STRAY, cause, why)


def restored(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those that become partitions again."""
    return [each for each in candidates if each.obstacle is None]
