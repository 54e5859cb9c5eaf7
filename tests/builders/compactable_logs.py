"""Varied logs with something to compact, generated from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from builders.batches import BASE_TIMESTAMP_MS, record
from builders.message_sets import message, wrapper
from kdump.formats import record_batch
from kdump.formats.compression import Codec, compress
from kdump.formats.names import FileKind, OffsetFileName
from kdump.formats.record_batch import BatchHeader, Record, encode_batch, encode_record

NOW_MS: Final = BASE_TIMESTAMP_MS + 10 * 86_400_000
KEYS: Final = 25

_CODECS: Final = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
_OLD_CODECS: Final = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
_LEADER_CHANGE: Final = b"\0\0\0\2"


@dataclass(slots=True)
class _Producer:
    producer_id: int
    epoch: int = 0
    sequence: int = 0
    has_txn: bool = False


@dataclass(slots=True)
class _Writer:
    """Writer of consecutive batches, like those of leaders, cleaners and old versions."""

    rng: random.Random
    is_old: bool
    offset: int = 0
    epoch: int = 0
    timestamp_ms: int = BASE_TIMESTAMP_MS
    producers: list[_Producer] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = self.rng.choice([1, 3, 3, 8])
        self.producers = [_Producer(each) for each in self.rng.sample(range(70_000), count)]

    def next(self) -> bytes:
        """Write one batch, or one message of magic 0 or 1."""
        rng = self.rng
        self.timestamp_ms += rng.randrange(-10_000, 60_000)
        self.offset += rng.randrange(1, 9) if rng.random() < 0.05 else 0
        self.epoch += rng.random() < 0.05
        if self.is_old:
            return self._old()
        producer = rng.choice(self.producers)
        chance = rng.random()
        if producer.has_txn and chance < 0.35:
            return self._marker(producer)
        if chance < 0.4:
            return self._data(None)
        if chance < 0.43:
            return self._control(None, 2, b"")
        if chance < 0.47 and not producer.has_txn:
            return self._empty(producer)
        return self._data(producer)

    def end_txns(self) -> Iterator[bytes]:
        """Yield the markers of all open transactions."""
        for producer in self.producers:
            if producer.has_txn:
                yield self._marker(producer)

    def _old(self) -> bytes:
        rng = self.rng
        magic = rng.choice([0, 1])
        flags = record_batch.LOG_APPEND_TIME_FLAG if magic and rng.random() < 0.2 else 0
        codec = rng.choice(_OLD_CODECS)
        time = {"timestamp": self.timestamp_ms} if magic else {"timestamp": -1}
        if codec is Codec.NONE:
            self.offset += 1
            return message(
                self.offset - 1, self._key(), self._value(), magic=magic, attributes=flags, **time
            )
        count = rng.randrange(1, 6)
        first = 0 if magic else self.offset
        entries = [
            message(first + step, self._key(), self._value(), magic=magic, **time)
            for step in range(count)
        ]
        self.offset += count
        return wrapper(
            entries, codec, offset=self.offset - 1, magic=magic, attributes=flags, **time
        )

    def _key(self) -> bytes | None:
        number = self.rng.randrange(-1, KEYS)
        return None if number < 0 else b"key-%d" % number * (1 + number % 3 * 10)

    def _value(self) -> bytes | None:
        rng = self.rng
        return None if rng.random() < 0.2 else rng.randbytes(rng.randrange(120))

    def _records(self) -> list[Record]:
        rng = self.rng
        found = []
        for _ in range(rng.choice([1, 1, 3, 8, 20])):
            headers = [
                (b"h\xc3\xa9%d" % step, rng.choice([None, b"x" * 70]))
                for step in range(rng.choice([0, 0, 0, 1, 3]))
            ]
            timestamp = self.timestamp_ms + rng.randrange(-3000, 3000)
            found.append(record(self.offset, self._key(), self._value(), headers, timestamp))
            self.offset += 1 + (rng.randrange(5) if rng.random() < 0.1 else 0)
        return found

    def _data(self, producer: _Producer | None) -> bytes:
        rng = self.rng
        first_offset = self.offset
        records = self._records()
        flags = record_batch.LOG_APPEND_TIME_FLAG if rng.random() < 0.1 else 0
        if producer is not None:
            producer.has_txn |= rng.random() < 0.4
            flags |= record_batch.TRANSACTIONAL_FLAG if producer.has_txn else 0
        horizon_ms = None
        if rng.random() < 0.15:
            horizon_ms = NOW_MS + rng.choice([-86_400_000, 0, 86_400_000])
        data = self._batch(records, first_offset, flags, producer, rng.choice(_CODECS), horizon_ms)
        if producer is not None:
            producer.sequence += self.offset - first_offset
        return data

    def _marker(self, producer: _Producer) -> bytes:
        producer.has_txn = False
        if self.rng.random() < 0.2:
            producer.epoch += 1
            producer.sequence = 0
        return self._control(producer, self.rng.randrange(2), bytes(6))

    def _control(self, producer: _Producer | None, kind: int, value: bytes) -> bytes:
        key = b"\0\0" + kind.to_bytes(2)
        one = record(self.offset, key, value, timestamp=self.timestamp_ms)
        self.offset += 1
        flags = record_batch.CONTROL_FLAG
        flags |= 0 if producer is None else record_batch.TRANSACTIONAL_FLAG
        horizon_ms = None
        if producer is not None and self.rng.random() < 0.4:
            horizon_ms = NOW_MS + self.rng.choice([-86_400_000, 0, 86_400_000])
        return self._batch([one], one.offset, flags, producer, Codec.NONE, horizon_ms)

    def _empty(self, producer: _Producer) -> bytes:
        """Make the empty batch that compaction keeps for an active producer."""
        first_offset = self.offset
        self.offset += self.rng.randrange(1, 6)
        data = self._batch([], first_offset, 0, producer, Codec.NONE, None)
        producer.sequence += self.offset - first_offset
        return data

    def _batch(
        self,
        records: list[Record],
        base_offset: int,
        flags: int,
        producer: _Producer | None,
        codec: Codec,
        horizon_ms: int | None,
    ) -> bytes:
        is_control = bool(flags & record_batch.CONTROL_FLAG)
        base_timestamp = records[0].timestamp if records else -1
        if horizon_ms is not None:
            base_timestamp = horizon_ms
            flags |= record_batch.DELETE_HORIZON_FLAG
        body = b"".join(encode_record(each, base_offset, base_timestamp) for each in records)
        header = BatchHeader(
            base_offset=base_offset,
            length=0,
            partition_leader_epoch=self.epoch,
            magic=2,
            crc=0,
            attributes=flags | codec,
            last_offset_delta=self.offset - 1 - base_offset,
            base_timestamp=base_timestamp,
            max_timestamp=max((each.timestamp for each in records), default=self.timestamp_ms),
            producer_id=-1 if producer is None else producer.producer_id,
            producer_epoch=-1 if producer is None else producer.epoch,
            base_sequence=-1 if producer is None or is_control else producer.sequence,
            records_count=len(records),
        )
        return encode_batch(header, compress(codec, body))


def compactable_logs(rng: random.Random, *, ends_old: bool = False) -> dict[str, bytes]:
    """Generate the logs of a partition by name: up to a dozen segments.

    With ``ends_old``, all messages have magic 0 or 1, and each segment ends in a message without a
    key. The cleaner fails on such a message at the end of a round.
    """
    is_old = ends_old or rng.random() < 0.3
    writer = _Writer(rng, is_old=is_old, offset=rng.choice([0, 0, 5000]))
    logs: dict[str, bytes] = {}
    segments = rng.choice([2, 4, 12])
    for number in range(segments):
        base_offset = writer.offset
        log = b"".join(writer.next() for _ in range(rng.choice([0, 1, 5, 30]) or number == 0))
        if ends_old:
            log += message(writer.offset, None, b"no key")
            writer.offset += 1
        elif writer.is_old and rng.random() < 0.5:
            writer.is_old = False
        if number == segments - 1 and rng.random() < 0.7:
            log += b"".join(writer.end_txns())
        if log:
            logs[str(OffsetFileName(base_offset, FileKind.LOG))] = log
    return logs


Property = Callable[[random.Random], str]

PROPERTIES: Final[dict[str, Property]] = {
    "delete.retention.ms": lambda rng: str(rng.choice([0, 1000, 86_400_000])),
    "index.interval.bytes": lambda rng: str(rng.choice([0, 200, 4096])),
    "internal.segment.bytes": lambda rng: str(rng.choice([2000, 9000, 2**30])),
    "min.compaction.lag.ms": lambda rng: str(
        rng.choice([0, 0, NOW_MS - BASE_TIMESTAMP_MS - 10**6])
    ),
}
"""Topic properties that change the result of compaction, and values to choose from."""


def random_properties(rng: random.Random) -> dict[str, str]:
    """Choose a value for each of :data:`PROPERTIES`."""
    return {name: choose(rng) for name, choose in PROPERTIES.items()}
