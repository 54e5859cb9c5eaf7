"""Copy a log directory to this disk: plan, write what is missing, check it, finish.

A copy is of the source as it is listed when the last run begins: files that changed since an
earlier run are copied again, and those that are gone are removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.apply.files import DISK, free_bytes_at
from kdump.apply.unfinished_copy import (
    EarlierCopy,
    UnfinishedCopy,
    begun_copy,
    is_there,
    read_earlier,
    unwritable,
)
from kdump.check.findings import Finding
from kdump.check.scope import PartitionScope
from kdump.engine.engine_choice import results_here
from kdump.engine.progress import SILENT, Progress
from kdump.errors import KdumpError, UsageProblem, reason_of
from kdump.jobs.copy.checked_copy import CopyCheck, is_report
from kdump.jobs.copy.copy_job import CopyJob, CopySplit, WrittenFiles
from kdump.jobs.copy.copy_plan import (
    CopiedFile,
    CopiedPartition,
    CopyPlan,
    changed_files,
    changed_since,
    plan_copy,
)
from kdump.jobs.known_cluster import OtherNodes, other_nodes
from kdump.jobs.writing.many_files import SPACE_BYTES_PER_FILE, UnsyncedWork
from kdump.log.directory import LogDirectory
from kdump.log.selection import PartitionSelection
from kdump.phases import phase
from kdump.state.metadata.settings import Settings
from kdump.storage.local_disk import LOCAL_DISK
from kdump.storage.location import Location
from kdump.storage.place_names import kdump_command
from kdump.storage.places import list_again

_MOST_FAILURES: Final = 20
"""After so many failures in a row a server is gone: each of them took long."""
_OTHERS_EACH: Final = 64
"""How many small files of a directory are copied as one piece of work."""


class CopyRequest(Struct, frozen=True):
    """What to copy, and where to.

    Attributes:
        directory: the source, with the selected partitions listed.
        words: what the journal says of the request: another run continues the same only.
    """

    directory: LogDirectory
    selection: PartitionSelection
    settings: Settings
    target: Location
    words: Mapping[str, Any]
    now_ms: int
    dry_run: bool = False


class CopyResult(Struct):
    """What was copied, or would be.

    Attributes:
        reports: of the directories of partitions that are complete, in order.
        findings: in them.
        left_out: what no copy can have, by path, and why.
        unreadable: why files could not be copied.
        cut: why the source did not come whole; more than is known may be missing.
        changed: files that the source changed since an earlier run, or during this one.
        gone: files that it does not have any more.
        copied_files: how many this run has written, or would write.
        copied_bytes: in them.
        kept_files: how many earlier runs had written.
        kept_bytes: in them.
        partitions: how many directories of partitions the source has, as selected.
        needed_bytes: the space that is needed.
        free_bytes: the space that there is.
    """

    reports: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    copied_files: int = 0
    copied_bytes: int = 0
    kept_files: int = 0
    kept_bytes: int = 0
    partitions: int = 0
    needed_bytes: int = 0
    free_bytes: int = 0
    is_complete: bool = False


def copy_directory(
    request: CopyRequest,
    progress: Progress = SILENT,
    begun: Callable[[CopyRequest, CopyResult], None] | None = None,
) -> CopyResult:
    """Copy, or preview it.

    Args:
        begun: is told what is to be copied, before the first byte is written.

    Raises:
        UsageProblem: the directory of the copy has something else in it.
        KdumpError: there is not enough space, or the disk fails; says what to do.
        OSError: the source cannot be listed.
    """
    plan = plan_copy(request.directory, request.selection)
    earlier = _earlier(request)
    with phase(f"comparing with {request.target}"):
        work = _Work.of(request, plan, earlier)
    _require_space(request, work.result)
    if request.dry_run:
        return work.result
    if begun is not None:
        begun(request, work.result)
    with begun_copy(request.target.as_absolute().local_path, request.words) as copy:
        _Run(request, plan, work, copy, progress).run()
    return work.result


def others_than_copied(request: CopyRequest) -> OtherNodes:
    """The nodes of the cluster whose log directories are not what was copied."""
    return other_nodes([request.directory], [request.settings])


def _earlier(request: CopyRequest) -> EarlierCopy:
    """What earlier runs left.

    Raises:
        UsageProblem: of another copy.
    """
    with phase(f"looking at {request.target}"):
        found = read_earlier(request.target.local_path)
    if found is None:
        return EarlierCopy(request.words)
    if found.request != request.words:
        words = found.request
        options = [
            word
            for name in ("topic", "partition", "remote")
            for value in words.get(name) or ()
            for word in (f"--{name}", value)
        ]
        again = kdump_command("copy", [words.get("source", "?"), request.target.typed, *options])
        raise UsageProblem(
            f"{request.target}: is an unfinished copy of something else: continue it with"
            f" '{again}', or name a new directory"
        )
    return found


def _require_space(request: CopyRequest, result: CopyResult) -> None:
    """Refuse to begin what does not fit.

    Raises:
        KdumpError: it does not.
    """
    if result.needed_bytes > result.free_bytes:
        raise KdumpError(
            f"{request.target}: needs {result.needed_bytes} bytes of free space, has"
            f" {result.free_bytes}; nothing was written; free some space, or select fewer"
            " partitions"
        )


class _Work(Struct):
    """What is left to do.

    Attributes:
        left: the splits of each directory that is not complete; those of the root under "".
        complete: the reports of the other directories.
        made: the files of earlier runs that stay and that the source does not have.
    """

    result: CopyResult
    left: dict[str, list[CopySplit]] = field(default_factory=dict)
    complete: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, request: CopyRequest, plan: CopyPlan, earlier: EarlierCopy) -> _Work:
        changed, gone = changed_files(plan, earlier)
        if plan.unreadable:
            gone = []  # what cannot be listed now is not gone
        result = CopyResult(
            left_out=plan.left_out,
            unreadable=list(plan.unreadable),
            cut=plan.cut,
            changed=[each.path for each in changed],
            gone=gone,
            partitions=sum(each.partition is not None for each in plan.partitions),
        )
        work = cls(result, made=earlier.made.difference(gone))
        stale = {each.partition("/")[0] for each in gone}
        kept = _Kept(request.target.local_path, earlier)
        for each in plan.partitions:
            report = earlier.reports.get(each.name)
            is_complete = (
                report is not None
                and each.name not in stale
                and is_report(report, of_partition=each.partition is not None)
            )
            if report is not None and is_complete and all(map(kept.has, each.files())):
                work.complete[each.name] = report
            else:
                work.left[each.name] = list(_splits(request, each, kept))
        root = [each for each in plan.root if not kept.has(each)]
        if root:
            work.left[""] = [_split(request.directory.path.name, root)]
        work._count(plan, kept)
        result.free_bytes = free_bytes_at(_existing(request.target))
        return work

    def _count(self, plan: CopyPlan, kept: _Kept) -> None:
        wanted = [file for each in self.left.values() for split in each for file in split.files]
        self.result.copied_files = len(wanted)
        self.result.copied_bytes = sum(each.size_bytes for each in wanted)
        self.result.kept_files = sum(1 for _ in plan.files()) - len(wanted)
        self.result.kept_bytes = (
            sum(each.size_bytes for each in plan.files()) - self.result.copied_bytes
        )
        self.result.needed_bytes = sum(each.needed_bytes + SPACE_BYTES_PER_FILE for each in wanted)


class _Kept(Struct):
    """Which files of earlier runs are as the source has them."""

    target: Path
    earlier: EarlierCopy
    _known: dict[str, bool] = field(default_factory=dict)

    def has(self, file: CopiedFile) -> bool:
        found = self._known.get(file.path)
        if found is None:
            is_noted = self.earlier.files.get(file.path) == file.status
            found = is_noted and is_there(self.target, file.path, file.status)
            self._known[file.path] = found
        return found


def _existing(target: Location) -> Path:
    """The directory of the copy, or the one in which it will be.

    Raises:
        KdumpError: neither is there.
    """
    around = target.around
    for each in (target, around):
        if each.is_directory():
            return each.local_path
    raise KdumpError(f"{target}: {around} is not a directory: make it first")


def _splits(request: CopyRequest, copied: CopiedPartition, kept: _Kept) -> Iterator[CopySplit]:
    """What is to be done for a directory."""
    others = [each for each in copied.others if not kept.has(each)]
    for at in range(0, len(others), _OTHERS_EACH):
        yield _split(copied.name, others[at : at + _OTHERS_EACH])
    if copied.partition is None:
        return
    at_target = request.target / copied.name
    scope = PartitionScope(
        replace(copied.partition, path=at_target), is_clean=request.directory.is_clean
    )
    for each, (_, segment_scope) in zip(copied.segments, scope.segment_scopes(), strict=True):
        is_kept = all(map(kept.has, each.files))
        # Small segments are checked many at a time, once those of a directory are all there.
        checked = None if segment_scope.is_small or not each.is_whole else segment_scope
        if is_kept and segment_scope.is_small:
            continue
        if is_kept:
            # Only checked: other segments of the partition are checked together with it.
            log = each.files[-1]
            yield replace(_split(copied.name, [log]), files=(), scope=segment_scope)
        else:
            # The indexes of a part of a remote log are made first: then it is checked with them.
            yield replace(_split(copied.name, each.files), scope=checked)


def _split(label: str, files: Sequence[CopiedFile]) -> CopySplit:
    size_bytes = sum(each.needed_bytes for each in files)
    return CopySplit(files[-1].source, size_bytes=size_bytes, label=label, files=tuple(files))


class _Run:
    """A run that writes."""

    def __init__(
        self,
        request: CopyRequest,
        plan: CopyPlan,
        work: _Work,
        copy: UnfinishedCopy,
        progress: Progress,
    ) -> None:
        self.request = request
        self.plan = plan
        self.result = work.result
        self.copy = copy
        self.progress = progress
        self._complete = work.complete
        self._made = work.made
        self._failures = 0
        self._unsynced = UnsyncedWork(self._place_all)
        self._work = work.left
        self._waiting = {name: len(splits) for name, splits in work.left.items()}
        self._written: dict[str, list[tuple[CopySplit, WrittenFiles]]] = {
            name: [] for name in work.left
        }
        self._ended: list[str] = []
        self._by_name = {each.name: each for each in plan.partitions}
        self._check = CopyCheck(
            request.directory, request.settings, request.target, copy, request.now_ms
        )

    def run(self) -> None:
        """Copy what is left, and finish if nothing is missing then."""
        with phase(f"making the directories of {self.request.target}"):
            for name in self._work:
                if name:
                    self.copy.note_report(name, None)
            self.copy.remove(self.result.gone)
            if not self.plan.unreadable:
                self.copy.remove_empty(self._directories())
            for each in self.plan.partitions:
                self.copy.make_directories((each.name, *each.directories))
            self._name_others()
        try:
            self._copy()
        finally:
            self._put_in_order()
        with phase(f"looking for changes in {self.request.directory.path}"):
            self._notice_changes()
        self.result.is_complete = not (self.result.unreadable or self.result.cut)
        if self.result.is_complete:
            with phase("syncing the copy"):
                self.copy.finish()

    def _name_others(self) -> None:
        """Name what is in the copy and neither in the source nor from earlier runs."""
        if self.plan.unreadable:
            return  # what cannot be listed now may be in it
        files = {each.path for each in self.plan.files()} | self._made
        for path in self.copy.unknown(files, self._directories()):
            self.result.unreadable.append(f"{path}: is not in the source: move it elsewhere")

    def _directories(self) -> set[str]:
        every = ((each.name, *each.directories) for each in self.plan.partitions)
        return {name for names in every for name in names}

    def _copy(self) -> None:
        owners = {id(split): name for name, splits in self._work.items() for split in splits}
        splits = [split for each in self._work.values() for split in each]
        for name, count in self._waiting.items():
            if not count:
                self._ended.append(name)
        self._check_ended()
        job = CopyJob(str(self.copy.folder), self.request.now_ms)
        with phase("copying"), results_here(job, splits, self.progress) as results:
            try:
                for split, written in results:
                    if written.unwritable is not None:
                        raise unwritable(self.copy.path, written.unwritable)
                    self._take(owners[id(split)], split, written)
            except BaseException:
                with contextlib.suppress(OSError, KdumpError):
                    self._unsynced.place_all()
                raise
            self._unsynced.place_all()

    def _take(self, name: str, split: CopySplit, written: WrittenFiles) -> None:
        self.result.unreadable += written.unreadable
        self._failures = self._failures + 1 if written.unreadable else 0
        if self._failures >= _MOST_FAILURES and split.path.storage != LOCAL_DISK:
            raise unwritable(
                self.copy.path, f"gave up: nothing can be read any more: {written.unreadable[-1]}"
            )
        self._unsynced.add((name, split, written), len(split.files), split.size_bytes)

    def _place_all(self, pending: Sequence[tuple[str, CopySplit, WrittenFiles]]) -> None:
        """Sync what was written, and give the files their names."""
        temporary = [each for _, _, written in pending for each in written.temporary]
        DISK.sync([Path(each) for each in temporary if each is not None])
        for name, split, written in pending:
            self._place(name, split, written)
        self._check_ended()

    def _place(self, name: str, split: CopySplit, written: WrittenFiles) -> None:
        for file, path in zip(split.files, written.temporary, strict=True):
            if path is not None:
                self.copy.place(path, file.path, file.status)
        self._written[name].append((split, written))
        self._waiting[name] -= 1
        if not self._waiting[name]:
            self._ended.append(name)

    def _check_ended(self) -> None:
        """Check the directories whose files are all there, or could not be read."""
        copies = []
        for name in self._ended:
            written = self._written.pop(name)
            if name and not any(each.unreadable for _, each in written):
                parts = {str(split.scope.log): each.part for split, each in written if split.scope}
                copies.append((self._by_name[name], parts))
        self._ended.clear()
        for report in self._check.reports(copies):
            self.copy.note_report(report["directory"], report)
            self._complete[report["directory"]] = report

    def _put_in_order(self) -> None:
        for each in self.plan.partitions:
            if each.name in self._complete and each.partition is not None:
                report = dict(self._complete[each.name])
                self.result.findings += map(self._check.finding, report.pop("problems"))
                self.result.reports.append(report)

    def _notice_changes(self) -> None:
        """Look again at what was copied: nobody should write to it meanwhile."""
        list_again()
        try:
            changed = list(changed_since(self.plan, self.request.selection))
        except OSError as failure:
            where = failure.filename or self.request.directory.path
            self.result.unreadable.append(f"{where}: {reason_of(failure)}")
            return
        for source in changed:
            self.result.unreadable.append(f"{source}: changed while it was copied: is it in use?")
