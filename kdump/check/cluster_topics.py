"""The ids of a cluster's topics, as the metadata log in one of the directories has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from kdump.formats import internal_topics, record_batch
from kdump.formats.names import FileKind, MetadataSnapshotName
from kdump.formats.schemas import metadata
from kdump.log.partition import Partition
from kdump.scan.records import RecordColumns
from kdump.scan.selection import Selection
from kdump.scan.source import FileSource
from kdump.scan.walk import MessageSet, Skipped, walk_segment

_FRAME_VERSION: Final = 1
_TOPIC: Final = "TOPIC_RECORD"
_REMOVED: Final = "REMOVE_TOPIC_RECORD"
_TYPE_IDS: Final = frozenset(
    each.id for each in metadata.RECORD_TYPES.values() if each.name in (_TOPIC, _REMOVED)
)


def read_topic_ids(partition: Partition) -> dict[str, str] | None:
    """The id of each topic by its name, from the newest snapshot and the log behind it.

    None where that does not tell: the log begins behind the snapshot, or something is damaged.

    Raises:
        OSError: a file cannot be read.
    """
    snapshots = partition.metadata_snapshots
    begin = snapshots[-1].end_offset if snapshots else 0
    if not partition.segments or partition.segments[0].base_offset > begin:
        return None
    files: list[tuple[Path, int]] = []
    if snapshots:
        name = MetadataSnapshotName(snapshots[-1].end_offset, snapshots[-1].epoch)
        files.append((partition.path / str(name), 0))
    files += [
        (partition.segment_path(segment, FileKind.LOG), begin) for segment in partition.segments
    ]
    names_by_id: dict[str, str] = {}
    for path, first_offset in files:
        for value in _topic_records(path, first_offset):
            if value is None:
                return None
            parsed = internal_topics.parse_cluster_metadata(None, value, 0)
            if parsed.value is None:
                return None
            if parsed.type_name == _TOPIC:
                names_by_id[parsed.value["topicId"]] = parsed.value["name"]
            else:
                names_by_id.pop(parsed.value["topicId"], None)
    return {name: topic_id for topic_id, name in names_by_id.items()}


def _topic_records(path: Path, first_offset: int) -> Iterator[bytes | None]:
    """The values of the records about topics; None at damage."""
    selection = Selection(from_offset=first_offset)
    with FileSource(path) as source:
        for step in walk_segment(source, with_records=True, selection=selection, follow_bad=True):
            if isinstance(step, RecordColumns):
                if step.problems or not step.batches.is_valid.all():
                    yield None
                yield from _values(step)
            elif isinstance(step, MessageSet) or (
                isinstance(step, Skipped) and step.end != source.size_bytes
            ):
                yield None


def _values(columns: RecordColumns) -> Iterator[bytes]:
    is_control = (columns.batches.attributes & record_batch.CONTROL_FLAG) != 0
    rows: Iterable[int] = (~is_control[columns.batch]).nonzero()[0].tolist()
    for row in rows:
        value = columns.value(row)
        if value and len(value) > 1 and value[0] == _FRAME_VERSION and value[1] in _TYPE_IDS:
            yield value
