"""A plan for a cluster's metadata as a page that can be decided from."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from kdump.cli.output.rendering import Column, Row
from kdump.cli.output.sections import Section
from kdump.cli.output.value_text import Kind, format_bytes
from kdump.repair.cluster.notice_codes import CODES, unaccepted
from kdump.state.cluster_plan import ClusterPlan, Notice, NoticeKind, SourceKind
from kdump.state.metadata_image import METADATA_VERSION
from kdump.words import counted

SECTIONS: Final = (
    Section(
        "notice",
        "Notices",
        (
            Column("kind", "Kind"),
            Column("code", "Code"),
            Column("topic", "Topic"),
            Column("partition", "Partition", Kind.NUMBER),
            Column("what", "What"),
            Column("needs_acceptance", "Needs acceptance"),
            Column("override", "Override"),
        ),
    ),
)

_SHOWN: Final = 5
"""So many notices of one code are on the page; all are in the plan and in the JSON."""
_TITLES: Final = {
    NoticeKind.LOSS: "Lost",
    NoticeKind.CONTRADICTION: "Contradictory",
    NoticeKind.WARNING: "To know before the brokers start",
    NoticeKind.GUESS: "Guessed",
}


def notice_row(notice: Notice) -> Row:
    """The object of a notice."""
    return {
        "type": "notice",
        "kind": notice.kind.value,
        "code": notice.code,
        "topic": notice.topic,
        "partition": notice.partition,
        "what": notice.what,
        "needs_acceptance": notice.needs_acceptance,
        "override": notice.override,
    }


def summary_row(plan: ClusterPlan, name: str, size_bytes: int | None) -> dict[str, Any]:
    """The summary of a plan.

    Args:
        plan: the plan.
        name: of the file.
        size_bytes: of the file; None if the plan was refused.
    """
    kinds = Counter(each.kind for each in plan.notices)
    partitions = [each for topic in plan.topics for each in topic.partitions]
    levels = {each.name: each.level for each in plan.features}
    return {
        "type": "summary",
        "file": name,
        "size_bytes": size_bytes,
        "is_refused": size_bytes is None,
        "cluster_id": plan.cluster_id,
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
    """The plan for people: counts, then what has to be decided, then the next command."""
    yield from _head(plan, summary)
    for kind, notices in groupby(plan.notices, key=lambda each: each.kind):
        yield ""
        yield f"{_TITLES[kind]}:"
        for code, found in groupby(notices, key=lambda each: each.code):
            yield from _group(code, list(found))
    yield ""
    yield from _last_lines(plan, summary)


def _head(plan: ClusterPlan, summary: Row) -> Iterator[str]:
    yield (
        f"cluster {plan.cluster_id}: {counted(summary['topics'], 'topic')},"
        f" {counted(summary['partitions'], 'partition')}"
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
    for notice in notices[:_SHOWN]:
        yield f"    {_named(notice)}{notice.what}"
    if len(notices) > _SHOWN:
        yield f"    and {len(notices) - _SHOWN} more"
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
        yield (
            f"{name} was not written: the plan drops"
            f" {counted(summary['need_acceptance'], 'thing')} that a disk has"
        )
        yield "next: decide with --set KEY=VALUE, or give --accept-loss"
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
