"""Check a segment of Kafka 0.7: a sequence of messages, each with its own checksum."""

from __future__ import annotations

from typing import Final

from kdump.check import invariants
from kdump.check.batches import SegmentScope
from kdump.check.collector import Collector
from kdump.check.invariants import Invariant
from kdump.check.log_map import ByteRun, LogMapBuilder, RunKind
from kdump.check.part import ByteAccount, Level, PartStatistics, SegmentPart
from kdump.formats import kafka07
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.formats.kafka07 import Message07, Stop07, StopReason07
from kdump.scan.batch_statistics import BatchStatistics, Volume
from kdump.scan.walk_0_7 import read_entry

_INVARIANT_OF: Final = {
    StopReason07.ZERO_FILL: invariants.ZERO_FILL,
    StopReason07.SHORT_TAIL: invariants.TORN_TAIL,
    StopReason07.TORN_TAIL: invariants.TORN_TAIL,
    StopReason07.BAD_LENGTH: invariants.BATCH_LENGTH,
    StopReason07.BAD_MAGIC: invariants.BATCH_MAGIC,
}


def check_segment(
    scope: SegmentScope, level: Level, *, with_statistics: bool = False
) -> SegmentPart:
    """Check a whole segment; after an impossible size, messages are not searched for.

    Raises:
        OSError: the log cannot be read.
    """
    into = Collector()
    valid_bytes = damaged_bytes = padding_bytes = position = batches = records = 0
    statistics = _Statistics(scope.base_offset) if with_statistics else None
    with scope.log.open_file() as source:
        while True:
            entry = read_entry(source, position)
            if isinstance(entry, Stop07):
                break
            broken = _problem(entry, level)
            if broken is None:
                valid_bytes += entry.size_bytes
                batches += 1
                records += 1
            else:
                invariant, what = broken
                into.add(
                    invariant.finding(scope.place(position, scope.base_offset + position), what)
                )
                damaged_bytes += entry.size_bytes
            if statistics is not None:
                statistics.add(entry, position, is_valid=broken is None)
            position += entry.size_bytes
        size_bytes = source.size_bytes
    if entry.problem is not None:
        into.add(
            _INVARIANT_OF[entry.reason].finding(
                scope.place(position),
                entry.problem.what,
                expected=entry.problem.expected,
                found=entry.problem.found,
            )
        )
        if entry.reason is StopReason07.ZERO_FILL:
            padding_bytes = size_bytes - position
        else:
            damaged_bytes += size_bytes - position
        if statistics is not None:
            is_padding = entry.reason is StopReason07.ZERO_FILL
            statistics.runs.add_bytes(position, size_bytes, is_padding=is_padding)
    end_offset = scope.base_offset + position
    return SegmentPart(
        path=scope.path,
        start=0,
        end=size_bytes,
        findings=into.findings(),
        account=ByteAccount(valid_bytes, padding_bytes, damaged_bytes),
        batches=batches,
        records=records,
        first_offset=scope.base_offset if batches else None,
        first_position=0 if batches else None,
        # Offsets are positions in the stream: the next segment begins where this one ends.
        last_offset=end_offset - 1 if batches else None,
        max_offset=end_offset - 1 if batches else None,
        statistics=None if statistics is None else statistics.result(),
    )


class _Statistics:
    """The statistics of a segment; its messages have no timestamps."""

    def __init__(self, base_offset: int) -> None:
        self.runs = LogMapBuilder()
        self._base_offset = base_offset
        self._volumes: dict[tuple[int, int], list[int]] = {}

    def add(self, message: Message07, position: int, *, is_valid: bool) -> None:
        """Add the next message; a wrapper of others counts as one record."""
        end = position + message.size_bytes
        if not is_valid:
            self.runs.add_bytes(position, end, is_padding=False)
            return
        first = self._base_offset + position
        self.runs.add(ByteRun(RunKind.VALID, position, end, first, first))
        key = message.size_bytes.bit_length() - 1, message.attributes & kafka07.CODEC_MASK
        counts = self._volumes.setdefault(key, [0, 0])
        counts[0] += 1
        counts[1] += message.size_bytes

    def result(self) -> PartStatistics:
        batches = BatchStatistics()
        for (size, codec), (count, size_bytes) in self._volumes.items():
            volume = Volume(count, count, size_bytes)
            batches += BatchStatistics(untimed=volume, sizes={size: volume}, codecs={codec: volume})
        return PartStatistics(batches, self.runs.runs())


def _problem(message: Message07, level: Level) -> tuple[Invariant, str] | None:
    """What is wrong with a single message; None if nothing."""
    if level > Level.QUICK and not message.is_valid:
        return invariants.BATCH_CHECKSUM, "the checksum of a message does not match"
    try:
        if level >= Level.DEEP and message.codec is not Codec.NONE:
            for _ in kafka07.inner_messages(message):
                pass
    except FormatError as problem:
        return invariants.BATCH_CODEC, problem.what
    return None
