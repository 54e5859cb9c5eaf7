"""A finding as a row for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kdump.check.findings import Finding


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
