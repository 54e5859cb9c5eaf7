"""Find records by their keys, values and headers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct

from kdump.cli.options.conflicts import require_at_most_one
from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.parameters import (
    NotParsedError,
    NumberParameter,
    WordParameter,
    all_replicas_option,
    max_record_bytes_option,
    parsed_paths,
)
from kdump.cli.options.payload_options import PayloadArguments, payload_options
from kdump.cli.options.range_options import RangeArguments, range_options
from kdump.cli.options.remote_option import remote_option, with_remote
from kdump.cli.options.selection_options import nothing_selected, selection_options
from kdump.cli.output.grep_output import GrepForm, print_found
from kdump.cli.output.rendering import OutputFormat, output_option
from kdump.cli.output.value_text import escape_controls
from kdump.dump.text_options import TextOptions
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus, UsageProblem
from kdump.phases import phase
from kdump.scan.selection import Selection
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.dump.contents import Contents
    from kdump.jobs.grep.grep import GrepRequest
    from kdump.log.remote_files import RemotePlace
    from kdump.log.selection import PartitionSelection
    from kdump.payloads.record_payloads import RecordPayloads
    from kdump.scan.record_patterns import Patterns, RecordPatterns
    from kdump.tables.kafka_log.found_partitions import FoundPartition


_PARTS: Final = ("key", "value", "headers")


class PartsParameter(WordParameter[tuple[str, ...]]):
    """Parts of a record, separated by commas."""

    name = "parts"

    def parse(self, text: str) -> tuple[str, ...]:
        words = tuple(text.split(","))
        for word in words:
            if word not in _PARTS:
                raise NotParsedError(f"{word!r} is none of {', '.join(_PARTS)}")
        return words


@click.command("grep")
@click.argument("arguments", metavar="[PATTERN] PATH...", nargs=-1, required=True)
@click.option(
    "--regexp",
    "-e",
    "patterns",
    metavar="PATTERN",
    multiple=True,
    help="Find PATTERN in the parts of --in; may be repeated: one of them has to match.",
)
@click.option("--fixed-strings", "-F", is_flag=True, help="Patterns are strings to find.")
@click.option("--ignore-case", "-i", is_flag=True, help="Ignore case in patterns and records.")
@click.option(
    "--in",
    "parts",
    type=PartsParameter(),
    metavar="PART[,PART...]",
    help="Find PATTERN in these parts of a record: key, value, headers (default: key,value).",
)
@click.option(
    "--key",
    "key_patterns",
    metavar="PATTERN",
    multiple=True,
    help="Find only records whose key matches PATTERN; may be repeated.",
)
@click.option(
    "--value",
    "value_patterns",
    metavar="PATTERN",
    multiple=True,
    help="Find only records whose value matches PATTERN; may be repeated.",
)
@click.option(
    "--header",
    "headers",
    metavar="NAME[=PATTERN]",
    multiple=True,
    help="Find only records with a header NAME, and with a value that matches PATTERN; may be "
    "repeated.",
)
@click.option("--invert-match", "-v", is_flag=True, help="Find the records that do not match.")
@click.option("--count", "-c", is_flag=True, help="Print only the number of records in each file.")
@click.option(
    "--files-with-matches",
    "-l",
    is_flag=True,
    help="Print only the names of files with a record.",
)
@click.option(
    "--max-count",
    "-m",
    type=NumberParameter(least=1),
    metavar="COUNT",
    help="Stop after COUNT records in total.",
)
@range_options("Search")
@all_replicas_option("Search")
@payload_options
@selection_options
@max_record_bytes_option
@remote_option
@output_option
@engine_options
def command(
    arguments: Sequence[str],
    selection: PartitionSelection,
    output: OutputFormat,
    payloads: PayloadArguments,
    records: RangeArguments,
    remote: RemotePlace | None,
    engine: EngineOptions,
    **options: Any,
) -> ExitStatus:
    """Find records whose key or value matches PATTERN, a regular expression of RE2.

    PATH is a log directory, the directory of one partition, or a segment's log. With -e, --key,
    --value or --header, all arguments are paths.

    Exit status: 0 if a record was found, 1 if none was; 4 if a file is damaged.
    """
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.shared.directories import without_garbage_collection
    from kdump.cli.shared.record_targets import say_where_else
    from kdump.jobs.grep.grep import grep

    require_at_most_one(
        {"--count": options["count"], "--files-with-matches": options["files_with_matches"]}
    )
    search = _Search.of(arguments, options)
    diagnostics = Diagnostics()
    with without_garbage_collection(), phase("listing what to search"):
        found = _find(search, with_remote(search.paths, remote), selection, diagnostics)
        targets = found if options["all_replicas"] else _one_of_each(found, diagnostics)
    if not targets:
        if diagnostics.status & ExitStatus.OPERATIONAL_ERROR:
            return diagnostics.status  # what cannot be read may have matched
        if not selection.is_everything:
            raise nothing_selected(selection, search.paths)
    form = GrepForm.RECORDS
    if options["count"]:
        form = GrepForm.COUNTS
    elif options["files_with_matches"]:
        form = GrepForm.FILES
    decoded = payloads.read(search.paths, diagnostics)
    request = _request(targets, search.patterns, output, form, decoded, records, options)
    with phase("searching"):
        status = print_found(grep(request, engine), output, form)
    say_where_else(status, "searched", has_others=len(targets) < len(found))
    return status | diagnostics.status


class _Search(Struct, frozen=True):
    """The arguments of the command: what to find, and where."""

    patterns: RecordPatterns
    paths: tuple[Location, ...]
    others_given: str | None
    """An option that makes all arguments paths."""

    @classmethod
    def of(cls, arguments: Sequence[str], options: dict[str, Any]) -> _Search:
        from kdump.scan.record_patterns import (
            HeaderPattern,
            PatternProblem,
            RecordPart,
            RecordPatterns,
        )

        given = {
            "-e": options["patterns"],
            "--key": options["key_patterns"],
            "--value": options["value_patterns"],
            "--header": options["headers"],
        }
        others_given = next((name for name, values in given.items() if values), None)
        texts, paths = options["patterns"], tuple(arguments)
        if others_given is None:
            texts, paths = paths[:1], paths[1:]
            if not paths:
                raise UsageProblem(
                    "PATTERN and PATH are needed: name a log directory, a partition or a log"
                )
        if options["parts"] and not texts:
            raise UsageProblem("--in has no effect without -e or PATTERN")

        def patterns(texts: Iterable[str]) -> Patterns | None:
            return _patterns(texts, options)

        headers = []
        for text in options["headers"]:
            name, separator, wanted = text.partition("=")
            headers.append(HeaderPattern(_encoded(name), patterns([wanted]) if separator else None))
        found = RecordPatterns(
            anywhere=patterns(texts),
            parts=frozenset(map(RecordPart, options["parts"] or ("key", "value"))),
            key=patterns(options["key_patterns"]),
            value=patterns(options["value_patterns"]),
            headers=tuple(headers),
            is_inverted=options["invert_match"],
        )
        try:
            found.check()
        except PatternProblem as problem:
            raise UsageProblem(str(problem)) from None
        return cls(found, tuple(parsed_paths(paths)), others_given)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _patterns(texts: Iterable[str], options: dict[str, Any]) -> Patterns | None:
    from kdump.scan.record_patterns import Patterns

    encoded = tuple(map(_encoded, texts))
    return Patterns(encoded, options["fixed_strings"], options["ignore_case"]) if encoded else None


def _find(
    search: _Search,
    paths: Sequence[Location],
    selection: PartitionSelection,
    diagnostics: Diagnostics,
) -> list[FoundPartition]:
    """The partitions to search, in the order of the paths."""
    from kdump.cli.shared.record_targets import TargetFinder

    given = search.others_given
    hint = f" ({given} makes every argument a path; give a pattern with -e)" if given else ""
    finder = TargetFinder(selection, diagnostics, "searched", missing_hint=hint)
    return [found for path in paths for found in finder.at(path)]


def _one_of_each(
    targets: Sequence[FoundPartition], diagnostics: Diagnostics
) -> list[FoundPartition]:
    """The partitions with one replica of each; segments and copies are all searched."""
    from kdump.cli.shared.record_targets import one_of_each

    replicas = (each for each in targets if each.is_replica)
    hint = "; --all-replicas searches them"
    return one_of_each(replicas, diagnostics, "searched", hint).without_others(targets)


def _request(
    targets: Sequence[FoundPartition],
    patterns: RecordPatterns,
    output: OutputFormat,
    form: GrepForm,
    payloads: RecordPayloads | None,
    records: RangeArguments,
    options: dict[str, Any],
) -> GrepRequest:
    from kdump.dump.contents import EscapedContents, Utf8Contents
    from kdump.jobs.grep.grep import GrepRequest
    from kdump.jobs.grep.search import GrepJob, Shown

    is_text = output is OutputFormat.TEXT
    contents: Contents = Utf8Contents() if payloads is None else payloads
    if is_text and sys.stdout.isatty():
        contents = EscapedContents(contents, escape_controls)
    shown = Shown.COUNTS
    if form is GrepForm.RECORDS:
        shown = Shown.LINES if is_text else Shown.ROWS
    once_a_file = form is GrepForm.FILES
    job = GrepJob(
        patterns,
        shown,
        Selection(from_time_ms=records.from_time_ms, to_time_ms=records.to_time_ms),
        is_committed=records.is_committed,
        most=1 if once_a_file else options["max_count"],
        text=TextOptions(contents, largest_record_bytes=options["largest_record_bytes"]),
        payloads=payloads,
    )
    return GrepRequest(targets, job, records.offsets, options["max_count"], once_a_file)
