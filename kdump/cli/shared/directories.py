"""Finding the directories named on the command line."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator

from kdump.cli.output.diagnostics import Diagnostics
from kdump.errors import UsageProblem
from kdump.log import directory
from kdump.log.directory import DirectoryKind, LogDirectory
from kdump.phases import phase
from kdump.storage.location import Location, each_once


def find_log_directories(
    paths: Iterable[Location], diagnostics: Diagnostics
) -> dict[Location, DirectoryKind]:
    """Find the log directories among ``paths``, each once, with their kinds.

    Other paths are reported.

    Raises:
        UsageProblem: a path is the directory of a partition.
    """
    found: dict[Location, DirectoryKind] = {}
    with phase("looking at what is named"):
        paths = each_once(paths)
    for path in paths:
        try:
            with phase(f"listing {path}"):
                kind = directory.directory_kind(path)
        except OSError as failure:
            diagnostics.report(path, failure)
            continue
        if kind.is_partition:
            raise UsageProblem(f"{path} is a partition: name its log directory, {path.around}")
        if not kind.is_log_directory:
            diagnostics.refuse(path)
        else:
            found[path] = kind
    return found


def read_log_directories(paths: Iterable[Location], diagnostics: Diagnostics) -> list[LogDirectory]:
    """Find the log directories among ``paths`` and list them; what cannot be listed is reported.

    Raises:
        UsageProblem: a path is the directory of a partition.
    """
    found = []
    for path, kind in find_log_directories(paths, diagnostics).items():
        try:
            found.append(directory.read_log_directory(path, kind))
        except OSError as failure:
            diagnostics.report(path, failure)
    return found


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Suspend garbage collection: listings have no cycles and are kept to the end.

    A directory of ten thousand partitions becomes hundreds of thousands of objects. Scanning them
    again and again took a sixth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # The next collection would look at all of them at once.
            gc.freeze()
            gc.enable()
