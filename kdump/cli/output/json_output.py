"""JSON output, with the header and end that frame it.

``--output jsonl`` writes one object per line, ``--output json`` one array of the same objects. The
first object is the header: it names the version of the schemas, the version of kdump, and the
command. The last object is the end: it has the exit status. Output without an end is
incomplete. Both are written here, and :func:`with_json_frame` makes every run with a JSON format
have them, also one that finds nothing, is refused or fails. ``docs/json.md`` describes all objects.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import click
from msgspec import Struct

import kdump
from kdump.formats.safe_json import format_json

Command = TypeVar("Command", bound=Callable[..., Any])

SCHEMA: Final = 1
"""Version of the schemas in ``docs/schemas``."""


class _Form(Struct, frozen=True):
    """The text around the objects of an output."""

    opening: str
    before: str
    after: str
    closing: str


_FORMS: Final = {
    "json": _Form(opening="[\n", before=",\n", after="", closing="\n]\n"),
    "jsonl": _Form(opening="", before="", after="\n", closing=""),
}
"""The formats by the word for ``--output``."""


class JsonOutput:
    """The JSON objects that one run writes to standard output.

    Runs with another format have one too, and never begin it.
    """

    def __init__(self) -> None:
        self._form: _Form | None = None
        self._header: dict[str, Any] | None = None
        self._is_ended = False
        self._is_writing = False

    def begin(self, form: str, command: str) -> None:
        """Make the output of this run JSON; nothing is written before the first object.

        Args:
            form: ``json`` or ``jsonl``.
            command: the command as typed, without ``kdump``: ``checkpoint show``.
        """
        self._form = _FORMS[form]
        self._header = {
            "type": "header",
            "schema": SCHEMA,
            "kdump": kdump.__version__,
            "command": command,
        }

    def row(self, row: Mapping[str, Any]) -> None:
        """Write one object.

        Raises:
            OSError: standard output cannot be written.
            OutputError: the same, if it is the standard output of the ``kdump`` process.
        """
        assert self._form is not None, "the command has its --output from output_option"
        if self._header is not None:
            text = self._form.opening + format_json(self._header) + self._form.after
            # First, so that a signal after the writing does not lead to a second header.
            self._header = None
            self._write(text)
        self._write(self._form.before + format_json(row) + self._form.after)

    def rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write many objects, as :meth:`row` does."""
        for row in rows:
            self.row(row)

    def end(self, exit_status: int) -> None:
        """Write the last object, after the header if nothing else was written.

        Does nothing if the output is not JSON or has ended. Does nothing either if writing failed
        or was interrupted: part of an object may have been written.

        Raises:
            OSError: standard output cannot be written.
            OutputError: the same, if it is the standard output of the ``kdump`` process.
        """
        if self._form is None or self._is_ended or self._is_writing:
            return
        self._is_ended = True
        self.row({"type": "end", "exit_status": exit_status})
        self._write(self._form.closing)

    def _write(self, text: str) -> None:
        self._is_writing = True
        sys.stdout.write(text)
        self._is_writing = False


def current_json_output() -> JsonOutput:
    """Return the JSON output of the current run."""
    answer = click.get_current_context().find_object(JsonOutput)
    assert answer is not None, "kdump.cli.main.run gives every run one"
    return answer


def with_json_frame(command: Command, format_argument: str) -> Command:
    """Wrap a command so that its output has a header and an end if the format is JSON.

    Args:
        command: the callback of a command.
        format_argument: name of its argument for the format: an enum whose value is the word.
    """

    @functools.wraps(command)
    def begun(*args: Any, **named: Any) -> Any:
        form = named[format_argument].value
        if form in _FORMS:
            _, _, name = click.get_current_context().command_path.partition(" ")
            current_json_output().begin(form, name)
        return command(*args, **named)

    return begun  # type: ignore[return-value]
