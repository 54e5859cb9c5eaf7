"""What ``kdump erase`` did, for people and programs; counts, and never keys or values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import asdict

from kdump.cli.output.brief import MAX_LISTED, Unchanged, first_of
from kdump.cli.output.events import Event
from kdump.cli.output.value_text import format_bytes
from kdump.cli.output.write_report import Operations, planned_event
from kdump.errors import ExitStatus
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.directory import LogDirectory
from kdump.repair.erase.erased_list import FILE_NAME
from kdump.repair.erase.erased_log import MatchedAmount
from kdump.repair.erase.key_search import FoundKeys
from kdump.repair.verdict.verdict import Verdict, VerdictKind
from kdump.rows.common_rows import directory_values
from kdump.words import counted, discard_command, shell_command

if TYPE_CHECKING:
    from kdump.apply.runs import Undo
    from kdump.cli.output.write_arguments import RepairArguments
    from kdump.jobs.erase.certificate import Certificate, ComparedNames
    from kdump.jobs.erase.erase import PartitionErasure
    from kdump.jobs.erase.finish import Finishing
    from kdump.jobs.erase.remains import Remains
    from kdump.jobs.erase.verify_certificate import SearchedAgain
    from kdump.jobs.writing.execution import PlanResult
    from kdump.storage.location import Location


_LARGEST: Final = 3
"""How many leftover files are named, the largest ones, where there are more."""


class ErasureReport:
    """Reports partitions and log directories one by one.

    Attributes:
        unchanged: partitions that cannot be changed; printed last.
    """

    def __init__(self, operations: Operations, repair: RepairArguments, *, is_masked: bool) -> None:
        self._operations = operations
        self._repair = repair
        self._done = _done_words(repair, is_masked=is_masked)
        self._undecoded: list[str] = []
        self.unchanged = Unchanged(verbose=repair.verbose)

    def partition(self, found: PartitionErasure) -> Event:
        path = found.partition.path
        why = why_left(found)
        if why is not None:
            self.unchanged.take(path, why)
        row = {
            **directory_values(found.directory.path, path.name, found.key),
            "left_because": why,
            **asdict(found.amount),
            "segments": [
                {"base_offset": each.base_offset, **asdict(each.amount)}
                for each in found.segments
                if each.amount.erased_records
            ],
            "deleted_leftovers": len(found.dropped_files),
            "operations": self._operations.rows(path),
        }
        self._undecoded += undecoded_lines(found.amount.undecoded_records, f"in {path}")
        return Event("partition", row, list(self._lines(found)))

    def _lines(self, found: PartitionErasure) -> Iterator[str]:
        path = found.partition.path
        if not found.is_changed:
            if self._repair.verbose and why_left(found) is None:
                yield f"{path}: none of {counted(found.amount.records, 'record')}"
            return
        yield f"{path}: {_words(found.amount, self._done)}"
        for segment in found.segments:
            if segment.amount.erased_records:
                yield f"  {segment.base_offset:020d}.log  {_words(segment.amount, self._done)}"
        if found.dropped_files:
            count = counted(len(found.dropped_files), "unfinished file")
            done = "to overwrite and delete" if self._repair.dry_run else "overwritten and deleted"
            them = "it" if len(found.dropped_files) == 1 else "them"
            yield f"  {count} (.cleaned) of an interrupted change {done}; no undo has {them}"

    def difference(self, replicas: Sequence[PartitionErasure]) -> Event:
        """Return the replicas of a partition that lose different numbers of records."""
        key = replicas[0].key
        row = {
            "topic": key.topic,
            "partition": key.partition,
            "replicas": [
                {
                    "log_dir": str(each.directory.path),
                    "erased_records": each.amount.erased_records,
                    "left_because": why_left(each),
                }
                for each in replicas
            ],
        }
        words = [
            f"{counted(each.amount.erased_records, 'record')} {self._done} in {each.directory.path}"
            if why_left(each) is None
            else f"{each.directory.path} unchanged"
            for each in replicas
        ]
        compare = shell_command("diff", [each.partition.path for each in replicas])
        line = f"{key}: {', '.join(words)}; '{compare}' compares these replicas"
        return Event("difference", row, [line])

    def directory(self, done: PlanResult) -> Event:
        return planned_event(done, self._operations)

    def rest(self) -> Iterator[str]:
        """Yield where records cannot be decoded, in brief."""
        return first_of(self._undecoded, verbose=self._repair.verbose)


def _done_words(repair: RepairArguments, *, is_masked: bool) -> str:
    """Return what is done to records, in a preview and in a run."""
    if is_masked:
        return "to mask" if repair.dry_run else "masked"
    return "to erase" if repair.dry_run else "erased"


def _words(amount: MatchedAmount, done: str) -> str:
    return (
        f"{amount.erased_records} of {counted(amount.records, 'record')} {done},"
        f" {counted(amount.rewritten_batches, 'batch', 'batches')} rewritten"
    )


def why_left(found: PartitionErasure) -> str | None:
    """Say why a partition is left unchanged; None if it is not."""
    problem = found.problem
    if found.unchanged is not None:
        return str(found.unchanged.value)
    if isinstance(problem, Unreadable):
        return f"{problem.path} cannot be read: {problem.what}"
    if isinstance(problem, Verdict):
        advice = "kdump verify" if problem.kind is VerdictKind.REFUSED else "kdump recover"
        return f"{problem.sentence}; run '{advice} {found.directory.path}' first"
    return None if problem is None else str(problem)


def status_of(found: Iterable[PartitionErasure]) -> ExitStatus:
    """Return the exit status of the run."""
    status = ExitStatus.SOUND
    for each in found:
        if isinstance(each.problem, Unreadable):
            status |= ExitStatus.OPERATIONAL_ERROR
        elif why_left(each) is not None:
            status |= ExitStatus.DAMAGE_LEFT
        elif each.is_changed:
            status |= ExitStatus.REPAIRED
        if each.amount.undecoded_records:
            status |= ExitStatus.DAMAGE_LEFT
    return status


def undo_copies(directory: LogDirectory, runs: Iterable[Undo]) -> Iterator[Event]:
    """Yield the undo data of a log directory, which keeps what was in its files before."""
    finish = shell_command("erase --finish --certificate FILE", [directory.path])
    for run in runs:
        what = f"{directory.path}: the undo data of run {run.undo_id}"
        line = f"{what} keeps the erased records until '{finish}'"
        if run.command != "erase":
            command = discard_command(directory.path, run.undo_id)
            line = (
                f"{what} ({run.command or 'unusable'}) may hold erased records;"
                f" '{command}' deletes it"
            )
        yield _copy(directory, "undo", run.undo_id, run.command or None, line)


def list_copy(directory: LogDirectory) -> Event:
    """Return the list of what was erased, which names it."""
    line = (
        f"{directory.path / FILE_NAME}: names what was erased, by key, field and offset, as long"
        " as the undo data is kept"
    )
    return _copy(directory, "list", FILE_NAME, None, line)


def unsearched_directories(directory: LogDirectory, names: Iterable[str]) -> Iterator[Event]:
    """Yield directories of selected topics that are not searched."""
    for name in names:
        yield _copy(directory, "directory", name, None, _unsearched(directory, name))


class UnsearchedFile(NamedTuple):
    """A leftover file of a selected partition; its name is a path in the log directory."""

    name: str
    size_bytes: int


def unsearched_leftovers(
    directory: LogDirectory, files: Sequence[UnsearchedFile], *, verbose: bool
) -> Iterator[Event]:
    """Yield leftover files that are not searched: for people the largest ones if it is not verbose.

    A broker that was killed may have left thousands.
    """
    is_brief = not verbose and len(files) > _LARGEST
    for each in files:
        line = None if is_brief else _unsearched(directory, each.name)
        yield _copy(directory, "leftover", each.name, None, line)


def unsearched_in_brief(
    directory: LogDirectory, files: Sequence[UnsearchedFile], *, verbose: bool
) -> Iterator[str]:
    """Yield the line about leftover files that were not listed one by one."""
    if verbose or len(files) <= _LARGEST:
        return
    size = format_bytes(sum(each.size_bytes for each in files))
    largest = sorted(files, key=lambda each: -each.size_bytes)[:_LARGEST]
    names = ", ".join(f"{each.name} ({format_bytes(each.size_bytes)})" for each in largest)
    yield (
        f"{directory.path}: {counted(len(files), 'leftover file')}, {size}, not searched; they may"
        f" hold the records, too; the largest: {names} (--verbose lists each)"
    )


def _unsearched(directory: LogDirectory, name: str) -> str:
    return f"{directory.path}/{name}: not searched; may hold the records, too"


def _copy(
    directory: LogDirectory, kind: str, name: str, command: str | None, line: str | None
) -> Event:
    row = {"log_dir": str(directory.path), "kind": kind, "name": name, "command": command}
    return Event("copy", row, [] if line is None else [line])


def remains_event(remains: Remains) -> Event:
    """Return what was found in a file."""
    file, found = remains.file, remains.found
    is_read = isinstance(found, FoundKeys)
    what = found if isinstance(found, FoundKeys) else FoundKeys()
    row = {
        "log_dir": str(file.log_dir),
        "file": file.name,
        "undo_of": remains.command,
        "failure": None if isinstance(found, FoundKeys) else found.what,
        "records": what.records,
        "mentions": what.mentions,
        "raw": what.raw,
        "unreadable_batches": what.unreadable_batches,
        "possible": what.possible,
        "offsets": list(what.offsets),
    }
    words = ", ".join(_found_words(what)) if is_read else f"cannot be read: {row['failure']}"
    whose = "" if remains.command is None else f" (undo data of {_run_of(remains.command)})"
    return Event("remains", row, [f"{file.path}{whose}: {words}"])


def _run_of(command: str) -> str:
    return f"kdump {command}" if command else "an unusable run"


def remote_copy(remains: Remains) -> Event:
    """Return what was found in a remote segment, which no command of kdump changes."""
    file, found = remains.file, remains.found
    row = {"log_dir": str(file.log_dir), "kind": "remote", "name": file.name, "command": None}
    if isinstance(found, Unreadable):
        line = f"{file.path}: cannot be read: {found.what}"
    else:
        line = f"{file.path}: {', '.join(_found_words(found))}; remote storage is not changed"
    return Event("copy", row, [line])


def _found_words(found: FoundKeys) -> Iterator[str]:
    if found.records:
        records = counted(found.records, "record")
        yield f"{records} with an erased key or field, or at an erased offset"
    if found.mentions:
        yield f"{counted(found.mentions, 'erased key')} inside other keys, values or headers"
    if found.raw:
        yield f"{counted(found.raw, 'erased key')} in bytes that are no records"
    if found.unreadable_batches:
        count = counted(found.unreadable_batches, "place")
        yield f"{count} that cannot be decoded, where records may hide"
    if found.possible:
        places = counted(found.possible, "possible place")
        yield f"{places} of erased keys inside other keys, values or headers"
    if found.offsets:
        shown = ", ".join(map(str, found.offsets[:MAX_LISTED]))
        yield f"at offset {shown}{' …' if len(found.offsets) > MAX_LISTED else ''}"


def certificate_event(finishing: Finishing, path: str | None) -> Event:
    """Return the end of ``--finish``; no path if no certificate was written."""
    files, keys = finishing.searched_files, len(finishing.named.keys)
    fields = len({each for found in finishing.fields.values() for each in found})
    row = {
        "file": path,
        "searched_files": files,
        "keys": keys,
        "unknown_keys": 0,
        "fields": fields,
        "unknown_fields": 0,
        "not_looked_for": 0,
        "records_without_key": finishing.records_without_key,
        "undecoded_records": finishing.undecoded_records,
        "possible_places": finishing.possible_places,
    }
    lines = [f"{counted(files, 'file')} searched for {_asked(keys, fields)}"]
    lines += undecoded_lines(finishing.undecoded_records)
    if path is not None:
        lines.append(
            f"{path}: written; the undo data of {counted(finishing.undos, 'erasure')} is destroyed"
        )
    return Event("certificate", row, lines)


def _asked(keys: int, fields: int) -> str:
    return counted(keys, "key") + (f" and {counted(fields, 'field')}" if fields else "")


def undecoded_lines(records: int, where: str = "") -> Iterator[str]:
    """Yield that fields may hide in some records, if there are any."""
    if records:
        yield (
            f"{counted(records, 'record')}{where and f' {where}'} cannot be decoded, or only in"
            " part, and a field may be there: give their --schemas, or erase by --offsets"
        )


def verified_event(
    certificate: Certificate, path: Location, found: SearchedAgain, compared: ComparedNames
) -> Event:
    """Return the end of ``--verify``."""
    keys, without_key = len(certificate.keys), certificate.records_without_key
    row = {
        "file": str(path),
        "searched_files": found.files,
        "keys": keys,
        "unknown_keys": compared.unknown_keys,
        "fields": compared.fields,
        "unknown_fields": compared.unknown_fields,
        "not_looked_for": compared.fields_left + compared.prefixes_left,
        "records_without_key": without_key,
        "undecoded_records": found.undecoded_records,
        "possible_places": found.possible_places,
    }
    lines = [f"{path}: {counted(found.files, 'file')} searched for {_asked(keys, compared.fields)}"]
    if without_key:
        lines.append(
            f"{path}: no key to search for, or only a field, named"
            f" {counted(without_key, 'erased record')}"
        )
    lines += (
        f"{path}: {what} of the certificate not looked for: use {option}"
        for count, what, option in (
            (compared.fields_left, counted(compared.fields_left, "field"), "--where"),
            (
                compared.prefixes_left,
                counted(compared.prefixes_left, "prefix", "prefixes"),
                "--key-prefix",
            ),
        )
        if count
    )
    lines += undecoded_lines(found.undecoded_records)
    return Event("certificate", row, lines)


def summary(
    found: Sequence[PartitionErasure],
    repair: RepairArguments,
    seconds: float,
    *,
    is_masked: bool,
) -> Event:
    """Return the totals."""
    total = sum((each.amount for each in found), MatchedAmount())
    row: dict[str, Any] = {
        "partitions": len(found),
        **asdict(total),
        "is_masked": is_masked,
        "is_dry_run": repair.dry_run,
        "seconds": round(seconds, 3),
    }
    partitions = counted(len(found), "partition")
    return Event(
        "summary", row, [f"{partitions}: {_words(total, _done_words(repair, is_masked=is_masked))}"]
    )
