"""A verification as requested on the command line, with or without a repair."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kdump.check.findings import Finding, Severity
from kdump.cli.options.config_options import ConfigArguments
from kdump.cli.options.selection_options import nothing_selected
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus, UsageProblem
from kdump.formats.record_batch import LARGEST_RECORD_BYTES
from kdump.jobs.verify.verify import (
    VerifyEvent,
    VerifyRequest,
    VerifyTarget,
    read_as,
    segment_alone,
    verify,
)
from kdump.jobs.verify.verify_partition import PartitionReport
from kdump.log.directory import LogDirectory, directory_kind, read_log_directory
from kdump.log.living import is_unreadable
from kdump.log.lock_holders import ReadAs, is_living
from kdump.phases import phase
from kdump.processes.cpu_share import idle_cpu_priority
from kdump.storage.location import Location, each_once
from kdump.storage.places import parse_location

if TYPE_CHECKING:
    from kdump.check.part import Level
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.verify_output import VerifyPrinter
    from kdump.formats.names import TopicPartition
    from kdump.jobs.verify.scrub import Scrub
    from kdump.jobs.verify.verify_remote import VerifyRemote
    from kdump.log.remote_files import RemotePlace
    from kdump.log.selection import PartitionSelection
    from kdump.state.metadata.settings import DirectorySettings
    from kdump.storage.gentle_disk import Bandwidth


class Listed(Struct, frozen=True):
    """What there is to verify.

    Attributes:
        directories: all log directories, also those without a selected partition.
    """

    request: VerifyRequest
    directories: Sequence[LogDirectory]


class Verification(Struct, frozen=True):
    """What to verify, and how.

    Attributes:
        paths: the paths, as typed.
        now_ms: the time to compare timestamps with.
        is_strict: whether a warning counts as damage.
        largest_record_bytes: the limit for decoding records of compressed batches.
        with_statistics: whether the reports of partitions have statistics.
        also_listed: topics whose partitions are listed, whether or not they are selected.
        remote: where remote segments are that are verified, too.
        reading: whether what a broker changes meanwhile is expected.
        scrub: which part of the data to read; None for all.
        bandwidth: how many bytes to read in a second; None without a limit.
    """

    paths: Sequence[Location]
    selection: PartitionSelection
    level: Level
    now_ms: int
    config: ConfigArguments
    engine: EngineOptions
    is_strict: bool = False
    largest_record_bytes: int = LARGEST_RECORD_BYTES
    with_statistics: bool = False
    also_listed: frozenset[str] = frozenset()
    remote: RemotePlace | None = None
    reading: ReadAs = ReadAs.STOPPED
    scrub: Scrub | None = None
    bandwidth: Bandwidth | None = None

    def run(
        self,
        printer: VerifyPrinter,
        diagnostics: Diagnostics,
        take: Callable[[Finding], None] | None = None,
    ) -> ExitStatus:
        """Verify, and print the results.

        Args:
            diagnostics: reports paths that cannot be verified.
            take: also called with each finding.

        Raises:
            UsageProblem: nothing is selected.
        """
        listed = self.listed(diagnostics)
        if listed is None:
            return ExitStatus.SOUND
        return self.verified(listed.request, printer, take)

    def listed(self, diagnostics: Diagnostics) -> Listed | None:
        """List what to verify; None if there is nothing.

        Raises:
            UsageProblem: nothing is selected.
        """
        with phase("listing what to verify"):
            targets, directories = self._find(diagnostics)
        is_everything = self.selection.is_everything
        if not targets and not is_everything and self.remote is None:
            if diagnostics.status & ExitStatus.OPERATIONAL_ERROR:
                return None  # what cannot be read may have matched
            raise nothing_selected(self.selection, self.paths)
        if not targets and not directories and self.remote is None:
            return None
        around = {each.directory.path: each.directory for each in targets if each.directory}
        request = VerifyRequest(
            targets=targets,
            # Partitions that are not selected are not listed, and must not be reported missing.
            directories=directories if is_everything else [],
            level=self.level,
            now_ms=self.now_ms,
            settings={},
            largest_record_bytes=self.largest_record_bytes,
            with_statistics=self.with_statistics,
            scrub=self.scrub,
            bandwidth=self.bandwidth,
        )
        request = read_as(request, self.reading)
        # The metadata of a living directory is read again where the broker takes it away.
        settings = self._settings([*directories, *around.values()], diagnostics)
        request = replace(request, settings=settings)
        if self.remote is not None:
            remote = self._remote(request, self.remote)
            if not targets and not is_everything and not remote.partitions():
                raise nothing_selected(self.selection, self.paths)
            request = replace(request, remote=remote)
        everywhere = around | {each.path: each for each in directories}
        return Listed(request, list(everywhere.values()))

    def _remote(self, request: VerifyRequest, remote: RemotePlace) -> VerifyRemote:
        """The remote segments of the selected partitions.

        Raises:
            KdumpError: there are none at this place, or they cannot be listed.
        """
        from kdump.jobs.verify.verify_remote import VerifyRemote
        from kdump.tiered.remote_plans import remote_plans

        around = {each.directory.path: each.directory for each in request.targets if each.directory}
        directories = around | {each.path: each for each in request.directories}
        return VerifyRemote.found(
            remote_plans(remote, tuple(directories)),
            self.selection,
            list(directories.values()),
            request.settings,
        )

    def verified(
        self,
        request: VerifyRequest,
        printer: VerifyPrinter,
        take: Callable[[Finding], None] | None = None,
    ) -> ExitStatus:
        """Verify what is listed, and print the results."""
        beside = idle_cpu_priority() if request.gives_way else contextlib.nullcontext()
        with phase("verifying"), beside:
            said = verify(request, self.engine)
            return _print(said, printer, take, self.worst_allowed)

    def _find(self, diagnostics: Diagnostics) -> tuple[list[VerifyTarget], list[LogDirectory]]:
        """The partitions to verify, and the log directories.

        These have the cluster's metadata in them, too, whether or not that is to be verified.
        """
        targets: list[VerifyTarget] = []
        directories: list[LogDirectory] = []
        around: dict[Location, LogDirectory | None] = {}
        for path in self._local_paths():
            try:
                if not path.is_directory():
                    if self.reading is ReadAs.LIVING and path.kind() is not None:
                        raise UsageProblem(
                            f"--live reads partitions and log directories, not a file: {path}"
                        )
                    alone = segment_alone(path)
                    if alone is None:
                        diagnostics.report(path, OSError("not a segment's log or a directory"))
                    elif alone.partition in self.selection:
                        targets.append(alone)
                    continue
                kind = directory_kind(path)
                if kind.is_log_directory:
                    found = read_log_directory(path, kind, select=self._is_listed)
                    directories.append(found)
                    if not self.selection.is_everything:
                        for problem in found.unlisted(self.selection.matches):
                            if is_living(path, self.reading) and not is_unreadable(problem.path):
                                continue  # it was deleted a moment ago
                            diagnostics.report(problem.path, problem.error)
                    targets.extend(
                        VerifyTarget(partition, found)
                        for partition in found.partitions
                        if partition in self.selection
                    )
                elif kind.is_partition:
                    from kdump.jobs.listing.partition_facts import read_with_surroundings

                    lone = read_with_surroundings(path, around)
                    if lone.partition in self.selection:
                        targets.append(VerifyTarget(lone.partition, lone.log_directory))
                else:
                    diagnostics.refuse(path)
            except OSError as failure:
                diagnostics.report(path, failure)
        return targets, directories

    def _local_paths(self) -> Sequence[Location]:
        """The paths, each directory once; of remote segments, all partitions are checked."""
        paths = each_once(self.paths)
        if self.remote is None:
            return paths
        from kdump.tiered.tiered_storage import is_remote_directory

        return [each for each in paths if not is_remote_directory(each, self.remote)]

    def _is_listed(self, name: str, key: TopicPartition) -> bool:
        return key.topic in self.also_listed or self.selection.needs(name, key)

    @property
    def worst_allowed(self) -> Severity:
        """The worst severity that does not count as damage."""
        return Severity.INFO if self.is_strict else Severity.WARNING

    def _settings(
        self, directories: Sequence[LogDirectory], diagnostics: Diagnostics
    ) -> DirectorySettings:
        try:
            return self.config.settings_of(directories)
        except OSError as failure:
            if self.config.metadata is not None:
                raise
            # Everything else can still be verified without the cluster's metadata.
            diagnostics.report(parse_location(failure.filename), failure)
            bare = [replace(each, partitions=()) for each in directories]
            return self.config.settings_of(bare)


def _print(
    said: Iterator[VerifyEvent],
    printer: VerifyPrinter,
    take: Callable[[Finding], None] | None,
    worst_allowed: Severity,
) -> ExitStatus:
    status = ExitStatus.SOUND
    for each in said:
        if isinstance(each, Finding):
            printer.finding(each)
            if take is not None:
                take(each)
        elif isinstance(each, PartitionReport):
            printer.partition(each)
        else:
            printer.summary(each)
            if any(count and level > worst_allowed for level, count in each.findings.items()):
                status |= ExitStatus.DAMAGE_LEFT
            if each.is_unreadable:
                status |= ExitStatus.OPERATIONAL_ERROR
    return status
