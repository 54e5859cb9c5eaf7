"""The verdict on log directories in one sentence, and what to do about each kind of finding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.check.explanations import read_explanations
from kdump.check.findings import Finding, Severity
from kdump.check.invariants import INVARIANTS, Remedy
from kdump.cli.output.report.redaction import Redaction
from kdump.cli.output.value_text import format_bytes
from kdump.jobs.loading.verdict_words import NOT_SERVED_CODES
from kdump.jobs.report.collected import CollectedResults
from kdump.jobs.verify.verify_partition import PartitionReport
from kdump.log.directory import LogDirectory
from kdump.log.lock_holders import in_use_by
from kdump.target.refusal import OFFLINE

MOST_PLACES: Final = 3
"""The places named for each code; the table has all."""


class ReportVerdict(Struct, frozen=True):
    """The verdict.

    Attributes:
        word: for the color: ``sound``, ``unclean``, ``damaged`` or ``unknown``.
    """

    word: str
    sentence: str

    @property
    def label(self) -> str:
        """The verdict in a word or two, as it is shown."""
        return "no damage" if self.word == "sound" else self.word


class CodeSummary(Struct, frozen=True):
    """All findings of one code and severity.

    Attributes:
        severity: of the findings, as a word.
        meaning: what is wrong, in a few words.
        files: in how many files.
        places: the first of them, with what is wrong there.
        paragraphs: the explanation: what it means, what a broker does, what to do first.
        remedy: what ``kdump verify --repair`` does; empty if nothing.
    """

    code: str
    severity: str
    meaning: str
    count: int
    files: int
    places: tuple[str, ...]
    paragraphs: tuple[str, ...]
    remedy: str


def report_verdict(results: CollectedResults, directories: Sequence[LogDirectory]) -> ReportVerdict:
    """Say in one sentence how the directories are."""
    totals = results.totals
    if totals is None:
        return ReportVerdict("unknown", "Nothing could be verified.")
    damaged = [each for each in results.reports if each.worst is not None and each.worst.is_damage]
    worst = max((each.severity for each in results.findings), default=Severity.INFO)
    total = _partitions(totals.partitions)
    unread = "" if not totals.is_unreadable else " Not everything could be read."
    is_in_use = any(in_use_by(each.path) for each in directories)
    if is_in_use:
        unread += " What a start would do is not judged: stop the broker first."
    if damaged or worst.is_damage:
        return ReportVerdict("damaged", _damage_sentence(damaged, results, total) + unread)
    if totals.is_unreadable:
        return ReportVerdict("unknown", f"No damage found in what could be read of {total}.")
    if is_in_use:
        return ReportVerdict("unknown", f"No damage found in {total}.{unread}")
    losing = sum(each.verdict_kind == "loss" for each in results.reports)
    if losing:
        return ReportVerdict(
            "unclean",
            f"No damage found, but a starting broker would lose data in {losing:,} of {total}.",
        )
    if not all(each.is_clean for each in directories):
        return ReportVerdict(
            "unclean",
            f"No damage found in {total}. The last shutdown was not clean: a starting broker would"
            " recover the logs without losing a batch.",
        )
    return ReportVerdict("sound", f"No damage found: {total} checked, byte by byte.")


def _partitions(count: int) -> str:
    """So many partitions, with the thousands marked as in the tiles of the page."""
    return f"{count:,} {'partition' if count == 1 else 'partitions'}"


def _damage_sentence(
    damaged: Sequence[PartitionReport], results: CollectedResults, total: str
) -> str:
    totals = results.totals
    assert totals is not None
    size_bytes = totals.account.damaged_bytes
    where = f"{len(damaged):,} of {total}" if damaged else "files outside the partitions"
    amount = f", {format_bytes(size_bytes)} in all" if size_bytes else ""
    return f"Damage in {where}{amount}: {_consequence(damaged)}."


def _consequence(damaged: Sequence[PartitionReport]) -> str:
    if not damaged:
        return "no partition is damaged"
    kinds = [each.verdict_kind for each in damaged]
    refused = [each.verdict for each in damaged if each.verdict_kind == "refused"]
    if refused:
        is_sure = any(OFFLINE not in each for each in refused)
        return f"a broker would {'refuse to start' if is_sure else OFFLINE}"
    losing = kinds.count("loss") + kinds.count("replaced")
    if losing:
        return f"a starting broker would lose data in {_partitions(losing)}"
    codes = {code for each in damaged for code in each.findings}
    if set(kinds) & {"stray", "offline"} or codes & NOT_SERVED_CODES:
        return "a starting broker would not serve all of them"
    if "" in kinds:
        # Logs of Kafka 0.7, segments alone, and what cannot be read have no verdict.
        return "what a starting broker would do is not known here"
    if "rebuilt" in kinds:
        return "a starting broker would lose no batch, and may not notice all of it"
    return "a starting broker would not notice, and serve the logs as they are"


def code_summaries(findings: Iterable[Finding], redaction: Redaction) -> list[CodeSummary]:
    """Group findings by severity and code, the worst first, in the manual's order."""
    groups: dict[tuple[Severity, str], list[Finding]] = {}
    for each in findings:
        groups.setdefault((each.severity, each.code), []).append(each)
    explanations = read_explanations()
    order = {code: number for number, code in enumerate(INVARIANTS)}
    return [
        _summary(severity, code, own, explanations.get(code, ()), redaction)
        for (severity, code), own in sorted(
            groups.items(), key=lambda each: (-each[0][0], order.get(each[0][1], len(order)))
        )
    ]


def _summary(
    severity: Severity,
    code: str,
    findings: Sequence[Finding],
    paragraphs: tuple[str, ...],
    redaction: Redaction,
) -> CodeSummary:
    remedy = INVARIANTS[code].remedy
    return CodeSummary(
        code=code,
        severity=severity.label,
        meaning=INVARIANTS[code].meaning,
        count=sum(1 + each.more for each in findings),
        files=len({each.place.path for each in findings}),
        places=tuple(_place(each, redaction) for each in findings[:MOST_PLACES]),
        paragraphs=paragraphs,
        remedy="" if remedy is Remedy.NONE else remedy.value,
    )


def _place(finding: Finding, redaction: Redaction) -> str:
    place = replace(finding.place, path=redaction.path(finding.place.path))
    return f"{place}: {redaction.text(finding.what)}"
