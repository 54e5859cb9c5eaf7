"""Measure the peak memory of each command on each hard input, and print it as a table."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from measuring import Command, Peaks, kdump, make, peaks_of, run_quietly
from memory_cases import COMMANDS, HARD_INPUTS, MemoryCase, memory_cases

_COPY: Final = "memory-copy"
_EMPTY: Final = "memory-empty"
_OUT: Final = "memory-out"


def make_input(case: MemoryCase, data: Path) -> None:
    """Make the hard input of a case, clean and unclean, unless it exists."""
    name = case.hard_input.name
    make(case.hard_input.data.call, data)
    is_preallocated = case.hard_input.is_preallocated
    make(f"make_unclean({name!r}, folder, is_preallocated={is_preallocated})", data)


def measure_memory(case: MemoryCase, data: Path) -> Peaks:
    """Run a case once."""
    directory = data / case.hard_input.name
    command = case.command
    partition = _first_partition(directory)
    paths = {
        "input": directory,
        "unclean": f"{directory}-unclean",
        "copy": data / _COPY,
        "empty": data / _EMPTY,
        "partition": partition.name,
        "log": min(partition.glob("*.log")),
        "out": data / _OUT,
    }
    if command.copies:
        make(_copying(case), data)
    if any("{empty}" in word for word in command.words):
        make(f"make_empty({_EMPTY!r}, folder)", data)
    words = [word.format_map(paths) for word in command.words]
    options = ("--engine", case.engine) if command.takes_engine else ()
    config = case.hard_input.config if command.takes_config else ()
    try:
        if command.first:
            run_quietly([*kdump(), *(word.format_map(paths) for word in command.first)])
        return peaks_of(Command([*kdump(), *words, *options, *config], data=data))
    finally:
        for path in (data / _COPY, data / _EMPTY, data / _OUT):
            shutil.rmtree(path, ignore_errors=True)
        for name in (f"{_OUT}.html", f"{_OUT}.json", f"{_OUT}.plan"):
            (data / name).unlink(missing_ok=True)


def _copying(case: MemoryCase) -> str:
    """The calls that write the copy which the command of a case works on."""
    name, command = case.hard_input.name, case.command
    source = f"{name}-unclean" if command.copies == "unclean" else name
    call = (
        f"copy_input({source!r}, {_COPY!r}, folder,"
        f" is_truncated={case.hard_input.is_truncated},"
        f" without_indexes={command.without_indexes})"
    )
    return f"{call}; delete_topics({_COPY!r}, folder)" if command.copies == "deleted" else call


def _first_partition(directory: Path) -> Path:
    return min(path for path in directory.iterdir() if path.is_dir())


def excess_of(case: MemoryCase, peaks: Peaks) -> str:
    """Say which limit is exceeded, or nothing."""
    for process, found, limit in (
        ("driver", peaks.driver, case.driver_mb),
        ("a worker", peaks.worker, case.worker_mb),
    ):
        if found > limit:
            return f"{process} has {found:.0f} MB, at most {limit:.0f} MB are wanted"
    return ""


def _cell(case: MemoryCase, peaks: Peaks) -> str:
    jvm = f" + {peaks.jvm:.0f}" if peaks.jvm else ""
    worker = f" / {peaks.worker:.0f}" if peaks.worker else ""
    cell = f"{peaks.driver:.0f}{worker}{jvm}"
    return f"**{cell}**" if excess_of(case, peaks) else cell


def memory_table(found: Mapping[str, Peaks], engine: str) -> str:
    """Return a Markdown table of the figures, by case, with one row for each command."""
    lines = [
        "| MB of driver / worker + JVM | " + " | ".join(each.name for each in HARD_INPUTS) + " |",
        "|---|" + "---:|" * len(HARD_INPUTS),
    ]
    cases = {(case.command, case.hard_input.name): case for case in memory_cases(engine)}
    for command in COMMANDS:
        cells = []
        for hard_input in HARD_INPUTS:
            case = cases[command, hard_input.name]
            peaks = found.get(case.name)
            unknown = "-" if case.left_out else "?"
            cells.append(unknown if peaks is None else _cell(case, peaks))
        lines.append(f"| {command.name} | " + " | ".join(cells) + " |")
    reasons = [f"{case.name}: {case.left_out}." for case in cases.values() if case.left_out]
    return "\n".join([*lines, "", "Left out: " + " ".join(reasons)])
