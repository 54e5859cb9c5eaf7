"""Arrow batches as a Parquet file whose row groups have about the same size."""

from __future__ import annotations

import contextlib
import io
from typing import IO, Any, Final

import pyarrow as pa

ROW_GROUP_BYTES: Final = 32 << 20
"""A row group ends when it has so many bytes in memory: readers of a file share its row groups."""
ROW_GROUP_RECORDS: Final = 1 << 20
_JOINED_BATCHES: Final = 256
"""So many batches become one: a batch takes 25 KB besides its rows, and a segment may have few."""


class RowGroupWriter:
    """Writes a Parquet file, compressed with zstd."""

    def __init__(self, file: IO[bytes] | io.RawIOBase, schema: pa.Schema, **options: Any) -> None:
        """Begin the file.

        Args:
            file: takes the bytes; it stays open.
            options: others of :class:`pyarrow.parquet.ParquetWriter`.
        """
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(file, schema, compression="zstd", **options)
        self._waiting: list[pa.RecordBatch] = []
        self._last: list[pa.RecordBatch] = []
        self._records = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, and write the row group if it is large enough.

        Raises:
            OSError: the file cannot be written.
        """
        self._last.append(batch)
        if len(self._last) == _JOINED_BATCHES:
            self._join()
        self._records += batch.num_rows
        self._bytes += batch.nbytes
        if self._bytes >= ROW_GROUP_BYTES or self._records >= ROW_GROUP_RECORDS:
            self._end_row_group()

    def _join(self) -> None:
        self._waiting += pa.Table.from_batches(self._last).combine_chunks().to_batches()
        self._last = []

    def _end_row_group(self) -> None:
        batches = self._waiting + self._last
        if batches:
            table = pa.Table.from_batches(batches)
            self._waiting, self._last = [], []
            self._records = self._bytes = 0
            self._writer.write_table(table)

    def finish(self) -> None:
        """Complete the file.

        Raises:
            OSError: the file cannot be written.
        """
        self._end_row_group()
        self._writer.close()

    def abandon(self) -> None:
        """End without completing the file."""
        # Arrow writes the end of the file when its writer is deleted, if not before.
        with contextlib.suppress(OSError, ValueError, pa.ArrowException):
            self._writer.close()
