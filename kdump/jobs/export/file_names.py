"""The names of exported files and of the directories around them.

Spark, Hive, DuckDB, Polars and pandas read ``topic=orders/partition=0`` as two columns. Characters
that a directory cannot have, or that these programs treat specially, are percent-encoded as Spark
does (``ExternalCatalogUtils.escapePathName``), and read back by all of them.
"""

from __future__ import annotations

import enum
import re
from typing import Final

from kdump.errors import UsageProblem
from kdump.formats.names import TopicPartition


class Layout(enum.Enum):
    """How files are arranged; the value is the word for ``--layout``."""

    HIVE = "hive"
    """A directory for each topic and partition, ``topic=orders/partition=0``."""
    FLAT = "flat"
    """All files in one directory; topic and partition are columns."""


_ESCAPED: Final = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^\udc80-\udcff]")
"""The characters that Spark escapes; and bytes of a name that is not UTF-8."""
_TEXT_START: Final = re.compile("[a-zA-Z_]")
_NOT_TEXT: Final = frozenset({"NaN", "Infinity", "__HIVE_DEFAULT_PARTITION__"})
"""Names that Spark reads as a number, or as null."""
_MOST_NAME_BYTES: Final = 255


def part_name(base_offset: int, position: int) -> str:
    """The name of a file without its extension; names sort by offset.

    Args:
        base_offset: of the segment in which it begins.
        position: the byte of that segment's log.
    """
    return f"{base_offset:020d}-{position:010d}"


_PART_PATH: Final = re.compile(r"(.*?)[0-9]{20}-[0-9]{10}\.(?:parquet|csv|jsonl)", re.DOTALL)
"""The whole path of an exported file, in any layout and format."""


def partition_of(path: str) -> str | None:
    """What the paths of a partition's files begin with; None for another file."""
    found = _PART_PATH.fullmatch(path)
    return None if found is None else found[1]


def part_path(layout: Layout, key: TopicPartition, name: str) -> str:
    """The path of a file, relative to the directory of the export; without a name its beginning.

    Raises:
        UsageProblem: the name would be too long for a file.
    """
    if layout is Layout.FLAT:
        file = f"{_visible(_escaped(key.topic))}-{key.partition}-{name}"
        if len(file.encode()) > _MOST_NAME_BYTES:
            raise UsageProblem(
                f"{key}: the name of the topic is too long for the names of files:"
                " use --layout hive"
            )
        return file
    return f"topic={hive_value(key.topic)}/partition={key.partition}/{name}"


def hive_value(topic: str) -> str:
    """The name of a topic in the name of a directory.

    Spark reads ``topic=0042`` as a number and ``topic=2026-01-01`` as a date, but only if they are
    not percent-encoded: one encoded character keeps them text.
    """
    escaped = _escaped(topic)
    if _TEXT_START.match(topic) and topic not in _NOT_TEXT:
        return escaped
    encoded = _first_encoded(escaped)
    # Kafka's longest names leave no room for it.
    return encoded if len(f"topic={encoded}".encode()) <= _MOST_NAME_BYTES else escaped


def _visible(escaped: str) -> str:
    """Spark and others skip files whose names begin with an underscore or a dot."""
    return _first_encoded(escaped) if escaped.startswith(("_", ".")) else escaped


def _first_encoded(escaped: str) -> str:
    if not escaped or escaped.startswith("%"):
        return escaped
    return f"%{ord(escaped[0]):02X}{escaped[1:]}" if escaped[0].isascii() else escaped


def _escaped(topic: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]) & 0xFF:02X}", topic)
