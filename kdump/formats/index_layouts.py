"""The entries of the indexes in the order of their bytes: name and struct format of each field.

They are apart from the modules that read whole indexes as columns, which import NumPy.
"""

from __future__ import annotations

from typing import Final

OFFSET_ENTRY_FIELDS: Final = (
    ("relative_offset", "i"),
    ("position", "i"),
)
TIME_ENTRY_FIELDS: Final = (
    ("timestamp", "q"),
    ("relative_offset", "i"),
)
ABORTED_TXN_FIELDS: Final = (
    ("version", "h"),
    ("producer_id", "q"),
    ("first_offset", "q"),
    ("last_offset", "q"),
    ("last_stable_offset", "q"),
)
