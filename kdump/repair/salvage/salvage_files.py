"""Resolve whole files during salvage: leftover files, and names that Kafka cannot parse.

A broker begins an empty segment for a log whose name does not have twenty digits. Such a log gets
its right name if no other has its offsets, and is put away otherwise.

A broker renames complete ``.swap`` files into place and deletes the others, whatever their content.
Salvage does the same if that loses nothing. A ``.swap`` that is damaged, or lacks records of the
logs that it would replace, does not replace them. An unfinished file is deleted only if the logs
have all of its records.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from kdump.broker.loader.interrupted_swaps import finish_swaps
from kdump.broker.loader.load_context import IndexSettings
from kdump.broker.loader.load_report import (
    Cause,
    HandledLeftover,
    LeftoverOutcome,
    QuarantinedRange,
    Recorder,
)
from kdump.broker.loader.loaded_segment import SEGMENT_KINDS
from kdump.broker.loader.swap_losses import SwapRules, holds_all, resolve_swaps
from kdump.broker.loader.valid_batches import ValidBatches, find_valid_batches
from kdump.formats.names import (
    NUMBERED_SUFFIXES,
    FileKind,
    FileStage,
    leading_offset,
    misnamed_base_offset,
)
from kdump.target.target_file import CopiedFrom
from kdump.target.virtual_directory import VirtualDirectory, file_name


class ResolvedFiles(Struct, frozen=True):
    """The outcome for leftover files.

    Attributes:
        leftovers: those that were deleted or renamed into place.
        quarantined: those that are not used, and have data that no log has.
        is_as_broker: whether a broker would have done the same.
    """

    leftovers: tuple[HandledLeftover, ...]
    quarantined: tuple[QuarantinedRange, ...]
    is_as_broker: bool


class _Unfinished(Struct, frozen=True):
    """A ``.swap`` or ``.cleaned`` log, and its batches."""

    name: str
    base_offset: int
    batches: ValidBatches
    is_complete: bool
    """Whether a broker would rename it into place."""


def resolve_for_salvage(
    directory: VirtualDirectory, settings: IndexSettings, rules: SwapRules
) -> ResolvedFiles:
    """Resolve leftover files without losing data that no log has.

    Args:
        directory: the virtual directory; this changes it.
        settings: of the partition's indexes.
        rules: which records may be missing from a swap.

    Raises:
        OSError: a file cannot be read.
        Refused: Kafka's reader fails on a complete segment.
    """
    recorder = Recorder(directory)
    quarantined = _quarantine_nameless(directory)
    live = _live_logs(directory)
    misnamed = _misnamed_logs(directory, live)
    is_as_broker = not (quarantined or misnamed)
    for log in misnamed:
        quarantined.extend(_settle_misnamed(directory, log, live, recorder))
    doubtful = _doubtful_logs(directory, all_swaps=False)
    if _swaps_lose(directory, doubtful, settings, rules):
        doubtful = _doubtful_logs(directory, all_swaps=True)
    for log in doubtful:
        settled = _settle(directory, log, live, recorder)
        is_in_use = live.get(log.base_offset) is log.batches
        is_as_broker &= not (log.is_complete or settled or is_in_use)
        quarantined.extend(settled)
    finish_swaps(directory, settings, recorder)
    return ResolvedFiles(recorder.finish({}).leftovers, tuple(quarantined), is_as_broker)


def quarantine_name(directory: VirtualDirectory, log: str, content: CopiedFrom) -> str:
    """Name the file for quarantined bytes of ``log``; no file has the name yet."""
    return _free_name(directory, f"damaged-{log}-{content.start}-{content.end}")


def _log_name(base_offset: int) -> str:
    return file_name(base_offset, FileKind.LOG)


def _free_name(directory: VirtualDirectory, name: str) -> str:
    free, number = name, 1
    while free in directory:
        number += 1
        free = f"{name}.{number}"
    return free


def _quarantine_nameless(directory: VirtualDirectory) -> list[QuarantinedRange]:
    """Rename files that need an offset in their name and have none: the loader fails on them."""
    return [
        _quarantine_file(directory, name, "its name does not begin with an offset")
        for name in directory.names()
        if name.endswith(NUMBERED_SUFFIXES) and leading_offset(name) is None
    ]


def _quarantine_file(
    directory: VirtualDirectory, name: str, reason: str, batches: ValidBatches | None = None
) -> QuarantinedRange:
    size_bytes = directory.size_bytes(name)
    stem = name.removesuffix(FileStage.SWAP.value).removesuffix(FileStage.CLEANED.value)
    file = _free_name(directory, f"damaged-{stem}-0-{size_bytes}")
    directory.rename(name, file)
    has_batches = batches is not None and batches.count > 0
    first = int(batches.first_offset.min()) if batches is not None and has_batches else None
    last = int(batches.last_offset.max()) if batches is not None and has_batches else None
    return QuarantinedRange(name, 0, size_bytes, file, Cause.UNFINISHED, reason, first, last, None)


def _live_logs(directory: VirtualDirectory) -> dict[int, ValidBatches]:
    """The logs in use, by base offset; none if there is no other log."""
    if not any(_is_unfinished_log(name) or _is_misnamed(name) for name in directory.names()):
        return {}
    found = {}
    for name in directory.names():
        offset = leading_offset(name)
        if offset is not None and name == _log_name(offset):
            found[offset] = _read(directory, name).collapsed()
    return found


def _is_unfinished_log(name: str) -> bool:
    return any(
        name.endswith(FileKind.LOG.value + stage.value)
        for stage in (FileStage.SWAP, FileStage.CLEANED)
    )


def _is_misnamed(name: str) -> bool:
    return misnamed_base_offset(name) is not None


def _misnamed_logs(
    directory: VirtualDirectory, live: Mapping[int, ValidBatches]
) -> list[_Unfinished]:
    """The logs because of whose names a broker would begin a segment, and read nothing of them."""
    found = []
    for name in filter(_is_misnamed, directory.names()):
        base_offset = leading_offset(name)
        assert base_offset is not None, "it is misnamed"
        if base_offset not in live or name.endswith(FileStage.SWAP.value):
            batches = _read(directory, name)
            found.append(_Unfinished(name, base_offset, batches, is_complete=False))
    return found


def _settle_misnamed(
    directory: VirtualDirectory,
    log: _Unfinished,
    live: dict[int, ValidBatches],
    recorder: Recorder,
) -> list[QuarantinedRange]:
    """Give a log its right name if it begins where no other log has offsets; else put it away."""
    if not directory.size_bytes(log.name):
        recorder.leftover(log.name, LeftoverOutcome.DELETED)
        directory.remove(log.name)
        return []
    first = log.batches.first_offset
    begins_there = log.batches.count > 0 and int(first.min()) >= log.base_offset >= 0
    if not begins_there or log.base_offset in live or _overlaps(log.batches, live):
        others = [directory.content(_log_name(base_offset)) for base_offset in live]
        is_elsewhere = holds_all(directory, directory.content(log.name), others)
        reason = "its name is not one that Kafka gives"
        lost = None if is_elsewhere else log.batches
        return [_quarantine_file(directory, log.name, reason, lost)]
    _put_in_place(directory, log, live, recorder)
    return []


def _read(directory: VirtualDirectory, name: str) -> ValidBatches:
    with directory.open(name) as source:
        return find_valid_batches(source)


def _swaps_lose(
    directory: VirtualDirectory,
    without: list[_Unfinished],
    settings: IndexSettings,
    rules: SwapRules,
) -> bool:
    """Whether finishing the swaps, except for ``without``, would lose records."""
    tried = directory.copy()
    for log in without:
        tried.remove(log.name)
    recorder = Recorder(tried)
    resolve_swaps(tried, settings, recorder, rules)
    return bool(recorder.finish({}).swap_losses)


def _doubtful_logs(directory: VirtualDirectory, *, all_swaps: bool) -> list[_Unfinished]:
    """The logs that a broker would delete, and complete ones that are damaged, or all."""
    found = []
    unfinished = [name for name in directory.names() if _is_unfinished_log(name)]
    cleaned = [
        leading_offset(name) for name in directory.names() if name.endswith(FileStage.CLEANED.value)
    ]
    least_cleaned = min((offset for offset in cleaned if offset is not None), default=2**63 - 1)
    for name in sorted(unfinished, key=lambda name: name.endswith(FileStage.CLEANED.value)):
        base_offset = leading_offset(name)
        assert base_offset is not None, "files without an offset were renamed before"
        batches = _read(directory, name)
        is_complete = name.endswith(FileStage.SWAP.value) and base_offset < least_cleaned
        rises = bool((batches.first_offset[1:] > batches.last_offset[:-1]).all())
        if all_swaps or not is_complete or batches.damaged or not rises:
            found.append(_Unfinished(name, base_offset, batches, is_complete))
    return found


def _settle(
    directory: VirtualDirectory,
    log: _Unfinished,
    live: dict[int, ValidBatches],
    recorder: Recorder,
) -> list[QuarantinedRange]:
    """Delete, quarantine or rename a log that must not replace others."""
    stage = log.name[log.name.rindex(".") :]
    for kind in SEGMENT_KINDS:
        name = file_name(log.base_offset, kind) + stage
        if kind is not FileKind.LOG and directory.remove(name):
            recorder.leftover(name, LeftoverOutcome.DELETED)
    others = [directory.content(_log_name(base_offset)) for base_offset in live]
    if not log.batches.count or holds_all(directory, directory.content(log.name), others):
        recorder.leftover(log.name, LeftoverOutcome.DELETED)
        directory.remove(log.name)
        return []
    if log.base_offset in live or _overlaps(log.batches, live):
        reason = "it was being written, and has batches that no log has"
        return [_quarantine_file(directory, log.name, reason, log.batches)]
    _put_in_place(directory, log, live, recorder)
    return []


def _put_in_place(
    directory: VirtualDirectory,
    log: _Unfinished,
    live: dict[int, ValidBatches],
    recorder: Recorder,
) -> None:
    """Let a log be in use, under its name."""
    recorder.leftover(log.name, LeftoverOutcome.PUT_IN_PLACE)
    directory.rename(log.name, _log_name(log.base_offset))
    live[log.base_offset] = log.batches


def _overlaps(batches: ValidBatches, live: dict[int, ValidBatches]) -> bool:
    """Whether a log in use has offsets in the range of ``batches``."""
    if not batches.count:
        return False
    low, high = int(batches.first_offset.min()), int(batches.last_offset.max())
    return any(
        other.count
        and int(other.first_offset.min()) <= high
        and int(other.last_offset.max()) >= low
        for other in live.values()
    )
