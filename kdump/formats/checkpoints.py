"""Checkpoint files: lines of text that record offsets.

The root of a log directory has four, which map partitions to offsets. Each partition has one that
maps leader epochs to their first offset. All have the same layout::

    0                   version
    2                   number of entries
    orders 0 1093       topic, partition, offset     (leader-epoch-checkpoint: epoch, offset)
    orders 1 0

An empty file, and one that ends after its version, has no entries. Any other deviation makes the
whole file malformed. Follows ``CheckpointFile``, ``OffsetCheckpointFile`` and
``LeaderEpochCheckpointFile``.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from kdump.formats.errors import FormatError
from kdump.formats.java.java_numbers import parse_int, parse_long
from kdump.formats.java.text_lines import decode_lines, line_start, malformed_line
from kdump.formats.names import TopicPartition

VERSION: Final = 0

_NAME: Final = "checkpoint"
_BLANKS: Final = re.compile(r"\s+", re.ASCII)
_USUAL_OFFSET: Final = re.compile(r"([!-~]+) ([0-9]{1,9}) ([0-9]{1,18})")
"""A line as Kafka writes it, unless a number is negative or very large."""

Entry = TypeVar("Entry")


class OffsetEntry(NamedTuple):
    """A line of an offset checkpoint."""

    topic_partition: TopicPartition
    offset: int


class EpochEntry(NamedTuple):
    """A line of a leader epoch checkpoint: an epoch, and the first offset written in it."""

    epoch: int
    start_offset: int


def decode_offset_checkpoint(data: bytes) -> list[OffsetEntry]:
    """Decode an offset checkpoint; gives its entries in the order of the lines.

    If a partition is listed twice, its last line counts in Kafka, and in ``dict`` of the result.

    Raises:
        FormatError: where Kafka's reader fails; has the position of that line and its number.
    """
    return _decode(data, _offset_entry, "TOPIC PARTITION OFFSET")


def readable_offsets(data: bytes) -> list[OffsetEntry]:
    """Give the lines of a malformed offset checkpoint that are entries.

    The last line may have been cut if nothing ends it, and no offset that Kafka writes is negative.
    """
    lines = data.split(b"\n")[:-1]
    entries = [_offset_entry(line.decode(errors="replace").rstrip("\r")) for line in lines]
    return [entry for entry in entries if entry is not None and entry.offset >= 0]


def decode_leader_epoch_checkpoint(data: bytes) -> list[EpochEntry]:
    """Decode a leader epoch checkpoint; gives its entries in the order of the lines.

    Raises:
        FormatError: as :func:`decode_offset_checkpoint`.
    """
    return _decode(data, _epoch_entry, "EPOCH OFFSET")


def epochs_rise(entries: Sequence[EpochEntry]) -> bool:
    """Whether each epoch is later than the one before it, and does not begin earlier."""
    return all(
        one.epoch < other.epoch and one.start_offset <= other.start_offset
        for one, other in itertools.pairwise(entries)
    )


@functools.lru_cache(maxsize=256)
def known_leader_epochs(data: bytes) -> tuple[EpochEntry, ...]:
    """As :func:`decode_leader_epoch_checkpoint`; most partitions have the same, so it is cached."""
    return tuple(decode_leader_epoch_checkpoint(data))


def encode_offset_checkpoint(entries: Iterable[tuple[TopicPartition, int]]) -> bytes:
    """Encode entries as Kafka writes them, in their order."""
    return _encode(f"{topic} {partition} {offset}" for (topic, partition), offset in entries)


def encode_leader_epoch_checkpoint(entries: Iterable[EpochEntry]) -> bytes:
    """Encode entries as Kafka writes them, in their order."""
    return _encode(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def _encode(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "".join(f"{line}\n" for line in (VERSION, len(body), *body)).encode()


def _decode(data: bytes, parse: Callable[[str], Entry | None], layout: str) -> list[Entry]:
    lines = decode_lines(data, _NAME)
    if not lines:
        return []
    if parse_int(lines[0]) != VERSION:
        raise malformed_line(data, _NAME, lines, 0, f"version {VERSION}")
    if len(lines) == 1:
        return []
    count = parse_int(lines[1])
    if count is None or count < 0:
        raise malformed_line(data, _NAME, lines, 1, "the number of entries")
    entries = []
    for index in range(2, len(lines)):
        entry = parse(lines[index])
        if entry is None:
            raise malformed_line(data, _NAME, lines, index, layout)
        entries.append(entry)
    if len(entries) != count:
        raise FormatError(
            "checkpoint does not have the number of entries that line 2 gives",
            position=line_start(data, 1),
            expected=count,
            found=len(entries),
        )
    return entries


def _fields(line: str) -> list[str]:
    """Split at blanks as Java's ``Pattern.split`` does, without empty fields at the end."""
    fields = _BLANKS.split(line)
    while len(fields) > 1 and not fields[-1]:
        fields.pop()
    return fields


def _offset_entry(line: str) -> OffsetEntry | None:
    # As Kafka writes them: a checkpoint has 10,000 lines.
    usual = _USUAL_OFFSET.fullmatch(line)
    if usual is not None:
        return OffsetEntry(TopicPartition(usual[1], int(usual[2])), int(usual[3]))
    fields = _fields(line)
    if len(fields) != 3:
        return None
    partition, offset = parse_int(fields[1]), parse_long(fields[2])
    if partition is None or offset is None:
        return None
    return OffsetEntry(TopicPartition(fields[0], partition), offset)


def _epoch_entry(line: str) -> EpochEntry | None:
    fields = _fields(line)
    if len(fields) != 2:
        return None
    epoch, start_offset = parse_int(fields[0]), parse_long(fields[1])
    if epoch is None or start_offset is None:
        return None
    return EpochEntry(epoch, start_offset)
