"""How many records have a key or value that cannot be decoded, and why the first one cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Self

from msgspec import Struct

from kdump.words import counted


class Undecoded(Struct, frozen=True):
    """Records whose key or value has no text in its format.

    Attributes:
        records: how many.
        first: the offset of the first one, and the reason; None if there is none.
    """

    records: int = 0
    first: str | None = None

    @classmethod
    def of(cls, offsets: Sequence[int], keys: Mapping[int, str], values: Mapping[int, str]) -> Self:
        """Count some records.

        Args:
            offsets: of all records.
            keys: why keys have no text, by their row.
            values: the same of values.
        """
        rows = keys.keys() | values.keys()
        if not rows:
            return cls()
        row = min(rows)
        what = f"key: {keys[row]}" if row in keys else f"value: {values[row]}"
        return cls(len(rows), f"offset {offsets[row]}, {what}")

    def __add__(self, following: Undecoded) -> Undecoded:
        return Undecoded(self.records + following.records, self.first or following.first)

    def __str__(self) -> str:
        return (
            f"the key or value of {counted(self.records, 'record')} cannot be decoded"
            f" (first: {self.first})"
        )


NONE_UNDECODED: Final = Undecoded()
