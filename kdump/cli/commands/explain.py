"""Explain findings: what they mean and what to do first."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem
from msgspec.structs import asdict

from kdump.cli.output.events import Event, EventFormat, events_option, open_printer
from kdump.errors import ExitStatus, UsageProblem
from kdump.words import shell_command

if TYPE_CHECKING:
    from kdump.check.broker_messages import BrokerMessage
    from kdump.check.invariants import Invariant

_WIDTH: Final = 80
"""Columns of a paragraph, as in a page of the manual."""
_INDENT: Final = "  "


def _complete_code(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from kdump.check.invariants import INVARIANTS

    return [
        CompletionItem(code, help=invariant.meaning)
        for code, invariant in INVARIANTS.items()
        if code.startswith(incomplete)
    ]


@click.command("explain")
@click.argument("subjects", metavar="[CODE | MESSAGE]...", nargs=-1, shell_complete=_complete_code)
@events_option
def command(subjects: Sequence[str], output_format: EventFormat) -> ExitStatus:
    """Explain the codes of findings: what each means, what a starting broker does, what to do.

    CODE is the word in brackets at a finding, such as batch-checksum. MESSAGE is a line of a
    broker's or client's log, or its beginning, in quotes: print which findings are behind it.
    Without either, list all codes by severity.
    """
    from kdump.check.broker_messages import messages_in
    from kdump.check.explanations import read_explanations
    from kdump.check.invariants import INVARIANTS

    messages = {each: messages_in(each) for each in subjects if each not in INVARIANTS}
    for subject, found in messages.items():
        if not found:
            if messages_in(line := " ".join(subjects)):
                raise UsageProblem(f"put the message in quotes: {shell_command('explain', [line])}")
            raise UsageProblem(_unknown(subject, INVARIANTS))
    explanations = read_explanations()
    with open_printer(output_format) as printer:
        for number, subject in enumerate(dict.fromkeys(subjects or explanations)):
            blank = [""] * bool(number)
            for message in messages.get(subject, ()):
                printer.emit(Event("broker_message", asdict(message), [*blank, *_about(message)]))
                blank = [""]
            if subject in INVARIANTS:
                invariant, paragraphs = INVARIANTS[subject], explanations[subject]
                lines = [*blank, *_lines(invariant, paragraphs)] if subjects else []
                printer.emit(Event("explanation", _row(invariant, paragraphs), lines))
        if not subjects:
            printer.emit_text(_listing([INVARIANTS[code] for code in explanations]))
    return ExitStatus.SOUND


def _unknown(subject: str, codes: Collection[str]) -> str:
    import difflib

    if " " in subject:
        return (
            f"no message of a broker that kdump knows: {subject!r}; kdump verify LOG_DIR checks"
            " the directory itself"
        )
    similar = difflib.get_close_matches(subject, codes, 1)
    advice = f"; did you mean {similar[0]!r}?" if similar else "; 'kdump explain' lists all"
    return f"no finding {subject!r}{advice}"


def _about(message: BrokerMessage) -> Iterator[str]:
    """Yield what is known about a message, for people."""
    yield f'"{message.text}"'
    findings = f"Findings: {', '.join(message.codes)}." if message.codes else ""
    for paragraph in (message.meaning, findings, f"First: {message.advice}"):
        if paragraph:
            yield ""
            yield from _wrapped(paragraph)


def _wrapped(paragraph: str) -> list[str]:
    # A command that is broken at its hyphens could not be copied.
    return textwrap.wrap(
        paragraph,
        _WIDTH,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _row(invariant: Invariant, paragraphs: Sequence[str]) -> dict[str, Any]:
    from kdump.check.invariants import Remedy

    has_remedy = invariant.remedy is not Remedy.NONE
    return {
        "code": invariant.code,
        "severity": invariant.severity.label,
        "meaning": invariant.meaning,
        "remedy": invariant.remedy.value if has_remedy else None,
        "text": "\n\n".join(paragraphs),
    }


def _lines(invariant: Invariant, paragraphs: Sequence[str]) -> Iterator[str]:
    """Yield the explanation for people."""
    yield f"{invariant.code} ({invariant.severity.label}): {invariant.meaning}"
    for paragraph in (*paragraphs, f"verify --repair: {invariant.remedy.value}."):
        yield ""
        yield from _wrapped(paragraph)


def _listing(invariants: Sequence[Invariant]) -> Iterator[str]:
    """Yield all codes with their meaning, by severity."""
    width = max(len(invariant.code) for invariant in invariants)
    for severity, group in itertools.groupby(invariants, lambda each: each.severity):
        yield f"{severity.label}:"
        for invariant in group:
            yield f"{_INDENT}{invariant.code:{width}}  {invariant.meaning}"
