"""Show what a log directory is and what it holds in total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.parameters import directories_argument
from kdump.cli.options.remote_option import remote_option, with_remote
from kdump.cli.options.selection_options import nothing_selected, selection_options
from kdump.cli.output.rendering import OutputFormat, Row, open_output, output_option
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus
from kdump.formats.names import (
    CLUSTER_METADATA_PARTITION,
    LEADER_EPOCH_CHECKPOINT,
    QUORUM_STATE,
    MetadataSnapshotName,
    PartitionState,
)
from kdump.jobs.listing.certain_end import with_marked_end
from kdump.jobs.listing.directory_rows import FIELDS
from kdump.phases import phase
from kdump.storage.location import Location
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.jobs.listing.partition_facts import LonePartition
    from kdump.jobs.listing.partition_totals import PartitionTotals
    from kdump.log.directory import DirectoryKind, LogDirectory
    from kdump.log.partition import Partition
    from kdump.log.remote_files import RemotePlace
    from kdump.log.selection import PartitionSelection


@click.command("info")
@directories_argument
@click.option(
    "--deep",
    is_flag=True,
    help="Also read every batch, and count records, formats, codecs and producers.",
)
@selection_options
@remote_option
@output_option
@engine_options
def command(
    directories: Sequence[Location],
    deep: bool,
    selection: PartitionSelection,
    remote: RemotePlace | None,
    output: OutputFormat,
    engine: EngineOptions,
) -> ExitStatus:
    """Show what a directory is, whether it was shut down cleanly, and its totals.

    DIR can be any directory: a broker's log directory, a metadata directory, a single partition,
    one of Kafka 0.7, or one that is not Kafka's. Nothing is written, and records are read only
    with --deep, except those of the cluster's metadata.

    While .kafka_cleanshutdown is in a directory, a starting broker assumes that it is clean and
    checks almost nothing. A lock file means that a broker is running, or was killed.
    """
    from kdump.cli.output.diagnostics import Diagnostics

    diagnostics = Diagnostics()
    paths = with_remote(directories, remote)
    is_tiered = remote is not None
    rows: Iterable[Row] = info_rows(
        paths, engine if deep else None, selection, diagnostics, is_tiered=is_tiered
    )
    if not selection.is_everything:
        rows = list(rows)
        is_unreadable = diagnostics.status & ExitStatus.OPERATIONAL_ERROR
        if not any(row.get("partitions", "topic" in row) for row in rows) and not is_unreadable:
            raise nothing_selected(selection, directories)
    with open_output(output, FIELDS, vertical=True) as out:
        for row in rows:
            out.row(with_marked_end(row) if output.is_for_people else row)
    return diagnostics.status


def info_rows(
    paths: Iterable[Location],
    deep: EngineOptions | None,
    selection: PartitionSelection,
    diagnostics: Diagnostics,
    *,
    is_tiered: bool = False,
) -> Iterator[Row]:
    """Yield the rows of directories in any storage; what cannot be read is reported.

    Args:
        deep: how to read every batch; None to read none.
        is_tiered: whether the directories have remote segments.
    """
    for path in paths:
        try:
            with phase(f"reading {path}"):
                row = _row(path, deep, selection, diagnostics, is_tiered=is_tiered)
        except OSError as failure:
            diagnostics.report(path, failure)
        else:
            if row is not None:
                yield row


def _row(
    path: Location,
    deep: EngineOptions | None,
    selection: PartitionSelection,
    diagnostics: Diagnostics,
    *,
    is_tiered: bool,
) -> Row | None:
    """Return the row of a directory; None for a partition that is not selected."""
    from kdump.jobs.listing.partition_facts import read_with_surroundings
    from kdump.log.directory import directory_kind, log_directories_below

    kind = directory_kind(path)
    row: dict[str, Any] = {"type": "directory", "path": str(path), "kind": kind.value}
    loaded: Sequence[Partition] = ()
    if kind.is_log_directory:
        is_loaded = is_tiered or deep is not None
        found, totals, loaded = _listed(path, kind, selection, diagnostics, is_loaded=is_loaded)
        row |= _log_directory_fields(found, totals, diagnostics)
    elif kind.is_partition:
        lone = read_with_surroundings(path)
        if lone.partition not in selection:
            return None
        fields, loaded = _partition_fields(lone, diagnostics)
        row |= fields
    else:
        row["log_directories"] = [str(inside) for inside in log_directories_below(path)]
    if is_tiered and (kind.is_log_directory or kind.is_partition):
        row |= _remote_totals(loaded, is_one=kind.is_partition)
    if deep is not None:
        row |= _deep_fields(loaded, deep, diagnostics)
    return row


def _listed(
    path: Location,
    kind: DirectoryKind,
    selection: PartitionSelection,
    diagnostics: Diagnostics,
    *,
    is_loaded: bool,
) -> tuple[LogDirectory, list[PartitionTotals], list[Partition]]:
    """List a log directory; with ``is_loaded`` also return its partitions as a broker loads them.

    Without, workers list 10,000 partitions and send only their totals.
    """
    from kdump.cli.shared.directories import without_garbage_collection
    from kdump.jobs.listing.list_partitions import described_partitions
    from kdump.jobs.listing.partition_totals import only_totals, totals_and_loaded

    with without_garbage_collection():
        found, described = described_partitions(
            path,
            kind,
            selection.matches,
            totals_and_loaded if is_loaded else only_totals,
            in_workers=not is_loaded,
        )
    diagnostics.report_directory(found)
    for each in described:
        each.problems.release(diagnostics)
    descriptions = [each.description for each in described if each.description is not None]
    loaded = [partition for _, partition in descriptions if partition is not None]
    return found, [totals for totals, _ in descriptions], loaded


def _log_directory_fields(
    found: LogDirectory, partitions: Sequence[PartitionTotals], diagnostics: Diagnostics
) -> Row:
    from kdump.log.directory import DirectoryKind
    from kdump.log.generations import broker_generation, registered_generation
    from kdump.log.partition import read_partition

    meta = found.meta_properties
    by_state = Counter(partition.state for partition in partitions)
    paths = [found.path / partition.name for partition in partitions]
    generation = broker_generation(found, paths)
    metadata = next(
        (
            read_partition(found.path / each.name, CLUSTER_METADATA_PARTITION)
            for each in partitions
            if each.topic_partition == CLUSTER_METADATA_PARTITION
            and each.state is PartitionState.LIVE
        ),
        None,
    )
    if metadata is not None:
        level = _registered_level(metadata, None if meta is None else meta.node_id, diagnostics)
        generation &= registered_generation(level)
    fields: dict[str, Any] = {
        "cluster_id": meta and meta.cluster_id,
        "node_id": meta and meta.node_id,
        "directory_id": found.directory_id,
    }
    if found.kind is not DirectoryKind.METADATA_DIRECTORY:
        # The metadata log is always loaded as after a crash, and has no clean shutdown marker.
        fields["is_clean"] = found.is_clean
    if found.clean_shutdown and found.clean_shutdown.broker_epoch is not None:
        fields["broker_epoch"] = found.clean_shutdown.broker_epoch
    fields |= {
        "in_use_by": _lock_holder(found),
        "has_lock_file": found.has_lock_file,
        "broker_generation": str(generation),
        "topics": len({each.topic_partition.topic for each in partitions if each.topic_partition}),
        "partitions": len(partitions) + len(found.unreadable),
        "future_partitions": by_state[PartitionState.FUTURE],
        "delete_partitions": by_state[PartitionState.DELETE],
        "stray_partitions": by_state[PartitionState.STRAY],
        **_totals(partitions),
        "largest_topics": _largest_topics(partitions),
        "refused": list(found.refused),
        "unreadable": list(found.unreadable),
        "foreign": list(found.foreign),
    }
    if metadata is not None:
        fields |= _quorum_fields(metadata, diagnostics)
    return fields


def _registered_level(
    metadata: Partition, node_id: int | None, diagnostics: Diagnostics
) -> int | None:
    """Return the highest ``metadata.version`` of a broker, by the metadata on its disk."""
    from kdump.jobs.listing.partition_facts import readable
    from kdump.state.metadata.cluster import read_cluster_image

    def read() -> int | None:
        image = read_cluster_image(metadata)
        return None if image is None or node_id is None else image.known_levels.get(node_id)

    with phase("reading the cluster's metadata"):
        return readable(metadata.path, read, diagnostics)


def _lock_holder(directory: LogDirectory) -> str | None:
    """Return who holds the lock; None if nobody does, or if the storage has no locks."""
    path = directory.path.storage.local_path(directory.path.path)
    if path is None or not directory.has_lock_file:
        return None
    from kdump.log.lock_holders import holder_of

    return holder_of(path)


def _totals(partitions: Sequence[PartitionTotals]) -> Row:
    """Add up partitions."""
    leftovers, generations = Counter[str](), Counter[str]()
    for each in partitions:
        leftovers.update(each.leftovers)
        generations.update(each.generations)
    return {
        "segments": sum(each.segments for each in partitions),
        "generations": dict(sorted(generations.items())),
        "log_bytes": sum(each.log_bytes for each in partitions),
        "total_bytes": sum(each.total_bytes for each in partitions),
        "leftovers": dict(leftovers),
    }


def _largest_topics(partitions: Sequence[PartitionTotals]) -> Row:
    """Return the size of the few topics that take the most space, largest first."""
    sizes = Counter[str]()
    for each in partitions:
        if each.topic_partition is not None and each.total_bytes:
            sizes[each.topic_partition.topic] += each.total_bytes
    return dict(sorted(sizes.items(), key=lambda size: (-size[1], size[0]))[:_LARGEST])


def _remote_totals(partitions: Sequence[Partition], *, is_one: bool) -> Row:
    """How much is in tiered storage, and where the local log of a single partition begins."""
    from kdump.jobs.listing.listed_rows import remote_fields

    rows = [remote_fields(each) for each in partitions]
    start = {"local_log_start_offset": rows[0]["local_log_start_offset"]} if is_one else {}
    sums = {name: sum(row[name] or 0 for row in rows) for name in _REMOTE_SUMS}
    return {**start, **sums}


_LARGEST: Final = 5
_REMOTE_SUMS: Final = ("remote_segments", "remote_log_bytes")


def _quorum_fields(partition: Partition, diagnostics: Diagnostics) -> Row:
    from kdump.jobs.listing.partition_facts import readable

    state = readable(partition.path / QUORUM_STATE, partition.read_quorum_state, diagnostics)
    latest = partition.metadata_snapshots[-1:]
    return {
        "quorum_leader_id": state and state.leader_id,
        "quorum_leader_epoch": state and state.leader_epoch,
        "metadata_snapshot": str(MetadataSnapshotName(latest[0].end_offset, latest[0].epoch))
        if latest
        else None,
    }


def _partition_fields(
    lone: LonePartition, diagnostics: Diagnostics
) -> tuple[Row, Sequence[Partition]]:
    from kdump.jobs.listing.partition_facts import bounds_fields, readable, topic_id
    from kdump.jobs.listing.partition_totals import totals_and_loaded

    partition = lone.partition
    totals, loaded = totals_and_loaded(partition, lone.log_directory, diagnostics)
    if lone.log_directory is not None:
        diagnostics.report_problems(lone.log_directory)
    topic, number = partition.topic_partition or (None, None)
    epochs = readable(
        partition.path / LEADER_EPOCH_CHECKPOINT, partition.read_leader_epochs, diagnostics
    )
    fields: dict[str, Any] = {
        "topic": topic,
        "partition": number,
        "state": partition.state.name.lower(),
        "topic_id": topic_id(partition, diagnostics),
        **_totals([totals]),
        **bounds_fields(loaded, lone.log_directory, diagnostics),
        "leader_epoch": epochs[-1].epoch if epochs else None,
        "foreign": list(partition.foreign),
    }
    if partition.is_cluster_metadata:
        fields |= _quorum_fields(partition, diagnostics)
    return fields, [] if loaded is None else [loaded]


def _deep_fields(
    partitions: Sequence[Partition], engine: EngineOptions, diagnostics: Diagnostics
) -> Row:
    from kdump.jobs.listing.batch_survey import survey
    from kdump.jobs.problems.found_problems import report_all

    with phase(f"reading {counted(len(partitions), 'partition')}"):
        total, problems = survey(partitions, engine)
    report_all(problems, diagnostics)
    return {
        "batches": total.batches,
        "records": total.records,
        "formats": dict(total.formats),
        "codecs": dict(total.codecs),
        "producers": len(total.producer_ids),
        "transactional_batches": total.transactional_batches,
        "control_batches": total.control_batches,
    }
