"""Make the site: the pages of docs and the manual, and one for each finding and broker message.

``./dev docs`` runs this. The pages lie in ``build/site/pages`` as in the repository, so that links
between them are the same, and MkDocs makes ``build/site/html`` of them, which opens from disk and
loads nothing from elsewhere. A link that leads nowhere ends the run.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Final

from mkdocs.commands.build import build
from mkdocs.config import load_config

from kdump import __version__
from kdump.check.broker_messages import ANYTHING, BROKER_MESSAGES, BrokerMessage
from kdump.check.explanations import read_explanations
from kdump.check.findings import Severity
from kdump.check.invariants import INVARIANTS, Invariant, Remedy
from list_indents import widen_lists
from manual_pages import manual_page

ROOT: Final = Path(__file__).parent.parent
_COPIED: Final = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE",
    "bench/README.md",
    "tests/builders/README.md",
)
_FOR_OPERATORS: Final = ("serve", "export", "python", "kafka-log", "tables", "payloads")
_TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)
_WORKER: Final = "iframe-worker.js"
_SCRIPT: Final = "accessible.js"
_STYLE: Final = "accessible.css"
_RUNBOOK: Final = "Runbook: "
_COMMANDS: Final = [page.stem.removeprefix("kdump-") for page in (ROOT / "man").glob("kdump-*.rst")]
_COMMAND: Final = re.compile(
    rf"\bkdump (?:{'|'.join(_COMMANDS)})\b(?: (?:show|set|plan|collect|rebuild)\b)?"
    r"(?: (?:--[a-z-]+|salvage|log-start-offset|'\*'|[A-Z][A-Z_-]+(?:=\w+|\.\.\.)?))*"
    r"|(?<![\w-])--[a-z][a-z-]+(?: salvage)?"
)
"""A command, or an option, in a sentence."""


def make_pages(pages: Path) -> Sequence[Any]:
    """Write all pages, and return the navigation.

    Args:
        pages: an empty directory.
    """
    for name in _COPIED:
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, pages / name)
    shutil.copytree(ROOT / "docs", pages / "docs")
    for page in [*pages.glob("*.md"), *pages.glob("docs/**/*.md")]:
        linked = re.sub(r"(\]\([^)]*man/[\w-]+)\.rst", r"\1.md", page.read_text())
        page.write_text(widen_lists(linked))
    runbooks = {_title_of(each): each for each in sorted((pages / "docs/runbooks").glob("*.md"))}
    manual = [_write(pages / "man" / f"{page.stem}.md", manual_page(page)) for page in _manual()]
    messages = {each: f"{_slug(each.text)}.md" for each in BROKER_MESSAGES}
    findings = _write_findings(pages / "findings", messages)
    for message, name in messages.items():
        _write(pages / "messages" / name, _message_page(message, runbooks))
    _write(pages / "messages" / "index.md", _message_list(messages))
    reading = [pages / "docs" / f"{name}.md" for name in _FOR_OPERATORS]
    rest = [each for each in sorted((pages / "docs").glob("*.md")) if each not in reading]
    return [
        {"kdump": "README.md"},
        {"Runbooks": _links(runbooks.values(), pages)},
        {"Findings": ["findings/index.md", *_links(findings, pages)]},
        {
            "Messages of brokers": [
                "messages/index.md",
                *(f"messages/{m}" for m in messages.values()),
            ]
        },
        {"Commands": _links(manual, pages)},
        {"Reading records": _links(reading, pages)},
        {"Reference": _links(rest, pages)},
        {"Project": [name for name in _COPIED if name != "README.md" and name.endswith(".md")]},
    ]


def _manual() -> list[Path]:
    return sorted((ROOT / "man").glob("*.rst"))


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def _links(paths: Iterable[Path], pages: Path) -> list[str]:
    return [each.relative_to(pages).as_posix() for each in paths]


def _title_of(page: Path) -> str:
    found = _TITLE.search(page.read_text())
    assert found is not None, f"{page} has a title"
    return found[1]


# Findings


def _write_findings(folder: Path, messages: Mapping[BrokerMessage, str]) -> list[Path]:
    explained = read_explanations()
    written = []
    for code, paragraphs in explained.items():
        behind = {each: name for each, name in messages.items() if code in each.codes}
        written.append(
            _write(folder / f"{code}.md", _finding_page(INVARIANTS[code], paragraphs, behind))
        )
    _write(folder / "index.md", _finding_list([INVARIANTS[code] for code in explained]))
    return written


def _finding_page(
    invariant: Invariant, paragraphs: Sequence[str], messages: Mapping[BrokerMessage, str]
) -> str:
    lines = [
        f"# {invariant.code}",
        f"**{invariant.severity.label}**: {invariant.meaning}.",
        *map(_escaped, paragraphs),
        "On a terminal:",
        f"    kdump verify LOG_DIR\n    kdump explain {invariant.code}",
    ]
    if invariant.remedy is not Remedy.NONE:
        lines += [
            "To repair, after a preview with `--dry-run`:",
            "    kdump verify --repair LOG_DIR",
            f"What that does: {_escaped(invariant.remedy.value)}.",
        ]
    if messages:
        links = (_linked(each, f"../messages/{name}") for each, name in messages.items())
        lines += ["A broker or a client may say:", "\n".join(f"- {link}" for link in links)]
    return "\n\n".join(lines) + "\n"


def _finding_list(invariants: Sequence[Invariant]) -> str:
    lines = ["# Findings", "", "What `kdump verify` finds, by severity."]
    for severity in reversed(Severity):
        lines += ["", f"## {severity.label}", "", "| code | meaning |", "| --- | --- |"]
        lines += [
            f"| [{each.code}]({each.code}.md) | {each.meaning} |"
            for each in invariants
            if each.severity is severity
        ]
    return "\n".join(lines) + "\n"


# Messages


def _message_page(message: BrokerMessage, runbooks: Mapping[str, Path]) -> str:
    advice = _escaped(message.advice)
    if message.advice.startswith(_RUNBOOK):
        title = message.advice.removeprefix(_RUNBOOK).removesuffix(".")
        page = next(path for name, path in runbooks.items() if name.startswith(title))
        advice = f"Runbook: [{title}](../docs/runbooks/{page.name})"
    lines = [
        f"# {_shown(message)}",
        "In the log of a broker or of a client:",
        f"    {_shown(message)}",
        _escaped(message.meaning),
        f"**First:** {advice}",
    ]
    if message.codes:
        lines.append("Findings of `kdump verify LOG_DIR` that are behind it:")
        lines.append("\n".join(f"- [{code}](../findings/{code}.md)" for code in message.codes))
    return "\n\n".join(lines) + "\n"


def _message_list(messages: Mapping[BrokerMessage, str]) -> str:
    lines = [
        "# Messages of brokers and clients",
        "",
        'What a line of a log means. `kdump explain "MESSAGE"` says the same on a terminal.',
        "",
        *(f"- {_linked(message, name)}" for message, name in messages.items()),
    ]
    return "\n".join(lines) + "\n"


def _linked(message: BrokerMessage, target: str) -> str:
    return f"[{_shown(message)}]({target})"


def _shown(message: BrokerMessage) -> str:
    """A message, with what may be anything marked, also at its end."""
    text = " ".join(message.text.replace(ANYTHING, f" {ANYTHING} ").split())
    if message.text[-1].isalnum() or message.text.endswith("."):
        return text
    return f"{text}{ANYTHING}" if text.endswith(("(", "'")) else f"{text} {ANYTHING}"


def _slug(text: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", text.lower())) or "message"


def _escaped(text: str) -> str:
    """Plain text as Markdown, with commands and options as code."""
    plain = [re.sub(r"([\\`*_<>\[\]])", r"\\\1", each) for each in _COMMAND.split(text)]
    code = [f"`{each}`" for each in _COMMAND.findall(text)]
    return "".join(chain.from_iterable(zip_longest(plain, code, fillvalue="")))


# The site


def make_site(pages: Path, html: Path) -> None:
    """Make the site.

    Args:
        pages: directory for the pages; what is in it is deleted.
        html: directory for the site; likewise.

    Raises:
        mkdocs.exceptions.Abort: a link leads nowhere, or a page is not in the navigation.
    """
    for folder in (pages, html):
        shutil.rmtree(folder, ignore_errors=True)
    pages.mkdir(parents=True)
    navigation = make_pages(pages)
    (pages / "assets").mkdir()
    for name in (_WORKER, _SCRIPT, _STYLE):
        shutil.copy(ROOT / "site" / name, pages / "assets")
    configuration = {
        "site_name": "kdump",
        "site_description": "Read, check and repair the log directories of a stopped Kafka broker",
        "copyright": f"kdump {__version__}",
        "docs_dir": str(pages),
        "site_dir": str(html),
        # Links to files, not to directories, so that the site opens from disk.
        "use_directory_urls": False,
        "strict": True,
        "theme": {
            "name": "material",
            "font": False,
            "palette": [
                # Without the first one, a browser keeps the colours of the first visit.
                _palette("", None, "material/brightness-auto", "light colours"),
                _palette(": light", "default", "material/weather-sunny", "dark colours"),
                _palette(": dark", "slate", "material/weather-night", "the colours of the system"),
            ],
            "features": ["content.code.copy", "navigation.indexes", "navigation.prune"],
        },
        "plugins": ["search", "offline"],
        "extra_css": [f"assets/{_STYLE}"],
        "extra_javascript": [f"assets/{_SCRIPT}"],
        # Without a script of this name the theme loads one from elsewhere.
        "extra": {"polyfills": [f"assets/{_WORKER}"], "generator": False},
        "validation": {"omitted_files": "warn", "absolute_links": "warn", "anchors": "warn"},
        "nav": navigation,
    }
    written = _write(pages.parent / "mkdocs.yml", json.dumps(configuration))
    build(load_config(str(written), strict=True))
    # A page of web servers, which would load its style from their root.
    (html / "404.html").unlink()


def _palette(preferred: str, scheme: str | None, icon: str, then: str) -> dict[str, Any]:
    """Colours, and the button to the next ones.

    Args:
        preferred: what a browser has to prefer, as CSS has it; empty for either.
        scheme: of the theme; None for what the browser prefers.
        icon: of the button.
        then: the next colours.
    """
    palette: dict[str, Any] = {
        "media": f"(prefers-color-scheme{preferred})",
        "toggle": {"icon": icon, "name": f"Switch to {then}"},
    }
    return palette | ({"scheme": scheme} if scheme else {})


def main() -> None:
    """Make the site in ``build/site``."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    folder = ROOT / "build" / "site"
    make_site(folder / "pages", folder / "html")
    print(folder / "html" / "index.html")


if __name__ == "__main__":
    main()
