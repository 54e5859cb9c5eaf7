"""The program ``kdump``, as its script and ``python -m kdump`` start it."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process, and end the process."""
    # Python would print a stack trace for ^C while it imports modules.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kdump.cli.main import main as run_command_line

    run_command_line()
