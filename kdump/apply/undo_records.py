"""The steps by which a plan is taken back."""

from __future__ import annotations

from kdump.apply.journal_record import (
    ChangedDirectory,
    JournalRecord,
    RecordKind,
    position,
    sync_of,
)
from kdump.apply.operations import Operation, OperationKind, Phase
from kdump.apply.plan import Plan
from kdump.apply.segment_names import CLEANED, SWAP
from kdump.formats.names import CLEAN_SHUTDOWN_MARKER


def undo_records_of(plan: Plan) -> list[JournalRecord]:
    """The steps that take back ``plan``, wherever carrying it out was stopped.

    They go the other way round. After each of them the files that hold a record are there under
    one name or another, and what was not there in the beginning goes when nothing needs it.
    """
    partitions = [ChangedDirectory(each, f"{each.path.name}/", {}) for each in plan.partitions]
    root = ChangedDirectory(plan.root, "", {})
    steps = []
    has_marker = any(each.name == CLEAN_SHUTDOWN_MARKER for each in plan.root.operations)
    if has_marker:
        steps += [root.remove(CLEAN_SHUTDOWN_MARKER), root.sync()]
    # Before segments are back that a broker would delete again by what they say.
    first = root.of(Phase.FIRST)
    for operation in first:
        steps += _restore(root, operation)
    if first:
        steps.append(root.sync())
    for each in partitions:
        for operation in reversed(each.of(Phase.WRITE)):
            steps += _restore(each, operation)
    cuts = [step.source for each in (*partitions, root) for step in each.cuts()]
    steps += [JournalRecord(RecordKind.FILL, source=path) for path in cuts]
    steps.append(sync_of(cuts))
    for each in partitions:
        for operation in reversed(each.of(Phase.DROP)):
            steps += _restore(each, operation)
    steps.append(sync_of(each.path for each in partitions if each.of(Phase.ROLL)))
    for each in partitions:
        steps += _undo_segments(each)
    steps.append(sync_of(each.path for each in partitions))
    restored = {CLEAN_SHUTDOWN_MARKER, *(each.name for each in first)}
    for operation in reversed(plan.root.operations):
        if operation.name not in restored:
            steps += _restore(root, operation)
    steps.append(root.sync())
    if has_marker and root.had(CLEAN_SHUTDOWN_MARKER):
        steps += [root.put(CLEAN_SHUTDOWN_MARKER), root.sync()]
    return steps


def _undo_segments(directory: ChangedDirectory) -> list[JournalRecord]:
    """The steps of a partition once the segments are back that nothing took the place of."""
    steps = []
    for operation in reversed(directory.of(Phase.ROLL)):
        steps += _restore(directory, operation)
    for rewrite in reversed(directory.rewrites()):
        steps += _undo_rewrite(directory, rewrite)
    swap = directory.of(Phase.SWAP)
    used = [each.source for each in swap if each.source is not None]
    dropped = [
        each.name for each in swap if each.kind is OperationKind.REMOVE and each.name.endswith(SWAP)
    ]
    steps += [directory.put(name) for name in (*used, *dropped)]
    for operation in reversed(swap):
        if operation.name not in dropped:
            steps += _restore_name(directory, operation.name)
    # An invalid swap comes back when the .cleaned that makes it so is there.
    temporary = directory.of(Phase.TEMPORARY)
    for operation in sorted(temporary, key=lambda each: each.name.endswith(SWAP)):
        steps += _restore(directory, operation)
    for operation in directory.of(Phase.ADD):
        steps += _restore(directory, operation)
    return steps


def _restore(directory: ChangedDirectory, operation: Operation) -> list[JournalRecord]:
    if operation.kind is OperationKind.CUT:
        return []
    steps = [] if operation.source is None else [directory.put(operation.source)]
    return steps + _restore_name(directory, operation.name)


def _restore_name(directory: ChangedDirectory, name: str) -> list[JournalRecord]:
    return [directory.put(name) if directory.had(name) else directory.remove(name)]


def _undo_rewrite(directory: ChangedDirectory, rewrite: list[Operation]) -> list[JournalRecord]:
    """The steps that take back one exchange of segments.

    1. The old files have their names again. Whatever the new ones are called, a broker finds
       every batch in the old ones or in both.
    2. Those of the new ones that were called ``.swap`` are ``.cleaned``, the first segment's
       first: with that, all of them count for nothing.
    3. They are gone, and so are those that have names which were free.
    """
    # 1.
    taken_into_use = {
        each.name: each.source for each in directory.of(Phase.SWAP) if each.source is not None
    }
    steps = []
    free = []
    for each in rewrite:
        if each.name in taken_into_use:
            steps.append(directory.put(each.name, taken_into_use[each.name]))
        elif directory.had(each.name):
            steps.append(directory.put(each.name))
        else:
            free.append(each.name)
    steps.append(directory.sync())
    # 2.
    new = sorted(
        (each.name for each in rewrite if each.kind is not OperationKind.REMOVE), key=position
    )
    steps += [directory.move(name + SWAP, name + CLEANED) for name in new]
    steps.append(directory.sync())
    # 3.
    steps += [directory.remove(name + CLEANED) for name in reversed(new)]
    steps += [directory.remove(name) for name in sorted(free, key=position)]
    steps.append(directory.sync())
    return steps
