"""What there is to say about the places that a command read, as a whole."""

from __future__ import annotations

import sys

from kdump.cli.output.events import write_line, write_notice
from kdump.cli.output.value_text import format_bytes
from kdump.errors import ExitStatus, StoreGoneError
from kdump.log.lock_holders import read_as_living, unreported_holders
from kdump.storage.places import named_archives, named_stores, unpacked_archives
from kdump.words import counted


def report_places() -> ExitStatus:
    """Report what is missing or was changed; returns the exit status for it."""
    status = ExitStatus.SOUND
    for unpacked in unpacked_archives():
        name, size = unpacked.name, format_bytes(unpacked.size_bytes)
        write_notice(f"{name}: was unpacked ({size}) for this run, and removed")
        if unpacked.damage is not None:
            what = f"its compression is damaged or incomplete: {unpacked.damage}"
            write_notice(f"{name}: {what}; what follows is missing")
            status |= ExitStatus.OPERATIONAL_ERROR
    for archive in named_archives():
        for problem in archive.problems:
            write_notice(f"{archive.name}: {problem.what}")
            if problem.is_failure:
                status |= ExitStatus.OPERATIONAL_ERROR
    for store in named_stores():
        for problem in store.problems:
            write_notice(problem.what)
            status |= ExitStatus.OPERATIONAL_ERROR
        try:
            changes = store.changes()
        except OSError as failure:
            write_notice(f"{failure.filename}: {failure.strerror}")
            status |= ExitStatus.OPERATIONAL_ERROR
            continue
        except StoreGoneError as failure:
            write_notice(str(failure))
            status |= failure.exit_status
            continue
        if changes:
            more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
            what = "it was changed while kdump read it; run kdump again"
            write_notice(f"{changes[0]}{more}: {what}")
            status |= ExitStatus.OPERATIONAL_ERROR
    return status


def report_holders() -> None:
    """Name the processes that had locked log directories while this run read them."""
    for log_dir, holder in unreported_holders().items():
        what = f"in use by {holder}: findings may be about files that change"
        write_notice(f"{log_dir}: {what}")
    for log_dir, known in read_as_living().items():
        why = "read as in use (--live)" if known is None else f"in use by {known}"
        what = "the end of each log, leftover files, and what a broker would do at a start"
        line = f"{log_dir}: {why}: {what}, are not judged"
        if known is None:
            line += "; no process of this machine has locked it: without --live they are judged"
        write_notice(line)


def report_requests() -> None:
    """Say how many requests this run made to each object store."""
    for store in named_stores():
        counts = store.counts
        kinds = (
            counted(counts.listings, "page of listings", "pages of listings"),
            counted(counts.lookups, "lookup"),
            f"{counted(counts.reads, 'read')} of {format_bytes(counts.read_bytes)}",
            *([counted(counts.writes, "write")] if counts.writes else []),
        )
        line = f"kdump: {store.name}: {counted(counts.requests, 'request')}: {', '.join(kinds)}"
        write_line(line, sys.stderr)
