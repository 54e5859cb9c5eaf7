"""The steps by which a plan is carried out, and those by which it is taken back.

A step is a change that is made at once, and that makes no difference when it is made again after
those behind it. Which steps there are is settled before the first of them and made durable in the
journal, so that somebody else can go on after a crash.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kdump.apply.operations import DirectoryPlan, Operation, OperationKind, Phase
from kdump.apply.plan import Plan
from kdump.apply.segment_names import CLEANED, SEGMENT_SUFFIXES, SWAP, offset_of
from kdump.formats.names import CLEAN_SHUTDOWN_MARKER, FileKind

ROOT = "."


class StepKind(enum.Enum):
    """What a step does; the value is its word in the journal."""

    MOVE = "move"
    """Rename ``source`` to ``path``, if it is there."""
    REMOVE = "remove"
    """Take ``path`` away; only as long as ``source`` is there, if one is given."""
    CUT = "cut"
    """Truncate ``path``, which was ``source`` before, to ``size_bytes``."""
    SYNC = "sync"
    """Make ``paths`` durable."""
    PUT = "put"
    """Let ``path`` be the file that was ``source`` before."""
    FILL = "fill"
    """Give the file that was ``source`` before what was cut off."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step; paths are relative to the log directory, which is ``.`` itself."""

    kind: StepKind
    path: str = ""
    source: str = ""
    size_bytes: int = 0
    paths: tuple[str, ...] = ()


def relative(log_dir: Path, directory: Path, name: str) -> str:
    """The path of a file as steps have it."""
    return name if directory == log_dir else f"{directory.name}/{name}"


@dataclass(frozen=True, slots=True)
class _Directory:
    """One directory of a plan, with what its steps are made of.

    Attributes:
        plan: what is done.
        prefix: what paths in it begin with.
        staged: where the new content of files lies ready, by path.
    """

    plan: DirectoryPlan
    prefix: str
    staged: Mapping[str, str]

    @property
    def path(self) -> str:
        return self.prefix.removesuffix("/") or ROOT

    def of(self, *phases: Phase) -> list[Operation]:
        return [each for each in self.plan.operations if each.phase in phases]

    def rewrites(self) -> list[list[Operation]]:
        found: dict[int, list[Operation]] = {}
        for each in self.of(Phase.REWRITE):
            found.setdefault(each.rewrite or 0, []).append(each)
        return [found[number] for number in sorted(found)]

    def had(self, name: str) -> bool:
        return name in self.plan.states

    def path_of(self, name: str) -> str:
        return self.prefix + name

    def move(self, source: str, name: str) -> Step:
        return Step(StepKind.MOVE, self.path_of(name), self.path_of(source))

    def remove(self, name: str) -> Step:
        return Step(StepKind.REMOVE, self.path_of(name))

    def sync(self) -> Step:
        return Step(StepKind.SYNC, paths=(self.path,))

    def put(self, name: str, before: str | None = None) -> Step:
        return Step(StepKind.PUT, self.path_of(name), self.path_of(before or name))

    def do(self, operation: Operation) -> Step:
        """The step of an operation that has one."""
        name = operation.name
        if operation.kind is OperationKind.REMOVE:
            return self.remove(name)
        if operation.kind is OperationKind.CUT:
            return self.cut(name, operation)
        if operation.source is not None:
            return self.move(operation.source, name)
        path = self.path_of(name)
        return Step(StepKind.MOVE, path, self.staged[path])

    def cut(self, before: str, operation: Operation) -> Step:
        path, source = self.path_of(operation.name), self.path_of(before)
        return Step(StepKind.CUT, path, source, operation.size_bytes)

    def cuts(self) -> list[Step]:
        """What is truncated: files that stay, and files that were renamed."""
        return [
            self.cut(before, each)
            for each in self.plan.operations
            if (before := cut_file(self.plan, each)) is not None
        ]


def cut_file(plan: DirectoryPlan, operation: Operation) -> str | None:
    """The name that a file which an operation truncates has before; None if it does not."""
    if operation.kind is OperationKind.CUT:
        return operation.name
    source = operation.source
    if source is not None and operation.size_bytes < plan.states[source].size_bytes:
        return source
    return None


def steps_of(plan: Plan, staged: Mapping[str, str]) -> list[Step]:
    """The steps that carry out ``plan``.

    What a reader finds if the machine stops behind each of them:

    1. The marker of a clean stop is gone: a broker recovers each log from its recovery point.
    2. Segments: each partition is as its own steps say, and each of them leaves it so that a
       broker loses nothing that it would have kept.
    3. What is cut is cut: as a broker leaves it, which cuts before it writes anything else.
    4. Small files are written: partitions are as wanted.
    5. The checkpoints say so.
    6. The marker is there: done.

    Args:
        plan: what is to be done.
        staged: where the new content of files lies ready, by the paths that they get.
    """
    partitions = [_Directory(each, f"{each.path.name}/", staged) for each in plan.partitions]
    root = _Directory(plan.root, "", staged)
    steps = []
    # 1.
    marker = [each for each in plan.root.operations if each.name == CLEAN_SHUTDOWN_MARKER]
    if marker and root.had(CLEAN_SHUTDOWN_MARKER):
        steps += [root.remove(CLEAN_SHUTDOWN_MARKER), root.sync()]
    # 2.
    for each in partitions:
        steps += _segment_steps(each)
    # 3.
    cuts = [step for each in (*partitions, root) for step in each.cuts()]
    steps += [*cuts, _sync(step.path for step in cuts)]
    # 4.
    for each in partitions:
        steps += [each.do(operation) for operation in each.of(Phase.WRITE)]
    steps.append(_sync(each.path for each in partitions))
    # 5.
    steps += [
        root.do(each)
        for each in plan.root.operations
        if each not in marker and each.kind is not OperationKind.CUT
    ]
    steps.append(root.sync())
    # 6.
    if marker and marker[0].kind is not OperationKind.REMOVE:
        steps += [root.do(marker[0]), root.sync()]
    return _guarded(steps)


def _sync(paths: Iterable[str]) -> Step:
    return Step(StepKind.SYNC, paths=tuple(paths))


def _guarded(steps: list[Step]) -> list[Step]:
    """Let what removes a file spare the one that a later step puts in its place.

    As long as that one is where it comes from, the old one may still be there, and never after.
    """
    origins: dict[str, str] = {}
    made: dict[str, list[tuple[int, str]]] = {}
    for at, step in enumerate(steps):
        if step.kind is StepKind.MOVE:
            origins[step.path] = origins.get(step.source, step.source)
            made.setdefault(step.path, []).append((at, origins[step.path]))
    guarded = []
    for at, step in enumerate(steps):
        if step.kind is StepKind.REMOVE:
            later = [origin for when, origin in made.get(step.path, ()) if when > at]
            if later:
                step = replace(step, source=later[0])
        guarded.append(step)
    return guarded


def _segment_steps(directory: _Directory) -> list[Step]:
    """The steps of a partition before anything is cut.

    1. What salvage sets aside is there: files that a broker leaves alone.
    2. Invalid leftovers are gone, as a broker deletes them.
    3. What a valid ``.swap`` stands for is gone, and what is derived from it: a broker, too,
       deletes that before it renames.
    4. The ``.swap`` has its name.
    5. Exchanges of segments, one after the other, as :func:`_rewrite_steps` says.
    6. Segments that go are gone, the last one first.
    7. All of this is durable, before a log is cut that they follow.
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
    # 6.
    steps += [directory.do(each) for each in directory.of(Phase.DROP)]
    # 7.
    if steps and directory.cuts():
        steps.append(directory.sync())
    return steps


def _stale(directory: _Directory, renames: list[Operation]) -> list[str]:
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


def _rewrite_steps(directory: _Directory, rewrite: list[Operation]) -> list[Step]:
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
    names = sorted((each.name for each in new), key=_position)
    # 1.
    steps = []
    for each in new:
        path = directory.path_of(each.name + CLEANED)
        source = directory.do(each).source
        if source != path:
            steps.append(Step(StepKind.MOVE, path, source))
    steps.append(directory.sync())
    # 2. and 3.
    last_first = sorted(names, key=lambda name: (-_position(name)[0], _position(name)))
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


def _position(name: str) -> tuple[int, int, str]:
    kinds = [at for at, suffix in enumerate(SEGMENT_SUFFIXES) if name.endswith(suffix)]
    return offset_of(name) or 0, kinds[0] if kinds else len(SEGMENT_SUFFIXES), name


def undo_steps_of(plan: Plan) -> list[Step]:
    """The steps that take back ``plan``, wherever :func:`steps_of` was stopped.

    They go the other way round. After each of them the files that hold a record are there under
    one name or another, and what was not there in the beginning goes when nothing needs it.
    """
    partitions = [_Directory(each, f"{each.path.name}/", {}) for each in plan.partitions]
    root = _Directory(plan.root, "", {})
    steps = []
    has_marker = any(each.name == CLEAN_SHUTDOWN_MARKER for each in plan.root.operations)
    if has_marker:
        steps += [root.remove(CLEAN_SHUTDOWN_MARKER), root.sync()]
    for each in partitions:
        for operation in reversed(each.of(Phase.WRITE)):
            steps += _restore(each, operation)
    cuts = [step.source for each in (*partitions, root) for step in each.cuts()]
    steps += [Step(StepKind.FILL, source=path) for path in cuts]
    steps.append(_sync(cuts))
    for each in partitions:
        steps += _undo_segments(each)
    steps.append(_sync(each.path for each in partitions))
    for operation in reversed(plan.root.operations):
        if operation.name != CLEAN_SHUTDOWN_MARKER:
            steps += _restore(root, operation)
    steps.append(root.sync())
    if has_marker and root.had(CLEAN_SHUTDOWN_MARKER):
        steps += [root.put(CLEAN_SHUTDOWN_MARKER), root.sync()]
    return steps


def _undo_segments(directory: _Directory) -> list[Step]:
    steps = []
    for operation in reversed(directory.of(Phase.DROP)):
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


def _restore(directory: _Directory, operation: Operation) -> list[Step]:
    if operation.kind is OperationKind.CUT:
        return []
    steps = [] if operation.source is None else [directory.put(operation.source)]
    return steps + _restore_name(directory, operation.name)


def _restore_name(directory: _Directory, name: str) -> list[Step]:
    return [directory.put(name) if directory.had(name) else directory.remove(name)]


def _undo_rewrite(directory: _Directory, rewrite: list[Operation]) -> list[Step]:
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
        (each.name for each in rewrite if each.kind is not OperationKind.REMOVE), key=_position
    )
    steps += [directory.move(name + SWAP, name + CLEANED) for name in new]
    steps.append(directory.sync())
    # 3.
    steps += [directory.remove(name + CLEANED) for name in reversed(new)]
    steps += [directory.remove(name) for name in sorted(free, key=_position)]
    steps.append(directory.sync())
    return steps
