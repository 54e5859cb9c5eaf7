"""The bytes of an index file, without most of its padding."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kdump.formats import offset_index
from kdump.scan.source import end_of_data, read_at
from kdump.storage.location import Location

_PAGE_BYTES: Final = 4096


class IndexBytes(Struct, frozen=True):
    """An index without most of its padding.

    Attributes:
        data: its bytes; only zeroes follow in the file, which begin at an entry.
    """

    data: bytes
    size_bytes: int

    def count_padding(self, entry_bytes: int) -> int:
        """Count the entries at the end of the file that are all zeroes."""
        left_out = (self.size_bytes - len(self.data)) // entry_bytes
        return left_out + offset_index.count_padding(self.data, entry_bytes)


def read_index(
    path: Location, entry_bytes: int, used_bytes: int | None = None
) -> IndexBytes | None:
    """Read an index; None if it is missing.

    The padding of an index in use is megabytes, most of them in a hole of the file, unless the file
    was copied.

    Args:
        used_bytes: how many bytes come before the padding; None if the padding has to be read.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        with path.open_file() as source:
            size_bytes = end = source.size_bytes
            if used_bytes is not None:
                end = min(size_bytes, used_bytes)
            elif size_bytes > _PAGE_BYTES:
                end = end_of_data(source, 0, size_bytes)
                end = min(size_bytes, -(-end // entry_bytes) * entry_bytes)
            return IndexBytes(read_at(source, 0, end), size_bytes)
    except FileNotFoundError:
        return None
