"""A finding as a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kdump.rows.row_type import INTEGER, TEXT, Field, RowType, one_of

if TYPE_CHECKING:
    from kdump.check.findings import Finding

SEVERITY: Final = one_of("info", "warning", "error", "severe")
FINDING: Final = RowType(
    "finding",
    "A problem or information; kdump-verify(1) explains every code.",
    (
        Field(
            "severity",
            SEVERITY,
            "How bad it is: `info`, `warning`, `error` or `severe`.",
            "Severity",
            alert=True,
        ),
        Field(
            "code",
            TEXT.limited(pattern="^[a-z0-9]+(-[a-z0-9]+)*$"),
            "Lower-case words with dashes; stable. `kdump explain` explains it.",
            "Code",
        ),
        Field("path", TEXT, "The file or directory.", "File"),
        Field("position", INTEGER.or_none, "Byte of the file.", "Byte", dropped=4),
        Field("offset", INTEGER.or_none, "Kafka offset.", "Offset", dropped=3),
        Field("what", TEXT, "The problem, in one sentence.", "What", dropped=6),
        Field("expected", TEXT.or_none, "What was expected.", "Expected", dropped=1),
        Field("found", TEXT.or_none, "What was found.", "Found", dropped=2),
        Field("loss", TEXT.or_none, "What is lost, or would be.", "Loss", dropped=5),
    ),
    shared="finding",
)


def finding_row(finding: Finding) -> dict[str, Any]:
    """Return a finding with the names of the JSON output."""
    return {
        "severity": finding.severity.label,
        "code": finding.code,
        "path": finding.place.path,
        "position": finding.place.position,
        "offset": finding.place.offset,
        "what": finding.what,
        "expected": finding.expected,
        "found": finding.found,
        "loss": finding.loss,
    }
