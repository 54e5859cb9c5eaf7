"""The transaction index (``.txnindex``): the aborted transactions whose markers a segment holds.

A sequence of entries of 34 bytes in the order of the markers, never padded.

Follows ``org.apache.kafka.storage.internals.log.TransactionIndex`` and ``AbortedTxn``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from kdump.formats.errors import FormatError
from kdump.formats.index_layouts import ABORTED_TXN_FIELDS
from kdump.formats.kafka_versions import KAFKA_4_3_1, KAFKA_4_4, ChangedRule, KafkaVersion
from kdump.formats.offset_index import partial_entry

ENTRY_FIELDS: Final = tuple((name, f">{code}") for name, code in ABORTED_TXN_FIELDS)
"""An entry, in the order of the bytes: name and NumPy type of each field."""

ENTRY_DTYPE: Final[np.dtype[np.void]] = np.dtype(list(ENTRY_FIELDS))
ENTRY_BYTES: Final = ENTRY_DTYPE.itemsize

CURRENT_VERSION: Final = 0

WHOLE_VERSION: Final = ChangedRule(
    KAFKA_4_4,
    "KAFKA-19562",
    "an entry's version is both of its bytes, and has to be 0; before, only the first byte counted,"
    " and negative versions were accepted",
)


class AbortedTxn(Struct, frozen=True):
    """One aborted transaction.

    Attributes:
        first_offset: of its first record.
        last_offset: of its abort marker.
        last_stable_offset: of the log, when the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    version: int = CURRENT_VERSION

    def version_in(self, kafka: KafkaVersion) -> int:
        """The version as a Kafka reads it."""
        return self.version if WHOLE_VERSION.holds_in(kafka) else self.version >> 8

    def is_known_to(self, kafka: KafkaVersion) -> bool:
        """Whether a Kafka knows the version of the entry; otherwise it does not load the log."""
        version = self.version_in(kafka)
        if WHOLE_VERSION.holds_in(kafka):
            return version == CURRENT_VERSION
        return version <= CURRENT_VERSION


class TransactionIndex(Struct, frozen=True):
    """The entries of a transaction index, and the number of bytes after the last complete one."""

    entries: tuple[AbortedTxn, ...]
    trailing_bytes: int = 0


def decode(data: bytes | bytearray | memoryview) -> TransactionIndex:
    """Read an index with entries of any version; any bytes can be read as one."""
    count, trailing_bytes = divmod(len(data), ENTRY_BYTES)
    rows: npt.NDArray[np.void] = np.frombuffer(data, ENTRY_DTYPE, count)
    entries = tuple(
        AbortedTxn(producer_id, first_offset, last_offset, last_stable_offset, version)
        for version, producer_id, first_offset, last_offset, last_stable_offset in rows.tolist()
    )
    return TransactionIndex(entries, trailing_bytes)


def encode(entries: Iterable[AbortedTxn]) -> bytes:
    """Encode the entries."""
    rows = [tuple(getattr(entry, name) for name, _ in ENTRY_FIELDS) for entry in entries]
    return np.array(rows, ENTRY_DTYPE).tobytes()


def version_problem(index: TransactionIndex) -> FormatError | None:
    """Give the first entry whose version Kafka 4.3.1 refuses, as a value, or None."""
    for slot, entry in enumerate(index.entries):
        if not entry.is_known_to(KAFKA_4_3_1):
            return FormatError(
                "aborted transaction has an unknown version",
                position=slot * ENTRY_BYTES,
                expected=CURRENT_VERSION,
                found=entry.version_in(KAFKA_4_3_1),
            )
    return None


def trailing_problem(index: TransactionIndex) -> FormatError | None:
    """Give the partial entry at the end, which Kafka ignores, as a value, or None."""
    size_bytes = len(index.entries) * ENTRY_BYTES + index.trailing_bytes
    return partial_entry(size_bytes, ENTRY_BYTES)
