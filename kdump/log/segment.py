"""One segment of a partition: the files that share a base offset."""

from __future__ import annotations

from dataclasses import dataclass

from kdump.formats.names import FileKind, OffsetFileName


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment in use, by the sizes of its files; None for a file that is not there.

    A segment is its log: indexes without one are leftovers, which a broker deletes.

    Attributes:
        base_offset: first offset that it may hold, from its name; in Kafka 0.7 the position of
            its first byte in the stream of the partition.
        log_bytes: of the ``.log`` (0.7: ``.kafka``) file, preallocated space included.
        offset_index_bytes: of the ``.index`` file, padding included.
        time_index_bytes: of the ``.timeindex`` file, padding included.
        transaction_index_bytes: of the ``.txnindex`` file.
        log_kind: ``LOG``, or ``LOG_0_7``.
        log_name: of the log's file (in 0.7 names of two widths occur).
        hole_bytes: of the log that were never written, as far as they are a part worth
            mentioning: an estimate of what need not be read.
    """

    base_offset: int
    log_bytes: int
    offset_index_bytes: int | None
    time_index_bytes: int | None
    transaction_index_bytes: int | None
    log_kind: FileKind
    log_name: str
    hole_bytes: int = 0

    @property
    def data_bytes(self) -> int:
        """About how much of the log there is to read; holes are skipped."""
        return self.log_bytes - self.hole_bytes

    @property
    def is_0_7(self) -> bool:
        return self.log_kind is FileKind.LOG_0_7

    def file_name(self, kind: FileKind) -> str:
        """Name of one of its files, whether that is there or not."""
        return (
            self.log_name if kind is self.log_kind else str(OffsetFileName(self.base_offset, kind))
        )
