"""The memory that a command takes for each partition is small, and as docs/memory.md says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from builders.partition_memory import bytes_for_each_partition

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "memory.md"

_KNOWN: Final = ("--topic", "*", "--config", "remote.storage.enable=false")
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "ls": ("{root}",),
    "info": ("{root}",),
    "verify": ("{root}",),
    "recover --dry-run": ("{root}",),
    "recover": ("{root}",),
    "rebuild-index": ("{root}",),
    "resolve --dry-run": ("{root}",),
    "retain --dry-run": (
        *(*_KNOWN, "--config", "cleanup.policy=delete"),
        *("--config", "retention.ms=1", "--high-watermark", "end", "{root}"),
    ),
    "retain": (
        *(*_KNOWN, "--config", "cleanup.policy=delete"),
        *("--config", "retention.ms=1", "--high-watermark", "end", "{root}"),
    ),
    "compact": (
        *(*_KNOWN, "--config", "cleanup.policy=compact"),
        *("--config", "delete.retention.ms=1", "--high-watermark", "end", "{root}"),
    ),
    "txns": ("{root}",),
    "lookup": ("--offset", "5", "{root}"),
    "copy": ("{root}", "{disk}"),
    "move": ("--drain", "{root}", "--to", "{disk}"),
    "move --dry-run": ("--drain", "{root}", "--to", "{disk}"),
}
"""The commands of the table, and what they are given."""

_OF_CLEAN: Final = ("retain --dry-run", "retain", "compact", "move", "move --dry-run")
"""Those that need a broker that was shut down cleanly."""


def documented() -> dict[str, int]:
    """Return KB for each partition, by command, from the table of the document."""
    rows = re.findall(r"^\| (.+?) \| (\d+) \|", DOCUMENT.read_text(), re.MULTILINE)
    return {
        command: int(kilobytes)
        for commands, kilobytes in rows
        for command in re.findall(r"`([^`]+)`", commands)
    }


def test_the_document_has_a_figure_for_each_command() -> None:
    assert documented().keys() == COMMANDS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_partition_takes_no_more_memory_than_documented(tmp_path: Path, command: str) -> None:
    for_each = bytes_for_each_partition(
        command, COMMANDS[command], tmp_path, is_clean=command in _OF_CLEAN
    )
    assert for_each < 1000 * documented()[command]
