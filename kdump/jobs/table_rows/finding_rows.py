"""The rows of the table ``findings``: a verification, divided into partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from kdump.check.findings import Finding
from kdump.check.part import Level
from kdump.formats.names import CLUSTER_METADATA_TOPIC, TopicPartition
from kdump.jobs.listing.partition_facts import read_with_surroundings
from kdump.jobs.table_rows.partition_splits import (
    directory_kinds,
    is_selected,
    kind_of,
)
from kdump.jobs.verify.finding_row import finding_row
from kdump.jobs.verify.verify import (
    VerifyRequest,
    VerifyTarget,
    about_directories,
    divide,
    read_as,
)
from kdump.jobs.verify.verify_partition import PartitionSplit, VerifyJob
from kdump.log.broker import by_broker
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.log.lock_holders import ReadAs
from kdump.processes.worker_pool import usable_cpus
from kdump.rows.common_rows import directory_values
from kdump.size_groups import size_groups
from kdump.state.metadata.settings import read_settings
from kdump.storage.location import Location
from kdump.storage.places import parse_locations
from kdump.tables.kafka_log.found_partitions import refuse_absent
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.table import TableColumn, row_batches
from kdump.tables.table_options import TableOptions

Row = dict[str, Any]


class FindingsSplit(Struct, frozen=True):
    """Findings about log directories, and partitions to verify.

    Attributes:
        found: rows that are known already.
        partitions: to verify, each with its log directory.
    """

    found: tuple[Row, ...] = ()
    partitions: tuple[tuple[str, PartitionSplit], ...] = ()

    def read_places(self) -> Iterator[Location]:
        """As of a :class:`~kdump.engine.job.Split`."""
        return (split.path for _, split in self.partitions)


class FindingsReader(Struct, frozen=True):
    """Verifies log directories."""

    options: TableOptions
    columns: tuple[TableColumn, ...]

    def splits(self, filters: PushedFilters, /) -> Sequence[FindingsSplit]:
        if filters.is_empty:
            return []
        targets, directories = _found(self.options, filters)
        around = {each.directory.path: each.directory for each in targets if each.directory}
        is_everything = self.options.topics.has(None) and filters == PushedFilters()
        request = VerifyRequest(
            targets=targets,
            # Partitions that are not selected are not listed, and must not be reported missing.
            directories=directories if is_everything else [],
            level=Level[self.options.level.upper()],
            now_ms=self.options.now_ms,
            settings=read_settings((around | {each.path: each for each in directories}).values()),
        )
        request = read_as(request, ReadAs.AS_FOUND)
        splits = divide(request)
        # What has to hold between directories has to hold between those of one broker.
        rows = tuple(
            _about_directory(each, directories)
            for own in by_broker(request.directories).values()
            for each in about_directories(replace(request, directories=own))
        )
        pairs = [
            (str(target.partition.path.parent), split)
            for target, split in zip(targets, splits, strict=True)
        ]
        total_bytes = sum(split.size_bytes for split in splits)
        most_bytes = max(1, total_bytes // (_TASKS_PER_CPU * usable_cpus()))
        groups = size_groups(
            pairs, lambda pair: pair[1].size_bytes, most_bytes, most_items=_MOST_PARTITIONS
        )
        return [
            *([FindingsSplit(found=rows)] if rows else []),
            *(FindingsSplit(partitions=tuple(group)) for group in groups),
        ]

    def read(self, split: FindingsSplit, filters: PushedFilters, /) -> Iterator[pa.RecordBatch]:
        return row_batches(self._rows(split), self.columns)

    def _rows(self, split: FindingsSplit) -> Iterator[Row]:
        yield from split.found
        job = VerifyJob(Level[self.options.level.upper()], self.options.now_ms)
        checked = job.check_whole([each for _, each in split.partitions])
        for (log_dir, each), events in zip(split.partitions, checked, strict=True):
            partition = each.scope.partition
            row = directory_values(log_dir, partition.path.name, partition.topic_partition)
            for event in events:
                if isinstance(event, Finding):
                    yield {**row, **finding_row(event)}


_TASKS_PER_CPU: Final = 4
_MOST_PARTITIONS: Final = 1000


def _found(
    options: TableOptions, filters: PushedFilters
) -> tuple[list[VerifyTarget], list[LogDirectory]]:
    """The partitions to verify, as they lie, and the log directories.

    These have the cluster's metadata in them, too, whether or not that is to be verified.
    """
    present = set[TopicPartition]()
    targets: list[VerifyTarget] = []
    directories: list[LogDirectory] = []
    around: dict[Location, LogDirectory | None] = {}

    def select(_name: str, key: TopicPartition) -> bool:
        present.add(key)
        return key.topic == CLUSTER_METADATA_TOPIC or is_selected(key, options, filters)

    for path in parse_locations(options.paths):
        if kind_of(path).is_partition:
            lone = read_with_surroundings(path, around)
            key = lone.partition.topic_partition
            present |= set() if key is None else {key}
            if is_selected(key, options, filters):
                targets.append(VerifyTarget(lone.partition, lone.log_directory))
            continue
        for each, kind in directory_kinds(options, [path]).items():
            found = read_log_directory(each, kind, select=select)
            directories.append(found)
            targets += (
                VerifyTarget(partition, found)
                for partition in found.partitions
                if is_selected(partition.topic_partition, options, filters)
            )
    refuse_absent(options.topics.missing(present), options.paths)
    return targets, directories


def _about_directory(finding: Finding, directories: Sequence[LogDirectory]) -> Row:
    path = finding.place.path
    paths = [str(each.path) for each in directories]
    log_dir = next(
        (each for each in paths if path == each or path.startswith(f"{each.rstrip('/')}/")), None
    )
    return {"log_dir": log_dir, **finding_row(finding)}
