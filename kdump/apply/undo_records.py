"""The undo records of a plan: what undoes it."""

from __future__ import annotations

from kdump.apply.journal_record import (
    ChangedDirectory,
    JournalRecord,
    RecordKind,
    position,
    sync_of,
)
from kdump.apply.moved_directories import (
    MovesOfRun,
    undo_entering_records,
    undo_filling_records,
    undo_leaving_records,
)
from kdump.apply.operations import Operation, OperationKind, OperationPhase
from kdump.apply.plan import Plan
from kdump.apply.segment_names import CLEANED, SWAP
from kdump.formats.names import CLEAN_SHUTDOWN_MARKER


def undo_records_of(plan: Plan, run: MovesOfRun) -> list[JournalRecord]:
    """Make the undo records of ``plan``; they work wherever the redo records were stopped.

    They reverse the redo records. After each of them, every file that holds a Kafka record still
    has a name, and a file that the run created is deleted only when nothing needs it any more.
    Directories that the run brought into use are out of use before their checkpoint lines go;
    removed ones come back after their checkpoint lines.
    """
    partitions = [ChangedDirectory(each, f"{each.path.name}/", {}) for each in plan.partitions]
    root = ChangedDirectory(plan.root, "", {})
    records = []
    has_marker = any(each.name == CLEAN_SHUTDOWN_MARKER for each in plan.root.operations)
    if has_marker:
        records += [root.remove(CLEAN_SHUTDOWN_MARKER), root.sync()]
    records += undo_entering_records(run)
    # Before the segments, which a broker would delete again according to the interim content.
    first = root.of(OperationPhase.INTERIM)
    for operation in first:
        records += _restore(root, operation)
    if first:
        records.append(root.sync())
    for each in partitions:
        for operation in reversed(each.of(OperationPhase.WRITE)):
            records += _restore(each, operation)
    cuts = [record.source for each in (*partitions, root) for record in each.cuts()]
    records += [JournalRecord(RecordKind.FILL, source=path) for path in cuts]
    records.append(sync_of(cuts))
    for each in partitions:
        for operation in reversed(each.of(OperationPhase.DROP)):
            records += _restore(each, operation)
    records.append(sync_of(each.path for each in partitions if each.of(OperationPhase.ROLL)))
    for each in partitions:
        records += _undo_segments(each)
    records.append(sync_of(each.path for each in partitions))
    restored = {CLEAN_SHUTDOWN_MARKER, *(each.name for each in first)}
    for operation in reversed(plan.root.operations):
        if operation.name not in restored:
            records += _restore(root, operation)
    records.append(root.sync())
    records += undo_leaving_records(run)
    records += undo_filling_records(run)
    if has_marker and root.had(CLEAN_SHUTDOWN_MARKER):
        records += [root.put(CLEAN_SHUTDOWN_MARKER), root.sync()]
    return records


def _undo_segments(directory: ChangedDirectory) -> list[JournalRecord]:
    """Make the records that undo rolled, replaced and swapped segments of a partition."""
    records = []
    for operation in reversed(directory.of(OperationPhase.ROLL)):
        records += _restore(directory, operation)
    for rewrite in reversed(directory.rewrites()):
        records += _undo_rewrite(directory, rewrite)
    swap = directory.of(OperationPhase.SWAP)
    used = [each.source for each in swap if each.source is not None]
    dropped = [
        each.name for each in swap if each.kind is OperationKind.REMOVE and each.name.endswith(SWAP)
    ]
    records += [directory.put(name) for name in (*used, *dropped)]
    for operation in reversed(swap):
        if operation.name not in dropped:
            records += _restore_name(directory, operation.name)
    # The .cleaned files first: without them, an invalid .swap would become valid.
    temporary = directory.of(OperationPhase.TEMPORARY)
    for operation in sorted(temporary, key=lambda each: each.name.endswith(SWAP)):
        records += _restore(directory, operation)
    for operation in directory.of(OperationPhase.ADD):
        records += _restore(directory, operation)
    return records


def _restore(directory: ChangedDirectory, operation: Operation) -> list[JournalRecord]:
    if operation.kind is OperationKind.CUT:
        return []
    records = [] if operation.source is None else [directory.put(operation.source)]
    return records + _restore_name(directory, operation.name)


def _restore_name(directory: ChangedDirectory, name: str) -> list[JournalRecord]:
    return [directory.put(name) if directory.had(name) else directory.remove(name)]


def _undo_rewrite(directory: ChangedDirectory, rewrite: list[Operation]) -> list[JournalRecord]:
    """Make the records that undo the replacement of one group of segments.

    1. The old files have their names again. Whatever names the new files have, a broker finds
       every batch in the old files or in both.
    2. New files with the suffix ``.swap`` have the suffix ``.cleaned``, the first segment first:
       the first rename makes all of them invalid.
    3. The new files are deleted.
    """
    # 1.
    taken_into_use = {
        each.name: each.source
        for each in directory.of(OperationPhase.SWAP)
        if each.source is not None
    }
    records = []
    free = []
    for each in rewrite:
        if each.name in taken_into_use:
            records.append(directory.put(each.name, taken_into_use[each.name]))
        elif directory.had(each.name):
            records.append(directory.put(each.name))
        else:
            free.append(each.name)
    records.append(directory.sync())
    # 2.
    new = sorted(
        (each.name for each in rewrite if each.kind is not OperationKind.REMOVE), key=position
    )
    records += [directory.move(name + SWAP, name + CLEANED) for name in new]
    records.append(directory.sync())
    # 3.
    records += [directory.remove(name + CLEANED) for name in reversed(new)]
    records += [directory.remove(name) for name in sorted(free, key=position)]
    records.append(directory.sync())
    return records
