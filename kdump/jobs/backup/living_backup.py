"""Back up log directories that a broker is using: what it would leave if it were killed.

Of each partition, all files are stored as they were at one moment: two listings in a row show the
same files, and each is still the same after it was read. Only the last segment may have grown by
then. What changed meanwhile is read again; what was stored of it need not be.

Partitions are read one after the other. So those whose records say something of others come first:
committed offsets are then never past the end of a log. The cluster's metadata come last: they know
every topic that is stored, and every leader epoch.

A broker that starts leads what the metadata say before the controllers know that it was away, in
the same leader epoch: it may append where others have records already, and nobody finds out. So of
each partition, the replica that leads is stored last: it has all that the others have.

A replica that the metadata have got in sync meanwhile may be stored as it was before that, without
what was acknowledged by then: as leader, it would take that from the others. One that leads by now
may lack what the others have. One that ends before another was cleaned lacks the later values for
which the other lost earlier ones: as leader, it would have them truncated there, and then the other
has neither. And a topic may have been deleted, and created again: a broker that starts makes strays
of the replicas of the old one. So all of them are stored again, with the leader last, and then the
metadata.

Checkpoints were read before all of them, and say no more than what is stored. Only how far the
cleaner has come is read with each partition: logs whose checkpoint is older cannot be compared.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from kdump.check.batches import SegmentScope
from kdump.check.metadata_snapshot import check_metadata_snapshot
from kdump.check.scope import PartitionScope
from kdump.errors import reason_of
from kdump.formats import names
from kdump.formats.checkpoints import decode_offset_checkpoint
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind, FileStage, PartitionState, SnapshotStage, TopicPartition
from kdump.formats.partition_metadata import known_topic_id
from kdump.jobs.backup.backup_job import CHANGES, Beginning, Damage, FileToStore, damage_of
from kdump.jobs.backup.directory_backup import (
    BackupRun,
    Directory,
    DirectoryBackup,
    attributes_of,
    grouped,
)
from kdump.jobs.backup.living_content import (
    StoredEnd,
    entries_before,
    epochs_before,
    is_whole_snapshot,
    offsets_before,
    stored_end,
    used_bytes,
)
from kdump.jobs.writing.many_files import put_together
from kdump.log.directory import LogDirectory, Offsets, PartitionPlace, read_root
from kdump.log.living import FileStamp, Glimpse, glimpse_of
from kdump.log.partition import Partition, list_partition, read_if_there
from kdump.log.segment import Segment
from kdump.log.settled_listing import ATTEMPTS, wait
from kdump.phases import phase
from kdump.scan.source import read_at
from kdump.state.metadata.cluster import ClusterImage, ClusterPartition, read_newest_image
from kdump.storage.entries import EntryKind, is_file_name
from kdump.storage.file_status import FileStatus, file_status
from kdump.storage.gentle_disk import gently
from kdump.storage.location import Location
from kdump.storage.repository_documents import BackedUpLogDirectory, stored_bytes
from kdump.words import counted

_FIRST: Final = ("__transaction_state", "__consumer_offsets", "__share_group_state")
"""Topics whose records are about other topics, in this order.

A coordinator of transactions that knows less ends again what ended later, also the offsets that
were committed with it.
"""
_INDEXES: Final = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
_SEGMENT_KINDS: Final = (*_INDEXES, FileKind.TRANSACTION_INDEX)
_LOG_BYTES_PER_INDEX_BYTE: Final = 200
"""With the default ``index.interval.bytes``: an entry of each index for 4096 bytes."""
_LOOKED_AT_BYTES: Final = 1 << 16
_NO_FILE: Final = "no regular file: stored only while no broker is running"
_NOT_STORED: Final = names.OFFSET_CHECKPOINTS | {names.LOCK_FILE, names.CLEAN_SHUTDOWN_MARKER}


_Images = Mapping[str | None, ClusterImage]
"""The metadata of clusters, by their ids."""


class _ChangedError(Exception):
    """A broker changed a directory while it was read."""


class _Identity(NamedTuple):
    """What tells a directory from a later one of the same name.

    That is of a topic that was created again, or of a replica that was moved.

    Attributes:
        directory_id: its number on its disk, which a later one may have again.
        metadata: its ``partition.metadata``; None without one, as of a new partition.
    """

    directory_id: int
    metadata: bytes | None

    def is_same(self, other: _Identity) -> bool:
        """Whether it is the same directory, as far as is known."""
        is_known = self.metadata is not None and other.metadata is not None
        return self.directory_id == other.directory_id and not (
            is_known and self.metadata != other.metadata
        )


class _StoredPartition(NamedTuple):
    """A partition that is stored.

    Attributes:
        end: where what is stored of its log ends; None without a log.
        last_base_offset: of its last segment, which is never cleaned.
        left_out: what is not stored, by path, and why.
        cleaned_to: where the cleaner had come to; None if its checkpoint has no such line.
    """

    place: PartitionPlace
    identity: _Identity
    end: StoredEnd | None
    last_base_offset: int
    left_out: Mapping[str, str]
    cleaned_to: int | None


class _Reading(Struct):
    """A partition that is being stored.

    Attributes:
        glimpse: its files, all at one moment.
        cleaned_to: where the cleaner had come to before that; None if its checkpoint has no such
            line.
        end: where what is stored of its log ends; None without a log.
        damaged_tail: whether something that is no valid batch follows there, and nobody writes it.
        files: to store; others are stored already.
        indexes: of the last segment, what was read of them.
    """

    place: PartitionPlace
    identity: _Identity
    glimpse: Glimpse
    cleaned_to: int | None
    end: StoredEnd | None = None
    damaged_tail: bool = False
    files: tuple[FileToStore, ...] = ()
    indexes: dict[str, bytes] = {}


def back_up_living(
    directories: Sequence[LivingDirectory],
) -> dict[Location, BackedUpLogDirectory]:
    """Store log directories that brokers are using; their partitions may be moved among them.

    Raises:
        KdumpError: there is too little space, or the disk of the repository fails.
        OSError: a log directory cannot be listed.
    """
    brokers: dict[tuple[str | None, int | None], list[LivingDirectory]] = defaultdict(list)
    for each in directories:
        each.find()
        brokers[each.directory.cluster_id, each.directory.node_id].append(each)
    images = _images(directories)
    wanted = {place.topic_partition for each in directories for place in each.places.values()}
    _store_data([(each, each.places.keys()) for each in directories], images)
    _store_moved([*brokers.values()], wanted, images)
    for each in directories:
        each.store(_is_metadata)
    _store_outdated([*brokers.values()], wanted, images)
    for of_broker in brokers.values():
        _leave_gone(of_broker)
    return {each.root: each.ended() for each in directories}


def _store_data(chosen: Sequence[tuple[LivingDirectory, Collection[str]]], images: _Images) -> None:
    """Store partitions by the names of their directories, first those that tell of others.

    Args:
        images: the metadata, which say whose replica leads: it comes last.
    """
    led = [each.led(images) for each, _ in chosen]
    for topic in (*_FIRST, None):
        for leads in (False, True):
            for (each, those), of_leader in zip(chosen, led, strict=True):
                each.store(functools.partial(_is_chosen, topic, those, of_leader, leads))


def _store_moved(
    brokers: Sequence[Sequence[LivingDirectory]],
    wanted: Collection[TopicPartition],
    images: _Images,
) -> None:
    """Store what brokers have moved to another log directory meanwhile, then who leads it, again.

    Args:
        brokers: the directories of each.
        wanted: the partitions that were there before.
        images: the metadata, which say whose replica leads.
    """
    for _ in range(ATTEMPTS):
        moved = {key for of_broker in brokers for key in _store_missing(of_broker, wanted)}
        if not moved:
            return
        _store_data(
            [
                (each, each.leave(functools.partial(_is_one_of, moved & each.led(images))))
                for of_broker in brokers
                for each in of_broker
            ],
            images,
        )


def _store_missing(
    directories: Sequence[LivingDirectory], wanted: Collection[TopicPartition]
) -> set[TopicPartition]:
    """Store the partitions that a broker has moved meanwhile; returns which."""
    found = set[TopicPartition]()
    for attempt in range(ATTEMPTS):
        missing = _missing(directories, wanted)
        if not missing:
            break
        found |= missing
        wait(attempt)
        is_missing = functools.partial(_is_one_of, missing)
        for each in directories:
            each.store(is_missing)
    return found


def _store_outdated(
    brokers: Sequence[Sequence[LivingDirectory]],
    wanted: Collection[TopicPartition],
    images: _Images,
) -> None:
    """Store the replicas again that the metadata know otherwise, then the metadata.

    They got in sync or were elected while they were stored, end before another was cleaned, or are
    of a topic that was deleted. While a broker catches up, its replicas get there one after
    another: so each may be outdated some times, however often that happens to others.

    Args:
        brokers: the directories of each.
        wanted: the partitions that were there before.
        images: the metadata from before the first partition.
    """
    directories = [each for of_broker in brokers for each in of_broker]
    first = images
    times = Counter[tuple[Location, TopicPartition]]()
    attempt = 0
    while True:
        now = _images(directories)
        late = [
            each.late(images, now, outrun)
            for each, outrun in zip(directories, _outrun(directories, now), strict=True)
        ]
        replaced = [each.replaced(first, now) for each in directories]
        outdated = [of_late.keys() | gone for of_late, gone in zip(late, replaced, strict=True)]
        keys = {key for found in outdated for key in found}
        if not keys:
            return
        times.update(
            (each.root, key)
            for each, found in zip(directories, outdated, strict=True)
            for key in found
        )
        if max(times.values()) > ATTEMPTS:
            break
        wait(attempt)
        attempt = min(attempt + 1, ATTEMPTS - 1)
        images = now
        if any(key.topic in _FIRST for key in keys):
            # What they tell of has to be as new as they are.
            chosen = [(each, each.leave(_is_data)) for each in directories]
        else:
            chosen = [
                (each, each.leave(functools.partial(_is_one_of, found | keys & each.led(now))))
                for each, found in zip(directories, outdated, strict=True)
            ]
        _store_data(chosen, now)
        _store_moved(brokers, wanted, now)
        for each in directories:
            each.leave(_is_metadata)
            each.store(_is_metadata)
    for each, of_late, gone in zip(directories, late, replaced, strict=True):
        each.unreadable += [
            f"{each.root / str(key)}: its replica {what} after it was read,"
            f" {counted(times[each.root, key], 'time')}; run this again when its broker has caught"
            " up"
            for key, what in sorted(of_late.items())
        ]
        each.leave(functools.partial(_is_one_of, gone))


def _outrun(directories: Sequence[LivingDirectory], images: _Images) -> list[set[TopicPartition]]:
    """The partitions whose stored replica ends before another was cleaned, though it is in sync.

    Returns:
        Those of each directory.
    """
    cleaned: dict[tuple[str | None, TopicPartition], int] = defaultdict(int)
    for each in directories:
        for key, offset in each.cleaned().items():
            of_cluster = each.directory.cluster_id, key
            cleaned[of_cluster] = max(offset, cleaned[of_cluster])
    found = []
    for each in directories:
        ends, in_sync = each.ends(), each.in_sync(images)
        found.append(
            {
                key
                for key in in_sync & ends.keys()
                if ends[key] < cleaned.get((each.directory.cluster_id, key), 0)
            }
        )
    return found


def _images(directories: Iterable[LivingDirectory]) -> _Images:
    """Read the newest metadata of each cluster that a log directory has a copy of.

    Raises:
        OSError: a file cannot be read.
    """
    copies: dict[str | None, list[Partition]] = defaultdict(list)
    for each in directories:
        copies[each.directory.cluster_id] += each.metadata()
    found = {}
    for cluster_id, of_cluster in copies.items():
        with phase("reading which replicas are in sync"):
            image = read_newest_image(of_cluster)
        if image is not None:
            found[cluster_id] = image
    return found


def _leave_gone(directories: Sequence[LivingDirectory]) -> None:
    """Leave out what a broker has deleted meanwhile, or moved to where it is stored, too."""
    for each in directories:
        each.find()
    found = _live(place for each in directories for place in each.places.values())
    stored = {key for each in directories for key in each.live}
    for each in directories:
        each.note_failures(stored)
        elsewhere = {key for other in directories if other is not each for key in other.live}
        each.leave_gone(elsewhere, found)


def _missing(
    directories: Sequence[LivingDirectory], wanted: Collection[TopicPartition]
) -> set[TopicPartition]:
    """The partitions that are in use by now, and were there before, and are not stored yet.

    They were moved to another log directory, or created again.
    """
    for each in directories:
        each.find()
        each.leave_replaced()
    stored = {key for each in directories for key in each.live}
    found = _live(
        place for each in directories for place in each.places.values() if _is_data(place)
    )
    return found & {*wanted} - stored


def _live(places: Iterable[PartitionPlace]) -> set[TopicPartition]:
    return {each.topic_partition for each in places if each.state is PartitionState.LIVE}


def _is_one_of(keys: Collection[TopicPartition], place: PartitionPlace) -> bool:
    return place.topic_partition in keys


def _is_chosen(
    topic: str | None,
    chosen: Collection[str],
    led: Collection[TopicPartition],
    leads: bool,
    place: PartitionPlace,
) -> bool:
    key = place.topic_partition
    is_of = _is_data(place) if topic is None else key.topic == topic
    return is_of and place.name in chosen and (key in led) == leads


def _topic_ids(images: _Images, cluster_id: str | None) -> set[str]:
    image = images.get(cluster_id)
    return set() if image is None else {each.topic_id for each in image.topics.values()}


def _offsets_of(checkpoint: bytes) -> Offsets | None:
    """The lines of an offset checkpoint; None if it is empty or malformed."""
    try:
        return dict(decode_offset_checkpoint(checkpoint))
    except FormatError:
        return None


def _is_metadata(place: PartitionPlace) -> bool:
    return place.topic_partition.topic == names.CLUSTER_METADATA_TOPIC


def _is_data(place: PartitionPlace) -> bool:
    return not _is_metadata(place)


class LivingDirectory(DirectoryBackup):
    """The backup of a log directory that a broker is using.

    Attributes:
        places: the directories of its partitions, by name, as they were found last.
        stored: those that are stored.
    """

    def __init__(self, run: BackupRun, directory: LogDirectory) -> None:
        super().__init__(run, directory)
        self.places: dict[str, PartitionPlace] = {}
        self.stored: dict[str, _StoredPartition] = {}
        self._of_metadata: dict[str, Damage] = {}
        self._failures: dict[str, str] = {}
        # The directories first: a line of a checkpoint is that of one that was there before.
        self.find()
        found = (_identity_of(self.root / name) for name in self.places)
        self._first = {each.directory_id: each for each in found if each is not None}
        self._cleaner: tuple[FileStamp, Offsets] | None = None
        self._first_checkpoints = read_root(self.root, self.directory.kind)[0].checkpoints

    def find(self) -> None:
        """List the directories of the partitions; one that is just renamed may be seen later."""
        self.places = {}
        for _ in range(2):
            found = read_root(self.root, self.directory.kind)[1]
            self.places |= {
                each.name: each for each in found if each.state is not PartitionState.DELETE
            }

    @property
    def live(self) -> set[TopicPartition]:
        """The partitions that have a stored replica, one that is in use."""
        return {each.place.topic_partition for each in self._in_use()}

    def _in_use(self) -> Iterator[_StoredPartition]:
        """The stored partitions that are in use."""
        for each in self.stored.values():
            if each.place.state is PartitionState.LIVE:
                yield each

    def leave_replaced(self) -> None:
        """Leave out topics that were created again: the new ones are to be stored."""
        for name, each in list(self.stored.items()):
            now = _identity_of(self.root / name)
            if now is not None and not now.is_same(each.identity):
                del self.stored[name], self._directories[name]

    def metadata(self) -> Iterator[Partition]:
        """List the copy of the cluster's metadata, if there is one."""
        for each in self.places.values():
            if _is_metadata(each):
                path = self.root / each.name
                glimpse = glimpse_of(list_partition(path, each.topic_partition, each.state, ()))
                if glimpse is not None:
                    yield glimpse.partition

    def leave(self, is_left: Callable[[PartitionPlace], bool]) -> list[str]:
        """Leave out partitions, to store them again; returns the names of their directories."""
        found = [name for name, each in self.stored.items() if is_left(each.place)]
        for name in found:
            del self.stored[name], self._directories[name]
        return found

    def late(
        self, before: _Images, after: _Images, outrun: Iterable[TopicPartition]
    ) -> dict[TopicPartition, str]:
        """The partitions whose stored replica may lack what it has to have by now, and why.

        Args:
            before: the metadata from before they were stored.
            after: those of now.
            outrun: the partitions that :func:`_outrun` found.
        """
        found = dict.fromkeys(outrun, "ended before another was cleaned")
        elected = self.led(after) - self.led(before)
        found |= dict.fromkeys(elected & self.live, "became the leader")
        if self.directory.cluster_id in before:
            joined = self.in_sync(after) - self.in_sync(before)
            found |= dict.fromkeys(joined & self.live, "got in sync")
        return found

    def in_sync(self, images: _Images) -> set[TopicPartition]:
        """The partitions whose replica on the broker of the directory is in sync."""
        node_id = self.directory.node_id
        return {key for key, each in self._assignments(images) if node_id in each.in_sync}

    def led(self, images: _Images) -> set[TopicPartition]:
        """The partitions whose leader is the broker of the directory."""
        node_id = self.directory.node_id
        return {key for key, each in self._assignments(images) if each.leader == node_id}

    def _assignments(self, images: _Images) -> Iterable[tuple[TopicPartition, ClusterPartition]]:
        """What the metadata say of the partitions, if they and the broker are known."""
        image = images.get(self.directory.cluster_id)
        return () if image is None or self.directory.node_id is None else image.assignments

    def cleaned(self) -> dict[TopicPartition, int]:
        """How far stored replicas may have been cleaned: not further than now.

        Raises:
            OSError: the cleaner's checkpoint cannot be read.
        """
        now = self._cleaner_offsets()
        return {
            key: min(now[key], each.last_base_offset)
            for each in self._in_use()
            if (key := each.place.topic_partition) in now
        }

    def ends(self) -> dict[TopicPartition, int]:
        """Where the stored replicas end."""
        return {
            each.place.topic_partition: 0 if each.end is None else each.end.offset
            for each in self._in_use()
        }

    def replaced(self, before: _Images, after: _Images) -> list[TopicPartition]:
        """The partitions whose stored replica is of a topic that was deleted meanwhile.

        A replica whose topic the metadata never knew is left as it is.
        """
        now = after.get(self.directory.cluster_id)
        if now is None:
            return []
        then, ids = (_topic_ids(each, self.directory.cluster_id) for each in (before, after))
        found = []
        for each in self.stored.values():
            key, topic_id = each.place.topic_partition, known_topic_id(each.identity.metadata)
            is_judged = each.place.state is PartitionState.LIVE and _is_data(each.place)
            if is_judged and topic_id and topic_id not in ids:
                is_known = topic_id in then or key.topic in now.topics
                if is_known or each.identity.directory_id not in self._first:
                    found.append(key)
        return found

    def note_failures(self, stored: Collection[TopicPartition]) -> None:
        """Note the partitions that changed each time they were read, and are not stored elsewhere.

        Args:
            stored: the partitions that are stored of all log directories of the broker.
        """
        for name, failure in self._failures.items():
            place = self.places.get(name)
            if place is None or name in self.stored:
                continue
            if place.state is not PartitionState.LIVE or place.topic_partition not in stored:
                self.unreadable.append(failure)

    def leave_gone(
        self, stored: Collection[TopicPartition], found: Collection[TopicPartition]
    ) -> None:
        """Leave out replicas that were deleted meanwhile, or moved to where they are stored, too.

        Args:
            stored: the partitions that are stored of other log directories.
            found: the partitions that were found last in all log directories.
        """
        for name, each in list(self.stored.items()):
            key = each.place.topic_partition
            is_needed = each.place.state is PartitionState.LIVE and key in found
            if name not in self.places and not (is_needed and key not in stored):
                del self.stored[name], self._directories[name]

    def store(self, is_wanted: Callable[[PartitionPlace], bool]) -> None:
        """Store partitions, those again that change meanwhile."""
        queue = [
            each
            for each in self.places.values()
            if is_wanted(each) and each.name not in self.stored
        ]
        queue.sort(key=lambda each: each.order)
        for attempt in range(ATTEMPTS):
            # Alone, a partition has less time to change.
            groups = [[each] for each in queue] if attempt else self._together(queue)
            queue = [place for together in groups for place in self._stored(together)]
            if not queue:
                return
            wait(attempt)
        for each in queue:
            what = f"its broker changed it each time it was read, {ATTEMPTS} times"
            self._failures[each.name] = f"{self.root / each.name}: {what}"

    def _together(self, places: Iterable[PartitionPlace]) -> Iterator[Sequence[PartitionPlace]]:
        """Put partitions together whose last indexes are in memory at the same time."""
        sizes = {
            each.path.name: each.segments[-1].log_bytes // _LOG_BYTES_PER_INDEX_BYTE
            for each in self.directory.partitions
            if each.segments
        }
        return put_together(places, lambda each: sizes.get(each.name, 0))

    def _stored(self, places: Sequence[PartitionPlace]) -> Iterator[PartitionPlace]:
        """Store some partitions; yields those that changed meanwhile."""
        readings = []
        with phase(f"listing partitions of {self.root}", len(places)) as listing:
            for place in listing.over(places):
                try:
                    reading = self._read(place)
                except (_ChangedError, *CHANGES):
                    yield place
                except OSError as failure:
                    self.unreadable.append(
                        f"{failure.filename or self.root / place.name}: {reason_of(failure)}"
                    )
                else:
                    if reading is not None:
                        readings.append(reading)
        splits = [split for each in readings for split in grouped(each.place.name, each.files)]
        self.changed.clear()
        if splits:
            self._require_space(splits)
            self._store(splits)
        for each in readings:
            if self._is_kept(each):
                self.stored[each.place.name] = _StoredPartition(
                    each.place,
                    each.identity,
                    each.end,
                    each.glimpse.last_base_offset or 0,
                    _left_out(each),
                    each.cleaned_to,
                )
            else:
                del self._directories[each.place.name]
                yield each.place

    def _read(self, place: PartitionPlace) -> _Reading | None:
        """List a partition, and what is to be stored of it; None if it is gone.

        Raises:
            OSError: something cannot be read, or is gone.
            _ChangedError: a broker changes it all the time.
        """
        self._directories.pop(place.name, None)
        path = self.root / place.name
        listed = list_partition(path, place.topic_partition, place.state, ())
        try:
            directory = file_status(path.local_path)
        except FileNotFoundError:
            return None
        # The cleaner writes its checkpoint when a log is compacted: it is not past what is read.
        cleaned_to = self._cleaner_offsets().get(place.topic_partition)
        glimpse = _settled(listed)
        if glimpse is None:
            return None
        partition = glimpse.partition
        metadata = read_if_there(path / names.PARTITION_METADATA)
        is_new = not any(each.base_offset for each in partition.segments)
        if metadata is None and not partition.log_bytes and is_new:
            return None  # it is just created, or deleted
        self._directories[place.name] = Directory(attributes_of(directory))
        identity = _Identity(directory.file_id, metadata)
        reading = _Reading(place, identity, glimpse, cleaned_to)
        files: list[FileToStore] = []
        for segment, scope in PartitionScope(partition).segment_scopes():
            if segment is partition.segments[-1]:
                files += self._last_segment(reading, segment, scope)
            else:
                files += self._closed_segment(reading, segment, scope)
        files += self._others(reading, metadata)
        reading.files = tuple(files)
        return reading

    def _cleaner_offsets(self) -> Offsets:
        """The checkpoint of the cleaner as it is now; empty if it is missing or malformed.

        Raises:
            OSError: it cannot be read.
        """
        path = self.root / names.CLEANER_OFFSET_CHECKPOINT
        try:
            stamp = FileStamp.of(path.status())
        except FileNotFoundError:
            return {}
        if self._cleaner is None or stamp != self._cleaner[0]:
            self._cleaner = stamp, _offsets_of(read_if_there(path) or b"") or {}
        return self._cleaner[1]

    def _closed_segment(
        self, reading: _Reading, segment: Segment, scope: SegmentScope
    ) -> Iterator[FileToStore]:
        indexes = [
            each for each in map(segment.file_name, _SEGMENT_KINDS) if each in reading.glimpse.files
        ]
        changed = [file for name in indexes for file in self._exact(reading, name)]
        yield from changed
        # What was found in a log depends on its indexes, too.
        yield from self._exact(reading, segment.log_name, scope, is_read=bool(changed))

    def _last_segment(
        self, reading: _Reading, segment: Segment, scope: SegmentScope
    ) -> Iterator[FileToStore]:
        """Its log up to its last valid batch, and the entries of its indexes that are of that."""
        partition = reading.glimpse.partition
        status = self._status(reading, segment.log_name)
        # A broker that has just created the log is about to create its indexes.
        found = {
            kind: used_bytes(partition.segment_path(segment, kind)) or b"" for kind in _INDEXES
        }
        log = partition.segment_path(segment, FileKind.LOG)
        with gently(log).open_file() as source:
            end = reading.end = stored_end(partition, segment, source)
            # A broker may have preallocated the rest.
            after = read_at(source, end.position, _LOOKED_AT_BYTES)
            reading.damaged_tail = bool(after.strip(b"\0"))
        kind = FileKind.TRANSACTION_INDEX
        transactions = used_bytes(partition.segment_path(segment, kind))
        if transactions is not None:
            found[kind] = transactions
        for kind, data in found.items():
            name = segment.file_name(kind)
            content = entries_before(kind, data, segment.base_offset, end)
            reading.indexes[name] = content
            yield from self._content(reading, name, content, status)
        path = f"{reading.place.name}/{segment.log_name}"
        same = self.known.same(self.identity, path, status)
        if same is not None and same.size_bytes == end.position:
            self._add(path, same)
            return
        yield replace(
            self._file(path, log, end.position),
            stamp=reading.glimpse.files[segment.log_name],
            is_beginning=True,
            scope=replace(scope, is_small=False),
        )

    def _others(self, reading: _Reading, metadata: bytes | None) -> Iterator[FileToStore]:
        """The files of no segment."""
        path, end = reading.glimpse.partition.path, reading.end or StoredEnd(0, 0)
        if metadata is not None:
            yield from self._content(reading, names.PARTITION_METADATA, metadata)
        # Read after the log: they know the epoch of each of its batches.
        epochs = read_if_there(path / names.LEADER_EPOCH_CHECKPOINT)
        if epochs is not None:
            content = epochs_before(epochs, end)
            yield from self._content(reading, names.LEADER_EPOCH_CHECKPOINT, content)
        quorum = read_if_there(path / names.QUORUM_STATE)
        if quorum is not None:
            yield from self._content(reading, names.QUORUM_STATE, quorum)
        # A broker deletes those of segments that are gone after the segments.
        bases = [each.base_offset for each in reading.glimpse.partition.segments]
        for each in reading.glimpse.partition.producer_snapshots:
            name = f"{each.offset:020d}{FileKind.PRODUCER_SNAPSHOT.extension}"
            is_closed = each.offset in bases[:-1]
            is_last = bases[-1:] <= [each.offset] and each.offset <= end.offset
            if is_closed or (is_last and is_whole_snapshot(path / name)):
                yield from self._exact(reading, name)
        if reading.glimpse.replaced:
            # A starting broker puts them into place, or deletes them.
            for name in reading.glimpse.files:
                parsed = names.parse_offset_file_name(name)
                if parsed is not None and parsed.stage is not FileStage.LIVE:
                    yield from self._exact(reading, name)
        for name in reading.glimpse.files:
            snapshot = names.parse_metadata_snapshot_name(name)
            is_snapshot = snapshot is not None and snapshot.stage is SnapshotStage.LIVE
            if is_snapshot or name in reading.glimpse.partition.foreign:
                yield from self._exact(reading, name)
        if reading.glimpse.partition.is_cluster_metadata:
            self._of_metadata = {
                f"{reading.place.name}/{PurePath(each.place.path).name}": damage_of([each])
                for each in check_metadata_snapshot(reading.glimpse.partition)
            }

    def _damage_beside(self, path: str) -> Damage:
        return self._of_metadata.get(path, ())

    def _exact(
        self,
        reading: _Reading,
        name: str,
        scope: SegmentScope | None = None,
        *,
        is_read: bool = False,
    ) -> Iterator[FileToStore]:
        """A file that has to stay the same until it is stored, unless it is stored already."""
        path = f"{reading.place.name}/{name}"
        status = self._status(reading, name)
        stamp = reading.glimpse.files[name]
        if FileStamp.of(status) != stamp:
            raise _ChangedError
        same = None if is_read else self.known.same(self.identity, path, status)
        if same is not None:
            self._add(path, same)
            return
        source = reading.glimpse.partition.path / name
        yield replace(self._file(path, source, status.size_bytes), stamp=stamp, scope=scope)

    def _content(
        self, reading: _Reading, name: str, content: bytes, status: FileStatus | None = None
    ) -> Iterator[FileToStore]:
        """What is stored as a file; a status is that of another file, and goes for this one."""
        path = f"{reading.place.name}/{name}"
        self._statuses[path] = self._status(reading, name) if status is None else status
        source = reading.glimpse.partition.path / name
        yield replace(self._file(path, source, len(content)), content=content)

    def _file(self, path: str, source: Location, size_bytes: int) -> FileToStore:
        known, lost = self.known.beginnings(self.identity, path, size_bytes)
        needed_bytes = stored_bytes(lost) if known else size_bytes
        return FileToStore(path, gently(source), size_bytes, needed_bytes, known, lost)

    def _status(self, reading: _Reading, name: str) -> FileStatus:
        path = f"{reading.place.name}/{name}"
        status = file_status((reading.glimpse.partition.path / name).local_path)
        self._statuses[path] = status
        return status

    def _is_kept(self, reading: _Reading) -> bool:
        """Whether what was stored of a partition is what it had at one moment."""
        if any(each.path in self.changed for each in reading.files):
            return False
        partition = reading.glimpse.partition
        try:
            now = _identity_of(partition.path)
            if now is None or not now.is_same(reading.identity):
                return False
            return self._has_kept_last(reading) and self._has_true_damage(reading)
        except CHANGES:
            return False

    def _has_kept_last(self, reading: _Reading) -> bool:
        """Whether a log that a broker appended to was not truncated meanwhile.

        Raises:
            OSError: it is gone, or cannot be read.
        """
        segments = reading.glimpse.partition.segments
        if not segments or reading.end is None:
            return True
        partition, last = reading.glimpse.partition, segments[-1]
        log = partition.segment_path(last, FileKind.LOG)
        if FileStamp.of(log.status()) == reading.glimpse.files[last.log_name]:
            return True
        reading.damaged_tail = False
        for kind in _SEGMENT_KINDS:
            name = last.file_name(kind)
            before = reading.indexes.get(name)
            if before and not (used_bytes(partition.path / name) or b"").startswith(before):
                return False
        with Beginning(gently(log).open_file(), reading.end.position) as beginning:
            return stored_end(partition, last, beginning) == reading.end

    def _has_true_damage(self, reading: _Reading) -> bool:
        """Whether what was found in logs is not of files that were replaced meanwhile.

        Raises:
            OSError: it cannot be listed.
        """
        damaged = self._damaged(reading)
        if not damaged:
            return True
        after = glimpse_of(reading.glimpse.partition)
        last = reading.glimpse.last_base_offset
        return after is not None and all(
            each == last or reading.glimpse.has_kept_segment(each, after) for each in damaged
        )

    def _damaged(self, reading: _Reading) -> set[int]:
        """The segments in which damage was found now."""
        new = {each.path for each in reading.files if each.scope is not None}
        files = self._directories[reading.place.name].files
        return {
            parsed.offset
            for name, file in files.items()
            if file.damage and f"{reading.place.name}/{name}" in new
            for parsed in [names.parse_offset_file_name(name)]
            if parsed is not None
        }

    def ended(self) -> BackedUpLogDirectory:
        """Store the files in the root, and the documents of the directories."""
        left_out = {
            path: why for each in self.stored.values() for path, why in each.left_out.items()
        }
        for attempt in range(ATTEMPTS):
            self.changed.clear()
            root = file_status(self.root.local_path)
            self._directories[""] = Directory(attributes_of(root))
            splits = [*grouped("", [*self._checkpoints(), *self._root_files(left_out)])]
            if splits:
                self._require_space(splits)
                self._store(splits)
            if not self.changed:
                break
            wait(attempt)
        else:
            self.unreadable += [
                f"{self.root / each}: changed each time it was read, {ATTEMPTS} times"
                for each in sorted(self.changed)
            ]
        return self._ended(len(self.stored), left_out, is_in_use=True)

    def _checkpoints(self) -> Iterator[FileToStore]:
        """The checkpoints as they were before the first partition, none past what is stored."""
        known = [
            each
            for each in self.stored.values()
            if (first := self._first.get(each.identity.directory_id)) is not None
            and first.is_same(each.identity)
            and each.place.state in (PartitionState.LIVE, PartitionState.FUTURE)
        ]
        ends = [(each.place.topic_partition, each.end) for each in known if each.end is not None]
        cleaned = {
            each.place.topic_partition: each.cleaned_to
            for each in known
            if each.cleaned_to is not None
        }
        found = self._first_checkpoints.by_file_name()
        if cleaned:
            found[names.CLEANER_OFFSET_CHECKPOINT] = cleaned
        for name, offsets in found.items():
            with contextlib.suppress(FileNotFoundError):
                self._statuses[name] = file_status((self.root / name).local_path)
                if offsets is not None:
                    content = offsets_before(offsets, ends)
                else:
                    content = (self.root / name).read()
                    if _offsets_of(content) is not None:  # none were there before
                        content = offsets_before({}, ends)
                yield replace(self._file(name, self.root / name, len(content)), content=content)

    def _root_files(self, left_out: dict[str, str]) -> Iterator[FileToStore]:
        """All other files in the root, and in directories that are no partition's."""
        for entry in sorted(self.root.entries()):
            if entry.kind is EntryKind.FILE and is_file_name(entry.name):
                if entry.name in _NOT_STORED or entry.name.endswith(names.TEMPORARY_SUFFIX):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = file_status((self.root / entry.name).local_path)
                    self._statuses[entry.name] = status
                    same = self.known.same(self.identity, entry.name, status)
                    if same is not None:
                        self._add(entry.name, same)
                        continue
                    file = self._file(entry.name, self.root / entry.name, status.size_bytes)
                    yield replace(file, stamp=FileStamp.of(status))
            elif entry.kind is EntryKind.DIRECTORY and entry.name in self.directory.refused:
                what = "a directory of no partition: stored only while no broker is running"
                left_out[str(self.root / entry.name)] = what
            elif entry.kind not in (EntryKind.FILE, EntryKind.DIRECTORY):
                left_out[str(self.root / entry.name)] = _NO_FILE


def _left_out(reading: _Reading) -> dict[str, str]:
    """What is stored of a partition only while no broker is running, by path, and why."""
    partition, files = reading.glimpse.partition, reading.glimpse.files
    found = {str(partition.path / name): _NO_FILE for name in {*partition.foreign} - files.keys()}
    if reading.damaged_tail and reading.end is not None:
        last = partition.segments[-1].log_name
        size_bytes = files[last].size_bytes - reading.end.position
        found[str(partition.path / last)] = (
            f"no valid batch follows byte {reading.end.position}: the"
            f" {counted(size_bytes, 'byte')} from there on are stored only while no broker is"
            " running"
        )
    return found


def _identity_of(path: Location) -> _Identity | None:
    """The identity of a directory; None if it is gone.

    Raises:
        OSError: it cannot be read.
    """
    try:
        directory_id = file_status(path.local_path).file_id
    except FileNotFoundError:
        return None
    return _Identity(directory_id, read_if_there(path / names.PARTITION_METADATA))


def _settled(listed: Partition) -> Glimpse | None:
    """List a partition until all its files are there at one moment; None if it is gone.

    Segments that are being replaced soon are in place. If they are not, the broker was killed.

    Raises:
        OSError: it cannot be listed.
        _ChangedError: they change all the time.
    """
    before = glimpse_of(listed)
    for attempt in range(ATTEMPTS):
        after = None if before is None else glimpse_of(listed)
        if before is None or after is None:
            return None
        is_last = attempt == ATTEMPTS - 1
        if _state_of(before) == _state_of(after) and (is_last or not after.replaced):
            return after
        wait(attempt)
        before = after
    raise _ChangedError


def _state_of(glimpse: Glimpse) -> dict[str, FileStamp | int]:
    """The files that are stored; of the last segment only which they are, because it grows."""
    last = glimpse.last_base_offset
    state: dict[str, FileStamp | int] = {}
    for name, stamp in glimpse.files.items():
        parsed = names.parse_offset_file_name(name)
        if parsed is None:
            snapshot = names.parse_metadata_snapshot_name(name)
            if snapshot is not None and snapshot.stage is SnapshotStage.LIVE:
                state[name] = stamp
        elif parsed.stage is FileStage.LIVE or glimpse.replaced:
            state[name] = stamp.file_id if parsed.offset == last else stamp
    return state
