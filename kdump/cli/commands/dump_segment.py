"""Print any file of a log directory."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec.structs import replace

from kdump.cli.options.parameters import (
    NumberParameter,
    edge_options,
    keep_snapshots,
    max_record_bytes_option,
)
from kdump.cli.options.payload_options import PayloadArguments, payload_options
from kdump.cli.options.remote_option import remote_option, with_remote
from kdump.cli.output.rendering import (
    SAMPLE_ROWS,
    Output,
    OutputFormat,
    open_output,
    output_option,
)
from kdump.cli.output.value_text import escape_controls
from kdump.errors import ExitStatus, UsageProblem, reason_of
from kdump.phases import each_during
from kdump.rows.row_type import SIZE, TEXT, TIME, Field
from kdump.storage.entries import EntryKind

if TYPE_CHECKING:
    from kdump.dump.contents import Contents
    from kdump.dump.dumped_file import DumpedFile
    from kdump.dump.files import DumpKind, DumpOptions
    from kdump.dump.report import DumpReport
    from kdump.dump.workers import Worker
    from kdump.log.remote_files import RemotePlace
    from kdump.payloads.record_payloads import RecordPayloads

_STRING_DECODER: Final = "org.apache.kafka.tools.api.StringDecoder"
_TOPIC_DECODERS: Final = {
    "offsets_decoder": "offsets",
    "transaction_log_decoder": "transaction-log",
    "cluster_metadata_decoder": "cluster-metadata",
    "remote_log_metadata_decoder": "remote-log-metadata",
    "share_group_state_decoder": "share-group-state",
}
"""Options that name an internal topic; the first one given wins."""

_MAX_INT: Final = 2**31 - 1


def _complete_decoder(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[str]:
    from kdump.dump.contents import DECODERS

    return [name for name in DECODERS if name.startswith(typed)]


@click.command("dump-segment")
@click.argument("arguments", metavar="FILE...", nargs=-1, type=click.Path())
@click.option(
    "--files",
    type=click.Path(),
    metavar="FILE[,FILE...]",
    help="Files to print, separated by commas.",
)
@click.option("--print-data-log", is_flag=True, help="Print records with their keys and values.")
@click.option("--deep-iteration", is_flag=True, help="Print records as well as batches.")
@click.option(
    "--skip-record-metadata",
    is_flag=True,
    help="Print only keys and values, and skip control records.",
)
@click.option(
    "--max-bytes",
    type=NumberParameter(most=_MAX_INT),
    default=_MAX_INT,
    metavar="BYTES",
    help="Read at most BYTES of each segment (default: all).",
)
@max_record_bytes_option
@click.option(
    "--max-message-size",
    type=NumberParameter(most=_MAX_INT),
    default=5 * 1024 * 1024,
    show_default=True,
    metavar="BYTES",
    help="Largest batch to expect at the position of an index entry.",
)
@click.option(
    "--verify-index-only", is_flag=True, help="Check indexes without printing their entries."
)
@click.option(
    "--index-sanity-check",
    is_flag=True,
    help="Run only the index checks of a starting broker.",
)
@click.option("--offsets-decoder", is_flag=True, help="Decode records of __consumer_offsets.")
@click.option(
    "--transaction-log-decoder",
    is_flag=True,
    help="Decode records of __transaction_state.",
)
@click.option(
    "--cluster-metadata-decoder",
    is_flag=True,
    help="Decode records of __cluster_metadata.",
)
@click.option(
    "--remote-log-metadata-decoder",
    is_flag=True,
    help="Decode records of __remote_log_metadata.",
)
@click.option(
    "--share-group-state-decoder",
    is_flag=True,
    help="Decode records of __share_group_state.",
)
@click.option(
    "--key-decoder-class",
    metavar="DECODER",
    shell_complete=_complete_decoder,
    is_flag=False,
    flag_value=_STRING_DECODER,
    help="Decode keys with one of Kafka's decoder classes, or with a Python function: "
    "MODULE:FUNCTION or FILE.py:FUNCTION.",
)
@click.option(
    "--value-decoder-class",
    metavar="DECODER",
    shell_complete=_complete_decoder,
    is_flag=False,
    flag_value=_STRING_DECODER,
    help="Decode values, with the same choice of decoders.",
)
@payload_options
@output_option
@edge_options("Print")
@click.option(
    "--limit",
    type=NumberParameter(least=1),
    metavar="COUNT",
    help="Stop after COUNT records in total (or batches, if no records are printed).",
)
@click.option("--key", metavar="KEY", help="Print only records with this key.")
@click.option(
    "--follow-bad",
    is_flag=True,
    help="After a damaged batch, continue with the next valid one.",
)
@remote_option
def command(
    arguments: tuple[str, ...],
    files: str | None,
    remote: RemotePlace | None,
    output: OutputFormat,
    payloads: PayloadArguments,
    **options: Any,
) -> ExitStatus:
    """Print files of a log directory, as kafka-dump-log does.

    Exit status: 4 if a file is damaged, 8 if one cannot be read.
    """
    from kdump.dump.dumped_file import DumpedFile
    from kdump.dump.report import DumpReport
    from kdump.log.lock_holders import note_holder_around

    names = [*(files.split(",") if files else []), *arguments]
    if not names:
        raise UsageProblem("no files given: name them, or use --files FILE[,FILE...]")
    dumped = [DumpedFile.named(name) for name in names]
    keep_snapshots(file.path for file in dumped)
    if remote is not None:
        found = with_remote([file.path for file in dumped], remote)
        dumped = [
            replace(file, storage=path.storage, stored_path=path.path)
            for file, path in zip(dumped, found, strict=True)
        ]
    for path in {file.path.parent: file.path for file in dumped}.values():
        note_holder_around(path)
    is_text = output is OutputFormat.TEXT
    decoded, status = _payloads(payloads, options, dumped)
    contents = _contents(options, decoded)
    dump_options = _dump_options(options, contents, is_text=is_text)
    report = DumpReport(_say)
    if is_text:
        status |= _print_text(dumped, dump_options, report)
    else:
        status |= _print_rows(dumped, dump_options, report, output)
    report.finish()
    if report.is_incomplete:
        status |= ExitStatus.OPERATIONAL_ERROR
    return status | (ExitStatus.DAMAGE_LEFT if report.damaged else ExitStatus.SOUND)


def _payloads(
    payloads: PayloadArguments,
    options: dict[str, Any],
    files: Sequence[DumpedFile],
) -> tuple[RecordPayloads | None, ExitStatus]:
    """Return what decodes keys and values by ``--key-format`` and ``--value-format``, if given.

    And the status of reading their schemas.
    """
    if not payloads.formats:
        return None, ExitStatus.SOUND
    from kdump.cli.output.diagnostics import Diagnostics

    given = "--key-format" if payloads.key else "--value-format"
    for option in (*_TOPIC_DECODERS, "key_decoder_class", "value_decoder_class"):
        if options[option]:
            raise UsageProblem(f"{given} and --{option.replace('_', '-')} are mutually exclusive")
    diagnostics = Diagnostics()
    decoded = payloads.read((each.path for each in files), diagnostics)
    return decoded, diagnostics.status


def _dump_options(
    options: dict[str, Any], contents: Contents | None, *, is_text: bool
) -> DumpOptions:
    from kdump.dump.files import DumpOptions
    from kdump.dump.index_options import IndexDumpOptions
    from kdump.dump.segment import SegmentOptions
    from kdump.dump.text_options import TextOptions
    from kdump.scan.selection import Selection

    key = options["key"]
    if contents is not None and is_text and sys.stdout.isatty():
        from kdump.dump.contents import EscapedContents

        contents = EscapedContents(contents, escape_controls)
    return DumpOptions(
        segment=SegmentOptions(
            deep=not is_text
            or options["deep_iteration"]
            or contents is not None
            or key is not None,
            max_bytes=None if options["max_bytes"] == _MAX_INT else options["max_bytes"],
            selection=Selection(
                from_offset=options["from_offset"],
                to_offset=options["to_offset"],
                from_time_ms=options["from_time_ms"],
                to_time_ms=options["to_time_ms"],
                key=None if key is None else key.encode("utf-8", "surrogateescape"),
                limit=options["limit"],
            ),
            follow_bad=options["follow_bad"],
            text=TextOptions(
                contents,
                options["skip_record_metadata"],
                options["largest_record_bytes"],
            ),
        ),
        index=IndexDumpOptions(
            verify_index_only=options["verify_index_only"],
            index_sanity_check=options["index_sanity_check"],
            max_message_size_bytes=options["max_message_size"],
        ),
    )


def _contents(options: dict[str, Any], payloads: RecordPayloads | None) -> Contents | None:
    """Return how to show keys and values; None if they are not shown."""
    if payloads is not None:
        return payloads
    names = [name for option, name in _TOPIC_DECODERS.items() if options[option]]
    key_decoder, value_decoder = options["key_decoder_class"], options["value_decoder_class"]
    is_selected = names or key_decoder or value_decoder or options["print_data_log"]
    if not is_selected:
        return None
    from kdump.dump import contents

    if names:
        return contents.topic_contents(names[0])
    return contents.find_contents(key_decoder or _STRING_DECODER, value_decoder or _STRING_DECODER)


def _print_text(
    files: Sequence[DumpedFile], options: DumpOptions, report: DumpReport
) -> ExitStatus:
    from kdump.dump.files import dump_text

    out = sys.stdout.buffer
    is_terminal = sys.stdout.isatty()
    status = ExitStatus.SOUND
    with _workers(files, options) as workers:
        for file in files:
            if report.left_of(options.segment.selection.limit) == 0:
                break
            out.write(f"Dumping {file.name}\n".encode("utf-8", "surrogateescape"))
            kind = _kind(file)
            if kind is None:
                status |= ExitStatus.OPERATIONAL_ERROR
                continue
            try:
                texts = dump_text(file, kind, options, report, workers)
                for text in each_during(f"reading {file.name}", texts):
                    out.write(_for_terminal(text) if is_terminal else text)
            except BrokenPipeError:
                raise
            except OSError as failure:
                status |= _unreadable(file, failure)
        out.flush()
    return status


def _workers(
    files: Sequence[DumpedFile], options: DumpOptions
) -> contextlib.AbstractContextManager[Sequence[Worker]]:
    """Start worker processes if many records are to be printed."""
    segment = options.segment
    if not segment.deep or not segment.is_whole or segment.is_compiled:
        return contextlib.nullcontext(())
    from kdump.dump.workers import start_workers

    statuses = (file.path.status() for file in files if _entry_kind(file) is not None)
    return start_workers(segment.text, sum(each.size_bytes for each in statuses))


def _for_terminal(text: bytes | memoryview) -> bytes:
    lines = str(text, "utf-8", "surrogateescape").split("\n")
    return "\n".join(map(escape_controls, lines)).encode("utf-8", "surrogateescape")


def _print_rows(
    files: list[DumpedFile], options: DumpOptions, report: DumpReport, output: OutputFormat
) -> ExitStatus:
    """Print the rows of all files as one output, or one table for each file."""
    from kdump.dump.fields import fields_of

    kinds = [_kind(file) for file in files]
    status = ExitStatus.OPERATIONAL_ERROR if None in kinds else ExitStatus.SOUND
    known = [(file, kind) for file, kind in zip(files, kinds, strict=True) if kind is not None]
    if output is OutputFormat.TABLE:
        for file, kind in known:
            if report.left_of(options.segment.selection.limit) == 0:
                break
            if len(files) > 1:
                click.echo(escape_controls(file.name))
            status |= _print_table(file, kind, options, report)
        return status
    columns = [_column(name) for name in fields_of(kind for _, kind in known)]
    with open_output(output, columns) as rows:
        for file, kind in known:
            if report.left_of(options.segment.selection.limit) == 0:
                break
            status |= _hand_over(file, _rows(file, kind, options, report), rows)
    return status


def _print_table(
    file: DumpedFile, kind: DumpKind, options: DumpOptions, report: DumpReport
) -> ExitStatus:
    from kdump.dump.fields import OF_BATCHES, table_fields, table_row

    rows = map(table_row, _rows(file, kind, options, report))
    try:
        first_rows = list(itertools.islice(rows, SAMPLE_ROWS))
    except OSError as failure:
        return _unreadable(file, failure)
    columns = [
        replace(_column(name), dropped=_DROPPED.get(name) if kind in OF_BATCHES else None)
        for name in table_fields(kind, first_rows)
    ]
    with open_output(OutputFormat.TABLE, columns) as table:
        return _hand_over(file, itertools.chain(first_rows, rows), table)


def _rows(
    file: DumpedFile, kind: DumpKind, options: DumpOptions, report: DumpReport
) -> Iterator[dict[str, Any]]:
    from kdump.dump.files import DumpKind, dump_rows

    rows = dump_rows(file, kind, options, report)
    if kind is not DumpKind.SEGMENT:  # a segment reports its own progress, less often
        rows = each_during(f"reading {file.name}", rows)
    return ({"type": row["type"], "path": file.name, **row} for row in rows)


def _hand_over(file: DumpedFile, rows: Iterable[dict[str, Any]], output: Output) -> ExitStatus:
    try:
        output.rows(rows)
    except BrokenPipeError:
        raise
    except OSError as failure:
        return _unreadable(file, failure)
    return ExitStatus.SOUND


_DROPPED: Final = {"size_bytes": 1, "timestamp_ms": 2, "position": 3, "remarks": 4}
"""Columns of batches and records that a narrow terminal hides, in this order."""


def _column(name: str) -> Field:
    title = name.removesuffix("_ms").removesuffix("_bytes").replace("_", " ").capitalize()
    if name.endswith("timestamp_ms"):
        return Field(name, TIME.or_null_as(""), "", title)
    if name.endswith("_bytes"):
        return Field(name, SIZE.or_null_as(""), "", title)
    return Field(name, TEXT.or_null_as(""), "", title)


def _kind(file: DumpedFile) -> DumpKind | None:
    from kdump.dump.files import DumpKind

    kind_of_entry = _entry_kind(file)
    if kind_of_entry is EntryKind.DIRECTORY:
        _say(f"kdump: {file.name} is a directory: name files in it, or use kdump ls")
        return None
    if kind_of_entry not in (None, EntryKind.FILE):
        # Opening a pipe would block until somebody writes to it.
        _say(f"kdump: {file.name} is not a regular file")
        return None
    kind = DumpKind.of(file.path.name)
    if kind is None:
        _say(f"Ignoring unknown file {file.name}")
    return kind


def _entry_kind(file: DumpedFile) -> EntryKind | None:
    return file.path.kind()


def _unreadable(file: DumpedFile, failure: OSError) -> ExitStatus:
    _say(f"kdump: {file.name}: {reason_of(failure)}")
    return ExitStatus.OPERATIONAL_ERROR


def _say(line: str) -> None:
    # Flushed first, so that a remark follows the output that it is about.
    sys.stdout.flush()
    click.echo(escape_controls(line) if sys.stderr.isatty() else line, err=True)
