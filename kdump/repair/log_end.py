"""End a log before a batch, in a virtual directory, as truncating it does.

Only the segments and producer snapshots are changed. Load the directory again afterwards, as after
a crash from the last segment on: that makes the indexes, producers and leader epochs those of the
shorter log (``UnifiedLog.truncateTo``).
"""

from __future__ import annotations

from kdump.formats import names
from kdump.formats.names import FileKind, FileStage
from kdump.scan.batches import read_windows
from kdump.target.virtual_directory import VirtualDirectory, file_name


def end_log(directory: VirtualDirectory, end_offset: int) -> int:
    """End a log before the first batch that reaches an offset.

    Args:
        directory: of a log as a broker loads it.
        end_offset: no offset at or after it is kept.

    Returns:
        The base offset of the last segment that is left.

    Raises:
        OSError: the segment cannot be read.
    """
    bases = directory.base_offsets()
    kept = [base for base in bases if base <= end_offset]
    last = kept[-1] if kept else bases[0]
    for name in directory.names():
        parsed = names.parse_offset_file_name(name)
        if parsed is None or parsed.stage is not FileStage.LIVE:
            continue
        if parsed.offset > (end_offset if parsed.kind is FileKind.PRODUCER_SNAPSHOT else last):
            directory.remove(name)
    log = file_name(last, FileKind.LOG)
    with directory.open(log) as source:
        for window in read_windows(source):
            reaches = window.batches.last_offset >= end_offset
            if reaches.any():
                directory.truncate(log, int(window.batches.position[reaches.argmax()]))
                break
    return last
