"""CRC-32C, from the extension module of the package ``crc32c`` alone.

The package also imports ``importlib.metadata``, to know its own version, and a command line. That
takes a tenth of the time in which a small command answers.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final


def _imported() -> Callable[..., int]:
    """Import the function from the extension; from the package if the extension is elsewhere."""
    package = PathFinder.find_spec("crc32c")
    if package is not None:
        places = package.submodule_search_locations
        extension = PathFinder.find_spec("crc32c._crc32c", places)
        if extension is not None and extension.loader is not None:
            module = module_from_spec(extension)
            extension.loader.exec_module(module)
            found: Callable[..., int] = module.crc32c
            return found
    from crc32c import crc32c as found

    return found


crc32c: Final = _imported()
"""Takes bytes, and the checksum of the bytes before them (default 0); returns the checksum."""
