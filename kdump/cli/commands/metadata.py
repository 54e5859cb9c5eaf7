"""Show the cluster's metadata and its history, or rebuild it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from kdump.cli.commands._metadata_apply import command as apply
from kdump.cli.commands._metadata_collect import command as collect
from kdump.cli.commands._metadata_plan import command as plan
from kdump.cli.commands._metadata_rebuild import command as rebuild
from kdump.cli.options.parameters import (
    TIME,
    NotParsedError,
    WordParameter,
    parse_integer,
    paths_argument,
)
from kdump.cli.options.selection_options import selection_options
from kdump.cli.output.rendering import OutputFormat, Row, open_output, output_option
from kdump.cli.output.selection_words import selection_words
from kdump.cli.shared.found_copies import CopyProblems, find_copies
from kdump.errors import ExitStatus, UsageProblem
from kdump.formats.names import TopicPartition
from kdump.phases import phase
from kdump.state.metadata.event_words import EVENTS
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.jobs.metadata.metadata_questions import ShownMetadata
    from kdump.log.selection import PartitionSelection
    from kdump.rows.row_type import Field
    from kdump.state.metadata.metadata_history import MetadataEvent

Point = tuple[int | None, int | None]
"""An offset or a time in epoch milliseconds; neither is the end of the log."""
_END: Final[Point] = (None, None)


class PointParameter(WordParameter[Point]):
    """A point of the log: a number is an offset, anything else a time in ISO 8601."""

    name = "offset|time"

    def parse(self, text: str) -> Point:
        offset = parse_integer(text)
        if offset is not None and offset >= 0:
            return offset, None
        if offset is None:
            with contextlib.suppress(NotParsedError):
                return None, TIME.parse(text)
        raise NotParsedError(
            f"{text!r} is not an offset, nor a time in ISO 8601, such as 2026-11-21T05:00:00Z"
        )


_POINT: Final = PointParameter()


@click.group("metadata")
def command() -> None:
    """Show the cluster's metadata and its history, or rebuild it.

    It is read from __cluster_metadata-0: a snapshot, then the log after it. Every controller and
    every broker has a copy. LOG_DIR is a log directory, a metadata directory, or the directory
    __cluster_metadata-0 itself. Only apply and rebuild write to a directory.
    """


command.add_command(collect)
command.add_command(plan)
command.add_command(rebuild)
command.add_command(apply)


@command.command("show")
@paths_argument("LOG_DIR")
@click.option(
    "--at",
    type=_POINT,
    default=_END,
    help="Show the metadata after the record at OFFSET, or as of TIME (ISO 8601); default: the "
    "end of the log.",
)
@selection_options
@output_option
def show(
    paths: Sequence[Location], at: Point, selection: PartitionSelection, output: OutputFormat
) -> ExitStatus:
    """Show topics, configurations, features, brokers, ACLs, quotas and users.

    The most advanced copy is shown, and what the others lack. Records that may not be committed
    count, and what they changed is marked.
    """
    from kdump.cli.output.metadata_output import section_rows, show_lines
    from kdump.cli.output.sections import open_sections
    from kdump.cli.shared.directories import without_garbage_collection
    from kdump.jobs.metadata.metadata_questions import show_metadata
    from kdump.jobs.metadata.shown_rows import SECTIONS
    from kdump.state.metadata.metadata_replay import MetadataPoint

    problems = CopyProblems()
    copies = find_copies(paths, problems)
    if not copies:
        return problems.status
    with without_garbage_collection():
        shown = show_metadata(copies, MetadataPoint(*at), problems.report)
        metadata = _metadata_row(shown, selection)
    if output.is_json:
        with open_output(output, ()) as out:
            out.row(metadata)
        return problems.status
    with open_sections(output, SECTIONS) as sections:
        sections.rows(section_rows(metadata))
        sections.summary(metadata, show_lines(shown, metadata))
    return problems.status


def _metadata_row(shown: ShownMetadata, selection: PartitionSelection) -> dict[str, Any]:
    """Return the object of ``show``.

    Raises:
        UsageProblem: the selection matches no partition.
    """
    from kdump.state.metadata.metadata_difference import uncommitted_rows
    from kdump.state.metadata.metadata_rows import image_row

    doubtful = {(change.kind, change.key) for change in shown.uncommitted}
    image = image_row(shown.image, doubtful)
    uncommitted = [
        row for row in uncommitted_rows(shown.uncommitted) if _is_selected(row, selection)
    ]
    if not selection.is_everything:
        image["topics"] = _selected_topics(image["topics"], selection)
        if not image["topics"]:
            import shlex

            raise UsageProblem(
                f"no partition in the metadata matches {shlex.join(selection_words(selection))}"
            )
        names = {f"topic:{topic['name']}" for topic in image["topics"]}
        image["configs"] = {
            key: values
            for key, values in image["configs"].items()
            if key in names or not key.startswith("topic:")
        }
    copy = shown.copy
    return {
        "type": "metadata",
        "path": str(copy.partition.path),
        "log_dir": str(copy.log_dir),
        "node_id": copy.node_id,
        "cluster_id": copy.cluster_id,
        "committed_end_offset": shown.committed_end,
        "open_transaction_offset": shown.image.pending,
        **image,
        "uncommitted": uncommitted,
        "other_copies": [
            {
                "path": str(other.copy.partition.path),
                "node_id": other.copy.node_id,
                "end_offset": other.copy.end.offset,
                "epoch": other.copy.end.epoch,
                "verdict": other.comparison.verdict.value,
                "common_end_offset": other.comparison.common_end_offset,
                "common_epoch": other.comparison.common_epoch,
                "differing_offset": other.comparison.differing_offset,
            }
            for other in shown.others
        ],
    }


def _selected_topics(
    topics: Iterable[dict[str, Any]], selection: PartitionSelection
) -> list[dict[str, Any]]:
    """Return the topics with a selected partition, with these partitions only."""
    selected = []
    for topic in topics:
        partitions = [
            each
            for each in topic["partitions"]
            if _matches(selection, topic["name"], each["partition"])
        ]
        if partitions:
            selected.append({**topic, "partitions": partitions})
    return selected


def _matches(selection: PartitionSelection, topic: str, partition: int) -> bool:
    key = TopicPartition(topic, partition)
    return selection.matches(str(key), key)


def _is_selected(row: Row, selection: PartitionSelection) -> bool:
    """Whether an event or a difference belongs to a selected topic or partition."""
    if selection.is_everything:
        return True
    topic, partition = row["topic"], row["partition"]
    if topic is None:
        return False
    if partition is None:
        return selection.matches_topic(topic)
    return _matches(selection, topic, partition)


@command.command("history")
@paths_argument("LOG_DIR")
@click.option(
    "--to",
    type=_POINT,
    default=_END,
    help="End after the record at OFFSET, or at TIME (ISO 8601); default: the end of the log.",
)
@click.option(
    "--event",
    "words",
    type=click.Choice(EVENTS),
    metavar="EVENT",
    multiple=True,
    help="Only events of this kind, such as deleted, elected or fenced; may be repeated.",
)
@selection_options
@output_option
def history(
    paths: Sequence[Location],
    to: Point,
    words: tuple[str, ...],
    selection: PartitionSelection,
    output: OutputFormat,
) -> ExitStatus:
    """List what happened: topics created and deleted, leaders elected, brokers fenced.

    With --topic or --partition, only events of these topics and partitions are listed.
    """
    from kdump.cli.output.metadata_output import history_lines
    from kdump.cli.output.sections import write_summary
    from kdump.jobs.metadata.metadata_copies import committed_end
    from kdump.jobs.metadata.metadata_questions import HistoryReading
    from kdump.jobs.metadata.shown_rows import EVENT
    from kdump.state.metadata.metadata_replay import MetadataPoint

    problems = CopyProblems()
    copies = find_copies(paths, problems)
    if not copies:
        return problems.status
    with phase(f"reading {copies[0].partition.path}"):
        committed, _ = committed_end(copies)
    reading = HistoryReading.of(copies[0], MetadataPoint(*to), problems.report)
    summary: dict[str, Any] = {
        "type": "summary",
        "path": str(copies[0].partition.path),
        "begin_offset": reading.begin,
        "end_offset": reading.end,
        "unknown": [],
        "committed_end_offset": committed,
        "events": 0,
        "uncommitted_events": 0,
    }

    def rows() -> Iterator[Row]:
        for event in reading.events():
            row = _event_row(event, committed)
            if _is_selected(row, selection) and (not words or row["event"] in words):
                summary["events"] += 1
                summary["uncommitted_events"] += row["is_committed"] is None
                yield row

    _write(output, EVENT.columns, rows())
    summary["end_offset"] = reading.end
    summary["unknown"] = [
        {"begin_offset": begin, "end_offset": end} for begin, end in reading.unknown
    ]
    write_summary(output, summary, history_lines(summary))
    return problems.status


def _event_row(event: MetadataEvent, committed_end: int | None) -> Row:
    row = event.row()
    is_committed = committed_end is not None and row["offset"] < committed_end
    return {"type": "event", **row, "is_committed": True if is_committed else None}


def _write(output: OutputFormat, columns: Sequence[Field], rows: Iterable[Row]) -> None:
    """Write rows as they come; people see their old and new fields shortened."""
    from kdump.cli.output.metadata_output import for_people

    is_for_people = output.is_for_people
    with open_output(output, columns) as out:
        for row in rows:
            out.row(for_people(row) if is_for_people else row)


@command.command("diff")
@paths_argument("LOG_DIR")
@click.option(
    "--from",
    "left",
    type=_POINT,
    help="Compare the metadata of one LOG_DIR after the record at OFFSET, or as of TIME...",
)
@click.option(
    "--to",
    "right",
    type=_POINT,
    help="...with that after this record, or as of this time; default: the end of the log.",
)
@selection_options
@output_option
def diff(
    paths: Sequence[Location],
    left: Point | None,
    right: Point | None,
    selection: PartitionSelection,
    output: OutputFormat,
) -> ExitStatus:
    """Show what differs between two copies, or between two offsets of one.

    Give two LOG_DIRs to compare their copies, or one and --from.
    """
    from kdump.cli.output.metadata_output import difference_lines
    from kdump.cli.output.sections import write_summary
    from kdump.jobs.metadata.metadata_questions import compare_metadata
    from kdump.jobs.metadata.shown_rows import DIFFERENCE
    from kdump.state.metadata.metadata_difference import difference_rows
    from kdump.state.metadata.metadata_replay import MetadataPoint

    if len(paths) > 2:
        raise UsageProblem("give one or two LOG_DIRs")
    if len(paths) == 1 and left is None:
        raise UsageProblem("give two LOG_DIRs to compare, or one and --from")
    if len(paths) == 2 and (left is not None or right is not None):
        raise UsageProblem("--from and --to require a single LOG_DIR")
    problems = CopyProblems()
    found = [find_copies([path], problems) for path in paths]
    if not all(found):
        return problems.status
    sides = [copies[0] for copies in found]
    compared = compare_metadata(
        (sides[0], MetadataPoint(*(left or _END))),
        (sides[-1], MetadataPoint(*(right or _END))),
        problems.report,
    )
    differences = 0

    def rows() -> Iterator[Row]:
        nonlocal differences
        for row in difference_rows(compared.left, compared.right):
            if _is_selected(row, selection):
                differences += 1
                yield {"type": "difference", **row}

    _write(output, DIFFERENCE.columns, rows())
    comparison = compared.comparison
    summary = {
        "type": "summary",
        "left": str(sides[0].partition.path),
        "right": str(sides[-1].partition.path),
        "left_end_offset": compared.left.end.offset,
        "left_epoch": compared.left.end.epoch,
        "right_end_offset": compared.right.end.offset,
        "right_epoch": compared.right.end.epoch,
        "verdict": None if comparison is None else comparison.verdict.value,
        "common_end_offset": None if comparison is None else comparison.common_end_offset,
        "common_epoch": None if comparison is None else comparison.common_epoch,
        "differing_offset": None if comparison is None else comparison.differing_offset,
        "differences": differences,
    }
    write_summary(output, summary, difference_lines(summary))
    if comparison is not None and comparison.differing_offset is not None:
        problems.status |= ExitStatus.DAMAGE_LEFT
    is_same = not differences and (compared.are_same_copies or not selection.is_everything)
    return problems.status | (ExitStatus.SOUND if is_same else ExitStatus.DIFFERENT)
