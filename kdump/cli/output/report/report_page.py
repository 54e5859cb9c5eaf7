"""The page of ``kdump report``: one file with its style, script and data, and no other source.

The page is made by Jinja2 with escaping; what its script shows comes as text from the data and is
only ever set as text. Its Content-Security-Policy allows this one style and these two scripts, by
their hashes, and nothing else: no network, no ``eval``, no inline style.
"""

from __future__ import annotations

import base64
import hashlib
import pkgutil
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

import kdump
from kdump.check.findings import Severity
from kdump.cli.output.report import pictures
from kdump.cli.output.report.island import PageTable, Strings, encode_island
from kdump.cli.output.report.page_tables import (
    finding_table,
    freeable_table,
    lag_table,
    partition_table,
    transaction_table,
)
from kdump.cli.output.report.redaction import Redaction
from kdump.cli.output.report.report_verdict import code_summaries, report_verdict
from kdump.cli.output.value_text import format_bytes, format_timestamp
from kdump.jobs.report.collected import CollectedResults
from kdump.jobs.report.consumer_lag import ConsumerLag
from kdump.jobs.report.freeable_space import FreeableSpace
from kdump.jobs.report.open_transactions_found import UnstablePartition
from kdump.log.directory import LogDirectory
from kdump.log.lock_holders import in_use_by

if TYPE_CHECKING:
    from markupsafe import Markup

LARGEST_PAGE_BYTES: Final = 6 << 20
"""Findings are left out, the least severe first, until the page is smaller, if it can be."""
_MOST_FINDINGS: Final = (20_000, 5_000, 1_000)
_OPTION: Final = re.compile(r"(--[a-z-]+)")
_SCRIPTS: Final = ("d3.min.js", "report.js")


class ReportContent(Struct, frozen=True):
    """What a report tells.

    Attributes:
        paths: as typed.
        lag: of consumer groups; None if it could not be read.
        unstable: partitions with open transactions.
        space: what retention and compaction would free; None if it could not be previewed.
        notes: what is missing in the report, and why.
        now_ms: the time of the report.
        selection: the options that select partitions, as typed.
    """

    paths: Sequence[str]
    directories: Sequence[LogDirectory]
    results: CollectedResults
    advice: Sequence[str]
    lag: ConsumerLag | None
    unstable: Sequence[UnstablePartition]
    space: FreeableSpace | None
    notes: Sequence[str]
    now_ms: int
    selection: str = ""


def render_report(content: ReportContent, redaction: Redaction) -> bytes:
    """The page."""
    page = b""
    for most in _MOST_FINDINGS:
        page = _rendered(content, redaction, most)
        if len(page) < LARGEST_PAGE_BYTES:
            break
    return page


def _rendered(content: ReportContent, redaction: Redaction, most_findings: int) -> bytes:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    style = _asset("report.css")
    scripts = [_asset(name) for name in _SCRIPTS]
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["bytes"] = format_bytes
    environment.filters["time"] = format_timestamp
    environment.filters["number"] = lambda number: f"{number:,}"
    environment.filters["shown"] = redaction.text
    environment.filters["spoken"] = _unbroken_options
    strings = Strings()
    tables = _tables(content, redaction, most_findings)
    drawn = _pictures(content, redaction, strings)
    page = environment.from_string(_asset("report.html")).render(
        policy=_policy(style, scripts),
        style=Markup(style),  # noqa: S704 - the package's own file
        scripts=[Markup(each) for each in scripts],  # noqa: S704 - the package's own files
        data=Markup(encode_island(tables, drawn, strings)),  # noqa: S704 - has no markup
        tables={name: len(table.rows) + table.left_out for name, table in tables.items()},
        pictures=drawn,
        **_facts(content, redaction),
    )
    return page.encode("utf-8")


def _unbroken_options(text: str) -> Markup:
    """Text in which no line ends inside an option, such as --policy."""
    from markupsafe import Markup, escape

    pieces = _OPTION.split(text)
    for at in range(1, len(pieces), 2):
        pieces[at] = Markup('<span class="option">{}</span>').format(pieces[at])
    return Markup().join(map(escape, pieces))


def _asset(name: str) -> str:
    data = pkgutil.get_data(__package__, name)
    assert data is not None, f"{name} is part of the package"
    return data.decode("utf-8").strip()


def _policy(style: str, scripts: Sequence[str]) -> str:
    allowed = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _tables(
    content: ReportContent, redaction: Redaction, most_findings: int
) -> dict[str, PageTable]:
    lags = () if content.lag is None else content.lag.lags
    space = () if content.space is None else content.space.partitions
    return {
        "findings": finding_table(content.results.findings, most_findings, redaction),
        "partitions": partition_table(content.results.reports, redaction),
        "lag": lag_table(lags, redaction),
        "transactions": transaction_table(content.unstable, redaction),
        "space": freeable_table(space, redaction),
    }


def _pictures(content: ReportContent, redaction: Redaction, strings: Strings) -> dict[str, Any]:
    results = content.results
    lags = () if content.lag is None else content.lag.lags
    return {
        "maps": pictures.map_picture(results.reports, strings, redaction),
        "sizes": pictures.size_picture(results.reports, strings, redaction),
        "times": pictures.time_picture(results, content.now_ms, strings, redaction),
        "batches": pictures.batch_picture(results.statistics),
        "lag": pictures.lag_picture(lags, strings, redaction),
        "transactions": pictures.transaction_picture(content.unstable, strings, redaction),
        "space": pictures.space_picture(content.space, strings, redaction),
    }


def _facts(content: ReportContent, redaction: Redaction) -> dict[str, Any]:
    """What the template itself shows."""
    results = content.results
    summaries = code_summaries(results.findings, redaction)
    verdict = report_verdict(results, content.directories)
    return {
        "version": kdump.__version__,
        "now_ms": content.now_ms,
        "paths": [redaction.path(each) for each in content.paths],
        "selection": content.selection,
        "is_redacted": redaction.is_redacted,
        "directories": [_directory(each, redaction) for each in content.directories],
        "verdict": verdict,
        "totals": results.totals,
        "severities": _severities(results),
        "actions": [_action(line, redaction) for line in content.advice],
        "summaries": [each for each in summaries if each.severity != Severity.INFO.label],
        "information": [each for each in summaries if each.severity == Severity.INFO.label],
        "lag": content.lag,
        "unstable": content.unstable,
        "space": content.space,
        "notes": [redaction.text(each) for each in content.notes],
    }


def _severities(results: CollectedResults) -> Mapping[str, int]:
    totals = results.totals
    found = {} if totals is None else totals.findings
    return {each.label: found.get(each, 0) for each in reversed(Severity)}


def _action(line: str, redaction: Redaction) -> tuple[str, str]:
    """A line of advice as a sentence and its command; empty if it has none."""
    # A path in the command may look like another command.
    sentence, colon, command = line.partition(": kdump ")
    shown = redaction.command(f"kdump {command}") if colon else ""
    return redaction.text(sentence), shown


def _shutdown(directory: LogDirectory) -> str:
    if in_use_by(directory.path):
        return "in use"
    return "clean" if directory.is_clean else "not clean"


def _directory(directory: LogDirectory, redaction: Redaction) -> dict[str, Any]:
    return {
        "path": redaction.path(str(directory.path)),
        "partitions": len(directory.identities),
        "shutdown": _shutdown(directory),
        "node": directory.node_id,
        "cluster": directory.cluster_id,
    }
