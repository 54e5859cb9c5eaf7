"""Short lists for people without ``--verbose``: a few items of each kind, then a count.

A directory of ten thousand partitions has tens of thousands of findings and changes, nearly all
alike and harmless. They are counted, so that the few that matter stay visible. Damage is never
hidden across files: every damaged file has its line. Programs get everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kdump.cli.output.colour import severity_line
from kdump.storage.location import Location
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.check.findings import Finding, Severity

MAX_ALIKE: Final = 2
"""The most findings of one code to show for each file."""
MAX_FILES: Final = 20
"""The most files to show for a warning of one code; every file with damage is shown."""
MAX_LISTED: Final = 20
"""The most partitions without loss, and the most changes of a run, to list."""

_HOW: Final = "(--verbose shows all)"


def finding_line(finding: Finding) -> str:
    """Return a finding as a line for people."""
    line = f"{finding.place}: {finding.what} [{finding.code}]"
    for name, value in (
        ("expected", finding.expected),
        ("found", finding.found),
        ("lost", finding.loss),
    ):
        if value is not None:
            line += f"; {name} {value}"
    return severity_line(finding.severity.label, line)


class BriefFindings:
    """Choose the findings to show, in order of arrival."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._seen: Counter[tuple[str, str]] = Counter()
        self._more: dict[tuple[str, str], tuple[int, Severity]] = {}
        self._files: Counter[tuple[Severity, str]] = Counter()
        self._hidden_files: Counter[tuple[Severity, str]] = Counter()
        self.hidden = 0
        """The number of findings above info that were counted and not shown."""

    def takes(self, finding: Finding) -> bool:
        """Whether to show the finding; if not, it is counted."""
        if self._verbose:
            return True
        if not finding.severity:
            return False
        key = finding.place.path, finding.code
        if key not in self._seen and not self._takes_file(finding):
            self.hidden += 1 + finding.more
            return False
        self._seen[key] += 1
        if self._seen[key] <= MAX_ALIKE:
            return True
        count, worst = self._more.get(key, (0, finding.severity))
        self._more[key] = count + 1 + finding.more, max(worst, finding.severity)
        self.hidden += 1 + finding.more
        return False

    def _takes_file(self, finding: Finding) -> bool:
        if finding.severity.is_damage:
            return True
        of_code = finding.severity, finding.code
        self._files[of_code] += 1
        if self._files[of_code] <= MAX_FILES:
            return True
        self._hidden_files[of_code] += 1
        return False

    def more(self) -> Iterator[str]:
        """Yield the counts so far; call it at the end of each partition."""
        for (path, code), (count, worst) in self._more.items():
            yield severity_line(worst.label, f"{path}: … and {count} more [{code}] {_HOW}")
        self._more = {}
        self._seen.clear()

    def rest(self) -> Iterator[str]:
        """Yield the last counts; call it once, at the end."""
        yield from self.more()
        for (severity, code), count in self._hidden_files.items():
            more = counted(count, "more time", "more times")
            yield severity_line(severity.label, f"… {more} [{code}] {_HOW}")
        self._hidden_files.clear()


class Unchanged:
    """What is left unchanged, by reason: the first few of each, then a count."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._paths: dict[str, list[Location]] = {}

    def take(self, path: Location, why: str) -> None:
        """Add a partition or a log directory that is left unchanged."""
        self._paths.setdefault(why, []).append(path)

    def lines(self) -> Iterator[str]:
        """Yield the lines."""
        for why, paths in self._paths.items():
            shown = paths if self._verbose else paths[:MAX_LISTED]
            yield from (f"{path}: left unchanged: {why}" for path in shown)
            if more := len(paths) - len(shown):
                yield f"… and {counted(more, 'more partition')} left unchanged: {why} {_HOW}"


def first_of(lines: Sequence[str], *, verbose: bool) -> Iterator[str]:
    """Yield the first few lines about one thing, then a count of the rest."""
    if verbose or len(lines) <= MAX_LISTED:
        yield from lines
        return
    yield from lines[:MAX_LISTED]
    yield f"… and {len(lines) - MAX_LISTED} more {_HOW}"


class BriefList:
    """Choose the partitions without loss to list: the first few, then a count."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._count = 0

    def take(self, lines: Sequence[str]) -> Sequence[str]:
        """Return the lines about a partition that are to be shown."""
        self._count += bool(lines)
        return lines if self._verbose or self._count <= MAX_LISTED else ()

    def rest(self) -> Iterator[str]:
        """Yield the count of partitions that were not listed."""
        more = self._count - MAX_LISTED
        if more > 0 and not self._verbose:
            yield f"… and {counted(more, 'more partition')} without loss {_HOW}"
