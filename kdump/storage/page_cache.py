"""Which pages of a file the system has in memory."""

from __future__ import annotations

import ctypes
import mmap
from typing import Final

PAGE_BYTES: Final = mmap.PAGESIZE
_IS_IN_MEMORY: Final = bytes(number & 1 for number in range(256))


def pages_in_memory(descriptor: int, size_bytes: int) -> bytes | None:
    """For each page of an open file, 1 if it is in memory, else 0; None if the system cannot tell.

    Linux tells only the owner of the file, who may write to it, and root; to anybody else all pages
    are in memory.
    """
    if not size_bytes:
        return b""
    try:
        ask = ctypes.CDLL(None, use_errno=True).mincore
        # Nothing is read through the map: a disk that fails then would end the process. It may be
        # written to, which it is not, because only then Python gives its address.
        pages = mmap.mmap(descriptor, size_bytes, access=mmap.ACCESS_COPY)
    except (AttributeError, OSError, ValueError):
        return None
    with pages:
        count = -(-size_bytes // PAGE_BYTES)
        found = (ctypes.c_ubyte * count)()
        first = ctypes.c_char.from_buffer(pages)
        failure = ask(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size_bytes), found)
        del first  # else the map could not be closed
        return None if failure else bytes(found).translate(_IS_IN_MEMORY)
