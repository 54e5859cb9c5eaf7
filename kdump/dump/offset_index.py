"""An ``.index`` file as the official tool's text, and as rows.

Follows ``DumpLogSegments.dumpIndex``. Where that tool fails, because the log is missing or an entry
points to no batch, the entries are printed all the same, and a problem says why it fails.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.dump.dumped_file import DumpedFile
from kdump.dump.index_options import IndexDumpOptions
from kdump.dump.indexed_log import BLOCK_ENTRIES, Fault, batches_at, entry_rows, open_log
from kdump.dump.problems import DumpProblem
from kdump.dump.report import DumpReport
from kdump.dump.unwritten import unwritten_index
from kdump.formats import offset_index
from kdump.formats.index_search import Column
from kdump.formats.names import FileKind
from kdump.formats.offset_index import ENTRY_BYTES, OffsetIndex
from kdump.storage.byte_source import ByteSource


def dump(file: DumpedFile, options: IndexDumpOptions, report: DumpReport) -> Iterator[str]:
    """Print an offset index, and compare it with its log.

    Yields:
        Text for standard output, in pieces.

    Raises:
        OSError: when the index, or a log that is there, cannot be read.
    """
    data = file.path.read()
    index = offset_index.decode(data, file.base_offset or 0)
    unwritten = unwritten_index(file.path, data, ENTRY_BYTES)
    log, log_problem = open_log(file.neighbour(FileKind.LOG), file.path)
    problem = file.base_offset_problem or log_problem
    partial = offset_index.partial_entry(index.size_bytes, ENTRY_BYTES)
    try:
        if not len(index.offset):
            yield f"{file.name} is empty.\n"
        elif options.index_sanity_check:
            insane = offset_index.sanity_problem(index)
            if insane is None:
                yield f"{file.name} passed sanity check.\n"
            elif partial is None or insane.what != partial.what:
                problem = problem or DumpProblem.from_format_error(file.path, insane)
        elif unwritten is not None:
            with report.as_harmless():
                yield from _Entries(file, index, log, options, report).text()
            report.remark(str(unwritten), damage=False)
        else:
            checked = _Entries(file, index, log, options, report)
            yield from checked.text()
            problem = problem or checked.problem
    finally:
        if log is not None:
            log.close()
    if problem is not None:
        report.problem(problem)
    if partial is not None:
        report.problem(DumpProblem.from_format_error(file.path, partial))


class _Entries(Struct):
    """Format the entries of an index, and check them."""

    file: DumpedFile
    index: OffsetIndex
    log: ByteSource | None
    options: IndexDumpOptions
    report: DumpReport
    problem: DumpProblem | None = None

    def text(self) -> Iterator[str]:
        index = self.index
        count = offset_index.count_before_restart(index.offset, index.base_offset)
        for first in range(0, count, BLOCK_ENTRIES):
            last = min(first + BLOCK_ENTRIES, count)
            offset, position = index.offset[first:last], index.position[first:last]
            if self.log is not None:
                self._check(self.log, first, offset, position)
                if first == 0 and self.problem is not None and self._begins_with_padding():
                    offset, position = offset[1:], position[1:]
            if not self.options.verify_index_only:
                lines = map("offset: {} position: {}\n".format, offset.tolist(), position.tolist())
                yield "".join(lines)

    def _check(self, log: ByteSource, first: int, offset: Column, position: Column) -> None:
        batches = batches_at(log, position, self.options.max_message_size_bytes)
        is_batch = batches.fault == Fault.NONE
        is_other = is_batch & (batches.last_offset != offset)
        self.report.offset_mismatches(
            self.file.absolute_name, offset[is_other], batches.last_offset[is_other]
        )
        if self.problem is None and not is_batch.all():
            slot = int(is_batch.argmin())
            self.problem = DumpProblem(
                self.file.path,
                (first + slot) * ENTRY_BYTES,
                "offset index entry points to no batch",
                f"a batch at byte {position[slot]} of the log, which has {log.size_bytes} bytes",
                Fault(int(batches.fault[slot])).phrase,
            )

    def _begins_with_padding(self) -> bool:
        index = self.index
        return bool(index.offset[0] == index.base_offset and index.position[0] == 0)


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
        index = offset_index.decode(data, file.base_offset or 0)
        columns = {
            "offset": index.offset,
            "relative_offset": index.offset - np.int64(index.base_offset),
            "position": index.position,
        }
        padding = offset_index.count_padding(data, ENTRY_BYTES)
        yield from entry_rows("offset_index_entry", columns, padding, ENTRY_BYTES)
    for _ in dump(file, replace(options, verify_index_only=True), report):
        pass
