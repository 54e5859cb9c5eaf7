"""Finding the partitions whose records a command reads."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct, field

from kdump.cli.output.diagnostics import Diagnostics
from kdump.cli.output.events import write_notice
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.formats.names import PartitionState
from kdump.jobs.listing.partition_facts import loaded_or_reported
from kdump.log.directory import DirectoryKind, directory_kind, read_log_directory
from kdump.log.partition import Partition
from kdump.log.replicas import ChosenReplicas
from kdump.log.selection import PartitionSelection
from kdump.phases import phase
from kdump.storage.entries import EntryKind
from kdump.storage.location import Location
from kdump.tables.kafka_log.found_partitions import (
    FoundPartition,
    choose_found,
    lone_partition,
    lone_segment,
)
from kdump.tiered.left_in_tier import left_in_tier
from kdump.words import counted

_NOT_KAFKA: Final = "not a segment's log or a directory"


class TargetFinder(Struct, frozen=True):
    """Finds partitions at paths, and reports what cannot be read.

    Attributes:
        done: what the command does with records, as in "searched".
        missing_hint: added if there is nothing at a path.
        has_segments: whether a path may be a segment's log.
        has_copies: whether the deleted, stray and moving partitions of a log directory count.
        left_out: those partitions, if they do not count.
        reported: the checkpoints that are reported already.
    """

    selection: PartitionSelection
    diagnostics: Diagnostics
    done: str
    missing_hint: str = ""
    has_segments: bool = True
    has_copies: bool = True
    left_out: list[Partition] = field(default_factory=list)
    reported: set[Location] = field(default_factory=set)

    def at(self, path: Location) -> Iterator[FoundPartition]:
        """The selected partitions at a path, which is a directory or a segment's log."""
        try:
            for found in self._found(path):
                self._report_offsets(found)
                yield found
        except UsageProblem:
            self.diagnostics.report(path, OSError(_NOT_KAFKA))
        except KdumpError as failure:
            self.diagnostics.report_failure(failure)
        except OSError as failure:
            self.diagnostics.report(path, failure)

    def _report_offsets(self, found: FoundPartition) -> None:
        """Report, each once, the checkpoints that should have its offsets."""
        for problem in found.offset_problems:
            if problem.path not in self.reported:
                self.reported.add(problem.path)
                self.diagnostics.report(problem.path, problem.error)

    def _found(self, path: Location) -> Iterator[FoundPartition]:
        entry_kind = path.kind()
        if entry_kind is None:
            raise OSError(os.strerror(errno.ENOENT) + self.missing_hint)
        if entry_kind is not EntryKind.DIRECTORY:
            if entry_kind is not EntryKind.FILE or not self.has_segments:
                raise OSError(_NOT_KAFKA if self.has_segments else "not a directory")
            yield from self._selected(lone_segment(path))
            return
        kind = directory_kind(path)
        if kind.is_partition:
            yield from self._selected(lone_partition(path))
        elif kind.is_log_directory:
            yield from self._in_log_directory(path, kind)
        else:
            self.diagnostics.refuse(path)

    def _selected(self, found: FoundPartition) -> Iterator[FoundPartition]:
        if found.partition in self.selection:
            yield found

    def _in_log_directory(self, path: Location, kind: DirectoryKind) -> Iterator[FoundPartition]:
        directory = read_log_directory(path, kind, select=self.selection.matches)
        for problem in directory.unlisted(self.selection.matches):
            self.diagnostics.report(problem.path, problem.error)
        for name in directory.refused:
            write_notice(f"{path / name}: not a partition name: not {self.done}")
        if (said := left_in_tier(directory, directory.partitions)) is not None:
            write_notice(said)
        for partition in directory.partitions:
            if not self.has_copies and partition.state is not PartitionState.LIVE:
                self.left_out.append(partition)
                continue
            loaded = loaded_or_reported(partition, self.diagnostics)
            key = partition.topic_partition
            if loaded is not None and key is not None:
                yield FoundPartition.in_directory(loaded, key, directory)


def one_of_each(
    found: Iterable[FoundPartition],
    diagnostics: Diagnostics,
    done: str,
    hint: str = "",
) -> ChosenReplicas[FoundPartition]:
    """Choose among replicas, and say that others are left out.

    Args:
        diagnostics: takes the replicas that cannot be read: they may be better.
        hint: what to do to have the others, too.

    Raises:
        UsageProblem: they belong to several clusters.
    """

    def failed(replica: FoundPartition, failure: OSError) -> None:
        diagnostics.report(replica.partition.path, failure)

    with phase("choosing among replicas"):
        replicas = choose_found(found, failed)
    if replicas.others:
        count = counted(len(replicas.others), "other replica")
        first = replicas.others[0].partition.path
        write_notice(f"not {done}: {count} (first: {first}){hint}")
    return replicas


def say_where_else(status: ExitStatus, done: str, *, has_others: bool) -> None:
    """Say that replicas that were left out may have what is damaged in the chosen ones.

    Args:
        status: of the command; nothing is said without damage.
        has_others: whether any were left out.
    """
    if has_others and status & ExitStatus.DAMAGE_LEFT:
        write_notice(
            f"replicas that were not {done} may have the damaged records: kdump verify of"
            " all log directories names those without damage; then name theirs alone"
        )
