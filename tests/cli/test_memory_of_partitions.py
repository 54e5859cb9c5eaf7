"""The memory that a command takes for each partition is small, and as docs/memory.md says."""

from __future__ import annotations

import gc
import re
import shutil
import tracemalloc
from pathlib import Path
from typing import Final

import pytest

from builders.in_process import run_kdump
from builders.many_partitions import write_partitions
from kdump.jobs.compact import compact, swap
from kdump.jobs.move import move

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "memory.md"
COUNTS: Final = (100, 300)
DONE: Final = (0, 1, 4, 5)

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
def test_a_partition_takes_no_more_memory_than_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(compact, "WAVE_PARTITIONS", COUNTS[0] // 2)
    monkeypatch.setattr(swap, "SWAPPED_PARTITIONS", COUNTS[0] // 2)
    monkeypatch.setattr(move, "BATCH_PARTITIONS", COUNTS[0] // 2)
    peaks = []
    for count in (COUNTS[0] // 10, *COUNTS):  # the first run imports modules
        root = write_partitions(tmp_path / f"of-{count}", count)
        if command in _OF_CLEAN:
            assert run(["recover", str(root)]) in DONE
        if command == "rebuild-index":
            for index in root.glob("*/*index"):
                index.unlink()
        disk = tmp_path / f"disk-{count}"
        if command.startswith("move"):
            disk.mkdir()
            assert run(["identity", "--repair", str(root), str(disk)]) in DONE
        words = [each.format(root=root, disk=disk) for each in COMMANDS[command]]
        peaks.append(peak_bytes([*command.split(), *words]))
        shutil.rmtree(root)

    for_each = (peaks[2] - peaks[1]) / (COUNTS[1] - COUNTS[0])
    assert for_each < 1000 * documented()[command]


def peak_bytes(args: list[str]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        assert run(args) in DONE
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def run(args: list[str]) -> int:
    return run_kdump(args, Path.cwd()).exit_status
