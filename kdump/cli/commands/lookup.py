"""Find an offset or a time in the logs of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click
from msgspec.structs import replace

from kdump.cli.options.conflicts import require_with
from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.parameters import OFFSET, TIME, WordParameter, paths_argument
from kdump.cli.options.remote_option import remote_option, with_remote
from kdump.cli.options.selection_options import nothing_selected, selection_options
from kdump.cli.output.events import write_line, write_notice
from kdump.cli.output.rendering import OutputFormat, Row, open_output, output_option
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus, UsageProblem
from kdump.jobs.listing.certain_end import with_marked_end
from kdump.jobs.lookup_rows import LOOKUP
from kdump.log.special_times import SPECIAL_BY_WORD, IsolationLevel, SpecialTime
from kdump.phases import phase
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.jobs.lookup import LookupAnswer, ReplicaAnswer
    from kdump.log.directory import DirectoryKind
    from kdump.log.first_record import FoundRecord
    from kdump.log.remote_files import RemotePlace
    from kdump.log.replicas import Replica
    from kdump.log.selection import PartitionSelection

_RECORD_FIELDS: Final = (
    "position",
    "batch_base_offset",
    "batch_last_offset",
    "batch_bytes",
    "record_offset",
    "key_bytes",
    "value_bytes",
    "codec",
    "timestamp_type",
    "is_transactional",
    "is_control",
    "is_checksum_verified",
)


class LookupTimeParameter(WordParameter[int | SpecialTime]):
    """A time, or a word for a special one."""

    name = "time"

    def parse(self, text: str) -> int | SpecialTime:
        special = SPECIAL_BY_WORD.get(text)
        return TIME.parse(text) if special is None else special


@click.command("lookup")
@paths_argument("LOG_DIR")
@selection_options
@click.option("--offset", type=OFFSET, metavar="N", help="Find the first record from offset N on.")
@click.option(
    "--timestamp",
    type=LookupTimeParameter(),
    help="Find the first record that is not older than TIME, or one of: earliest, latest, max, "
    "earliest-local, latest-tiered, earliest-pending-upload.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(IsolationLevel, case_sensitive=False),
    help="With --timestamp, answer as for a consumer that reads up to the high watermark "
    "(read_uncommitted, default) or up to the last stable offset (read_committed).",
)
@remote_option
@output_option
@engine_options
def command(
    paths: Sequence[Location],
    selection: PartitionSelection,
    offset: int | None,
    timestamp: int | SpecialTime | None,
    isolation_level: IsolationLevel | None,
    remote: RemotePlace | None,
    output: OutputFormat,
    engine: EngineOptions,
) -> ExitStatus:
    """Find the record at an offset or a time: file, byte, batch, and leader epoch.

    LOG_DIR is a log directory; name several for one answer from each replica. Answers are those of
    a broker (ListOffsets, OffsetsForLeaderEpoch). At most 1 MiB is read for each, by the indexes.
    Nothing is written.
    """
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.shared.directories import find_log_directories, without_garbage_collection
    from kdump.jobs.listing.partition_facts import listed_as_loaded
    from kdump.jobs.lookup import LookupRequest, Question, lookup

    if (offset is None) == (timestamp is None):
        raise UsageProblem("lookup requires either --offset or --timestamp")
    if timestamp is None:
        require_with("--timestamp", {"--isolation-level": isolation_level is not None})
    diagnostics = Diagnostics()
    with without_garbage_collection():
        kinds = find_log_directories(with_remote(paths, remote), diagnostics)
        for path, kind in kinds.items():
            _require_offsets(path, kind)
        listed = [
            listed_as_loaded(path, kind, diagnostics, selection.matches)
            for path, kind in kinds.items()
        ]
        directories = [each for each in listed if each is not None]
    from kdump.tiered.left_in_tier import left_in_tier

    for each in directories:
        if (said := left_in_tier(each, each.partitions)) is not None:
            write_notice(said)
    if not directories:
        return diagnostics.status
    level = isolation_level or IsolationLevel.READ_UNCOMMITTED
    request = LookupRequest(directories, selection, Question(offset, timestamp, level))
    with phase("looking up"):
        answers = lookup(request, engine)
    if not answers and not selection.is_everything and not diagnostics.status:
        raise nothing_selected(selection, kinds)
    rows = list(_rows(answers, diagnostics))
    if rows or not diagnostics.status:
        _show(rows, output)
    return diagnostics.status


def _require_offsets(path: Location, kind: DirectoryKind) -> None:
    """Refuse a log directory whose offsets are byte positions.

    Raises:
        UsageProblem: it is of Kafka 0.7.
    """
    from kdump.log.directory import DirectoryKind

    if kind is DirectoryKind.LOG_DIRECTORY_0_7:
        raise UsageProblem(
            f"{path} is a log directory of Kafka 0.7, where offsets are byte positions: see"
            " kdump dump-segment"
        )


def _rows(answers: Iterable[ReplicaAnswer], diagnostics: Diagnostics) -> Iterator[Row]:
    """The rows of all replicas that could be read; reports damage and failures."""
    from kdump.jobs.lookup import LookupAnswer

    for each in answers:
        found, path = each.answer, each.replica.partition.path
        if not isinstance(found, LookupAnswer):
            diagnostics.report(path, OSError(0, found.what, found.path))
            continue
        for damage in found.damages:
            diagnostics.report_damage(damage)
        for malformed, what in found.malformed:
            diagnostics.report(malformed, what)
        yield _row(each.replica, found, is_most_advanced=each.is_most_advanced)


def _row(replica: Replica, answer: LookupAnswer, *, is_most_advanced: bool | None) -> Row:
    found, record = answer.found, answer.found.record
    topic, number = replica.partition.key
    return {
        "type": "lookup",
        "log_dir": str(replica.log_directory.path),
        "topic": topic,
        "partition": number,
        "offset": found.offset,
        "is_lost": answer.is_lost,
        "timestamp_ms": None if record is None else record.timestamp_ms,
        "leader_epoch": found.leader_epoch,
        "epoch_end_offset": answer.epoch_end_offset,
        "file": None if found.log is None else str(found.log),
        **_record_fields(record),
        "bound": None if answer.bound is None else answer.bound.value,
        "log_start_offset": answer.log_start_offset,
        "last_stable_offset": answer.last_stable_offset,
        "high_watermark": answer.high_watermark,
        "log_end_offset": answer.log_end_offset,
        "is_end_certain": answer.is_end_certain,
        "is_most_advanced": is_most_advanced,
        "read_bytes": answer.read_bytes,
        "unused_indexes": list(answer.unused_indexes),
        "notes": list(answer.notes),
    }


def _record_fields(record: FoundRecord | None) -> Row:
    if record is None:
        return dict.fromkeys(_RECORD_FIELDS)
    time_type = "LogAppendTime" if record.is_log_append_time else "CreateTime"
    values = (
        record.position,
        record.batch_base_offset,
        record.batch_last_offset,
        record.batch_bytes,
        record.offset,
        record.key_bytes,
        record.value_bytes,
        record.codec.label,
        None if record.timestamp_ms is None else time_type,
        record.is_transactional,
        record.is_control,
        record.is_checked,
    )
    return dict(zip(_RECORD_FIELDS, values, strict=True))


def _show(rows: Sequence[Row], output: OutputFormat) -> None:
    """Write the answers: one as a block, several as a table; people see notes below."""
    if not output.is_for_people:
        with open_output(output, LOOKUP.columns) as out:
            out.rows(rows)
        return
    disagreements = list(_disagreements(rows))
    rows = [_with_marks(row) for row in rows]
    if len(rows) == 1:
        block = [replace(each, is_detail=False) for each in LOOKUP.columns]
        with open_output(output, block, vertical=True) as out:
            out.row({name: rows[0][name] for name in rows[0] if _is_worth_a_line(rows[0], name)})
        for note in rows[0]["notes"]:
            write_line(note)
    else:
        with open_output(output, LOOKUP.columns) as out:
            # The directory is in other columns.
            out.rows({**row, "file": _name_of(row["file"])} for row in rows)
        for line in (*_note_lines(rows), *disagreements):
            write_line(line)


def _with_marks(row: Row) -> Row:
    """The row with a mark at the end of the log that may not be a broker's, for people."""
    is_end = row["bound"] == "log_end_offset" and row["offset"] == row["log_end_offset"]
    return with_marked_end(row, "log_end_offset", *(("offset",) if is_end else ()))


def _name_of(file: str | None) -> str | None:
    return None if file is None else file.rpartition("/")[2]


def _is_worth_a_line(row: Row, name: str) -> bool:
    value = row[name]
    if name == "record_offset":
        return value is not None and value != row["offset"]
    if name == "is_most_advanced":
        return False
    return name == "offset" or not (value is None or value is False or value == [])


def _disagreements(rows: Iterable[Row]) -> Iterator[str]:
    """Say for which partitions the replicas have different answers, and which one should lead."""
    by_partition: dict[str, list[Row]] = {}
    for row in rows:
        by_partition.setdefault(f"{row['topic']}-{row['partition']}", []).append(row)
    for name, replicas in by_partition.items():
        answers = {(row["offset"], row["timestamp_ms"], row["leader_epoch"]) for row in replicas}
        leader = next((row["log_dir"] for row in replicas if row["is_most_advanced"]), None)
        if len(answers) > 1:
            advice = "" if leader is None else f"; the most advanced one is in {leader}"
            yield f"{name}: the replicas have different answers{advice}"


def _note_lines(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        for note in row["notes"]:
            yield f"{row['topic']}-{row['partition']} in {row['log_dir']}: {note}"
