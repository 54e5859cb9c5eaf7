"""The metadata that records in a document add up to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kdump.formats.json_document import DocumentError
from kdump.formats.message_json import MessageJsonError
from kdump.state.metadata.disk_collection import CollectedRecord
from kdump.state.metadata.image_records import record_from_json
from kdump.state.metadata.metadata_image import (
    LogEnd,
    MetadataImage,
    MetadataRecord,
    MetadataReplay,
)


def image_of_records(
    records: Iterable[CollectedRecord], end: LogEnd, where: str = "records"
) -> MetadataImage:
    """Replay records.

    Args:
        records: in the order of a snapshot.
        end: of the log or snapshot that they are from.
        where: their path in the document, for messages.

    Raises:
        DocumentError: a record is unknown, is not complete, or does not apply after those before.
    """
    faults: list[str] = []
    replay = MetadataReplay(on_fault=lambda _record, what: faults.append(what))
    for index, each in enumerate(records):
        node: dict[str, Any] = {"type": each.type, "version": each.version, "data": each.data}
        try:
            record = record_from_json(node)
        except MessageJsonError as error:
            raise DocumentError(f"{where}[{index}].{error}") from None
        replay.take(MetadataRecord(index, end.epoch, 0, record.name, record.fields))
        if faults:
            raise DocumentError(f"{where}[{index}]: {faults[0]}")
    replay.end = end
    return replay.image()
