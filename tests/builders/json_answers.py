"""Ask kdump in JSON, and parse its output: the objects between header and end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kdump
from builders.in_process import run_kdump
from kdump.cli.output.json_output import SCHEMA

Row = dict[str, Any]


def all_objects(answer: bytes | str) -> list[Row]:
    """Return every object of an answer, from one array or an object per line."""
    text = answer.decode() if isinstance(answer, bytes) else answer
    found: list[Row]
    if text.startswith("["):
        found = json.loads(text)
    else:
        assert not text or text.endswith("\n"), "the last line is whole"
        found = [json.loads(line) for line in text.split("\n")[:-1]]
    return found


def objects(answer: bytes | str) -> list[Row]:
    """Return the objects of a complete answer without its header and end.

    Raises:
        AssertionError: header or end is missing, or there are several.
    """
    header, *found, end = all_objects(answer)
    command = header.pop("command")
    assert command
    assert header == {"type": "header", "schema": SCHEMA, "kdump": kdump.__version__}
    assert sorted(end) == ["exit_status", "type"]
    assert end["type"] == "end"
    assert not [each for each in found if each["type"] in ("header", "end")]
    return found


def asked(*words: str | Path, status: int = 0) -> list[Row]:
    """Run kdump, which must end with this exit status; return the objects of its answer."""
    done = run_kdump([*map(str, words), "--output", "jsonl"], Path.cwd())
    assert done.exit_status == status, (words, done.stderr, done.stdout[-3000:])
    return objects(done.stdout)
