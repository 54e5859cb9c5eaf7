"""One verification as the command line asks for it, whether or not a repair follows."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kdump.cli.options.config_options import ConfigArguments
from kdump.cli.options.engine_options import EngineArguments
from kdump.errors import ExitStatus, UsageProblem
from kdump.phases import phase

if TYPE_CHECKING:
    from kdump.check.findings import Finding, Severity
    from kdump.check.part import Level
    from kdump.cli.output.verify_output import VerifyPrinter
    from kdump.cli.shared.directories import Diagnostics
    from kdump.jobs.verify.verify import Said, Target
    from kdump.log.directory import LogDirectory
    from kdump.state.settings import Settings


@dataclass(frozen=True, slots=True)
class Verification:
    """What is to be verified, and how.

    Attributes:
        paths: as they were named.
        globs: of topics; without any, all.
        level: how far to go.
        now_ms: what time it is.
        config: what is said of configuration.
        engine: what does the work.
        is_strict: whether a warning counts as damage.
        largest_record_bytes: larger records of compressed batches are not decoded; None for the
            usual limit.
    """

    paths: Sequence[Path]
    globs: Sequence[str]
    level: Level
    now_ms: int
    config: ConfigArguments
    engine: EngineArguments
    is_strict: bool = False
    largest_record_bytes: int | None = None

    def run(
        self,
        printer: VerifyPrinter,
        diagnostics: Diagnostics,
        take: Callable[[Finding], None] | None = None,
    ) -> ExitStatus:
        """Verify, and say what there is to say.

        Args:
            printer: says it.
            diagnostics: is told of paths that are nothing to be verified.
            take: is given each finding, too.
        """
        from kdump.jobs.verify.verify import Request, verify

        with phase("listing what is to be verified"):
            targets, directories = _find(self.paths, self.globs, diagnostics)
        if self.globs and not targets:
            raise UsageProblem(
                f"no topic in {' '.join(map(str, self.paths))} matches {' '.join(self.globs)}: "
                "kdump ls lists them all"
            )
        if not targets and not directories:
            return ExitStatus.SOUND
        around = {each.directory.path: each.directory for each in targets if each.directory}
        request = Request(
            targets=targets,
            # With --topic, partitions that were not asked for are not there to be missed.
            directories=[] if self.globs else directories,
            level=self.level,
            now_ms=self.now_ms,
            settings=self._settings([*directories, *around.values()], diagnostics),
        )
        if self.largest_record_bytes is not None:
            request = replace(request, largest_record_bytes=self.largest_record_bytes)
        with phase("verifying"):
            said = verify(request, self.engine.options, self.engine.progress)
            return _print(said, printer, take, self.worst_allowed)

    @property
    def worst_allowed(self) -> Severity:
        """The worst severity of what is no damage."""
        from kdump.check.findings import Severity

        return Severity.INFO if self.is_strict else Severity.WARNING

    def _settings(
        self, directories: Sequence[LogDirectory], diagnostics: Diagnostics
    ) -> Mapping[Path, Settings]:
        try:
            return self.config.settings_of(directories)
        except OSError as failure:
            # Without a word from the cluster, all else can still be verified.
            diagnostics.report(Path(failure.filename), failure)
            bare = [dataclasses.replace(each, partitions=()) for each in directories]
            return self.config.settings_of(bare)


def _find(
    paths: Iterable[Path], globs: Sequence[str], diagnostics: Diagnostics
) -> tuple[list[Target], list[LogDirectory]]:
    """The partitions to verify, and the log directories.

    These have the cluster's metadata in them, too, whether or not that is to be verified.
    """
    from kdump.cli.shared.directories import read_lone_partition
    from kdump.formats.names import CLUSTER_METADATA_TOPIC
    from kdump.jobs.verify.verify import Target, segment_alone
    from kdump.log.directory import directory_kind, read_log_directory

    def is_wanted(topic: str) -> bool:
        return not globs or any(fnmatch.fnmatchcase(topic, glob) for glob in globs)

    targets: list[Target] = []
    directories: list[LogDirectory] = []
    for path in paths:
        try:
            if not path.is_dir():
                alone = segment_alone(path)
                if alone is None:
                    diagnostics.report(path, OSError("not the log of a segment, nor a directory"))
                else:
                    targets.append(alone)
                continue
            kind = directory_kind(path)
            if kind.is_log_directory:
                found = read_log_directory(
                    path,
                    kind,
                    select=lambda _, key: (
                        key.topic == CLUSTER_METADATA_TOPIC or is_wanted(key.topic)
                    ),
                )
                directories.append(found)
                targets.extend(
                    Target(partition, found)
                    for partition in found.partitions
                    if partition.topic_partition is None
                    or is_wanted(partition.topic_partition.topic)
                )
            elif kind.is_partition:
                lone = read_lone_partition(path)
                topic_partition = lone.partition.topic_partition
                if topic_partition is None or is_wanted(topic_partition.topic):
                    targets.append(Target(lone.partition, lone.log_directory))
            else:
                diagnostics.refuse(path)
        except OSError as failure:
            diagnostics.report(path, failure)
    return targets, directories


def _print(
    said: Iterator[Said],
    printer: VerifyPrinter,
    take: Callable[[Finding], None] | None,
    worst_allowed: Severity,
) -> ExitStatus:
    from kdump.check.findings import Finding
    from kdump.jobs.verify.verify_partition import PartitionReport

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
