"""Read the explanation of each code: ``explanations.rst``, which kdump-verify(1) includes."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator, Mapping
from typing import Final

_INDENT: Final = "    "
_MARKUP: Final = re.compile(r"\*\*|(?<!\\)\*|\\ ?")
"""What the text has of reStructuredText: bold, emphasis, and escapes."""


def read_explanations() -> Mapping[str, tuple[str, ...]]:
    """The paragraphs about each code, without markup, each on one line; in the manual's order."""
    data = pkgutil.get_data(__package__, "explanations.rst")
    assert data is not None, "explanations.rst is part of the package"
    return {code: tuple(_paragraphs(lines)) for code, lines in _entries(data.decode())}


def _entries(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each code, alone on a line, with the indented lines after it."""
    code, body = "", list[str]()
    for line in [*text.splitlines(), "-"]:
        if line and not line.startswith(_INDENT):
            if any(body):
                yield code, body
            code, body = line, []
        else:
            body.append(line.removeprefix(_INDENT))


def _paragraphs(lines: list[str]) -> Iterator[str]:
    for paragraph in "\n".join(lines).strip().split("\n\n"):
        yield _MARKUP.sub("", " ".join(paragraph.split()))
