"""Advice about the next command to run.

A broker never keeps the valid batches after a damaged one, and does not check flushed segments.
For such damage, the advice is to salvage.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from kdump.cli.output.local_copies import LocalCopies
from kdump.cli.output.selection_words import selection_words
from kdump.log.broker import by_broker
from kdump.log.directory import read_lone_partition, read_root
from kdump.log.lock_holders import is_anything_in_use
from kdump.log.selection import PartitionSelection
from kdump.storage.location import Location
from kdump.storage.places import parse_location
from kdump.words import counted, shell_command

if TYPE_CHECKING:
    from kdump.check.findings import Finding
    from kdump.cli.output.verify_output import VerifyPrinter
    from kdump.jobs.recover import DirectoryRecovery, PartitionRecovery
    from kdump.jobs.verify.verify import VerifySummary
    from kdump.jobs.verify.verify_partition import PartitionReport

STOP_FIRST: Final = "stop the broker, and run the command again, before any repair"
"""All advice about a log directory that a running process has locked."""
_LOSS: Final = "loss"
"""The verdict that a broker would truncate or replace the log; a preview shows the loss."""
_HIDING: Final = "hiding"
"""Instead of the verdict, where only a repair or salvage shows what a broker would hide."""
_VALID: Final = "valid"
_NOT_REPAIRED: Final = ("deleted", "stray", "remote")
"""The verdicts on partitions that no command repairs."""
_LOG: Final = ".log"
_MAX_NAMED: Final = 8
"""With more partitions than this, the command names none and selects all."""


def salvage_command(
    selection: Sequence[str],
    log_dirs: Iterable[object],
    options: Sequence[str],
    *,
    dry_run: bool = False,
) -> str:
    """Return the command that salvages partitions, quoted for a shell.

    Args:
        selection: the options that select the partitions; none for all of them.
        log_dirs: all log directories of the broker.
    """
    words = ["kdump", "recover", "--policy", "salvage", *(["--dry-run"] if dry_run else [])]
    return shlex.join([*words, *selection, *options, *map(str, dict.fromkeys(log_dirs))])


def _selecting(partitions: Sequence[str]) -> list[str]:
    """Return the options that select partitions by name; none, for all, if there are many."""
    if len(partitions) > _MAX_NAMED:
        return []
    return selection_words(PartitionSelection(partitions=tuple(partitions)))


class AdvisingPrinter:
    """A printer that also collects the damage that salvage or a repair can handle.

    Args:
        shown: the printer to pass everything on to.
        paths: the verified paths, as typed.
        options: the configuration options, as typed.
    """

    def __init__(
        self, shown: VerifyPrinter, paths: Sequence[Location], options: Sequence[str]
    ) -> None:
        self._shown = shown
        self._paths = paths
        self._options = options
        self._pending: list[Finding] = []
        self._found: dict[Location, tuple[str, set[str], bool]] = {}
        self._valid: list[Location] = []
        self._damaged_log_dirs: dict[Location, None] = {}
        self._without_identity: dict[Location, None] = {}
        self._losing: dict[Location, None] = {}

    def finding(self, finding: Finding) -> None:
        self._shown.finding(finding)
        self._pending.append(finding)

    def partition(self, report: PartitionReport) -> None:
        self._shown.partition(report)
        of_log_dirs, own = report.split_findings(self._pending)
        self._pending = []
        self._take_log_dirs(of_log_dirs)
        if report.verdict_kind not in _NOT_REPAIRED:
            damage = [each for each in own if each.severity.is_damage]
            codes = {each.code for each in damage if _may_be_repaired(each)}
            kind = _HIDING if report.only_hides else report.verdict_kind
            is_metadata = report.partition.is_cluster_metadata
            self._found[report.partition.path] = kind, codes, is_metadata
            if report.verdict_kind == _VALID and not damage and not report.left_out:
                self._valid.append(report.partition.path)
        is_loss = report.verdict_kind == _LOSS and not report.only_hides
        if is_loss and report.worst is not None and report.worst.is_damage:
            self._losing[report.partition.path.parent] = None

    def summary(self, summary: VerifySummary) -> None:
        self._shown.summary(summary)
        self._take_log_dirs(self._pending)
        self._pending = []

    def _take_log_dirs(self, findings: Iterable[Finding]) -> None:
        from kdump.check.invariants import INVARIANTS, Remedy

        for finding in findings:
            remedy = INVARIANTS[finding.code].remedy
            if finding.severity.is_damage and remedy is not Remedy.NONE:
                path = self._located(finding.place.path)
                named = [
                    each for each in self._paths if PurePath(path.path).is_relative_to(each.path)
                ]
                log_dirs = (
                    self._without_identity
                    if remedy is Remedy.IDENTITY and not self._is_identity_known(path.parent)
                    else self._damaged_log_dirs
                )
                log_dirs[named[0] if named else path.parent] = None

    def _is_identity_known(self, log_dir: Location) -> bool:
        """Whether the other log directories that were named tell what is in ``meta.properties``."""
        from kdump.repair.rebuild.identity import rebuilt_meta_properties

        absolute = log_dir.as_absolute()
        others = [path for path in self._paths if path.as_absolute() != absolute]
        try:
            read = [read_root(path)[0] for path in others if path.is_directory()]
            return rebuilt_meta_properties(read_root(log_dir)[0], read, None) is not None
        except OSError:
            return True  # one of them cannot be listed: the command says so, too

    def _located(self, name: str) -> Location:
        """What is called this: in the storage of a path that was named, if there is one."""
        for each in self._paths:
            root = each.storage.name_of("/").removesuffix("/")
            if name.startswith(f"{root}/"):
                return Location(each.storage, name[len(root) :])
        return parse_location(name)

    def emit_text(self, lines: Iterable[str]) -> None:
        self._shown.emit_text(lines)

    def advice(self, *, after_repair: bool = False) -> Iterator[str]:
        """Yield what to run next.

        Args:
            after_repair: whether a repair has just run.
        """
        copies = LocalCopies()
        lines = list(self._lines(copies, after_repair=after_repair))
        if lines and is_anything_in_use():
            lines = [STOP_FIRST]
        yield from copies.lines()
        yield from lines

    def _lines(self, copies: LocalCopies, *, after_repair: bool) -> Iterator[str]:
        from kdump.check.invariants import INVARIANTS, Remedy

        damaged: list[Location] = []
        holed: list[Location] = []
        others: list[Location] = []
        for path, (kind, codes, is_metadata) in self._found.items():
            if not codes or kind == _LOSS:
                continue
            remedies = {INVARIANTS[code].remedy for code in codes}
            if remedies & {Remedy.DATA, Remedy.SALVAGE}:
                damaged.append(path)
            elif Remedy.GAPS in remedies:
                holed.append(path)
            elif remedies != {Remedy.NONE} and not is_metadata:  # in which no repair writes
                others.append(path)
        if not after_repair:
            for log_dirs in self._of_brokers(self._losing):
                preview = shell_command("recover --dry-run", copies.of(log_dirs))
                yield f"to preview what a broker would lose: {preview}"
            around = [each.around for each in others]
            for log_dirs in self._of_brokers([*self._damaged_log_dirs, *around]):
                preview = shell_command("verify --repair --dry-run", copies.of(log_dirs))
                yield f"to preview a repair: {preview}"
        for log_dirs in self._of_brokers(self._without_identity):
            identity = shell_command("identity", copies.of(log_dirs))
            yield f"to see how to write meta.properties: {identity}"
        yield from self._replicas_without_damage([*holed, *damaged])
        for partitions, salvage in self._commands(holed, copies):
            yield (
                f"missing offsets in {partitions}: fetch it from an in-sync replica; if there is"
                f" none, record the gap as known: {salvage}"
            )
        for partitions, salvage in self._commands(damaged, copies):
            yield (
                f"damage in {partitions}: fetch it from an in-sync replica; if there is none, keep"
                f" every valid batch: {salvage}"
            )

    def _commands(
        self, partitions: Sequence[Location], copies: LocalCopies
    ) -> Iterator[tuple[str, str]]:
        """For each broker, how many of its partitions are meant, and what salvages them."""
        for log_dirs in self._of_brokers(path.around for path in partitions):
            own = [path.as_absolute().name for path in partitions if path.around in log_dirs]
            command = salvage_command(_selecting(own), copies.of(log_dirs), self._options)
            yield counted(len(own), "partition"), command

    def _of_brokers(self, log_dirs: Iterable[Location]) -> list[list[Location]]:
        """For each broker of some log directories, all of its directories that were named.

        A command that changes directories takes those of one broker: it would touch the disks of
        brokers that nothing is wrong with.
        """
        wanted = dict.fromkeys(log_dirs)
        if not wanted:
            return []
        named = [path for path in self._paths if path.is_directory() and path not in self._found]
        every = [*dict.fromkeys([*named, *wanted])]
        if len(every) == 1:
            return [every]
        try:
            brokers = by_broker(read_root(path)[0] for path in every).values()
        except OSError:
            return [every]  # one of them cannot be listed: the command says so, too
        groups = [[each.path for each in own] for own in brokers]
        return [own for own in groups if not wanted.keys().isdisjoint(own)]

    def _replicas_without_damage(self, partitions: Sequence[Location]) -> Iterator[str]:
        """Name the replicas of damaged partitions where nothing is wrong."""
        valid = defaultdict[str, list[Location]](list)
        for path in self._valid:
            valid[path.name].append(path)
        for path in partitions[:_MAX_NAMED]:
            topic_id = _topic_id(path)
            found = [each for each in valid[path.name] if _topic_id(each) == topic_id]
            if found:
                yield f"{path}: no damage found in {', '.join(map(str, found))}"


def _may_be_repaired(finding: Finding) -> bool:
    """Whether the cluster has what a repair would write; it has not the ID of a renamed topic."""
    from kdump.check.invariants import PARTITION_METADATA_OTHER_TOPIC

    return finding.code != PARTITION_METADATA_OTHER_TOPIC.code or finding.expected is not None


def _topic_id(partition: Location) -> str | None:
    return read_lone_partition(partition, partition.name).known_topic_id


def preview_advice(
    results: Sequence[DirectoryRecovery], options: Sequence[str], *, is_selection: bool
) -> Iterator[str]:
    """Yield advice for the preview of a broker's recovery.

    Args:
        results: the previewed result of each log directory.
        is_selection: whether only some partitions were selected.
    """
    log_dirs = [result.directory.path for result in results]
    if is_anything_in_use():
        yield STOP_FIRST
        return
    partitions = [each for result in results for each in result.partitions]
    refused = [each.partition.path.name for each in partitions if _is_log_refused(each)]
    if refused:
        command = salvage_command(_selecting(refused), log_dirs, options)
        yield (
            f"a broker would refuse the data of {counted(len(refused), 'partition')}; if no in-sync"
            f" replica has it, keep every valid batch: {command}"
        )
    unread = {each.partition.path.name: _unread_segments(each) for each in partitions}
    count = sum(unread.values())
    if count:
        names = [name for name, segments in unread.items() if segments] if is_selection else []
        verify = shlex.join(["kdump", "verify", *options, *map(str, log_dirs)])
        salvage = salvage_command(_selecting(names), log_dirs, options)
        yield (
            f"{counted(count, 'segment')} not checked, because a broker does not check them: run"
            f" '{verify}'; if a batch is damaged, '{salvage}' keeps every valid one"
        )


def _is_log_refused(result: PartitionRecovery) -> bool:
    """Whether a broker refuses a partition because of the contents of a log."""
    from kdump.target.refusal import Refusal

    outcome = result.outcome
    return not result.unchanged and isinstance(outcome, Refusal) and outcome.file.endswith(_LOG)


def _unread_segments(result: PartitionRecovery) -> int:
    """Count the segments of a partition that loading does not read."""
    from kdump.broker.loader.recovered_partition import Recovered

    if result.unchanged or not isinstance(result.outcome, Recovered):
        return 0
    read = {segment.base_offset for segment in result.outcome.report.recovered}
    with_data = [each for each in result.partition.segments if each.log_bytes]
    return sum(segment.base_offset not in read for segment in with_data)
