"""Measure the peak memory of each command on each hard input, and print it as a table.

Figures are kept in ``memory.jsonl`` beside the data, so that a table can be made in several runs.
"""

from __future__ import annotations

import fnmatch
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from measuring import ANSWERS, Command, Peaks, kdump, make, peaks_of
from memory_cases import COMMANDS, HARD_INPUTS, MemoryCase, memory_cases

_RESULTS: Final = "memory.jsonl"
_COPY: Final = "memory-copy"
_OUT: Final = "memory-out"


def selected(only: str) -> list[MemoryCase]:
    """Return the cases whose names match a glob, and that are not left out."""
    cases = memory_cases()
    return [case for case in cases if fnmatch.fnmatchcase(case.name, only) and not case.left_out]


def measure_memory(cases: Sequence[MemoryCase], data: Path, engine: str) -> list[str]:
    """Run the cases, print each, and return a sentence for each limit that is exceeded."""
    exceeded = []
    for case in cases:
        peaks = _measure(case, data, engine)
        with (data / _RESULTS).open("a") as results:
            print(json.dumps({"case": case.name, **asdict(peaks)}), file=results)
        verdict = _excess(case, peaks)
        print(f"{case.name}: {_cell(case, peaks)} MB, {peaks.seconds:.1f} s", file=sys.stderr)
        if verdict:
            exceeded.append(f"{case.name}: {verdict}")
    return exceeded


def known_seconds(folder: Path) -> Mapping[str, float]:
    """Return the seconds that each case took the last time."""
    return {name: peaks.seconds for name, peaks in _read(folder / _RESULTS).items()}


def _measure(case: MemoryCase, data: Path, engine: str) -> Peaks:
    name = case.hard_input.name
    directory = data / name
    make(case.hard_input.data.call, data)
    is_preallocated = case.hard_input.is_preallocated
    make(f"make_unclean({name!r}, folder, is_preallocated={is_preallocated})", data)
    before = ""
    if case.command.copies:
        source = name if case.command.copies == "input" else f"{name}-unclean"
        before = (
            f"copy_input({source!r}, {_COPY!r}, folder,"
            f" is_truncated={case.hard_input.is_truncated},"
            f" without_indexes={case.command.without_indexes})"
        )
    words = [
        word.format(
            input=directory,
            unclean=f"{directory}-unclean",
            copy=data / _COPY,
            log=_first_log(directory),
            out=data / _OUT,
        )
        for word in case.command.words
    ]
    options = ("--engine", engine) if case.command.takes_engine else ()
    config = case.hard_input.config if case.command.takes_config else ()
    peaks = peaks_of(Command([*kdump(), words[0], *options, *config, *words[1:]], "", before, data))
    for path in (data / _COPY, data / _OUT):
        shutil.rmtree(path, ignore_errors=True)
    (data / f"{_OUT}.html").unlink(missing_ok=True)
    return peaks


def _first_log(directory: Path) -> Path:
    partition = min(path for path in directory.iterdir() if path.is_dir())
    return min(partition.glob("*.log"))


def _excess(case: MemoryCase, peaks: Peaks) -> str:
    """Say which limit is exceeded, or nothing."""
    if peaks.exit_status not in ANSWERS:
        return f"exit status {peaks.exit_status}"
    for process, found, limit in (
        ("driver", peaks.driver, case.driver_mb),
        ("a worker", peaks.worker, case.worker_mb),
    ):
        if found > limit:
            return f"{process} has {found:.0f} MB, at most {limit:.0f} MB are wanted"
    return ""


def _cell(case: MemoryCase, peaks: Peaks) -> str:
    if peaks.exit_status not in ANSWERS:
        return f"**exit {peaks.exit_status}**"
    jvm = f" + {peaks.jvm:.0f}" if peaks.jvm else ""
    worker = f" / {peaks.worker:.0f}" if peaks.worker else ""
    cell = f"{peaks.driver:.0f}{worker}{jvm}"
    return f"**{cell}**" if _excess(case, peaks) else cell


def memory_table(data: Path) -> str:
    """Return a Markdown table of the last figure of each case, one row for each command."""
    results = _read(data / _RESULTS)
    lines = [
        "| MB of driver / worker + JVM | " + " | ".join(each.name for each in HARD_INPUTS) + " |",
        "|---|" + "---:|" * len(HARD_INPUTS),
    ]
    by_name = {case.name: case for case in memory_cases()}
    for command in COMMANDS:
        cells = []
        for hard_input in HARD_INPUTS:
            case = by_name[f"{command.name}, {hard_input.name}"]
            peaks = results.get(case.name)
            unknown = "-" if case.left_out else "?"
            cells.append(unknown if peaks is None else _cell(case, peaks))
        lines.append(f"| {command.name} | " + " | ".join(cells) + " |")
    reasons = [f"{case.name}: {case.left_out}." for case in by_name.values() if case.left_out]
    return "\n".join([*lines, "", "Left out: " + " ".join(reasons)])


def _read(path: Path) -> Mapping[str, Peaks]:
    if not path.exists():
        return {}
    found = {}
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        name = fields.pop("case")
        found[name] = Peaks(**fields)
    return found
