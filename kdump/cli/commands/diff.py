"""Compare the replicas of partitions."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

import click
from msgspec import Struct, field

from kdump.cli.options.config_options import ConfigArguments, config_options
from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.parameters import max_record_bytes_option, paths_argument
from kdump.cli.options.selection_options import nothing_selected, selection_options
from kdump.cli.output.rendering import Output, OutputFormat, Row, open_output, output_option
from kdump.cli.output.selection_words import selection_words
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.phases import phase
from kdump.storage.location import Location
from kdump.storage.place_names import kdump_command
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.diff_output import DiffReport
    from kdump.cli.output.sections import SectionedOutput
    from kdump.formats.names import TopicPartition
    from kdump.jobs.diff.diff import DiffSplit
    from kdump.jobs.diff.missing_replicas import MissingReplica
    from kdump.jobs.diff.pairing import Paired
    from kdump.jobs.diff.record_rows import RecordRows
    from kdump.jobs.diff.results import Compared, NotCompared
    from kdump.jobs.diff.sides import NamedDirectory, Side
    from kdump.log.directory import LogDirectory
    from kdump.log.lock_holders import ReadAs
    from kdump.log.selection import PartitionSelection
    from kdump.state.metadata.cluster import ClusterImage
    from kdump.state.metadata.settings import DirectorySettings


@click.command("diff")
@paths_argument("DIR")
@selection_options
@click.option("--records", is_flag=True, help="List the records that only one replica has.")
@click.option(
    "--elect",
    "elect_name",
    type=click.Path(),
    metavar="FILE",
    help="Say which replica should lead each partition without a leader, and write a file for "
    "kafka-leader-election.sh for each broker: FILE with the broker's id before its ending.",
)
@max_record_bytes_option
@config_options
@engine_options
@output_option
def command(
    paths: Sequence[Location],
    selection: PartitionSelection,
    records: bool,
    elect_name: str | None,
    largest_record_bytes: int,
    config: ConfigArguments,
    engine: EngineOptions,
    output: OutputFormat,
) -> ExitStatus:
    """Compare the replicas of partitions, by leader epochs and by records.

    DIR is a log directory or a partition. The log directories of one broker are one side; every
    pair of sides is compared.
    """
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.diff_output import DiffReport
    from kdump.cli.shared.directories import without_garbage_collection
    from kdump.jobs.diff.diff import diff
    from kdump.jobs.diff.missing_replicas import missing_replicas
    from kdump.jobs.diff.pairing import diff_split, pair
    from kdump.jobs.diff.sides import side_names, sides_of
    from kdump.log.lock_holders import ReadAs

    diagnostics = Diagnostics()
    with without_garbage_collection():
        named = _named_directories(paths, diagnostics)
        _require_one_cluster(named)
        sides = sides_of(named)
        if len(sides) < (1 if elect_name else 2):
            if diagnostics.status:
                return diagnostics.status
            raise UsageProblem(
                "diff requires replicas of two brokers, or two copies: name the directories of both"
            )
        paired = pair(sides, selection)
        if not paired and not selection.is_everything:
            raise nothing_selected(selection, paths)
        log_directories = [each.log_directory for each in named if each.log_directory is not None]
        settings = config.settings_of({each.path: each for each in log_directories}.values())
        electing = None if elect_name is None else _Electing.of(elect_name, settings, selection)
        readings = _note_living(log_directories, electing)
        splits = [
            diff_split(
                each, settings, largest_record_bytes, readings.get(each.key, ReadAs.AS_FOUND)
            )
            for each in paired
            if len(each.replicas) > 1
        ]
        alone = [] if electing is None else electing.alone(paired, settings, largest_record_bytes)
        every = diff([*splits, *alone], engine)
        results = every[: len(splits)]
        absent = list(missing_replicas(paired, sides, settings))
    report = DiffReport(side_names(sides), [side.node_id for side in sides])
    for result in every:
        _report_damage(result, diagnostics)
    rows = _rows(paired, results, absent, report)
    words = shlex.join(["diff", "--records", *selection_words(selection)])
    listed = _RecordList(report, records, kdump_command(words, [each.typed for each in paths]))
    listed.splits += [
        split for split, result in zip(splits, results, strict=True) if result.has_only_on_one
    ]
    if output.is_for_people:
        _write_for_people(output, rows, listed, report)
        if electing is not None:
            electing.elect(every, sides, sys.stdout)
    else:
        elected = None if electing is None else electing.elect(every, sides, sys.stderr)
        _write_for_programs(output, rows, listed, report, elected)
    for failure in listed.failures:
        _report_damage(failure, diagnostics)
    return diagnostics.status | (ExitStatus.DIFFERENT if report.is_different else ExitStatus.SOUND)


class _Electing(Struct, frozen=True):
    """The partitions without a leader, for ``--elect``.

    Attributes:
        name: the file, as typed.
        image: the cluster's metadata.
    """

    name: str
    image: ClusterImage
    keys: Sequence[TopicPartition]

    @classmethod
    def of(cls, name: str, settings: DirectorySettings, selection: PartitionSelection) -> _Electing:
        """Find the partitions.

        Raises:
            UsageProblem: no directory has the cluster's metadata.
        """
        from kdump.jobs.diff.elections import leaderless

        image = next((each.cluster for each in settings.values() if each.cluster), None)
        if image is None:
            raise UsageProblem(
                "--elect requires the cluster's metadata, which knows the partitions without a"
                " leader: give --metadata DIR of a controller"
            )
        return cls(name, image, leaderless(image, selection))

    def alone(
        self, paired: Iterable[Paired], settings: DirectorySettings, largest_record_bytes: int
    ) -> list[DiffSplit]:
        """What reads the partitions that have a single replica here."""
        from kdump.jobs.diff.pairing import diff_split
        from kdump.log.lock_holders import ReadAs

        keys = set(self.keys)
        lone = [each for each in paired if len(each.replicas) == 1]
        return [
            diff_split(each, settings, largest_record_bytes, ReadAs.STOPPED)
            for each in lone
            if each.key in keys
        ]

    def elect(self, results: Iterable[Compared], sides: Sequence[Side], out: TextIO) -> list[Row]:
        """Write the files, and say what each choice loses; return the same as rows."""
        from kdump.cli.output.elect_output import election_lines, election_rows, write_elections
        from kdump.cli.output.events import write_line
        from kdump.jobs.diff.elections import elections

        found = elections(self.image, self.keys, results, sides)
        files = write_elections(self.name, found)
        for line in election_lines(found, files):
            write_line(line, out)
        return list(election_rows(found, files))


class _RecordList(Struct):
    """The records that only one replica has: the partitions that differ are read again.

    Attributes:
        report: makes the rows.
        is_wanted: whether they were asked for.
        command: the command that asks for them.
        splits: the partitions that have any.
        failures: why some were not read to their ends.
    """

    report: DiffReport
    is_wanted: bool
    command: str
    splits: list[DiffSplit] = field(default_factory=list)
    failures: list[NotCompared] = field(default_factory=list)

    def write(self, output: Output | SectionedOutput) -> None:
        """Write the rows of all partitions, as they are read."""
        from kdump.jobs.diff.diff import compare_replicas
        from kdump.jobs.diff.results import NotCompared

        with phase("listing records", len(self.splits)) as listing:
            for split in listing.over(self.splits):

                def show(
                    holder: int, other: int, found: RecordRows, split: DiffSplit = split
                ) -> None:
                    output.rows(self.report.record_rows(split, holder, other, found))

                found = compare_replicas(split, show)
                if isinstance(found, NotCompared):
                    self.failures.append(found)


def _note_living(
    log_directories: Iterable[LogDirectory], electing: _Electing | None
) -> dict[TopicPartition | None, ReadAs]:
    """Note what is compared beside its broker, and return which partitions are not.

    Nobody writes to a partition that has no leader.
    """
    from kdump.log.lock_holders import ReadAs, is_living

    if electing is not None:
        return dict.fromkeys(electing.keys, ReadAs.STOPPED)
    for each in log_directories:
        is_living(each.path, ReadAs.AS_FOUND)
    return {}


def _rows(
    paired: Sequence[Paired],
    results: Sequence[Compared],
    absent: Iterable[MissingReplica],
    report: DiffReport,
) -> Iterator[Row]:
    """Yield the rows of all partitions."""
    following = iter(results)
    missing: dict[TopicPartition | None, list[MissingReplica]] = {}
    for one in absent:
        missing.setdefault(one.paired.key, []).append(one)
    for each in paired:
        if len(each.replicas) > 1:
            yield from report.rows(next(following))
        for one in missing.get(each.key, ()):
            yield report.missing_row(each.key, min(each.replicas), one.side, one.is_assigned)


def _write_for_programs(
    output: OutputFormat,
    rows: Iterable[Row],
    listed: _RecordList,
    report: DiffReport,
    elected: Sequence[Row] | None,
) -> None:
    from kdump.cli.output.sections import open_sections
    from kdump.jobs.diff.compared_rows import COMPARED_PARTITION, DIFFERING_RECORD, ELECTION

    sections = [COMPARED_PARTITION]
    if listed.is_wanted and listed.splits:
        sections.append(DIFFERING_RECORD)
    if elected is not None:
        sections.append(ELECTION)
    with open_sections(output, sections) as out:
        out.rows(rows)
        out.rows(elected or ())
        if listed.is_wanted:
            listed.write(out)
        out.summary(report.summary(), report.lines())


def _write_for_people(
    output: OutputFormat, rows: Iterable[Row], listed: _RecordList, report: DiffReport
) -> None:
    """Write what differs; records are not held."""
    from kdump.cli.output.diff_output import (
        WITHOUT_NUMBERS,
        columns_for_people,
        deserves_attention,
    )
    from kdump.cli.output.events import write_line
    from kdump.jobs.diff.compared_rows import DIFFERING_RECORD

    shown = [
        {name: value for name, value in row.items() if value is not None}
        if row["verdict"] in WITHOUT_NUMBERS
        else row
        for row in rows
        if deserves_attention(row)
    ]
    if shown:
        with open_output(output, columns_for_people(report.side_names, shown)) as out:
            out.rows(shown)
        write_line("")
    if listed.is_wanted and listed.splits:
        with open_output(output, DIFFERING_RECORD.columns) as out:
            listed.write(out)
        write_line("")
    for line in report.lines():
        write_line(line)
    if listed.splits and not listed.is_wanted:
        write_line(f"list the records that differ: {listed.command}")


def _named_directories(paths: Sequence[Location], diagnostics: Diagnostics) -> list[NamedDirectory]:
    """Read the directories that were named, each once."""
    from kdump.jobs.diff.sides import NamedDirectory
    from kdump.jobs.listing.partition_facts import read_with_surroundings
    from kdump.log.directory import directory_kind, read_log_directory

    found: list[NamedDirectory] = []
    seen: list[Location] = []
    around: dict[Location, LogDirectory | None] = {}
    for path in paths:
        try:
            with phase(f"listing {path}"):
                kind = directory_kind(path)
                if any(path.is_same(other) for other in seen):
                    continue
                seen.append(path)
                if kind.is_log_directory:
                    directory = read_log_directory(path, kind)
                    diagnostics.report_directory(directory)
                    found.append(NamedDirectory(str(path), directory.partitions, directory))
                elif kind.is_partition:
                    lone = read_with_surroundings(path, around)
                    found.append(
                        NamedDirectory(
                            str(path), (lone.partition,), lone.log_directory, is_partition=True
                        )
                    )
                else:
                    diagnostics.refuse(path)
        except OSError as failure:
            diagnostics.report(path, failure)
    return found


def _require_one_cluster(named: Sequence[NamedDirectory]) -> None:
    """Refuse log directories of several clusters; partitions that were named are compared.

    Raises:
        UsageProblem: they are of several.
    """
    from kdump.log.broker import require_one_cluster

    if not all(each.is_partition for each in named):
        around = [each.log_directory for each in named if each.log_directory is not None]
        require_one_cluster((each.path, each.cluster_id) for each in around)


def _report_damage(result: Compared, diagnostics: Diagnostics) -> None:
    """Report what could not be compared, and damage."""
    from kdump.cli.output.diff_output import dropped_at_start, notes
    from kdump.cli.output.events import write_notice
    from kdump.jobs.diff.results import GoneMeanwhile, NotCompared

    if isinstance(result, GoneMeanwhile):
        return
    if isinstance(result, NotCompared):
        diagnostics.report_failure(KdumpError(f"{result.path}: {result.what}"))
        return
    for replica in result.replicas:
        for damage in replica.damages:
            diagnostics.report_damage(damage)
        if (more := replica.damage_count - len(replica.damages)) > 0:
            diagnostics.report(replica.path, f"{counted(more, 'more damaged range')}")
        if (dropped := dropped_at_start(replica)) is not None:
            diagnostics.report(replica.path, dropped)
        if replica.refusal is not None:
            diagnostics.report(replica.path, f"no broker loads it: {replica.refusal}")
    for note in notes(result):
        write_notice(note)
