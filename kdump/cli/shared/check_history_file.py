"""The file of ``--state``: read before a verification, replaced after it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from kdump.cli.output.out_file import OutFile, OutFileError
from kdump.jobs.verify.check_history import CheckHistory, CheckHistoryError
from kdump.storage.entries import EntryKind
from kdump.storage.local_disk import local
from kdump.storage.location import Location


@contextlib.contextmanager
def kept_history(name: str, paths: Sequence[Location]) -> Iterator[CheckHistory]:
    """The history in a file, which is replaced at the end, also if the verification was stopped.

    Args:
        name: of the file, as typed.

    Raises:
        UsageProblem: the file is in a log directory, or it is verified itself.
        OutFileError: it cannot be read or written, or is another file.
    """
    out = OutFile.checked(name, is_replaced=True, option="--state")
    out.refuse_to_replace(paths)
    history = _read(out)
    try:
        yield history
    finally:
        out.write([history.encode()])


def _read(out: OutFile) -> CheckHistory:
    place = local(out.path)
    try:
        if place.kind() is not EntryKind.FILE:
            return CheckHistory()
        return CheckHistory.decode(place.read())
    except OSError as failure:
        raise OutFileError(f"{out}: cannot be read: {failure.strerror}") from failure
    except CheckHistoryError as problem:
        raise OutFileError(
            f"{out}: is not the state of earlier runs ({problem}): name another file, or delete it"
        ) from problem
