"""``python -m kdump``."""

import sys

if not sys.flags.safe_path:
    # Python has put the current directory there, which may hold anything.
    del sys.path[0]

from kdump.cli.main import main

main()
