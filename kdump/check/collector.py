"""Collect findings, and limit how many of one code are reported one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from kdump.check.findings import Finding

MOST_OF_A_CODE: Final = 20
"""Findings of one code reported one by one in a part of a file; the rest are counted."""


class Collector:
    """Collects the findings about one part of one file."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._more: dict[str, Finding] = {}
        self._count: Counter[str] = Counter()

    def add(self, finding: Finding) -> None:
        self._count[finding.code] += 1
        if self._count[finding.code] <= MOST_OF_A_CODE:
            self._findings.append(finding)
            return
        last = self._more.get(finding.code)
        if last is None or finding.severity > last.severity:
            self._more[finding.code] = finding

    def add_each(self, code: str, rows: Iterable[int], describe: Callable[[int], Finding]) -> None:
        """Add a finding of ``code`` for each row; ``describe`` is called up to the limit only."""
        for row in rows:
            if self._count[code] <= MOST_OF_A_CODE:
                self.add(describe(row))
            else:
                self._count[code] += 1

    def findings(self) -> tuple[Finding, ...]:
        """All findings in order; those of one code past the limit are one finding at the end."""
        return (
            *self._findings,
            *(
                replace(
                    finding,
                    what=f"{finding.what}; and {self._count[code] - MOST_OF_A_CODE - 1} more"
                    " like it in this part of the file",
                    more=self._count[code] - MOST_OF_A_CODE - 1,
                )
                if self._count[code] > MOST_OF_A_CODE + 1
                else finding
                for code, finding in self._more.items()
            ),
        )
