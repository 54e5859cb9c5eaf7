"""A segment of Kafka 0.7, checked: messages behind each other, each with a checksum of its own."""

from __future__ import annotations

from typing import Final

from kdump.check import invariants
from kdump.check.batches import SegmentScope
from kdump.check.collector import Collector
from kdump.check.invariants import Invariant
from kdump.check.part import ByteAccount, Level, SegmentPart
from kdump.formats import kafka07
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.formats.kafka07 import Message, Stop, StopReason
from kdump.scan.source import read_at
from kdump.storage.byte_source import ByteSource

_BROKEN_BY: Final = {
    StopReason.ZERO_FILL: invariants.ZERO_FILL,
    StopReason.SHORT_TAIL: invariants.TORN_TAIL,
    StopReason.TORN_TAIL: invariants.TORN_TAIL,
    StopReason.BAD_LENGTH: invariants.BATCH_LENGTH,
    StopReason.BAD_MAGIC: invariants.BATCH_MAGIC,
    StopReason.BAD_CHECKSUM: invariants.BATCH_CHECKSUM,
}


def check_segment(scope: SegmentScope, level: Level) -> SegmentPart:
    """Check a whole segment; what stands behind a size that cannot be is not looked for.

    Raises:
        OSError: it cannot be read.
    """
    into = Collector()
    sound_bytes = damaged_bytes = padding_bytes = position = batches = records = 0
    with scope.log.open_file() as source:
        while True:
            entry = _entry_at(source, position)
            if isinstance(entry, Stop):
                break
            broken = _broken(entry, level)
            if broken is None:
                sound_bytes += entry.size_bytes
                batches += 1
                records += 1
            else:
                invariant, what = broken
                into.add(
                    invariant.finding(scope.place(position, scope.base_offset + position), what)
                )
                damaged_bytes += entry.size_bytes
            position += entry.size_bytes
        size_bytes = source.size_bytes
    if entry.problem is not None:
        into.add(
            _BROKEN_BY[entry.reason].finding(
                scope.place(position),
                entry.problem.what,
                expected=entry.problem.expected,
                found=entry.problem.found,
            )
        )
        if entry.reason is StopReason.ZERO_FILL:
            padding_bytes = size_bytes - position
        else:
            damaged_bytes += size_bytes - position
    end_offset = scope.base_offset + position
    return SegmentPart(
        path=scope.path,
        start=0,
        end=size_bytes,
        findings=into.findings(),
        account=ByteAccount(sound_bytes, padding_bytes, damaged_bytes),
        batches=batches,
        records=records,
        first_offset=scope.base_offset if batches else None,
        first_position=0 if batches else None,
        # Offsets are positions in the stream: the next segment begins where this one ends.
        last_offset=end_offset - 1 if batches else None,
        max_offset=end_offset - 1 if batches else None,
    )


def _entry_at(source: ByteSource, position: int) -> Message | Stop:
    """The entry at ``position``; its size is believed as far as the file goes."""
    size = int.from_bytes(read_at(source, position, kafka07.LOG_OVERHEAD_BYTES), signed=True)
    if size == 0:
        size = source.size_bytes - position  # zeroes to the end are no entry
    data = read_at(source, position, kafka07.LOG_OVERHEAD_BYTES + max(size, 0))
    return kafka07.decode_entry(data)


def _broken(message: Message, level: Level) -> tuple[Invariant, str] | None:
    """What is wrong with a message by itself."""
    if level > Level.QUICK and not message.is_valid:
        return invariants.BATCH_CHECKSUM, "the checksum of a message does not hold"
    try:
        if level >= Level.DEEP and message.codec is not Codec.NONE:
            for _ in kafka07.inner_messages(message):
                pass
    except FormatError as problem:
        return invariants.BATCH_CODEC, problem.what
    return None
