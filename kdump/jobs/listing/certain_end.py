"""Whether the end of a log that is shown is the end that a starting broker gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from kdump.rows.row_type import FLAG, Field

IS_END_CERTAIN: Final = Field(
    "is_end_certain",
    FLAG.or_null,
    "Whether a starting broker ends the log there, too. Not after an unclean shutdown, where it"
    " verifies checksums, nor in the log of the cluster's metadata, nor where the offset index is"
    " wrong.",
)
IS_VALID_END_CERTAIN: Final = replace(
    IS_END_CERTAIN,
    what="Whether a starting broker ends the log after its last valid batch, too. Not after an"
    " unclean shutdown, where it ends it before the first damage, nor where damage or a wrong"
    " offset index are at the end; null if the end is unknown.",
)
"""The same for an end that was found by checksums."""


def with_marked_end(
    row: Mapping[str, Any],
    *names: str,
    certainty: str = IS_END_CERTAIN.name,
) -> Mapping[str, Any]:
    """The row of a partition for people: an end that may not be a broker's has a mark.

    Args:
        names: of the fields that depend on the end (default: the end itself).
        certainty: the name of the field that says whether it is a broker's.
    """
    if row.get(certainty) is not False:
        return row
    marked = names or ("log_end_offset",)
    return {
        **row,
        **{name: f"~{row[name]}" for name in marked if row.get(name) is not None},
    }
