"""Export records as Parquet, CSV or JSON files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.parameters import (
    max_record_bytes_option,
    paths_argument,
)
from kdump.cli.options.payload_options import PayloadArguments, payload_options
from kdump.cli.options.range_options import RangeArguments, range_options
from kdump.cli.options.remote_option import remote_option, with_remote
from kdump.cli.options.selection_options import nothing_selected, selection_options
from kdump.cli.output.events import write_notice
from kdump.cli.output.rendering import OutputFormat, output_option
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.formats.names import TopicPartition
from kdump.jobs.export.file_names import Layout
from kdump.jobs.export.record_formats import FileFormat
from kdump.log.selection import only_metadata
from kdump.phases import phase
from kdump.storage.local_disk import local
from kdump.storage.location import Location
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.jobs.export.export import ExportRequest
    from kdump.log.remote_files import RemotePlace
    from kdump.log.replicas import ChosenReplicas
    from kdump.log.selection import PartitionSelection
    from kdump.payloads.record_payloads import RecordPayloads
    from kdump.tables.kafka_log.columns import SourceColumn
    from kdump.tables.kafka_log.found_partitions import FoundPartition


@click.command("export")
@paths_argument("PATH")
@click.option(
    "--out",
    metavar="DIRECTORY",
    type=click.Path(),
    required=True,
    help="Write the files to DIRECTORY, which is created; run again, an export continues there.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FileFormat, case_sensitive=False),
    default=FileFormat.PARQUET,
    help="Write parquet (default), csv or jsonl.",
)
@click.option(
    "--layout",
    type=click.Choice(Layout, case_sensitive=False),
    default=Layout.HIVE,
    help="Write a directory for each topic and partition (hive, default), or all files into one "
    "(flat).",
)
@click.option(
    "--columns",
    metavar="NAME[,NAME...]",
    help="Write only these columns of the table records (default: all but headers).",
)
@click.option("--include-headers", is_flag=True, help="Write the column headers, too.")
@click.option(
    "--include-control-records",
    is_flag=True,
    help="Write transaction markers and other control records, too.",
)
@range_options("Export")
@payload_options
@selection_options
@max_record_bytes_option
@remote_option
@output_option
@engine_options
def command(
    paths: Sequence[Location],
    out: str,
    selection: PartitionSelection,
    remote: RemotePlace | None,
    output: OutputFormat,
    payloads: PayloadArguments,
    records: RangeArguments,
    engine: EngineOptions,
    **options: Any,
) -> ExitStatus:
    """Export records as Parquet, CSV or JSON files.

    PATH is a log directory, or the directory of one partition. The log directories of all brokers
    of a cluster can be named: of several replicas, the most advanced is exported.

    An export that was stopped continues when it is run again with the same options.
    """
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.export_output import report_problems, write_result
    from kdump.cli.output.out_file import refuse_log_directories
    from kdump.cli.shared.directories import without_garbage_collection
    from kdump.cli.shared.record_targets import say_where_else
    from kdump.jobs.export.export import export
    from kdump.jobs.export.export_directory import ExportDirectory

    columns = _columns(options["columns"], payloads, with_headers=options["include_headers"])
    with phase(f"looking at {out}"):
        refuse_log_directories(out, f"--out {out}")
    diagnostics = Diagnostics()
    decoded = _payloads(payloads, paths, diagnostics)
    with without_garbage_collection():
        replicas, other_topics = _targets(with_remote(paths, remote), selection, diagnostics)
        targets, others = replicas.chosen, replicas.others
        is_listed = not diagnostics.status & ExitStatus.OPERATIONAL_ERROR
        if not targets:
            if not is_listed and local(out).kind() is None:
                return diagnostics.status
            if is_listed and not selection.is_everything:
                raise nothing_selected(selection, paths)
        request = msgspec.structs.replace(
            _request(targets, columns, selection, records, options),
            payloads=decoded,
            schemas=tuple(str(path.resolved()) for path in payloads.schemas),
            sources=tuple(path.resolved().typed.text for path in _sources(paths, remote)),
            not_exported=tuple(str(each.partition.path) for each in (*others, *other_topics)),
            is_everything_listed=is_listed and not any(each.offset_problems for each in targets),
        )
        with phase("exporting"), ExportDirectory(out) as directory:
            result = export(request, directory, engine)
    report_problems(result, diagnostics)
    write_result(result, out, output)
    say_where_else(diagnostics.status, "exported", has_others=bool(others))
    return diagnostics.status


def _sources(paths: Sequence[Location], remote: RemotePlace | None) -> list[Location]:
    """What an export is made from: one that continues has to have the same."""
    return [*paths] if remote is None else [*paths, remote.location]


def _columns(
    names: str | None, payloads: PayloadArguments, *, with_headers: bool
) -> tuple[SourceColumn, ...]:
    from kdump.tables.kafka_log.columns import SPARK_HEADERS, columns_named, default_columns

    if names is None:
        chosen = [column.name for column in default_columns(with_headers=with_headers)]
    else:
        chosen = [name.strip() for name in names.split(",") if name.strip()]
    wanted = {
        SPARK_HEADERS: with_headers,
        "key_text": payloads.key is not None,
        "key_problem": payloads.key is not None,
        "value_text": payloads.value is not None,
        "value_problem": payloads.value is not None,
    }
    named = {name.lower() for name in chosen}
    chosen += [name for name, is_wanted in wanted.items() if is_wanted and name not in named]
    try:
        return columns_named(chosen, None)
    except UsageProblem as problem:
        raise UsageProblem(f"--columns: {problem}") from None


def _payloads(
    payloads: PayloadArguments, paths: Sequence[Location], diagnostics: Diagnostics
) -> RecordPayloads:
    """How keys and values become text.

    Raises:
        KdumpError: schemas cannot be read: another run may be able to, and would write all files
            again.
    """
    from kdump.payloads.record_payloads import RecordPayloads

    found = payloads.read(paths, diagnostics)
    if diagnostics.status & ExitStatus.OPERATIONAL_ERROR:
        raise KdumpError("schemas cannot be read: nothing is exported")
    return found or RecordPayloads()


def _targets(
    paths: Sequence[Location], selection: PartitionSelection, diagnostics: Any
) -> tuple[ChosenReplicas[FoundPartition], list[FoundPartition]]:
    """The partitions to export, each once, and those of other topics with the same names.

    Raises:
        UsageProblem: the log directories belong to several clusters, or a copy has another name.
    """
    from kdump.cli.shared.record_targets import TargetFinder, one_of_each
    from kdump.log.broker import require_one_cluster
    from kdump.log.replicas import left_in_copies, of_one_topic

    finder = TargetFinder(selection, diagnostics, "exported", has_segments=False, has_copies=False)
    by_key: dict[TopicPartition, list[FoundPartition]] = {}
    with phase("listing what to export"):
        for path in paths:
            for found in finder.at(path):
                key = found.topic_partition
                if key is None:
                    raise UsageProblem(
                        f"{found.partition.path}: is not the name of a partition (TOPIC-PARTITION):"
                        " rename the copy"
                    )
                same = by_key.setdefault(key, [])
                if not any(found.partition.path.is_same(each.partition.path) for each in same):
                    same.append(found)
    if (said := left_in_copies(finder.left_out, by_key.keys(), "exported")) is not None:
        write_notice(f"{said}; name the directory to export it")
    every = [each for same in by_key.values() for each in same]
    require_one_cluster((each.partition.path.parent, each.cluster_id) for each in every)
    # Files are named after the topic.
    of_topic, other_topics = of_one_topic(every, lambda: _topic_ids(paths))
    if other_topics:
        write_notice(
            f"not exported: {counted(len(other_topics), 'replica')} of another topic with"
            f" the same name (first: {other_topics[0].partition.path}); name its log directory"
            " alone to export it"
        )
    return one_of_each(of_topic, diagnostics, "exported"), other_topics


def _topic_ids(paths: Sequence[Location]) -> dict[str, str]:
    """The ids of topics by name, if one of the directories has the cluster's metadata."""
    from kdump.log.directory import directory_kind, read_log_directory
    from kdump.state.metadata.cluster import read_newest_image

    image = read_newest_image(
        partition
        for path in paths
        if (kind := directory_kind(path)).is_log_directory
        for partition in read_log_directory(path, kind, select=only_metadata).partitions
    )
    return {} if image is None else image.topic_ids


def _request(
    targets: Sequence[FoundPartition],
    columns: tuple[SourceColumn, ...],
    selection: PartitionSelection,
    records: RangeArguments,
    options: dict[str, Any],
) -> ExportRequest:
    from kdump.jobs.export.export import ExportRequest

    return ExportRequest(
        targets,
        columns,
        options["file_format"],
        options["layout"],
        records.offsets,
        records.to_time_ms,
        is_committed=records.is_committed,
        with_control=options["include_control_records"],
        largest_record_bytes=options["largest_record_bytes"],
        selected=(selection.topics, selection.partitions),
    )
