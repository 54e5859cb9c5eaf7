"""Find which versions of Kafka can have written a segment, or used a log directory.

The evidence is what only some versions write: the format of batches, which offset of a batch is in
its index entry, which files and properties exist. It gives ranges: many versions write most files
in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from kdump.formats import names, record_batch
from kdump.formats.compression import Codec
from kdump.formats.feature_levels import HIGHEST_METADATA_VERSION, METADATA_VERSIONS
from kdump.formats.kafka_versions import version_with_level
from kdump.formats.names import FileKind
from kdump.log.directory import LogDirectory
from kdump.log.index_tail import OffsetIndexEntry, first_offset_entries, offset_entries_in
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.scan.source import read_at
from kdump.storage.location import Location

Version = tuple[int, ...]

_MOST_ENTRIES: Final = 64
"""How many entries of an index are read: the others look the same."""
_LARGEST_SMALL_BYTES: Final = 16 << 10
"""Smaller files are read at once: of 10,000 partitions, each call for one counts."""


class Generation(Struct, frozen=True):
    """A range of versions, both ends included.

    Attributes:
        least: the first version; None for any up to ``most``.
        most: the last version; None for any from ``least`` on.
    """

    least: Version | None = None
    most: Version | None = None

    def __and__(self, other: Generation) -> Generation:
        """Return the versions in both; if there are none, ``least`` is above ``most``."""
        least = max(filter(None, (self.least, other.least)), default=None)
        most = min(filter(None, (self.most, other.most)), default=None)
        return Generation(least, most)

    def __str__(self) -> str:
        least, most = _text(self.least), _text(self.most)
        if self.least is None or self.most is None:
            if self.least is None:
                return f"{most} or earlier" if self.most else "any"
            return f"{least} or later"
        if self.least > self.most:
            return f"{most} or earlier, then {least} or later"
        return least if least == most else f"{least} to {most}"


def _text(version: Version | None) -> str:
    return "" if version is None else ".".join(map(str, version))


ANY: Final = Generation()
_MAGIC: Final = {
    0: Generation((0, 8), (3, 9)),
    1: Generation((0, 10), (3, 9)),
    2: Generation((0, 11)),
}
_BEFORE_TIME_INDEXES: Final = Generation((0, 8), (0, 9))
_WITH_ZSTD: Final = Generation((2, 1))
_WITH_DELETE_HORIZON: Final = Generation((3, 1))
_BY_FIRST_OFFSET: Final = Generation((0, 11), (1, 1))
_BY_LAST_OFFSET: Final = Generation((2, 0))
_BY_OFFSET_OF_LATER_BATCH: Final = Generation((2, 0), (3, 9))


def segment_generations(partition: Partition) -> Counter[str]:
    """Count the segments of a partition by the versions that can have written them.

    Raises:
        OSError: a log or index cannot be read.
    """
    found = Counter[str]()
    for segment in partition.segments:
        if segment.is_0_7:
            found["0.7"] += 1
        elif segment.log_bytes:
            found[str(_segment_generation(partition, segment))] += 1
    return found


def _segment_generation(partition: Partition, segment: Segment) -> Generation:
    path = partition.segment_path(segment, segment.log_kind)
    if segment.log_bytes <= _LARGEST_SMALL_BYTES:
        data = path.read_listed()
        return _generation(partition, segment, lambda at: data[at : at + record_batch.HEADER_BYTES])
    with path.open_file() as log:
        return _generation(
            partition, segment, lambda at: read_at(log, at, record_batch.HEADER_BYTES)
        )


def _generation(
    partition: Partition, segment: Segment, header_at: Callable[[int], bytes]
) -> Generation:
    """As above.

    Args:
        header_at: reads as many bytes as a header has, at a position of the log.
    """
    first = header_at(0)
    if len(first) <= record_batch.PREFIX_BYTES:
        return ANY
    magic = first[record_batch.MAGIC_START]
    found = _MAGIC.get(magic, ANY)
    if magic == 0 and segment.time_index_bytes is None:
        found &= _BEFORE_TIME_INDEXES
    if magic == 2:
        for each in (*_evidence(partition, segment, header_at), _of_batch(_header_in(first))):
            if each is not ANY:
                found &= each
    return found


def _evidence(
    partition: Partition, segment: Segment, header_at: Callable[[int], bytes]
) -> Iterator[Generation]:
    """What the first entries of an offset index show, and the batches that they lead to."""
    if not segment.offset_index_bytes:
        return  # most small segments have an empty one
    try:
        entries = _first_entries(partition, segment, segment.offset_index_bytes)
    except FileNotFoundError:
        return
    for relative_offset, position in entries:
        offset = segment.base_offset + relative_offset
        if position < 0 or (offset, position) == (segment.base_offset, 0):
            continue  # damage, or padding
        header = _header_in(header_at(position))
        if header is None:
            continue  # damage
        yield _of_batch(header)
        yield _of_entry(offset, header)


def _first_entries(
    partition: Partition, segment: Segment, size_bytes: int
) -> Sequence[OffsetIndexEntry]:
    path = partition.segment_path(segment, FileKind.OFFSET_INDEX)
    if size_bytes <= _LARGEST_SMALL_BYTES:
        return offset_entries_in(path.read_listed(), _MOST_ENTRIES)
    with path.open_file() as source:
        return first_offset_entries(source, _MOST_ENTRIES)


class _Header(NamedTuple):
    """What evidence there is in the header of a batch of magic 2.

    Only this: of many small segments, to decode all of the header takes longer than to read it.
    """

    base_offset: int
    attributes: int
    last_offset_delta: int
    records_count: int


def _header_in(data: bytes) -> _Header | None:
    if len(data) < record_batch.HEADER_BYTES:
        return None
    base_offset, _, _, magic, _, attributes, last_offset_delta, *_, records_count = (
        record_batch.HEADER_LAYOUT.unpack(data)
    )
    if magic != 2:
        return None
    return _Header(base_offset, attributes, last_offset_delta, records_count)


def _of_batch(header: _Header | None) -> Generation:
    if header is None:
        return ANY
    found = ANY
    if header.attributes & record_batch.CODEC_MASK == Codec.ZSTD:
        found &= _WITH_ZSTD
    if header.attributes & record_batch.DELETE_HORIZON_FLAG:
        found &= _WITH_DELETE_HORIZON
    return found


def _of_entry(offset: int, header: _Header) -> Generation:
    """What the offset of an entry shows, by which offset of the batch at its position it is."""
    last_offset = record_batch.wrap_int64(header.base_offset + header.last_offset_delta)
    if offset > last_offset:
        return _BY_OFFSET_OF_LATER_BATCH
    # Cleaned batches lack records, and the entries of some cleaners have what is left.
    if header.records_count != header.last_offset_delta + 1 or header.last_offset_delta == 0:
        return ANY
    if offset == last_offset:
        return _BY_LAST_OFFSET
    return _BY_FIRST_OFFSET if offset == header.base_offset else ANY


_WITH_CLUSTER_ID: Final = Generation((2, 4))
_WITHOUT_CLUSTER_ID: Final = Generation((0, 9), (2, 3))
_WITH_ZOOKEEPER: Final = Generation(None, (3, 9))
_WITH_KRAFT: Final = Generation((2, 8))
_WITH_DIRECTORY_ID: Final = Generation((3, 7))
_WITH_BROKER_EPOCH: Final = Generation((3, 7))
_WITH_EMPTY_MARKER: Final = Generation(None, (3, 6))
_WITH_LOG_STARTS: Final = Generation((0, 11))
_WITH_LEADER_EPOCHS: Final = Generation((0, 11))
_WITH_TOPIC_IDS: Final = Generation((2, 8))


def broker_generation(directory: LogDirectory, partitions: Iterable[Location]) -> Generation:
    """Return which versions can have used a log directory last, by the small files in it.

    Args:
        partitions: the directories of its partitions.
    """
    found = ANY
    for each in (*_of_meta_properties(directory), *_of_root(directory, list(partitions))):
        found &= each
    return found


def registered_generation(level: int | None) -> Generation:
    """Return the version of a broker, by the highest ``metadata.version`` that it registered.

    Each release registers the highest level that it has, so a known level tells the release.
    """
    if level is None or (level not in METADATA_VERSIONS and level < HIGHEST_METADATA_VERSION):
        return ANY
    version = version_with_level(level)[:2]
    return Generation(version, version if level in METADATA_VERSIONS else None)


def _of_meta_properties(directory: LogDirectory) -> Iterator[Generation]:
    properties = directory.meta_properties
    if properties is None:
        return
    if properties.version >= 1:
        yield _WITH_KRAFT
    else:
        yield _WITH_ZOOKEEPER
        yield _WITHOUT_CLUSTER_ID if properties.cluster_id is None else _WITH_CLUSTER_ID
    if properties.directory_id is not None:
        yield _WITH_DIRECTORY_ID


def _of_root(directory: LogDirectory, partitions: Sequence[Location]) -> Iterator[Generation]:
    marker = directory.clean_shutdown
    if marker is not None:
        yield _WITH_EMPTY_MARKER if marker.version is None else _WITH_BROKER_EPOCH
    if directory.checkpoints.log_start_offsets is not None:
        yield _WITH_LOG_STARTS
    if _any_has(partitions, names.LEADER_EPOCH_CHECKPOINT):
        yield _WITH_LEADER_EPOCHS
    if _any_has(partitions, names.PARTITION_METADATA):
        yield _WITH_TOPIC_IDS


def _any_has(partitions: Sequence[Location], name: str) -> bool:
    return any((each / name).kind() is not None for each in partitions)
