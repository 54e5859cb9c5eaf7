"""Findings as JUnit XML for build servers: a test case for each partition."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kdump.cli.output.value_text import escape_controls

if TYPE_CHECKING:
    from kdump.check.findings import Finding
    from kdump.jobs.verify.verify import VerifySummary
    from kdump.jobs.verify.verify_partition import PartitionReport

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class JunitPrinter:
    """Collect everything until the end: the first element of the file has the counts."""

    def __init__(self) -> None:
        self._cases: list[tuple[str, str, list[Finding]]] = []
        self._pending: list[Finding] = []
        self._seconds = 0.0

    def finding(self, finding: Finding) -> None:
        self._pending.append(finding)

    def partition(self, report: PartitionReport) -> None:
        of_log_dirs, own = report.split_findings(self._pending)
        if of_log_dirs:
            self._cases.append((report.log_dir, "log directory", of_log_dirs))
        self._cases.append((report.log_dir, report.partition.path.name, own))
        self._pending = []

    def summary(self, summary: VerifySummary) -> None:
        if self._pending:
            self._cases.append(("kdump", "log directory", self._pending))
        self._seconds = summary.seconds

    def emit_text(self, lines: Iterable[str]) -> None:
        pass

    def finish(self) -> None:
        """Write the file."""
        suite = ET.Element(
            "testsuite",
            name="kdump verify",
            tests=str(len(self._cases)),
            failures=str(sum(any(map(_is_failure, found)) for _, _, found in self._cases)),
            time=f"{self._seconds:.3f}",
        )
        for log_dir, name, findings in self._cases:
            case = ET.SubElement(suite, "testcase", classname=_text(log_dir), name=_text(name))
            failing = [each for each in findings if _is_failure(each)]
            if failing:
                worst = max(failing, key=lambda each: each.severity)
                failure = ET.SubElement(case, "failure", type=worst.code, message=_text(worst.what))
                failure.text = "\n".join(map(_line, failing))
            others = [each for each in findings if not _is_failure(each)]
            if others:
                ET.SubElement(case, "system-out").text = "\n".join(map(_line, others))
        # As bytes: the declaration names their encoding, whatever that of the stream is.
        sys.stdout.flush()
        sys.stdout.buffer.write(ET.tostring(suite, encoding="utf-8", xml_declaration=True) + b"\n")


def _is_failure(finding: Finding) -> bool:
    return finding.severity.is_damage


def _line(finding: Finding) -> str:
    return _text(f"{finding.severity.label}: {finding.place}: {finding.what} [{finding.code}]")


def _text(text: str) -> str:
    """Return ``text`` on one line, without control characters or what XML cannot hold."""
    return _NOT_XML.sub("\ufffd", escape_controls(text))
