"""What happened to the cluster's metadata after a moment; a rewind of logs does not change it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from kdump.jobs.metadata.metadata_copies import read_copies
from kdump.jobs.metadata.metadata_questions import HistoryReading
from kdump.log.directory import LogDirectory
from kdump.state.metadata.metadata_image import EntityKind
from kdump.state.metadata.metadata_replay import END

_SETTINGS: Final = {EntityKind.CONFIG, EntityKind.ACL, EntityKind.SCRAM, EntityKind.QUOTA}


class LaterMetadata(Struct, frozen=True):
    """What changed after a moment.

    Attributes:
        created: topics, also those that were deleted and created again.
        deleted: topics, likewise.
        settings: how many changes of configurations, ACLs, credentials and quotas.
        is_complete: whether the log is known to reach back to the moment, without damage.
    """

    created: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    settings: int = 0
    is_complete: bool = True


def read_later_metadata(directories: Iterable[LogDirectory], time_ms: int) -> LaterMetadata | None:
    """Read what changed after a moment from the most advanced copy of the metadata's log.

    Returns:
        None if no directory has a copy.

    Raises:
        OSError: a file cannot be read.
    """
    copies = read_copies(directories)
    if not copies:
        return None
    problems: list[str] = []
    reading = HistoryReading.of(copies[0], END, problems.append)
    created, deleted = dict[str, None](), dict[str, None]()
    settings = 0
    reaches_back = reading.begin == 0
    for event in reading.events():
        change, record = event.change, event.change.record
        if record is None:
            continue
        if record.timestamp_ms <= time_ms:
            reaches_back = True
        elif change.kind is EntityKind.TOPIC:
            topic = change.topic or ""
            if event.event in ("deleted", "recreated"):
                deleted[topic] = None
            if event.event != "deleted":
                created[topic] = None
        elif change.kind in _SETTINGS:
            settings += 1
    return LaterMetadata(
        tuple(created),
        tuple(deleted),
        settings,
        is_complete=reaches_back and not problems and not reading.unknown,
    )
