"""What of names and paths a report shows.

Keys and values of records, client ids and hosts of members are in no report. With ``--redact``
transactional ids are numbered, since they are often made of the names of hosts and applications,
and paths lose everything before the log directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kdump.cli.output.value_text import escape_controls


@dataclass(slots=True)
class Redaction:
    """Turns text into what may be shown.

    Attributes:
        is_redacted: whether anything is left out.
        places: what to show instead of a path, by the path; the longest that matches counts.
    """

    is_redacted: bool
    places: Mapping[str, str]
    _numbers: dict[str, int] = field(default_factory=dict)
    _pattern: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        if self.is_redacted and self.places:
            longest_first = sorted(self.places, key=len, reverse=True)
            # Not inside another path: /data must not match in /data2.
            self._pattern = re.compile(
                rf"(?<![\w./-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w-])"
            )

    def text(self, text: str) -> str:
        """Text in which paths may occur; control characters are escaped."""
        if self._pattern is not None:
            text = self._pattern.sub(lambda match: self.places[match[0]], text)
        return escape_controls(text)

    def transactional_id(self, text: str) -> str:
        """A transactional id, or its number in this report."""
        if not self.is_redacted:
            return escape_controls(text)
        number = self._numbers.setdefault(text, len(self._numbers) + 1)
        return f"transactional id {number}"


def redaction(*, is_redacted: bool, log_dirs: Iterable[str], files: Iterable[str]) -> Redaction:
    """The redaction of a report.

    Args:
        is_redacted: whether anything is left out.
        log_dirs: paths of log directories, as typed and as found; they are numbered.
        files: other paths on the command line.
    """
    places: dict[str, str] = {}
    for number, path in enumerate(dict.fromkeys(log_dirs), start=1):
        places[path.rstrip("/") or path] = f"LOG_DIR_{number}"
    for path in files:
        places.setdefault(path, "FILE")
    return Redaction(is_redacted, places)
