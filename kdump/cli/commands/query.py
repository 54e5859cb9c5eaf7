"""Query log directories with SQL."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import click
from msgspec import Struct

from kdump.cli.options.conflicts import require_with
from kdump.cli.options.engine_options import SparkArguments, spark_options
from kdump.cli.options.out_option import out_option
from kdump.cli.options.parameters import NumberParameter, all_replicas_option, parsed_paths
from kdump.cli.options.payload_options import PayloadArguments, payload_options
from kdump.cli.options.remote_option import remote_option
from kdump.cli.output.out_file import OutFile
from kdump.cli.output.query_output import FOR_PEOPLE, QueryFormat, ResultPrinter, RowLimit
from kdump.cli.output.rendering import format_option
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.log.special_times import IsolationLevel
from kdump.phases import phase
from kdump.storage.place_names import is_store_uri
from kdump.storage.places import parse_location, parse_locations, repository_of, text_of

if TYPE_CHECKING:
    from kdump.log.remote_files import RemotePlace

_ROWS_ON_TERMINAL: Final = 1000


@click.command("query")
@click.argument("arguments", metavar="[STATEMENT] DIR...", nargs=-1, required=True)
@click.option(
    "--file",
    "-f",
    "script",
    type=click.File("r", encoding="utf-8"),
    metavar="FILE",
    help="Run the statements in FILE (- is standard input), separated by semicolons.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(IsolationLevel, case_sensitive=False),
    default=IsolationLevel.READ_UNCOMMITTED,
    help="Query all records (read_uncommitted, default) or, as read_committed consumers do, not "
    "those of aborted and open transactions.",
)
@all_replicas_option("Read")
@payload_options
@remote_option
@click.option(
    "--limit",
    type=NumberParameter(),
    metavar="ROWS",
    help="Print at most ROWS rows of a result; 0 is all (default: "
    f"{_ROWS_ON_TERMINAL} on a terminal, else all).",
)
@format_option(
    QueryFormat,
    "output",
    "Output format: text (default) or table for people; json, jsonl, ndjson (only the "
    "rows) or csv for programs, with binary values as base64; parquet into the file of --out.",
)
@out_option("Write the rows, with --output parquet,", required=False)
@click.option("--no-history", is_flag=True, help="Keep no history of what is typed at the prompt.")
@spark_options
def command(
    arguments: Sequence[str],
    output: QueryFormat,
    out: OutFile | None,
    limit: int | None,
    no_history: bool,
    payloads: PayloadArguments,
    remote: RemotePlace | None,
    spark: SparkArguments,
    **options: Any,
) -> ExitStatus:
    """Query log directories with Spark SQL: STATEMENT, or what is typed at a prompt.

    DIR is a log directory; several are queried together. The first argument is a STATEMENT if it
    begins with SELECT, WITH, VALUES, FROM, TABLE, SHOW, DESCRIBE, EXPLAIN, CREATE TEMPORARY VIEW,
    DROP VIEW or SET. It may be several, separated by semicolons.
    """
    from kdump.pipeline.sql.sql_spark import SqlSpark

    asked = _Asked.of(arguments, options["script"], remote)
    _require_output(output, out, asked.statements)
    shown = _row_limit(limit, output)
    with SqlSpark.begin(spark.master, dict(spark.spark_conf)).ended_by_failures() as started:
        # What is imported from here on takes time that Spark needs anyway.
        from kdump.cli.output.diagnostics import Diagnostics
        from kdump.pipeline.sql.sql_session import SqlSession

        diagnostics = Diagnostics()
        decoded = payloads.read(map(parse_location, asked.paths), diagnostics)
        source = {
            "paths": json.dumps(asked.paths),
            "kafka.isolation.level": options["isolation_level"].value,
            "replicas": "all" if options["all_replicas"] else "one",
            **_remote_options(remote),
        }
        with SqlSession(source, payloads=decoded, spark=started) as session:
            if asked.statements is None:
                from kdump.cli.shared.query_prompt import run_prompt

                ended = run_prompt(session, output, shown, keeps_history=not no_history)
                return ended | diagnostics.status
            status = diagnostics.status
            printer = ResultPrinter(output, shown, out)
            for number, text in enumerate(asked.statements, start=1):
                with asked.named(text):
                    result = session.query(text, shown.rows_to_read)
                    status |= printer.print(result, number)
    if status & ExitStatus.DAMAGE_LEFT:
        _say_where_else(status, source)
    return status


def _say_where_else(status: ExitStatus, source: Mapping[str, str]) -> None:
    """Point to the replicas that were not read, if there are any."""
    from kdump.cli.shared.record_targets import say_where_else
    from kdump.tables.kafka_log.found_partitions import leaves_out_replicas
    from kdump.tables.kafka_log.options import parse_options

    with phase("looking for other replicas"):
        has_others = leaves_out_replicas(parse_options(source))
    say_where_else(status, "read", has_others=has_others)


def _remote_options(remote: RemotePlace | None) -> dict[str, str]:
    """The options of the data source for remote segments."""
    if remote is None:
        return {}
    found = {"remote": text_of(remote.location)}
    if remote.private_key is not None:
        found["privateKey"] = text_of(remote.private_key)
    return found


def _require_output(
    output: QueryFormat, out: OutFile | None, statements: Sequence[str] | None
) -> None:
    """Refuse formats that do not fit the other arguments.

    Raises:
        UsageProblem: they do not, or there is no terminal for a prompt.
    """
    if output is not QueryFormat.PARQUET:
        require_with("--output parquet", {"--out": out is not None})
    elif out is None:
        raise UsageProblem("--output parquet requires --out FILE")
    if output not in FOR_PEOPLE and statements is None:
        raise UsageProblem(f"--output {output.value} requires a statement")
    if output is QueryFormat.PARQUET:
        from kdump.pipeline.sql.sql_statements import has_result

        with_rows = sum(map(has_result, statements or ()))
        if with_rows != 1:
            raise UsageProblem(f"--output parquet takes one statement with rows, not {with_rows}")
    if statements is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageProblem(
            "a prompt needs a terminal: give a statement before DIR, or --file - to read it from"
            " standard input"
        )


def _row_limit(limit: int | None, output: QueryFormat) -> RowLimit:
    if limit is not None:
        return RowLimit(limit or None)
    is_on_terminal = output is not QueryFormat.PARQUET and sys.stdout.isatty()
    return RowLimit(_ROWS_ON_TERMINAL if is_on_terminal else None)


class _Asked(Struct, frozen=True):
    """The arguments of the command.

    Attributes:
        paths: of the directories, absolute.
        statements: to run; None for a prompt.
        script: name of the file with the statements, if they are in one.
    """

    paths: Sequence[str]
    statements: tuple[str, ...] | None
    script: str | None

    @classmethod
    def of(cls, arguments: Sequence[str], script: Any, remote: RemotePlace | None) -> Self:
        from kdump.pipeline.sql.sql_statements import is_statement, require_statement, statements

        text = None
        names = list(arguments)
        if script is not None:
            with phase("reading the statements"):
                text = script.read()
        elif is_statement(names[0]):
            text = names.pop(0)
            if not names:
                raise UsageProblem("missing DIR after the statement")
        found = None
        if text is not None:
            found = tuple(each.in_its_place for each in statements(text))
            if not found:
                raise UsageProblem("the file has no statement")
        for name in names:
            _require_directory(name, remote, is_first=name is arguments[0])
        paths = [each for name in names for each in _for_workers(name)]
        asked = cls(paths, found, None if script is None else script.name)
        for each in found or ():
            with asked.named(each):
                require_statement(each)
        return asked

    @contextlib.contextmanager
    def named(self, statement: str) -> Iterator[None]:
        """Name the file of the statements, and the line, in what is wrong with one of them."""
        from kdump.pipeline.sql.sql_statements import StatementError, first_line

        try:
            yield
        except UsageProblem as failure:
            if self.script is None:
                raise
            what = str(failure)
            if not what.startswith("line "):
                what = f"line {first_line(statement)}: {what}"
            raise StatementError(f"{self.script}: {what}") from failure


def _for_workers(name: str) -> Iterator[str]:
    """Paths as other processes can use them; the credentials in a URI stay in it."""
    for location in parsed_paths([name]):
        if repository_of(location) is not None:
            yield text_of(location)
        else:
            yield name if is_store_uri(name) else str(location.as_absolute())


def _require_directory(name: str, remote: RemotePlace | None, *, is_first: bool) -> None:
    """Refuse what is no directory of Kafka.

    Raises:
        UsageProblem: it is a statement, perhaps one that does not run.
        KdumpError: it does not exist, or is not Kafka's.
        OSError: it cannot be listed.
    """
    from kdump.log.directory import (
        directory_kind,
        log_directories_below,
        what_is_there_instead,
    )
    from kdump.pipeline.sql.sql_statements import (
        FIRST_WORDS,
        is_other_statement,
        is_statement,
        require_statement,
    )
    from kdump.tiered.tiered_storage import is_remote_directory

    path = parse_locations([name])[0]
    if remote is not None and is_remote_directory(path, remote):
        return
    with phase(f"looking at {path}"):
        if path.kind() is not None:
            kind = directory_kind(path)
            if not (kind.is_log_directory or kind.is_partition or log_directories_below(path)):
                what = f"not a Kafka log directory or partition{what_is_there_instead(path)}"
                raise KdumpError(f"{path}: {what}")
            return
    if is_statement(name):
        raise UsageProblem(f"a statement comes before the directories: {name}")
    if is_other_statement(name):
        require_statement(name)
    hint = ""
    if is_first and any(map(str.isspace, name)):
        hint = f"; a statement begins with {', '.join(FIRST_WORDS[:-1])}"
    raise KdumpError(f"{path}: {os.strerror(errno.ENOENT)}{hint}")
