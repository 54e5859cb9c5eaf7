"""Small files of a log directory, which the official tool does not read: text, and rows.

Checkpoints of offsets and of leader epochs, ``partition.metadata``, ``meta.properties``,
``quorum-state`` and the clean shutdown marker.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import asdict

from kdump.dump.dumped_file import DumpedFile
from kdump.dump.problems import DumpProblem
from kdump.dump.report import DumpReport
from kdump.formats import names
from kdump.formats.checkpoints import decode_leader_epoch_checkpoint, decode_offset_checkpoint
from kdump.formats.clean_shutdown import decode_clean_shutdown
from kdump.formats.errors import FormatError
from kdump.formats.meta_properties import decode_meta_properties
from kdump.formats.partition_metadata import decode_partition_metadata
from kdump.formats.quorum_state import decode_quorum_state
from kdump.formats.uuids import format_uuid

Row = dict[str, Any]


def _offset_checkpoint(data: bytes) -> Iterator[Row]:
    for entry in decode_offset_checkpoint(data):
        topic, partition = entry.topic_partition
        yield {
            "type": "checkpoint_entry",
            "topic": topic,
            "partition": partition,
            "offset": entry.offset,
        }


def _leader_epoch_checkpoint(data: bytes) -> Iterator[Row]:
    for entry in decode_leader_epoch_checkpoint(data):
        yield {"type": "leader_epoch", "epoch": entry.epoch, "start_offset": entry.start_offset}


def _one(kind: str, decode: Callable[[bytes], Any]) -> Callable[[bytes], Iterator[Row]]:
    def rows_of(data: bytes) -> Iterator[Row]:
        yield _row(kind, decode(data))

    return rows_of


def _row(kind: str, value: Any) -> Row:
    return {"type": kind, **{name: _plain(each) for name, each in asdict(value).items()}}


def _plain(value: object) -> object:
    return format_uuid(value) if isinstance(value, uuid.UUID) else value


def _meta_properties(data: bytes) -> Iterator[Row]:
    """Give the row, and a problem where the file has none of the properties."""
    found = decode_meta_properties(data)
    yield _row("meta_properties", found)
    if found.cluster_id is None and found.node_id is None and found.directory_id is None:
        raise FormatError(
            "meta.properties has none of the properties that a broker needs to start",
            expected="cluster.id, node.id, directory.id",
            found=f"{len(data)} bytes" if data else "an empty file",
        )


READERS: Final[dict[str, Callable[[bytes], Iterator[Row]]]] = {
    names.RECOVERY_POINT_CHECKPOINT: _offset_checkpoint,
    names.LOG_START_OFFSET_CHECKPOINT: _offset_checkpoint,
    names.REPLICATION_OFFSET_CHECKPOINT: _offset_checkpoint,
    names.CLEANER_OFFSET_CHECKPOINT: _offset_checkpoint,
    names.LEADER_EPOCH_CHECKPOINT: _leader_epoch_checkpoint,
    names.PARTITION_METADATA: _one("partition_metadata", decode_partition_metadata),
    names.META_PROPERTIES: _meta_properties,
    names.QUORUM_STATE: _one("quorum_state", decode_quorum_state),
    names.CLEAN_SHUTDOWN_MARKER: _one("clean_shutdown", decode_clean_shutdown),
}
"""Functions from a file's bytes to its rows by its name; they raise FormatError."""


def rows(file: DumpedFile, name: str, report: DumpReport) -> Iterator[Row]:
    """Read ``file`` as one that is called ``name``; gives its rows.

    Raises:
        OSError: when the file cannot be read.
    """
    try:
        yield from READERS[name](file.path.read())
    except FormatError as problem:
        report.problem(DumpProblem.from_format_error(file.path, problem))


def dump(file: DumpedFile, name: str, report: DumpReport) -> Iterator[str]:
    """Format a line for each row: ``name: value`` pairs, as the official tool does for an index."""
    for row in rows(file, name, report):
        pairs = (f"{field}: {_word(value)}" for field, value in row.items() if field != "type")
        yield " ".join(pairs) + "\n"


def _word(value: object) -> str:
    return "none" if value is None else str(value)
