"""The file that keeps what was typed at the prompt of ``kdump query``.

Statements may hold keys and values of records: only the user can read the file, and it is never
inside a log directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kdump.cli.output.out_file import refuse_log_directories
from kdump.errors import UsageProblem
from kdump.storage.private_folder import make_private_folder, xdg_folder

_NAME: Final = "query-history"


def history_path(environment: Mapping[str, str]) -> Path | None:
    """The file of the history, which exists then; None if there is nowhere to keep one.

    Args:
        environment: has ``XDG_STATE_HOME``, or ``HOME``.
    """
    folder = xdg_folder(environment, "XDG_STATE_HOME", ".local/state")
    if folder is None:
        return None
    try:
        there = next(each for each in (folder, *folder.parents) if each.is_dir())
        # Before anything is made: a broker does not start with a directory that is not its own.
        refuse_log_directories(str(there / _NAME))
        if not make_private_folder(folder):
            return None
        path = folder / _NAME
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    except (OSError, UsageProblem):
        return None
    return path
