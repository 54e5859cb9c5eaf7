"""Names of segment files, as a broker interprets them when it loads a log."""

from __future__ import annotations

import functools
from typing import Final

from kdump.formats.names import FileKind, FileStage, leading_offset

_LOG: Final = FileKind.LOG.value
CLEANED: Final = FileStage.CLEANED.value
SWAP: Final = FileStage.SWAP.value
DELETED: Final = FileStage.DELETED.value
TEMPORARY_SUFFIXES: Final = (SWAP, CLEANED, DELETED)

SEGMENT_SUFFIXES: Final = (
    FileKind.LOG.value,
    FileKind.OFFSET_INDEX.value,
    FileKind.TIME_INDEX.value,
    FileKind.TRANSACTION_INDEX.value,
)
"""The files of a segment, in the order in which a broker renames them."""


def is_temporary(name: str) -> bool:
    """Whether the file is not yet, or no longer, part of the log."""
    return name.endswith(TEMPORARY_SUFFIXES)


def is_staged(name: str, source: str) -> bool:
    """Whether ``source``, which gets this name, was staged for it (:mod:`kdump.apply.staging`).

    Any other file with the suffix ``.cleaned`` is one that a broker left.
    """
    return source == name + CLEANED


@functools.lru_cache(maxsize=1024)
def is_log(name: str, stage: str = "") -> bool:
    """Whether it is the log of a segment, with the suffix ``stage``.

    Each name is asked for several times, and partitions share many, so results are cached.
    """
    return name.endswith(_LOG + stage) and leading_offset(name) is not None
