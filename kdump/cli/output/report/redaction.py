"""What of names and paths a report shows.

Keys and values of records, client ids and hosts of members are in no report. With ``--redact``
transactional ids are numbered, since they are often made of the names of hosts and applications,
and paths lose everything before the log directory.
"""

from __future__ import annotations

import re
import shlex
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
    _written: dict[str, str] = field(default_factory=dict)
    _pattern: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        if not self.is_redacted or not self.places:
            return
        for path, shown in self.places.items():
            for each in _spellings(path):
                self._written.setdefault(each, shown)
        longest_first = sorted(self._written, key=len, reverse=True)
        # Not inside another path: /data must not match in /data2.
        self._pattern = re.compile(rf"(?<![\w./-])(?:{'|'.join(map(_occurrence, longest_first))})")

    def text(self, text: str) -> str:
        """Text in which paths may occur; control characters are escaped."""
        if self._pattern is not None:
            text = self._pattern.sub(lambda match: self._written[match[0]], text)
        return escape_controls(text)

    def path(self, path: str) -> str:
        """A path, and nothing else."""
        return escape_controls(self._replaced(path) or self.text(path))

    def command(self, command: str) -> str:
        """A command that is quoted for a shell."""
        if not self.is_redacted:
            return escape_controls(command)
        return escape_controls(shlex.join(map(self._word, shlex.split(command))))

    def _word(self, word: str) -> str:
        option, equals, value = word.partition("=")
        if equals and option.startswith("--"):
            return f"{option}={self._replaced(value) or value}"
        return self._replaced(word) or word

    def _replaced(self, path: str) -> str | None:
        """A path with what is shown instead of its beginning; None if nothing is."""
        if not self.is_redacted:
            return None
        for place in sorted(self.places, key=len, reverse=True):
            if path.rstrip("/") == place.rstrip("/"):
                return self.places[place]
            if path.startswith(f"{place.rstrip('/')}/"):
                return f"{self.places[place]}/{path[len(place) :].lstrip('/')}"
        return None

    def transactional_id(self, text: str) -> str:
        """A transactional id, or its number in this report."""
        if not self.is_redacted:
            return escape_controls(text)
        number = self._numbers.setdefault(text, len(self._numbers) + 1)
        return f"transactional id {number}"


def _spellings(path: str) -> set[str]:
    """A path as texts have it: as it is, or without the quotes of a shell or of Python."""
    quoted = shlex.quote(path)
    inner = path if quoted == path else quoted[1:-1]
    return {path, inner, repr(path)[1:-1], escape_controls(path)}


def _occurrence(path: str) -> str:
    """The pattern of a path in a text.

    A name without a slash may be a word of the text, unless a path or a message follows it.
    """
    if "/" in path:
        return rf"{re.escape(path)}(?![\w-]|\.\w)"
    return rf"(?:{re.escape(path)}(?=/)|^{re.escape(path)}(?=: ))"


def redaction(*, is_redacted: bool, log_dirs: Iterable[str], files: Iterable[str]) -> Redaction:
    """The redaction of a report.

    Args:
        log_dirs: paths of log directories, as typed and as found; they are numbered.
        files: other paths on the command line.
    """
    places: dict[str, str] = {}
    for number, path in enumerate(dict.fromkeys(log_dirs), start=1):
        places[path.rstrip("/") or path] = f"LOG_DIR_{number}"
    for path in filter(None, files):
        places.setdefault(path, "FILE")
    return Redaction(is_redacted, places)
