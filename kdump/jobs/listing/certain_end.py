"""Whether the end of a log that is listed is the end that a starting broker gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kdump.rows.row_type import FLAG, Field

IS_END_CERTAIN: Final = Field(
    "is_end_certain",
    FLAG.or_null,
    "Whether a starting broker ends the log there, too. Not after an unclean shutdown, where it"
    " verifies checksums, nor in the log of the cluster's metadata, nor where the offset index is"
    " wrong.",
)


def with_marked_end(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of a partition for people: an end that may not be a broker's has a mark."""
    end = row.get("log_end_offset")
    return row if end is None or row["is_end_certain"] else {**row, "log_end_offset": f"~{end}"}
