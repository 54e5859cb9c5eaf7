"""The redo records of a plan: what carries it out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from kdump.apply.journal_record import (
    ROOT,
    ChangedDirectory,
    JournalRecord,
    RecordKind,
    position,
    sync_of,
)
from kdump.apply.moved_directories import (
    MovesOfRun,
    deleting_records,
    filling_records,
    renaming_records,
)
from kdump.apply.operations import Operation, OperationKind, OperationPhase
from kdump.apply.plan import Plan
from kdump.apply.segment_names import CLEANED, SEGMENT_SUFFIXES, SWAP
from kdump.formats.names import CLEAN_SHUTDOWN_MARKER, FileKind

_SEGMENT_PHASES: Final = (
    OperationPhase.ADD,
    OperationPhase.TEMPORARY,
    OperationPhase.SWAP,
    OperationPhase.REWRITE,
    OperationPhase.ROLL,
    OperationPhase.DROP,
)
"""The phases in which names of segment files change."""


def redo_records_of(
    plan: Plan, staged: Mapping[Operation, str], run: MovesOfRun
) -> list[JournalRecord]:
    """Make the redo records of ``plan``.

    The state of the directory if the machine stops after each step:

    1. The clean shutdown marker is deleted, unless the plan does not touch it: a broker recovers
       each log from its recovery point.
    2. Files in the log directory itself have their interim content. Where retention deletes
       segments, a broker starts each log at its new start offset and never serves deleted records.
    3. Directories that are created are complete and durable. A broker deletes them: their names end
       in ``-delete``.
    4. Segments are being replaced, as the records of each partition say. Whenever that stops, a
       broker keeps everything that it would have kept.
    5. Logs whose segments are all deleted have a new, empty segment, durable.
    6. Deleted segments are gone: those at the start of a log from the first one up, those at its
       end from the last one down. This is durable before the log in front of them is truncated.
    7. Truncations are done. A broker, too, truncates before it writes anything else.
    8. Small files are written: partitions have their target state.
    9. Directories are renamed, one by one: removed ones are out of use, renamed and created ones
       are in use.
    10. The checkpoints are written.
    11. Files in removed directories are deleted, which a broker would do as well, and then the
        directories, unless they are undo data.
    12. The clean shutdown marker exists: complete.

    Many partitions are synced at once, which takes hardly longer than syncing one.

    Args:
        run: the directories that are created, renamed or removed.
    """
    partitions = [ChangedDirectory(each, f"{each.path.name}/", staged) for each in plan.partitions]
    root = ChangedDirectory(plan.root, "", staged)
    records = []
    # 1.
    marker = [each for each in plan.root.operations if each.name == CLEAN_SHUTDOWN_MARKER]
    if marker and root.had(CLEAN_SHUTDOWN_MARKER):
        records += [root.remove(CLEAN_SHUTDOWN_MARKER), root.sync()]
    # 2.
    first = root.of(OperationPhase.INTERIM)
    if first:
        records += [*(root.do(each) for each in first), root.sync()]
    # 3.
    created = [ChangedDirectory(each, f"{each.path.name}/", staged) for each in run.created]
    records += filling_records(run)
    for each in created:
        records += [each.do(operation) for operation in each.plan.operations]
    if created:
        # Not at once: a file must not lose its old name before the new one is durable.
        records += [sync_of(each.path for each in created), sync_of([ROOT])]
    # 4.
    for each in partitions:
        records += _segment_records(each)
    # 5.
    rolled = [each for each in partitions if each.of(OperationPhase.ROLL)]
    for each in rolled:
        records += [each.do(operation) for operation in each.of(OperationPhase.ROLL)]
    records.append(sync_of(each.path for each in rolled))
    # 6.
    for each in partitions:
        records += [each.do(operation) for operation in each.of(OperationPhase.DROP)]
    records.append(
        sync_of(each.path for each in partitions if each.of(*_SEGMENT_PHASES) and each.cuts())
    )
    # 7.
    cuts = [record for each in (*partitions, root) for record in each.cuts()]
    records += [*cuts, sync_of(record.path for record in cuts)]
    # 8.
    for each in partitions:
        records += [each.do(operation) for operation in each.of(OperationPhase.WRITE)]
    records.append(sync_of(each.path for each in partitions))
    # 9.
    records += renaming_records(run)
    # 10.
    records += [
        root.do(each)
        for each in plan.root.operations
        if each not in (*marker, *first) and each.kind is not OperationKind.CUT
    ]
    records.append(root.sync())
    # 11.
    records += deleting_records(run)
    # 12.
    if marker and marker[0].kind is not OperationKind.REMOVE:
        records += [root.do(marker[0]), root.sync()]
    return _guarded(records)


def _guarded(records: list[JournalRecord]) -> list[JournalRecord]:
    """Keep a REMOVE record from deleting the file that a later record moves to the same name.

    The old file can only exist as long as the new one has not been moved. So the REMOVE record
    names the origin of the new file, and does nothing once that is gone.
    """
    if not _moves_over_removed(records):
        return records
    origins: dict[str, str] = {}
    made: dict[str, list[tuple[int, str]]] = {}
    for at, record in enumerate(records):
        if record.kind is RecordKind.MOVE:
            origins[record.path] = origins.get(record.source, record.source)
            made.setdefault(record.path, []).append((at, origins[record.path]))
    guarded = []
    for at, record in enumerate(records):
        if record.kind is RecordKind.REMOVE:
            later = [origin for when, origin in made.get(record.path, ()) if when > at]
            if later:
                record = replace(record, source=later[0])
        guarded.append(record)
    return guarded


def _moves_over_removed(records: Iterable[JournalRecord]) -> bool:
    """Whether a record moves a file to a name that an earlier one removes."""
    removed: set[str] = set()
    for record in records:
        if record.kind is RecordKind.REMOVE:
            removed.add(record.path)
        elif record.kind is RecordKind.MOVE and record.path in removed:
            return True
    return False


def _segment_records(directory: ChangedDirectory) -> list[JournalRecord]:
    """Make the records of a partition up to the replacement of its segments.

    1. Quarantine files exist: files that a broker ignores.
    2. Invalid leftover files are gone, as a broker deletes them.
    3. The files that a valid ``.swap`` replaces are gone, and the indexes derived from them. A
       broker, too, deletes those before it renames the ``.swap``.
    4. The ``.swap`` has its final name.
    5. Segments are replaced, group by group, as :func:`_rewrite_records` says.
    """
    # 1. and 2.
    records = [
        directory.do(each) for each in directory.of(OperationPhase.ADD, OperationPhase.TEMPORARY)
    ]
    # 3.
    swap = directory.of(OperationPhase.SWAP)
    renames = [each for each in swap if each.kind is OperationKind.RENAME]
    first = swap.index(renames[0]) if renames else len(swap)
    covered = [directory.do(each) for each in swap[:first]]
    covered += [directory.remove(name) for name in _stale(directory, renames)]
    records += covered
    if covered and renames:
        records.append(directory.sync())
    # 4.
    records += [directory.do(each) for each in swap[first:]]
    # 5.
    for rewrite in directory.rewrites():
        records += _rewrite_records(directory, rewrite)
    return records


def _stale(directory: ChangedDirectory, renames: list[Operation]) -> list[str]:
    """Find indexes of a log that a ``.swap`` replaces, if they get new content later."""
    replaced = {
        each.name for each in directory.plan.operations if each.kind is OperationKind.REPLACE
    }
    targets = {each.name for each in renames}
    found = []
    for target in sorted(targets):
        if target.endswith(FileKind.LOG.value):
            stem = target.removesuffix(FileKind.LOG.value)
            beside = [stem + suffix for suffix in SEGMENT_SUFFIXES[1:]]
            found += [name for name in beside if name in replaced and name not in targets]
    return found


def _rewrite_records(directory: ChangedDirectory, rewrite: list[Operation]) -> list[JournalRecord]:
    """Make the records that replace one group of segments.

    1. All new files exist, durable, with the suffix ``.cleaned``: a broker deletes them.
    2. Some have the suffix ``.swap``, the last segment first. A broker deletes these as well,
       because a ``.cleaned`` file with a lower or equal offset exists.
    3. All have the suffix ``.swap``: a broker deletes the segments that they replace, and gives
       them their final names. From here on, only undo data can restore the old segments.
    4. The old files that no new file replaces are gone.
    5. Some new files have their final names, the first segment first.
    6. All new files have their final names.
    """
    new = [each for each in rewrite if each.kind is not OperationKind.REMOVE]
    names = sorted((each.name for each in new), key=position)
    # 1.
    records = []
    for each in new:
        path = directory.path_of(each.name + CLEANED)
        source = directory.do(each).source
        if source != path:
            records.append(JournalRecord(RecordKind.MOVE, path, source))
    records.append(directory.sync())
    # 2. and 3.
    last_first = sorted(names, key=lambda name: (-position(name)[0], position(name)))
    records += [directory.move(name + CLEANED, name + SWAP) for name in last_first]
    records.append(directory.sync())
    # 4.
    old = [each.name for each in rewrite if each.kind is OperationKind.REMOVE]
    records += [directory.remove(name) for name in old]
    records.append(directory.sync())
    # 5. and 6.
    records += [directory.move(name + SWAP, name) for name in names]
    records.append(directory.sync())
    return records
