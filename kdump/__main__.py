"""``python -m kdump``."""

import os
import sys

try:
    # Python has put the current directory there, which may hold anything.
    if not sys.flags.safe_path and sys.path[0] == os.getcwd():  # noqa: PTH109 - the same string
        del sys.path[0]
except OSError:
    # It was deleted, and Python has not found it either.
    pass

from kdump.program import main

main()
