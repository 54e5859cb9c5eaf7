"""The functions of ``segments.c``, if they were compiled when kdump was installed.

Without a C compiler there is no library, and whoever asks uses what Python and NumPy can do; the
results are the same, which tests compare. The library knows nothing of Python: calls pass addresses
of memory that the caller keeps, and release the interpreter's lock.
"""

from __future__ import annotations

import functools
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import ctypes

FILE_NAME: Final = "libsegments.so.1"
"""Not one that Python takes for an extension module."""
_INTERFACE: Final = 2
"""``kdump_interface`` of the source. Another number is that of a library of an older clone."""


@functools.cache
def compiled() -> ctypes.CDLL | None:
    """Load the library; None if there is none for this machine."""
    import ctypes

    try:
        library = ctypes.CDLL(str(PurePath(__file__).with_name(FILE_NAME)))
        if ctypes.c_int.in_dll(library, "kdump_interface").value != _INTERFACE:
            return None
    except (OSError, ValueError):
        return None
    address, number = ctypes.c_void_p, ctypes.c_int64
    _declare(
        library.kdump_walk,
        number,
        (address, number, ctypes.c_int, number, address, address, address),
    )
    _declare(
        library.kdump_records,
        ctypes.c_int,
        (address, number, number, *[address] * 4, number, address),
    )
    _declare(library.kdump_largest_timestamps, number, (address, number, number, address))
    _declare(library.kdump_text, ctypes.c_int, (address,))
    return library


def _declare(function: Any, result: Any, arguments: tuple[Any, ...]) -> None:
    function.restype = result
    function.argtypes = arguments
