"""What was checked when: the file of ``kdump verify --state``.

It is about segments as they were. One that was replaced since, by the cleaner or because its topic
was created again, counts as never checked. The last segment of a partition grows all the time, and
keeps the time of its last check until another one comes after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct, convert, field

from kdump.errors import KdumpError
from kdump.formats.safe_json import json_line
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.storage.location import Location

FORMAT: Final = "kdump-verify-state"
VERSION: Final = 1


class CheckHistoryError(KdumpError):
    """A file is not what ``--state`` writes."""


class SegmentVerified(NamedTuple):
    """When a segment was read to its end.

    Attributes:
        size_bytes: of its log when it was listed.
        checked_ms: when the run began that read it.
    """

    size_bytes: int
    checked_ms: int


class _PartitionHistory(Struct):
    topic_id: str | None
    segments: dict[int, SegmentVerified] = field(default_factory=dict)


_Number = Annotated[int, Meta(ge=0)]


class _StoredPartition(Struct):
    path: str
    topic_id: str | None
    segments: tuple[tuple[_Number, _Number, _Number], ...]


class CheckHistory:
    """When each segment was last read to its end."""

    def __init__(self) -> None:
        self._partitions: dict[str, _PartitionHistory] = {}

    def checked_ms(self, partition: Partition) -> dict[int, int]:
        """When segments of a partition were last checked, by base offset."""
        known = self._partitions.get(_key(partition))
        if known is None or known.topic_id != partition.known_topic_id:
            return {}
        return dict(_still_true(partition.segments, known.segments))

    def record(self, partition: Partition, base_offsets: Iterable[int], now_ms: int) -> None:
        """Note which segments of a partition, as it was listed, were read.

        Segments that it does not have any more are forgotten.
        """
        topic_id, key = partition.known_topic_id, _key(partition)
        known = self._partitions.get(key)
        if known is None or known.topic_id != topic_id:
            known = _PartitionHistory(topic_id)
        sizes = {each.base_offset: each.log_bytes for each in partition.segments}
        segments = {base: each for base, each in known.segments.items() if base in sizes}
        for base in base_offsets:
            if base in sizes:
                segments[base] = SegmentVerified(sizes[base], now_ms)
        self._partitions[key] = _PartitionHistory(topic_id, segments)

    def forget_others(self, directory: Location, partitions: Iterable[Partition]) -> None:
        """Forget the partitions of a log directory that it does not have any more."""
        there = {_key(each) for each in partitions}
        prefix = f"{directory.as_absolute()}/"
        for key in list(self._partitions):
            is_inside = key.startswith(prefix) and "/" not in key[len(prefix) :]
            if is_inside and key not in there:
                del self._partitions[key]

    def encode(self) -> bytes:
        """The content of the file."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "partitions": [
                {
                    "path": key,
                    "topic_id": each.topic_id,
                    "segments": [[base, *known] for base, known in sorted(each.segments.items())],
                }
                for key, each in sorted(self._partitions.items())
                if each.segments
            ],
        }
        return json_line(document)

    @classmethod
    def decode(cls, data: bytes) -> CheckHistory:
        """The history in a file.

        Raises:
            CheckHistoryError: it is malformed, or of another version.
        """
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as problem:
            raise CheckHistoryError("not JSON") from problem
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise CheckHistoryError(f"no {FORMAT!r} in it")
        if document.get("version") != VERSION:
            raise CheckHistoryError("written by another version of kdump")
        history = cls()
        try:
            for each in convert(document.get("partitions"), list[_StoredPartition]):
                segments = {base: SegmentVerified(*known) for base, *known in each.segments}
                history._partitions[each.path] = _PartitionHistory(each.topic_id, segments)
        except ValueError as problem:
            raise CheckHistoryError("malformed") from problem
        return history


def _key(partition: Partition) -> str:
    return str(partition.path.as_absolute())


def _still_true(
    segments: Sequence[Segment], known: dict[int, SegmentVerified]
) -> Iterator[tuple[int, int]]:
    for each in segments:
        verified = known.get(each.base_offset)
        if verified is None:
            continue
        has_grown = each is segments[-1] and each.log_bytes > verified.size_bytes
        if has_grown or each.log_bytes == verified.size_bytes:
            yield each.base_offset, verified.checked_ms
