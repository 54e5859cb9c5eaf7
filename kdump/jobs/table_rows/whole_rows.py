"""The rows of tables about all log directories together: topics, groups, transactions and others.

What they say of one partition depends on others, so each table is one split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.formats.names import CLUSTER_METADATA_TOPIC, PartitionState, TopicPartition
from kdump.jobs.groups.build_report import report_groups
from kdump.jobs.groups.coordinator_logs import OFFSETS_TOPIC
from kdump.jobs.groups.group_report import GroupsRequest
from kdump.jobs.groups.offset_rows import offset_row
from kdump.jobs.listing.listed_rows import partition_row
from kdump.jobs.metadata.metadata_copies import read_copies
from kdump.jobs.metadata.metadata_questions import ShownMetadata, show_metadata
from kdump.jobs.problems.found_problems import report_all
from kdump.jobs.table_rows.log_tables import TOPICS
from kdump.jobs.table_rows.partition_splits import (
    LoggedProblems,
    directory_kinds,
    is_selected,
    listed_directories,
)
from kdump.jobs.table_rows.state_tables import CONFIGS, GROUP_OFFSETS, TRANSACTIONS
from kdump.jobs.transactions.open_transactions import TxnsRequest, txns
from kdump.jobs.transactions.shown_transactions import ShownTransactions
from kdump.jobs.transactions.transaction_rows import open_transaction_row, transaction_row
from kdump.log.broker import require_one_cluster
from kdump.log.directory import DirectoryKind, LogDirectory, read_log_directory
from kdump.log.selection import EVERYTHING, only_metadata
from kdump.state.metadata.metadata_image import EntityKind
from kdump.state.metadata.metadata_replay import MetadataPoint
from kdump.state.metadata.metadata_rows import config_row
from kdump.state.metadata.settings import DEFAULT_OFFSETS_RETENTION_MS, read_settings
from kdump.state.transactions.transaction_coordinator import TRANSACTION_STATE_TOPIC
from kdump.storage.location import Location
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.table import TableColumn, row_batches
from kdump.tables.table_options import TableOptions

Row = Mapping[str, Any]
_IN_THIS_PROCESS: Final = EngineOptions(EngineChoice.LOCAL, processes=1)
_TOPIC_CONFIG: Final = "topic:"


class WholeSplit(Struct, frozen=True):
    """All that a table is about.

    Attributes:
        directories: the log directories, as the driver found them: where a path leads depends on
            the current directory, and workers have another.
    """

    options: TableOptions
    directories: Mapping[Location, DirectoryKind]

    def read_places(self) -> Iterable[Location]:
        """As of a :class:`~kdump.engine.job.Split`."""
        return self.directories

    def read(self, select: Callable[[str, TopicPartition], bool]) -> list[LogDirectory]:
        """The log directories with the selected partitions.

        Raises:
            OSError: one cannot be listed.
        """
        return [
            read_log_directory(path, kind, select=select) for path, kind in self.directories.items()
        ]


class WholeReader(Struct, frozen=True):
    """Reads a table about all log directories together."""

    options: TableOptions
    columns: tuple[TableColumn, ...]

    def splits(self, filters: PushedFilters, /) -> Sequence[WholeSplit]:
        found = WholeSplit(self.options, directory_kinds(self.options))  # refuses other paths
        if len(found.directories) > 1:
            roots = found.read(lambda _name, _key: False)
            require_one_cluster((each.path, each.cluster_id) for each in roots)
        return [] if filters.is_empty else [found]

    def read(self, split: WholeSplit, filters: PushedFilters, /) -> Iterator[pa.RecordBatch]:
        return row_batches(_ROWS[split.options.table.name](split, filters), self.columns)


# ---- The cluster's metadata


def _config_rows(split: WholeSplit, filters: PushedFilters) -> Iterator[Row]:
    shown = _shown_metadata(split)
    if shown is None:
        return
    doubtful = {(change.kind, change.key) for change in shown.uncommitted}
    configs = shown.image.of(EntityKind.CONFIG)
    for resource in sorted(configs):
        topic = resource.removeprefix(_TOPIC_CONFIG) if resource.startswith(_TOPIC_CONFIG) else None
        if not _is_topic_selected(topic, split.options, filters):
            continue
        is_doubtful = (EntityKind.CONFIG, resource) in doubtful
        for name, value in config_row(configs[resource]).items():
            yield {
                "resource": resource,
                "topic": topic,
                "property": name,
                "value": value,
                "is_committed": None if is_doubtful else True,
            }


def _shown_metadata(split: WholeSplit) -> ShownMetadata | None:
    """The metadata of the most advanced copy; None if no log directory has one."""
    copies = read_copies(split.read(only_metadata))
    if not copies:
        return None
    return show_metadata(copies, MetadataPoint(), LoggedProblems().remark)


def _is_topic_selected(topic: str | None, options: TableOptions, filters: PushedFilters) -> bool:
    """Whether rows about a topic may match; a topic of a selected partition does."""
    if not filters.has_topic(topic):
        return False
    selected = options.topics
    if topic is None or selected.partitions is None:
        return selected.has(None if topic is None else TopicPartition(topic, 0))
    return any(each.topic == topic for each in selected.partitions)


# ---- Topics


def _topic_rows(split: WholeSplit, filters: PushedFilters) -> Iterator[Row]:
    def select(_name: str, key: TopicPartition) -> bool:
        return _is_topic_selected(key.topic, split.options, filters)

    here: dict[str, list[Row]] = defaultdict(list)
    for found in split.read(select):
        for partition in found.partitions:
            if partition.state is PartitionState.LIVE and partition.topic_partition is not None:
                row = partition_row(partition, found, LoggedProblems())
                here[partition.topic_partition.topic].append(row)
    listed = _listed_topics(split, filters)
    for topic in sorted(here.keys() | listed.keys()):
        rows = here.get(topic, [])
        yield {"topic": topic, **_totals(rows), **listed.get(topic, {"topic_id": _id_of(rows)})}


def _listed_topics(split: WholeSplit, filters: PushedFilters) -> dict[str, Row]:
    """What the cluster's metadata says of topics, by name."""
    shown = _shown_metadata(split)
    if shown is None:
        return {}
    doubtful = {(change.kind, change.key) for change in shown.uncommitted}
    counts: dict[str, int] = defaultdict(int)
    for topic_id, _ in shown.image.of(EntityKind.PARTITION):
        counts[topic_id] += 1
    return {
        topic.name: {
            "topic_id": topic_id,
            "partitions": counts[topic_id],
            "is_committed": None if (EntityKind.TOPIC, topic_id) in doubtful else True,
        }
        for topic_id, topic in shown.image.of(EntityKind.TOPIC).items()
        if _is_topic_selected(topic.name, split.options, filters)
    }


def _totals(rows: Sequence[Row]) -> Row:
    earliest = [row["earliest_timestamp_ms"] for row in rows]
    latest = [row["latest_timestamp_ms"] for row in rows]
    return {
        "partitions_here": len({row["partition"] for row in rows}),
        "replicas_here": len(rows),
        "segments": sum(row["segments"] for row in rows),
        "log_bytes": sum(row["log_bytes"] for row in rows),
        "total_bytes": sum(row["total_bytes"] for row in rows),
        "earliest_timestamp_ms": min((t for t in earliest if t is not None), default=None),
        "latest_timestamp_ms": max((t for t in latest if t is not None), default=None),
    }


def _id_of(rows: Sequence[Row]) -> str | None:
    """The id that all directories of a topic have; None if they do not agree."""
    ids = {row["topic_id"] for row in rows if row["topic_id"] is not None}
    return ids.pop() if len(ids) == 1 else None


# ---- Groups


def _group_offset_rows(split: WholeSplit, filters: PushedFilters) -> Iterator[Row]:
    options = split.options

    def select(_name: str, key: TopicPartition) -> bool:
        is_needed = key.topic in (OFFSETS_TOPIC, CLUSTER_METADATA_TOPIC)
        return is_needed or is_selected(key, options, filters)

    directories = listed_directories(split.directories, select)
    settings = list(read_settings(directories).values())
    retentions = [each.offsets_retention_ms for each in settings]
    request = GroupsRequest(
        directories=directories,
        image=next((each.cluster for each in settings if each.cluster is not None), None),
        groups=(),
        selection=EVERYTHING,
        offsets_retention_ms=next(
            (each for each in retentions if each is not None), DEFAULT_OFFSETS_RETENTION_MS
        ),
    )
    report = report_groups(request, _IN_THIS_PROCESS)
    report_all(report.problems(), LoggedProblems())
    for group in report.groups:
        for offset in group.offsets:
            if is_selected(offset.partition, options, filters):
                yield offset_row(group.group, offset, options.now_ms)


# ---- Transactions


def _transaction_rows(split: WholeSplit, filters: PushedFilters) -> Iterator[Row]:
    options = split.options

    def select(_name: str, key: TopicPartition) -> bool:
        is_needed = key.topic in (TRANSACTION_STATE_TOPIC, CLUSTER_METADATA_TOPIC)
        return is_needed or is_selected(key, options, filters)

    report = txns(TxnsRequest(split.read(select), EVERYTHING, options.now_ms), _IN_THIS_PROCESS)
    report_all((*report.damages, *report.problems), LoggedProblems())
    shown = ShownTransactions(report, EVERYTHING, (), only_hanging=False, is_for_people=False)
    if filters.has_topic(None) and filters.has_partition(None):
        for number, transaction in shown.transactions():
            row = transaction_row(shown, number, transaction)
            wanted = [each for each in transaction.partitions if options.topics.has(each)]
            if wanted or options.topics.has(None):
                yield row | {
                    name: _selected(row[name], wanted)
                    for name in ("missing_partitions", "refusing_partitions")
                }
    for partition, each in shown.open_transactions():
        if is_selected(partition.topic_partition, options, filters):
            yield open_transaction_row(partition, each)


def _selected(names: Sequence[str], wanted: Sequence[TopicPartition]) -> list[str]:
    keys = set(map(str, wanted))
    return [name for name in names if name in keys]


_ROWS: Final[dict[str, Callable[[WholeSplit, PushedFilters], Iterator[Row]]]] = {
    TOPICS.name: _topic_rows,
    CONFIGS.name: _config_rows,
    GROUP_OFFSETS.name: _group_offset_rows,
    TRANSACTIONS.name: _transaction_rows,
}
