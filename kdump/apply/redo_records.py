"""The steps by which a plan is carried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kdump.apply.journal_record import (
    ChangedDirectory,
    JournalRecord,
    RecordKind,
    position,
    sync_of,
)
from kdump.apply.operations import Operation, OperationKind, Phase
from kdump.apply.plan import Plan
from kdump.apply.segment_names import CLEANED, SEGMENT_SUFFIXES, SWAP
from kdump.formats.names import CLEAN_SHUTDOWN_MARKER, FileKind

_SEGMENT_PHASES: Final = (
    Phase.ADD,
    Phase.TEMPORARY,
    Phase.SWAP,
    Phase.REWRITE,
    Phase.ROLL,
    Phase.DROP,
)
"""In which names of segments change."""


def redo_records_of(plan: Plan, staged: Mapping[Operation, str]) -> list[JournalRecord]:
    """The steps that carry out ``plan``.

    What a reader finds if the machine stops behind each of them:

    1. The marker of a clean stop is gone, unless nobody wants another one: a broker recovers each
       log from its recovery point.
    2. Files in the log directory itself are as they have to be meanwhile. Where retention deletes,
       a broker lets each log begin where it is to begin: it never shows what is deleted.
    3. Segments: each partition is as its own steps say, and each of them leaves it so that a
       broker loses nothing that it would have kept.
    4. An empty segment is there, durable, for each log all of whose segments go.
    5. Segments that go are gone: those that a log began with from the first on, those that it
       ended with from the last on. All of this is durable before a log is cut that they follow.
    6. What is cut is cut: as a broker leaves it, which cuts before it writes anything else.
    7. Small files are written: partitions are as wanted.
    8. The checkpoints say so.
    9. The marker is there: done.

    What has to be durable in many partitions is made so in all of them at once, as that takes
    hardly longer than in one.

    Args:
        plan: what is to be done.
        staged: where the new content that operations put in place lies ready.
    """
    partitions = [ChangedDirectory(each, f"{each.path.name}/", staged) for each in plan.partitions]
    root = ChangedDirectory(plan.root, "", staged)
    steps = []
    # 1.
    marker = [each for each in plan.root.operations if each.name == CLEAN_SHUTDOWN_MARKER]
    if marker and root.had(CLEAN_SHUTDOWN_MARKER):
        steps += [root.remove(CLEAN_SHUTDOWN_MARKER), root.sync()]
    # 2.
    first = root.of(Phase.FIRST)
    if first:
        steps += [*(root.do(each) for each in first), root.sync()]
    # 3.
    for each in partitions:
        steps += _segment_steps(each)
    # 4.
    rolled = [each for each in partitions if each.of(Phase.ROLL)]
    for each in rolled:
        steps += [each.do(operation) for operation in each.of(Phase.ROLL)]
    steps.append(sync_of(each.path for each in rolled))
    # 5.
    for each in partitions:
        steps += [each.do(operation) for operation in each.of(Phase.DROP)]
    steps.append(
        sync_of(each.path for each in partitions if each.of(*_SEGMENT_PHASES) and each.cuts())
    )
    # 6.
    cuts = [step for each in (*partitions, root) for step in each.cuts()]
    steps += [*cuts, sync_of(step.path for step in cuts)]
    # 7.
    for each in partitions:
        steps += [each.do(operation) for operation in each.of(Phase.WRITE)]
    steps.append(sync_of(each.path for each in partitions))
    # 8.
    steps += [
        root.do(each)
        for each in plan.root.operations
        if each not in (*marker, *first) and each.kind is not OperationKind.CUT
    ]
    steps.append(root.sync())
    # 9.
    if marker and marker[0].kind is not OperationKind.REMOVE:
        steps += [root.do(marker[0]), root.sync()]
    return _guarded(steps)


def _guarded(steps: list[JournalRecord]) -> list[JournalRecord]:
    """Let what removes a file spare the one that a later step puts in its place.

    As long as that one is where it comes from, the old one may still be there, and never after.
    """
    origins: dict[str, str] = {}
    made: dict[str, list[tuple[int, str]]] = {}
    for at, step in enumerate(steps):
        if step.kind is RecordKind.MOVE:
            origins[step.path] = origins.get(step.source, step.source)
            made.setdefault(step.path, []).append((at, origins[step.path]))
    guarded = []
    for at, step in enumerate(steps):
        if step.kind is RecordKind.REMOVE:
            later = [origin for when, origin in made.get(step.path, ()) if when > at]
            if later:
                step = replace(step, source=later[0])
        guarded.append(step)
    return guarded


def _segment_steps(directory: ChangedDirectory) -> list[JournalRecord]:
    """The steps of a partition before any of its segments goes that nothing takes the place of.

    1. What salvage sets aside is there: files that a broker leaves alone.
    2. Invalid leftovers are gone, as a broker deletes them.
    3. What a valid ``.swap`` stands for is gone, and what is derived from it: a broker, too,
       deletes that before it renames.
    4. The ``.swap`` has its name.
    5. Exchanges of segments, one after the other, as :func:`_rewrite_steps` says.
    """
    # 1. and 2.
    steps = [directory.do(each) for each in directory.of(Phase.ADD, Phase.TEMPORARY)]
    # 3.
    swap = directory.of(Phase.SWAP)
    renames = [each for each in swap if each.kind is OperationKind.RENAME]
    first = swap.index(renames[0]) if renames else len(swap)
    covered = [directory.do(each) for each in swap[:first]]
    covered += [directory.remove(name) for name in _stale(directory, renames)]
    steps += covered
    if covered and renames:
        steps.append(directory.sync())
    # 4.
    steps += [directory.do(each) for each in swap[first:]]
    # 5.
    for rewrite in directory.rewrites():
        steps += _rewrite_steps(directory, rewrite)
    return steps


def _stale(directory: ChangedDirectory, renames: list[Operation]) -> list[str]:
    """Indexes beside a log that a ``.swap`` replaces, which get other content later."""
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


def _rewrite_steps(directory: ChangedDirectory, rewrite: list[Operation]) -> list[JournalRecord]:
    """The steps of one exchange of segments.

    1. All new files are there, durable, with the suffix ``.cleaned``: a broker deletes them.
    2. Some have the suffix ``.swap``, the last segment's first: a broker deletes these as well,
       because a ``.cleaned`` with a lower or the same offset is there.
    3. All have it: a broker deletes what they stand for and gives them their names. From here on
       there is no way back without the undo.
    4. The old files that no new one replaces are gone.
    5. Some new ones have their names, the first segment's first.
    6. All have.
    """
    new = [each for each in rewrite if each.kind is not OperationKind.REMOVE]
    names = sorted((each.name for each in new), key=position)
    # 1.
    steps = []
    for each in new:
        path = directory.path_of(each.name + CLEANED)
        source = directory.do(each).source
        if source != path:
            steps.append(JournalRecord(RecordKind.MOVE, path, source))
    steps.append(directory.sync())
    # 2. and 3.
    last_first = sorted(names, key=lambda name: (-position(name)[0], position(name)))
    steps += [directory.move(name + CLEANED, name + SWAP) for name in last_first]
    steps.append(directory.sync())
    # 4.
    old = [each.name for each in rewrite if each.kind is OperationKind.REMOVE]
    steps += [directory.remove(name) for name in old]
    steps.append(directory.sync())
    # 5. and 6.
    steps += [directory.move(name + SWAP, name) for name in names]
    steps.append(directory.sync())
    return steps
