"""The commands of a runbook, as somebody would copy them from it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_PROGRAMS: Final = ("kdump", "kafka-")


def commands_of(name: str) -> list[str]:
    """Return the lines of ``docs/runbooks/NAME.md`` that are commands, in their order."""
    text = (_ROOT / "docs" / "runbooks" / f"{name}.md").read_text(encoding="utf-8")
    lines = (line.strip() for line in text.splitlines() if line.startswith("    "))
    return [line for line in lines if line.startswith(_PROGRAMS)]


def words_of(command: str, instead: Mapping[str, str]) -> list[str]:
    """Split a command into words, with the names of a real case instead of the runbook's."""
    for name, real in instead.items():
        command = command.replace(name, real)
    return shlex.split(command)
