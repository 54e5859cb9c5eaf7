"""One segment of a partition: the files that share a base offset."""

from __future__ import annotations

from msgspec import Struct

from kdump.formats.names import FileKind


class Segment(Struct, frozen=True):
    """A segment in use, by the sizes of its files; None for a missing file.

    A segment is its log: indexes without one are leftovers, which a broker deletes.

    Attributes:
        base_offset: the first offset that it may hold, from its name; in Kafka 0.7 the position
            of its first byte in the whole log.
        log_bytes: of the ``.log`` (0.7: ``.kafka``) file, preallocated space included.
        offset_index_bytes: of the ``.index`` file, padding included.
        time_index_bytes: of the ``.timeindex`` file, padding included.
        transaction_index_bytes: of the ``.txnindex`` file.
        log_kind: ``LOG``, or ``LOG_0_7``.
        log_name: of the log's file (0.7 has names of two widths).
        hole_bytes: how much of the log was never written and need not be read; an estimate, 0 if
            it is too little to matter.
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
        """About how much of the log is to be read; holes are skipped."""
        return self.log_bytes - self.hole_bytes

    @property
    def is_0_7(self) -> bool:
        return self.log_kind is FileKind.LOG_0_7

    def file_name(self, kind: FileKind) -> str:
        """Return the name of one of its files, whether it exists or not."""
        return (
            self.log_name if kind is self.log_kind else f"{self.base_offset:020d}{kind.extension}"
        )
