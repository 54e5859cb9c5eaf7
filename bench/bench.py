"""Compare the speed and memory of kdump with Kafka's own programs, and print tables.

Each figure is the median over whole processes, including their start and end, with the files in the
page cache and the output to the null device. The programs run alternately, and a ratio is the
median of the ratios of such pairs, so that other load affects both. Maven fetches Kafka's jars, as
for the tests; without them Kafka's columns are empty.

With --memory, each command is run once on each hard input. With --check, both are done. The cases
that take the shortest run first. Each is kept beside the data when it is measured, and --resume
continues a run that was interrupted. The tables have all cases that were measured of this commit on
this machine with as many pairs. The exit status is 1 if a limit does not hold; those limits are
listed at the end.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from case import Case, Data, Program, RateCase
from cases import CASES, RATE_CASES
from disk import check_space
from measuring import (
    ROOT,
    Command,
    CommandFailedError,
    adopt_orphans,
    kdump,
    make,
    measure_in_turn,
    peaks_of,
    started,
)
from memory import excess_of, make_input, measure_memory, memory_table
from memory_cases import MemoryCase, memory_cases
from programs import describe_kdump, describe_machine, find_programs
from rows import Figures, Row, Setting, add_row, counting, only_run_in, read_rows
from table import HEADER, RATE_HEADER, Compared, Line, line_of, rate_line_of

_KDUMP: Final = "kdump"
_UNKNOWN_SECONDS: Final = 30.0
"""Estimate of the time of a case that did not run before."""
_INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Selection:
    """The cases of a run, in the order of the tables."""

    cases: Sequence[Case]
    rates: Sequence[RateCase]
    memory: Sequence[MemoryCase]

    @property
    def all(self) -> Sequence[Case | RateCase | MemoryCase]:
        """Cases of all kinds."""
        return (*self.cases, *self.rates, *self.memory)


def main() -> int:
    """Run the cases; return 1 if a limit does not hold."""
    options = _parse()
    selection = _select(options)
    setting = Setting(describe_kdump(), describe_machine())
    failures: dict[str, str] = {}
    status = 0
    if not options.table:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        options.data.mkdir(parents=True, exist_ok=True)
        try:
            with only_run_in(options.data):
                _measure_all(selection, setting, options, failures)
        except KeyboardInterrupt:
            print("interrupted; --resume measures the other cases", file=sys.stderr)
            status = _INTERRUPTED
    rows = counting(read_rows(options.data), setting, options.pairs)
    print(f"{setting.kdump}, on {setting.machine}, at least {options.pairs} pairs\n")
    excesses = _print_tables(selection, rows, failures, options.engine)
    missing = len([case for case in selection.all if case.name not in rows])
    if missing:
        print(f"\n{missing} of {len(selection.all)} cases without figures.")
    if excesses:
        print("\nLimits that do not hold:\n")
        print("\n".join(f"- {excess}" for excess in excesses))
    return status or min(len(excesses), 1)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="check all limits, also of memory")
    parser.add_argument("--memory", action="store_true", help="measure only memory")
    parser.add_argument(
        "--resume", action="store_true", help="skip cases that an earlier run has measured"
    )
    parser.add_argument(
        "--table", action="store_true", help="only print the tables of what was measured"
    )
    parser.add_argument("--pairs", type=int, default=3, help="runs of each command (default 3)")
    parser.add_argument("--only", default="*", help="a glob over the names of the cases")
    parser.add_argument(
        "--engine", default="auto", help="engine whose memory is measured (default auto)"
    )
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--classpath", help="Kafka's jars, if not those that Maven fetches")
    options = parser.parse_args()
    if options.pairs < 1:
        parser.error("--pairs must be at least 1")
    return options


def _select(options: argparse.Namespace) -> Selection:
    def is_selected(case: Case | RateCase | MemoryCase) -> bool:
        return fnmatch.fnmatchcase(case.name, options.only)

    is_timed = not options.memory
    has_memory = options.memory or options.check
    memory = [case for case in memory_cases(options.engine) if not case.left_out]
    selection = Selection(
        list(filter(is_selected, CASES if is_timed else ())),
        list(filter(is_selected, RATE_CASES if is_timed else ())),
        list(filter(is_selected, memory if has_memory else ())),
    )
    if not selection.all:
        raise SystemExit(f"no case matches {options.only!r}")
    return selection


def _measure_all(
    selection: Selection,
    setting: Setting,
    options: argparse.Namespace,
    failures: dict[str, str],
) -> None:
    """Measure cases, the shortest first, and keep each row; add what fails to ``failures``."""
    folder: Path = options.data
    rows = read_rows(folder)
    known = {row.case: row.estimate(options.pairs) for row in rows}
    kept = counting(rows, setting, options.pairs) if options.resume else {}
    pending = [case for case in selection.all if case.name not in kept]
    pending.sort(key=lambda case: known.get(case.name, _UNKNOWN_SECONDS))
    seconds = [known.get(case.name, _UNKNOWN_SECONDS) for case in pending]
    new = len([case for case in pending if case.name not in known])
    guess = f", with {_UNKNOWN_SECONDS:.0f} s for each of {new} that did not run before"
    print(
        f"{setting.kdump}: {len(pending)} cases, {options.pairs} pairs:"
        f" about {sum(seconds) / 60:.0f} min{guess if new else ''};"
        f" {len(selection.all) - len(pending)} measured before;"
        f" {check_space(*_space_of(pending), folder)}",
        file=sys.stderr,
    )
    timed = [case for case in pending if isinstance(case, Case)]
    programs = find_programs(timed, options.classpath)
    adopt_orphans()
    for number, case in enumerate(pending):
        left = sum(seconds[number:]) / 60
        print(f"{number + 1}/{len(pending)}, {left:.0f} min left: {case.name}", file=sys.stderr)
        try:
            row = _measure(case, setting, programs, options)
        except (CommandFailedError, subprocess.CalledProcessError) as failure:
            failures[case.name] = str(failure)
            print(f"  failed: {failure}", file=sys.stderr)
        else:
            add_row(row, folder)


def _space_of(cases: Sequence[Case | RateCase | MemoryCase]) -> tuple[list[Data], float]:
    """Return the data of cases, and how many GB they write at most while they run."""
    data: list[Data] = []
    written = [0.0]
    for case in cases:
        match case:
            case Case():
                data += case.data
                written.append(case.copies_gb)
            case RateCase():
                data += case.data
            case MemoryCase():
                data.append(case.hard_input.data)
                written.append(case.hard_input.copy_gb)
    return data, max(written)


def _measure(
    case: Case | RateCase | MemoryCase,
    setting: Setting,
    programs: Mapping[Program, list[str]],
    options: argparse.Namespace,
) -> Row:
    folder: Path = options.data
    if isinstance(case, MemoryCase):
        make_input(case, folder)
    else:
        for data in case.data:
            make(data.call, folder)
    begin = time.perf_counter()
    pairs = options.pairs if isinstance(case, Case) else 0
    match case:
        case Case():
            figures = _measure_times(case, programs, pairs, folder)
        case RateCase():
            figures = Figures({}, rate=_measure_rate(case, folder))
        case _:
            figures = Figures({}, measure_memory(case, folder))
    seconds = round(time.perf_counter() - begin, 1)
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return Row(case.name, setting, date, pairs, seconds, figures)


def _measure_times(
    case: Case, programs: Mapping[Program, list[str]], pairs: int, folder: Path
) -> Figures:
    others = [other for other in case.others if other.program in programs]
    commands = [Command((*kdump(), *case.kdump), before=case.before)]
    commands += [
        Command((*programs[other.program], *other.arguments), other.stdin, other.before)
        for other in others
    ]
    commands = [command.over(folder) for command in commands]
    try:
        runs = measure_in_turn(commands, pairs)
        peaks = None if case.worker_peak_mb is None else peaks_of(commands[0])
    finally:
        for command in commands:
            _remove_output(command.before, folder)
    names = [_KDUMP, *(other.program.value for other in others)]
    return Figures(dict(zip(names, runs, strict=True)), peaks)


def _remove_output(call: str, folder: Path) -> None:
    """Remove the copy that a call made before a run, or the export that it made room for."""
    copied = re.fullmatch(r"copy_partitions\('[^']*', '([^']*)', folder\)", call)
    if copied:
        shutil.rmtree(folder / copied[1], ignore_errors=True)
    elif call.startswith("remove_"):
        make(call, folder)


def _measure_rate(case: RateCase, folder: Path) -> float:
    program, *arguments = (word.format(data=folder) for word in case.words)
    words = [sys.executable, str(ROOT / "bench" / program), *arguments]
    with started(words, subprocess.DEVNULL, subprocess.PIPE, sys.stderr) as process:
        said, _ = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words)
    return float(said.splitlines()[-1].split()[0])


def _print_tables(
    selection: Selection, rows: Mapping[str, Row], failures: Mapping[str, str], engine: str
) -> list[str]:
    """Print the rows of the selected cases; return the limits that do not hold."""
    excesses = [f"{name}: {said}" for name, said in failures.items()]
    for header, cases in ((HEADER, selection.cases), (RATE_HEADER, selection.rates)):
        measured = [case for case in cases if case.name in rows and case.name not in failures]
        lines = [_line_of(case, rows[case.name].figures) for case in measured]
        if lines:
            print(header, *(line.text for line in lines), "", sep="\n")
        excesses += [
            f"{case.name}: {line.excess}"
            for case, line in zip(measured, lines, strict=True)
            if line.excess
        ]
    if selection.memory:
        peaks = {
            name: row.figures.peaks
            for name, row in rows.items()
            if row.figures.peaks is not None and name not in failures
        }
        print(memory_table(peaks, engine))
        excesses += [
            f"{case.name}: {excess}"
            for case in selection.memory
            if case.name in peaks and (excess := excess_of(case, peaks[case.name]))
        ]
    return excesses


def _line_of(case: Case | RateCase, figures: Figures) -> Line:
    if isinstance(case, RateCase):
        assert figures.rate is not None
        return rate_line_of(case, figures.rate)
    others = [Compared(name, runs) for name, runs in figures.runs.items() if name != _KDUMP]
    return line_of(case, figures.runs[_KDUMP], others, figures.peaks)


if __name__ == "__main__":
    sys.exit(main())
