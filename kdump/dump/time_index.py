"""A ``.timeindex`` file as the official tool's text, and as rows.

Follows ``DumpLogSegments.dumpTimeIndex``. Where that tool fails, because the log or the offset
index is missing or damaged, the entries are printed all the same, and a problem says why it fails.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from kdump.dump.dumped_file import DumpedFile
from kdump.dump.index_options import IndexDumpOptions
from kdump.dump.indexed_log import (
    BLOCK_ENTRIES,
    NO_OFFSET,
    NO_TIMESTAMP,
    entry_rows,
    find_batches,
    open_log,
)
from kdump.dump.problems import DumpProblem
from kdump.dump.report import DumpReport
from kdump.dump.unwritten import unwritten_index, unwritten_log
from kdump.formats import offset_index, time_index
from kdump.formats.index_search import Column
from kdump.formats.names import FileKind
from kdump.formats.time_index import ENTRY_BYTES, TimeIndex
from kdump.storage.location import StoredFile


def dump(file: DumpedFile, options: IndexDumpOptions, report: DumpReport) -> Iterator[str]:
    """Print a time index, and compare it with its offset index and log.

    Yields:
        Text for standard output, in pieces.

    Raises:
        OSError: when the index, or a neighbour that is there, cannot be read.
    """
    data = file.path.read()
    index = time_index.decode(data, file.base_offset or 0)
    unwritten = unwritten_index(file.path, data, ENTRY_BYTES)
    count = offset_index.count_before_restart(index.offset, index.base_offset)
    starts, starts_problem = _starts(file, index.offset[:count])
    log, problem = open_log(file.neighbour(FileKind.LOG), file.path)
    problem = file.base_offset_problem or problem or starts_problem
    partial = offset_index.partial_entry(index.size_bytes, ENTRY_BYTES)
    try:
        if options.index_sanity_check:
            insane = time_index.sanity_problem(index)
            if insane is None:
                yield f"{file.name} passed sanity check.\n"
            elif partial is None or insane.what != partial.what:
                problem = problem or DumpProblem.from_format_error(file.path, insane)
        else:
            if not options.verify_index_only:
                yield from _text(index, count)
            if unwritten is not None:
                if log is not None:
                    with report.as_harmless():
                        _check(file, index, starts, log, report)
                report.remark(str(unwritten), damage=False)
            elif log is not None:
                damage = _check(file, index, starts, log, report)
                problem = problem or damage
    finally:
        if log is not None:
            log.close()
    if problem is not None:
        report.problem(problem)
    if partial is not None:
        report.problem(DumpProblem.from_format_error(file.path, partial))


def _starts(file: DumpedFile, targets: Column) -> tuple[Column, DumpProblem | None]:
    """Look up in the offset index where in the log to start reading for each of ``targets``.

    Without an offset index, that is its start. The official tool then creates an empty one, and
    fails the first time.
    """
    path = file.neighbour(FileKind.OFFSET_INDEX)
    starts = np.zeros(len(targets), np.int64)
    try:
        index = offset_index.decode(path.read(), file.base_offset or 0)
    except FileNotFoundError:
        what = "its offset index is missing"
        return starts, DumpProblem(file.path, None, what, path.name, "no file")
    for first in range(0, len(targets), BLOCK_ENTRIES):
        block = slice(first, first + BLOCK_ENTRIES)
        starts[block] = offset_index.lookup_all(index, targets[block])[1]
    return starts, None


def _text(index: TimeIndex, count: int) -> Iterator[str]:
    for first in range(0, count, BLOCK_ENTRIES):
        block = slice(first, min(first + BLOCK_ENTRIES, count))
        timestamps, offsets = index.timestamp[block].tolist(), index.offset[block].tolist()
        yield "".join(map("timestamp: {} offset: {}\n".format, timestamps, offsets))


def _check(
    file: DumpedFile, index: TimeIndex, starts: Column, log: StoredFile, report: DumpReport
) -> DumpProblem | None:
    """Compare entries with the log; gives the problem that ends the official tool.

    ``starts`` are the bytes of the log where the search for each begins.
    """
    count = len(starts)
    timestamp, offset = index.timestamp[:count], index.offset[:count]
    found = find_batches(log, starts, offset)
    is_end = found.is_found & (found.last_offset == offset)
    is_missing = ~is_end & (found.is_found | ~found.has_failed)
    name = file.absolute_name
    in_log = np.where(found.is_found, found.last_offset, NO_OFFSET)
    report.offsets_not_found(name, offset[is_missing], in_log[is_missing])
    is_wrong = is_end & (found.max_timestamp != timestamp)
    report.timestamp_mismatches(name, timestamp[is_wrong], found.max_timestamp[is_wrong])
    previous = np.append(np.int64(NO_TIMESTAMP), timestamp)[:count]
    is_late = is_end & (previous >= timestamp)
    report.out_of_order_timestamps(name, timestamp[is_late], previous[is_late])
    if found.first_failure is None:
        return None
    damage = found.first_failure[1]
    unwritten = unwritten_log(log.location, log, damage.position)
    if unwritten is not None:
        report.remark(str(unwritten), damage=False)
        return None
    return DumpProblem.from_format_error(log.location, damage)


def rows(
    file: DumpedFile, options: IndexDumpOptions, report: DumpReport
) -> Iterator[dict[str, object]]:
    """Give each entry as a row, and the padding after them as one; then check as :func:`dump` does.

    No rows where the options ask for nothing but a check.

    Raises:
        OSError: when the index, or a neighbour that is there, cannot be read.
    """
    if not (options.verify_index_only or options.index_sanity_check):
        data = file.path.read()
        index = time_index.decode(data, file.base_offset or 0)
        columns = {
            "timestamp_ms": index.timestamp,
            "offset": index.offset,
            "relative_offset": index.offset - np.int64(index.base_offset),
        }
        padding = offset_index.count_padding(data, ENTRY_BYTES)
        yield from entry_rows("time_index_entry", columns, padding, ENTRY_BYTES)
    for _ in dump(file, replace(options, verify_index_only=True), report):
        pass
