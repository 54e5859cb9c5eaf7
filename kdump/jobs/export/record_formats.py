"""The formats of exported files, by name: without what it takes to write them."""

from __future__ import annotations

import enum


class FileFormat(enum.Enum):
    """A format; the value is the word for ``--format`` and the extension of the files."""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"
