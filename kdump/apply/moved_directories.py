"""The names of the directories that a run creates, renames or removes, and the records for them."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.apply.directory_changes import name_in_run
from kdump.apply.files import Metadata
from kdump.apply.journal import DirectoryMove
from kdump.apply.journal_record import ROOT, JournalRecord, RecordKind, sync_of
from kdump.apply.operations import DirectoryPlan, OperationKind
from kdump.apply.pinned_directory import status_at, status_of
from kdump.apply.plan import Plan
from kdump.formats.names import PartitionState


class MovesOfRun(Struct, frozen=True):
    """What a run does to directories as a whole.

    Attributes:
        moves: their names.
        created: the plans of the directories that are created, by the name that they have first.
        removed: paths of the files that are deleted, by key of their directory.
    """

    moves: tuple[DirectoryMove, ...]
    created: tuple[DirectoryPlan, ...]
    removed: dict[str, tuple[str, ...]]


def moves_of_run(plan: Plan, number: int, *, keep_undo: bool) -> MovesOfRun:
    """Give the directories of a plan the names that they have during run ``number``.

    Raises:
        OSError: a directory is gone.
    """
    plans = {each.path.name: each for each in plan.changes.created}
    moves, created, removed = [], [], {}
    names = _FreeNames(plan.path, number)
    for operation in plan.changes.operations:
        name, source = operation.name, operation.source
        match operation.kind:
            case OperationKind.CREATE_DIRECTORY:
                between = names.next(name, "new", PartitionState.DELETE)
                of_new = plans[name]
                assert of_new.new is not None
                metadata, attributes = of_new.new.directory, of_new.new.attributes
                moves.append(DirectoryMove(None, between, name, False, metadata, attributes))
                created.append(replace(of_new, path=plan.path / between))
            case OperationKind.RENAME_DIRECTORY:
                assert source is not None
                metadata = Metadata.of(status_at(plan.path / source))
                moves.append(DirectoryMove(source, None, name, False, metadata))
            case _:
                metadata = Metadata.of(status_at(plan.path / name))
                state = PartitionState.STRAY if keep_undo else PartitionState.DELETE
                other = names.next(name, "old", state)
                if keep_undo:
                    moves.append(DirectoryMove(name, None, other, True, metadata))
                else:
                    moves.append(DirectoryMove(name, other, None, False, metadata))
                    removed[name] = plan.changes.removed[name]
    return MovesOfRun(tuple(moves), tuple(created), removed)


class _FreeNames(Struct):
    """Names for the directories of a run.

    Attributes:
        log_dir: the log directory. A discarded run of the same number may have left directories.
        taken: names that were given: the directories of a partition and of its ``-future`` copy
            would get the same one.
    """

    log_dir: Path
    number: int
    taken: set[str] = field(default_factory=set)

    def next(self, name: str, what: str, state: PartitionState) -> str:
        """A name that does not exist."""
        at = 0
        while True:
            found = name_in_run(name, self.number, f"{what}-{at}", state)
            if found not in self.taken and status_of(self.log_dir / found) is None:
                self.taken.add(found)
                return found
            at += 1


def filling_records(run: MovesOfRun) -> list[JournalRecord]:
    """Make the redo records that create directories; their files are moved in between.

    A directory has a name with ``-delete`` as long as a file of it can be missing.
    """
    return [
        JournalRecord(RecordKind.MAKE, each.between, each.key)
        for each in run.moves
        if each.before is None and each.between is not None
    ]


def renaming_records(run: MovesOfRun) -> list[JournalRecord]:
    """Make the redo records that take directories out of use and into use.

    1. A removed directory has a name under which a broker does not use it: ``-stray`` if it is
       undo data, otherwise ``-delete``.
    2. A renamed or new directory has its name.
    3. The names are durable.
    """
    # 1.
    removed = [each for each in run.moves if each.is_kept or each.after is None]
    records = [_shift(each, each.between or each.after) for each in removed]
    # 2.
    records += [_shift(each, each.after) for each in run.moves if each not in removed]
    # 3.
    return [*records, sync_of([ROOT])] if records else []


def deleting_records(run: MovesOfRun) -> list[JournalRecord]:
    """Make the redo records that delete what no undo needs. A broker would delete it as well."""
    records = [
        JournalRecord(RecordKind.REMOVE, f"{key}/{name}")
        for key, names in run.removed.items()
        for name in names
    ]
    records += [_drop(each) for each in run.moves if each.after is None and each.between]
    return [*records, sync_of([ROOT])] if records else []


def undo_entering_records(run: MovesOfRun) -> list[JournalRecord]:
    """Make the undo records that take new and renamed directories back out of use, durable."""
    records = []
    for each in reversed(run.moves):
        if each.is_kept:
            continue
        name = each.between if each.before is None else each.before
        records.append(_shift(each, name))
    return [*records, sync_of([ROOT])] if records else []


def undo_leaving_records(run: MovesOfRun) -> list[JournalRecord]:
    """Make the undo records that bring removed directories back, durable."""
    records = [_shift(each, each.before) for each in run.moves if each.is_kept]
    return [*records, sync_of([ROOT])] if records else []


def undo_filling_records(run: MovesOfRun) -> list[JournalRecord]:
    """Make the undo records that delete the directories that the run created."""
    records = []
    for plan in run.created:
        records += [
            JournalRecord(RecordKind.REMOVE, f"{plan.path.name}/{each.name}")
            for each in plan.operations
        ]
    records += [_drop(each) for each in run.moves if each.before is None]
    return [*records, sync_of([ROOT])] if records else []


def _shift(move: DirectoryMove, name: str | None) -> JournalRecord:
    assert name is not None
    return JournalRecord(RecordKind.SHIFT, name, move.key)


def _drop(move: DirectoryMove) -> JournalRecord:
    assert move.between is not None
    return JournalRecord(RecordKind.DROP, move.between, move.key)
