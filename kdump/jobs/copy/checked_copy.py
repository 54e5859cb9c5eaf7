"""Check the partitions of a copy once all their files are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, Final, Self, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from kdump.apply.unfinished_copy import UnfinishedCopy
from kdump.check.batches import SegmentScope
from kdump.check.findings import Finding, Place, Severity
from kdump.check.invariants import INVARIANTS
from kdump.check.part import Level, SegmentPart
from kdump.check.scope import PartitionScope, scope_in
from kdump.jobs.copy.copy_plan import CopiedPartition
from kdump.jobs.loading.load_split import is_topic_compacted, load_split
from kdump.jobs.verify.finding_row import finding_row
from kdump.jobs.verify.verify_partition import (
    PartitionReport,
    PartitionRun,
    VerifyJob,
)
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition, read_partition
from kdump.log.segment import Segment
from kdump.repair.rebuild.rebuild_index import rebuild_indexes
from kdump.state.metadata.settings import Settings
from kdump.storage.location import Location
from kdump.target.target_file import NewBytes

_Fields: TypeAlias = Mapping[str, tuple[type, ...]]

_TEXT: Final = (str,)
_NUMBER: Final = (int,)
_ANY_TEXT: Final = (str, NoneType)
_ANY_NUMBER: Final = (int, NoneType)
_DIRECTORY_FIELDS: Final[_Fields] = {
    "directory": _TEXT,
    "files": _NUMBER,
    "size_bytes": _NUMBER,
    "problems": (list,),
}
_PARTITION_FIELDS: Final[_Fields] = {
    **_DIRECTORY_FIELDS,
    "topic": _ANY_TEXT,
    "partition": _ANY_NUMBER,
    "segments": _NUMBER,
    "rebuilt_indexes": _NUMBER,
    "batches": _NUMBER,
    "records": _NUMBER,
    "end_offset": _ANY_NUMBER,
    "damaged_bytes": _NUMBER,
    "worst": _ANY_TEXT,
    "findings": (dict,),
}
_PROBLEM_FIELDS: Final[_Fields] = {
    "severity": _TEXT,
    "code": _TEXT,
    "path": _TEXT,
    "position": _ANY_NUMBER,
    "offset": _ANY_NUMBER,
    "what": _TEXT,
    "expected": _ANY_TEXT,
    "found": _ANY_TEXT,
    "loss": _ANY_TEXT,
    "more": _NUMBER,
}


def is_report(row: Mapping[str, Any], *, of_partition: bool) -> bool:
    """Whether a row of the journal is as :meth:`CopyCheck.reports` makes it.

    Another version of kdump may have written another; then the directory is checked again.
    """
    return _has_fields(row, _PARTITION_FIELDS if of_partition else _DIRECTORY_FIELDS) and all(
        _has_fields(each, _PROBLEM_FIELDS)
        and each["code"] in INVARIANTS
        and each["severity"].upper() in Severity.__members__
        for each in row["problems"]
    )


def _has_fields(row: Any, fields: _Fields) -> bool:
    return (
        type(row) is dict
        and row.keys() == fields.keys()
        and all(type(row[name]) in types for name, types in fields.items())
    )


class CopyCheck(Struct, frozen=True):
    """Checks partitions as ``kdump verify`` does, against what the source says of them.

    Attributes:
        directory: the source.
        target: the directory of the copy.
        copy: it, as it is written.
    """

    directory: LogDirectory
    settings: Settings
    target: Location
    copy: UnfinishedCopy
    now_ms: int

    def reports(
        self, copies: Sequence[tuple[CopiedPartition, Mapping[str, SegmentPart | None]]]
    ) -> Iterator[dict[str, Any]]:
        """Check directories; for each what the journal and the output say of it.

        Args:
            copies: each directory, and the results of its segments by path of the log in the copy.
                Those that are missing are checked here, small ones many at a time.

        Raises:
            OSError: the copy cannot be read or written.
        """
        job = VerifyJob(Level.DEFAULT, self.now_ms)
        complete = [_Complete.of(self, copied, parts) for copied, parts in copies]
        checked = job.check_segments(scope for each in complete for scope in each.unchecked())
        for each in complete:
            files = list(each.copied.files())
            row = {
                "directory": each.copied.name,
                "files": len(files),
                "size_bytes": sum(file.size_bytes for file in files),
            }
            if each.scope is None:
                yield {**row, "problems": []}
            else:
                run = PartitionRun(job, each.scope, None)
                yield {**row, **self._row(run.events(each.parts(checked)), each)}

    def _row(
        self, events: Iterable[Finding | PartitionReport], complete: _Complete
    ) -> dict[str, Any]:
        findings: list[Finding] = []
        report = None
        for event in events:
            if isinstance(event, PartitionReport):
                report = event
            else:
                findings.append(event)
        assert report is not None
        topic, number = report.partition.topic_partition or (None, None)
        return {
            "topic": topic,
            "partition": number,
            "segments": len(report.partition.segments),
            "rebuilt_indexes": complete.made,
            "batches": report.batches,
            "records": report.records,
            "end_offset": report.end_offset,
            "damaged_bytes": report.account.damaged_bytes,
            "worst": None if report.worst is None else report.worst.label,
            "findings": dict(report.findings),
            "problems": [{**finding_row(each), "more": each.more} for each in findings],
        }

    def finding(self, row: Mapping[str, Any]) -> Finding:
        """The finding of a row of the journal."""
        found = INVARIANTS[row["code"]].finding(
            Place(row["path"], row["position"], row["offset"]),
            row["what"],
            expected=row["expected"],
            found=row["found"],
            loss=row["loss"],
            severity=Severity[row["severity"].upper()],
        )
        return replace(found, more=row["more"])

    def listed(self, partition: Partition) -> Partition:
        path = self.target / partition.path.name
        return read_partition(path, partition.topic_partition, partition.state)

    def scope_of(self, partition: Partition) -> PartitionScope:
        key = partition.topic_partition
        compaction = None if key is None else is_topic_compacted(self.settings, key.topic)
        return scope_in(
            partition,
            self.directory,
            self.settings.cluster,
            compaction=compaction,
            kafka_version=self.settings.kafka_version,
        )

    def made_indexes(self, copied: CopiedPartition) -> int:
        """Write the indexes of segments that are parts of remote ones; returns of how many."""
        cut = {each.segment.base_offset: each for each in copied.segments if not each.is_whole}
        if not cut or copied.partition is None:
            return 0
        partition = self.listed(copied.partition)
        context = load_split(partition, self.directory, self.settings).context
        repaired = rebuild_indexes(partition, context, cut.keys())
        modified_ns = max(each.files[-1].modified_ns for each in cut.values())
        for name, target in repaired.files.items():
            if isinstance(target, NewBytes):
                self.copy.make(f"{copied.name}/{name}", target.data, modified_ns)
        return len(cut)


class _Complete(Struct, frozen=True):
    """A directory whose files are all there.

    Attributes:
        checked: the results of its segments, by path of the log in the copy.
        scope: what to check it against; None if it is not of a partition.
        made: of how many segments the indexes were made.
    """

    copied: CopiedPartition
    checked: Mapping[str, SegmentPart | None]
    scope: PartitionScope | None = None
    made: int = 0

    @classmethod
    def of(
        cls, check: CopyCheck, copied: CopiedPartition, parts: Mapping[str, SegmentPart | None]
    ) -> Self:
        """Make the indexes that are missing, and list the directory."""
        if copied.partition is None:
            return cls(copied, parts)
        made = check.made_indexes(copied)
        return cls(copied, parts, check.scope_of(check.listed(copied.partition)), made)

    def unchecked(self) -> Iterator[SegmentScope]:
        """The segments without a result."""
        if self.scope is not None:
            for _, scope in self.scope.segment_scopes():
                if self.checked.get(scope.path) is None:
                    yield scope

    def parts(self, found: Iterator[SegmentPart]) -> Iterator[tuple[Segment, SegmentPart]]:
        """The result of each segment; ``found`` has those of the ones without."""
        if self.scope is not None:
            for segment, scope in self.scope.segment_scopes():
                yield segment, self.checked.get(scope.path) or next(found)
