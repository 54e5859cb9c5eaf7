"""A plan for a cluster's metadata as a page that can be decided from."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from msgspec import Struct

from kdump.cli.output.events import Event, Printer
from kdump.cli.output.rendering import Row
from kdump.cli.output.value_text import format_bytes, format_timestamp
from kdump.jobs.metadata.planned_rows import NOTICE
from kdump.repair.cluster.notice_codes import CODES, unaccepted
from kdump.rows.row_type import values_of
from kdump.state.metadata.cluster_plan import ClusterPlan, Notice, NoticeKind, SourceKind
from kdump.state.metadata.metadata_image import METADATA_VERSION
from kdump.words import counted

_SHOWN: Final = 5
_MOST_SHOWN: Final = 8
"""So many notices of one code are on the page, if there are more than the second number; all are in
the plan and in the JSON."""
_TITLES: Final = {
    NoticeKind.LOSS: "Lost",
    NoticeKind.CONTRADICTION: "Contradictory",
    NoticeKind.WARNING: "To know before the brokers start",
    NoticeKind.GUESS: "Guessed",
}


def notice_row(notice: Notice) -> Row:
    """The object of a notice."""
    return {"type": "notice", **values_of(NOTICE.fields, notice, kind=notice.kind.value)}


def summary_row(
    plan: ClusterPlan, name: str | None, size_bytes: int | None, *, is_refused: bool
) -> dict[str, Any]:
    """The summary of a plan.

    Args:
        name: of the file; None without a file.
        size_bytes: of the file; None if it was not written.
        is_refused: whether the plan drops something, and nobody accepted that.
    """
    kinds = Counter(each.kind for each in plan.notices)
    partitions = [each for topic in plan.topics for each in topic.partitions]
    levels = {each.name: each.level for each in plan.features}
    return {
        "type": "summary",
        "file": name,
        "size_bytes": size_bytes,
        "is_refused": is_refused,
        "cluster_id": plan.cluster_id,
        "moment_ms": plan.moment_ms,
        "snapshot_offset": plan.snapshot_offset,
        "snapshot_epoch": plan.snapshot_epoch,
        "metadata_version": levels.get(METADATA_VERSION),
        "kraft_version": plan.kraft_version,
        "next_producer_id": plan.next_producer_id,
        "topics": len(plan.topics),
        "topics_by_source": _by_source(each.source.kind for each in plan.topics),
        "partitions": len(partitions),
        "partitions_by_source": _by_source(
            each.sources["partition"].kind for each in partitions if "partition" in each.sources
        ),
        "partitions_without_leader": sum(each.leader < 0 for each in partitions),
        "brokers": len(plan.brokers),
        "acls": len(plan.acls),
        "scram": len(plan.scram),
        "quotas": len(plan.quotas),
        "delegation_tokens": len(plan.delegation_tokens),
        "losses": kinds[NoticeKind.LOSS],
        "contradictions": kinds[NoticeKind.CONTRADICTION],
        "warnings": kinds[NoticeKind.WARNING],
        "guesses": kinds[NoticeKind.GUESS],
        "need_acceptance": len(unaccepted(plan.notices)),
    }


def _by_source(kinds: Iterable[SourceKind]) -> dict[str, int]:
    counts = Counter(kinds)
    return {each.value: counts[each] for each in SourceKind if counts[each]}


def page(plan: ClusterPlan, summary: Row) -> Iterator[str]:
    """The page of a plan that is written to a file; the next command is its last line."""
    yield from plan_page(plan, summary)
    yield ""
    yield from _last_lines(plan, summary)


def plan_page(plan: ClusterPlan, summary: Row) -> Iterator[str]:
    """The plan for people: counts, then what has to be decided."""
    yield from _head(plan, summary)
    for kind, notices in groupby(plan.notices, key=lambda each: each.kind):
        yield ""
        yield f"{_TITLES[kind]}:"
        for code, found in groupby(notices, key=lambda each: each.code):
            yield from _group(code, list(found))


def _head(plan: ClusterPlan, summary: Row) -> Iterator[str]:
    yield (
        f"cluster {plan.cluster_id}: {counted(summary['topics'], 'topic')},"
        f" {counted(summary['partitions'], 'partition')}"
    )
    if plan.moment_ms is not None:
        yield (
            f"  as of          {format_timestamp(plan.moment_ms)} (UTC): topics, configurations,"
            " ACLs, quotas, credentials"
        )
    yield f"  topics         {_sources_text(summary['topics_by_source'])}"
    yield f"  partitions     {_sources_text(summary['partitions_by_source'])}"
    if summary["partitions_without_leader"]:
        yield f"  without leader {counted(summary['partitions_without_leader'], 'partition')}"
    others = (
        counted(len(plan.brokers), "broker"),
        counted(len(plan.acls), "ACL"),
        counted(len(plan.scram), "SCRAM credential"),
        counted(len(plan.quotas), "quota"),
        counted(len(plan.delegation_tokens), "delegation token"),
    )
    yield f"  also           {', '.join(others)}"
    yield (
        f"  snapshot       offset {plan.snapshot_offset}, epoch {plan.snapshot_epoch},"
        f" {METADATA_VERSION} {summary['metadata_version']}, kraft.version {plan.kraft_version}"
    )
    yield f"  producer ids   from {plan.next_producer_id} on"
    for each in plan.controllers:
        directory = "" if each.directory_id is None else f", directory {each.directory_id}"
        yield f"  controller     {each.node_id} at {each.host}:{each.port}{directory}"
    counts = ", ".join(
        f"{summary[name]} {word}"
        for name, word in (
            ("losses", "lost"),
            ("contradictions", "contradictory"),
            ("warnings", "to know"),
            ("guesses", "guessed"),
        )
    )
    yield f"  notices        {counts}"


_SOURCE_WORDS: Final = {
    "copy": "from the copy of the metadata",
    "old-copy": "from older copies",
    "disk": "from disks alone",
    "claim": "named by internal topics only",
    "rule": "by a rule",
    "guess": "guessed",
    "set": "set by option",
}


def _sources_text(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {_SOURCE_WORDS[kind]}" for kind, count in counts.items()) or "none"


def _group(code: str, notices: Sequence[Notice]) -> Iterator[str]:
    """The notices of one code; only the first of many."""
    title = CODES[code].title
    needs = ", --accept-loss or a decision needed" if CODES[code].needs_acceptance else ""
    yield f"  {len(notices)} {code}{needs}: {title}"
    shown = len(notices) if len(notices) <= _MOST_SHOWN else _SHOWN
    for notice in notices[:shown]:
        yield f"    {_named(notice)}{notice.what}"
    if len(notices) > shown:
        yield f"    and {len(notices) - shown} more"
    override = next((each.override for each in notices if each.override is not None), None)
    if override is not None:
        for_all = CODES[code].for_all
        others = f"; for all: --set {for_all}" if for_all and len(notices) > 1 else ""
        yield f"    decide otherwise: --set {shlex.quote(override)}{others}"


def _named(notice: Notice) -> str:
    if notice.topic is None:
        return ""
    return (
        f"{notice.topic}: " if notice.partition is None else f"{notice.topic}-{notice.partition}: "
    )


def _last_lines(plan: ClusterPlan, summary: Row) -> Iterator[str]:
    name = summary["file"]
    if summary["is_refused"]:
        yield from refusal_lines(name, summary)
        return
    size = format_bytes(summary["size_bytes"])
    yield f"wrote {name}, {size}; it has secrets of the cluster's users"
    if len(plan.controllers) == 1:
        yield f"next: read it, then kdump metadata apply {shlex.quote(name)} CONTROLLER_DIR"
    else:
        yield (
            f"next: read it, then kdump metadata apply {shlex.quote(name)} CONTROLLER_DIR"
            " on each controller"
        )


class PlanPage(Struct, frozen=True):
    """A plan as part of the output of a command that writes.

    Attributes:
        notices: objects for programs.
        summary: the object that ends the output for programs.
    """

    notices: tuple[Row, ...]
    lines: tuple[str, ...]
    summary: Row

    @classmethod
    def of(cls, plan: ClusterPlan, *, is_refused: bool) -> PlanPage:
        """The page of a plan that is not written to a file."""
        summary = summary_row(plan, None, None, is_refused=is_refused)
        summary.pop("type")
        rows = [notice_row(each) for each in plan.notices]
        return cls(tuple(rows), tuple(plan_page(plan, summary)), summary)

    def emit(self, printer: Printer) -> None:
        """Print all but the summary."""
        for row in self.notices:
            printer.emit(Event("notice", row))
        printer.emit_text(self.lines)


def refusal_lines(what: str, summary: Row) -> Iterator[str]:
    """Why nothing was written, and what to do next."""
    yield (
        f"{what} was not written: the plan drops"
        f" {counted(summary['need_acceptance'], 'thing')} that a disk has"
    )
    yield "next: decide with --set KEY=VALUE, or give --accept-loss"


def start_lines(plan: ClusterPlan, *, dry_run: bool) -> Iterator[str]:
    """What to do next with a cluster that has its metadata again, or would have it."""
    if dry_run:
        yield "next: the same command without --dry-run"
        return
    others = len(plan.controllers) - 1
    if others:
        yield (
            f"{counted(others, 'other controller')}: kafka-storage.sh format with"
            " --no-initial-controllers, or the same command for each"
        )
    order = "in the order above" if plan.first_leaders else "in any order"
    yield f"next: start the controllers, then the brokers {order}"
