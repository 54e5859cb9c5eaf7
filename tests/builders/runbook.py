"""The commands of a runbook, as somebody would copy them from it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from builders.in_process import Outcome, run_kdump

_ROOT: Final = Path(__file__).resolve().parents[2]
_PROGRAMS: Final = ("kdump", "kafka-")


class Followed:
    """A runbook whose commands of kdump are run in their order, a few at a time.

    Args:
        name: of the runbook.
        folder: where they run.
        instead: what stands for the names in the runbook, the longest first.
    """

    def __init__(self, name: str, folder: Path, instead: Mapping[str, str | Path]) -> None:
        self.left = [line for line in commands_of(name) if line.startswith("kdump")]
        self._folder = folder
        self._instead = {name: str(real) for name, real in instead.items()}

    def run(self, *subcommands: str) -> list[Outcome]:
        """Run the next commands, which must be these; return what they print."""
        lines, self.left = self.left[: len(subcommands)], self.left[len(subcommands) :]
        words = [words_of(line, self._instead)[1:] for line in lines]
        assert [each[0] for each in words] == [*subcommands]
        return [run_kdump(each, self._folder) for each in words]


def commands_of(name: str, *programs: str) -> list[str]:
    """Return the lines of ``docs/runbooks/NAME.md`` that are commands, in their order.

    Args:
        programs: with which they begin; without any, kdump and the programs of Kafka.
    """
    text = (_ROOT / "docs" / "runbooks" / f"{name}.md").read_text(encoding="utf-8")
    lines = (line.strip() for line in text.splitlines() if line.startswith("    "))
    return [line for line in lines if line.startswith(programs or _PROGRAMS)]


def words_of(command: str, instead: Mapping[str, str]) -> list[str]:
    """Split a command into words, with the names of a real case instead of the runbook's."""
    for name, real in instead.items():
        command = command.replace(name, real)
    return shlex.split(command, comments=True)
