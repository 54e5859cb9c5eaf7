"""Options and common words of the text of records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from kdump.formats.errors import FormatError
from kdump.formats.record_batch import LARGEST_RECORD_BYTES

if TYPE_CHECKING:
    from kdump.dump.contents import Contents

RECORD_INDENT: Final = "|"
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
"""Names of the timestamp types, by the bit of a batch's attributes."""

Damage: TypeAlias = Callable[[int, FormatError], None]
"""Called with the position of a batch and what could not be printed of its records."""


class TextOptions(Struct, frozen=True):
    """The official tool's options for the records of a log.

    Attributes:
        contents: how keys and values become text, or None to leave them out.
        skip_record_metadata: leave out metadata, and control records.
        line_start: what comes before each line of a record of magic 2, in UTF-8.
    """

    contents: Contents | None = None
    skip_record_metadata: bool = False
    largest_record_bytes: int = LARGEST_RECORD_BYTES
    line_start: bytes = b""
