"""The loader's rules for leftover files of a partition.

Follows ``LogLoader.load`` for ``.deleted``, ``.cleaned`` and ``.swap`` files, and
``LogLoader.loadSegmentFiles`` for indexes without a log.
"""

from __future__ import annotations

from typing import Final

from kdump.broker.loader.load_context import IndexSettings
from kdump.broker.loader.load_report import LeftoverOutcome, Recorder
from kdump.broker.loader.loaded_segment import open_segment
from kdump.formats.names import FileKind, FileStage, leading_offset
from kdump.target.refusal import Refused
from kdump.target.virtual_directory import VirtualDirectory, file_name

_CHECKPOINT_DELETED: Final = ".checkpoint" + FileStage.DELETED.value
_INT64_MAX: Final = 2**63 - 1


def finish_swaps(directory: VirtualDirectory, settings: IndexSettings, recorder: Recorder) -> None:
    """Delete incomplete files, and finish complete swaps.

    Raises:
        Refused: a leftover file has a name without an offset, or Kafka's reader fails on a complete
            segment.
    """
    swaps = _drop_unfinished(directory, recorder)
    if not swaps:
        return
    low, high = _INT64_MAX, -_INT64_MAX - 1
    for name in swaps:
        stem = name.removesuffix(FileStage.SWAP.value)
        if not stem.endswith(FileKind.LOG.value):
            continue
        base_offset = required_offset(name)
        segment = open_segment(directory, base_offset, settings, FileStage.SWAP.value)
        low = min(low, base_offset)
        high = max(high, segment.next_offset())
    for name in directory.names():
        offset = leading_offset(name)
        if name.endswith(FileStage.SWAP.value) or offset is None:
            continue
        if low <= offset < high:
            recorder.leftover(name, LeftoverOutcome.REPLACED)
            directory.remove(name)
    for name in directory.names():
        if name.endswith(FileStage.SWAP.value):
            recorder.leftover(name, LeftoverOutcome.PUT_IN_PLACE)
            directory.rename(name, name.removesuffix(FileStage.SWAP.value))


def drop_orphan(directory: VirtualDirectory, name: str, recorder: Recorder) -> None:
    """Delete the index ``name`` if its log is missing.

    Raises:
        Refused: the name has no offset.
    """
    log = file_name(required_offset(name), FileKind.LOG)
    if log not in directory and not directory.is_directory(log):
        recorder.leftover(name, LeftoverOutcome.DELETED)
        directory.remove(name)


def _drop_unfinished(directory: VirtualDirectory, recorder: Recorder) -> list[str]:
    """Delete files that were being deleted or written; returns the names of valid swaps."""
    swaps: list[str] = []
    cleaned: list[str] = []
    for name in directory.names():
        if name.endswith(FileStage.DELETED.value) and not name.endswith(_CHECKPOINT_DELETED):
            recorder.leftover(name, LeftoverOutcome.DELETED)
            directory.remove(name)
        elif name.endswith(FileStage.CLEANED.value):
            cleaned.append(name)
        elif name.endswith(FileStage.SWAP.value):
            swaps.append(name)
    least_cleaned = min(map(required_offset, cleaned), default=_INT64_MAX)
    valid = [name for name in swaps if required_offset(name) < least_cleaned]
    for name in (*cleaned, *swaps):
        if name not in valid:
            recorder.leftover(name, LeftoverOutcome.DELETED)
            directory.remove(name)
    return valid


def required_offset(name: str) -> int:
    """The offset at the start of a file name.

    Raises:
        Refused: there is none.
    """
    offset = leading_offset(name)
    if offset is None:
        raise Refused("the name does not begin with an offset", name, "NumberFormatException")
    return offset
