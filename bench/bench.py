"""Compare the speed and memory of kdump with Kafka's own programs, and print tables.

Each figure is the median over whole processes, including their start and end, with the files in the
page cache and the output to the null device. The programs run alternately, and a ratio is the
median of the ratios of such pairs, so that other load affects both. Maven fetches Kafka's jars, as
for the tests; without them Kafka's columns are empty.

With --memory, each command is run once on each hard input. With --check, both are done. The exit
status is 1 if a limit does not hold; those limits are listed at the end.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

from case import Case, Program, RateCase
from cases import CASES, RATE_CASES
from disk import check_space
from measuring import ROOT, Command, CommandFailedError, kdump, make, measure_in_turn, peaks_of
from memory import known_seconds, measure_memory, memory_table, selected
from memory_cases import MemoryCase
from programs import describe_machine, find_programs
from table import HEADER, RATE_HEADER, Compared, Line, line_of, rate_line_of

_TIMES: Final = "times.json"
_UNKNOWN_SECONDS: Final = 30.0
"""Estimate of the time of a case that did not run before."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_AnyCase = TypeVar("_AnyCase", bound=_Named)


def main() -> int:
    """Run the cases; return 1 if a limit does not hold."""
    options = _parse()
    folder: Path = options.data
    if options.markdown:
        print(memory_table(folder))
        return 0
    is_timed = not options.memory
    cases = _matching(CASES, options.only) if is_timed else []
    rates = _matching(RATE_CASES, options.only) if is_timed else []
    memory = selected(options.only) if options.memory or options.check else []
    if not (cases or rates or memory):
        raise SystemExit(f"no case matches {options.only!r}")
    _announce(cases, rates, memory, options.pairs, folder)
    print(f"{describe_machine()}\n", flush=True)
    excesses = []
    if cases:
        print(HEADER, flush=True)
        programs = find_programs(cases, options.classpath)
        measure = partial(_measure, programs=programs, pairs=options.pairs, folder=folder)
        excesses += _run_all(cases, measure, folder)
    if rates:
        print(f"\n{RATE_HEADER}", flush=True)
        excesses += _run_all(rates, partial(_measure_rate, folder=folder), folder)
    excesses += measure_memory(memory, folder, options.engine)
    if memory:
        print(f"\n{memory_table(folder)}")
    if excesses:
        print("\nLimits that do not hold:\n")
        print("\n".join(f"- {excess}" for excess in excesses))
    return min(len(excesses), 1)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="check all limits, also of memory")
    parser.add_argument("--memory", action="store_true", help="measure only memory")
    parser.add_argument(
        "--markdown", action="store_true", help="only print the last table of memory"
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


def _matching(cases: Iterable[_AnyCase], only: str) -> list[_AnyCase]:
    return [case for case in cases if fnmatch.fnmatchcase(case.name, only)]


def _announce(
    cases: Sequence[Case],
    rates: Sequence[RateCase],
    memory: Sequence[MemoryCase],
    pairs: int,
    folder: Path,
) -> None:
    """Say on standard error how much space and time the cases take."""
    needed = [data for case in cases for data in case.data]
    needed += [data for case in rates for data in case.data]
    needed += [case.hard_input.data for case in memory]
    written = [case.copies_gb for case in cases]
    written += [case.hard_input.copy_gb for case in memory]
    space = check_space(needed, max(written, default=0.0), folder)
    known = {**known_seconds(folder), **_times(folder)}
    named: Sequence[_Named] = (*cases, *rates, *memory)
    seconds = sum(known.get(case.name, _UNKNOWN_SECONDS) for case in named)
    new = len([case for case in named if case.name not in known])
    guess = f", with {_UNKNOWN_SECONDS:.0f} s for each of {new} that did not run before"
    print(
        f"{len(named)} cases, {pairs} pairs: about {seconds / 60:.0f} min"
        f"{guess if new else ''}; {space}",
        file=sys.stderr,
    )


def _run_all(
    cases: Sequence[_AnyCase], measure: Callable[[_AnyCase], Line], folder: Path
) -> list[str]:
    """Print the line of each case; return the limits that do not hold."""
    excesses = []
    for case in cases:
        begin = time.perf_counter()
        try:
            line = measure(case)
        except (CommandFailedError, subprocess.CalledProcessError) as failure:
            line = Line(f"| {case.name} | **failed** |", str(failure))
        print(line.text, flush=True)
        if line.excess:
            excesses.append(f"{case.name}: {line.excess}")
        known = {**_times(folder), case.name: round(time.perf_counter() - begin, 1)}
        (folder / _TIMES).write_text(json.dumps(known, indent=1))
    return excesses


def _times(folder: Path) -> Mapping[str, float]:
    """Return the seconds that each case took the last time."""
    path = folder / _TIMES
    times: Mapping[str, float] = json.loads(path.read_text()) if path.exists() else {}
    return times


def _measure(case: Case, programs: Mapping[Program, list[str]], pairs: int, folder: Path) -> Line:
    for data in case.data:
        make(data.call, folder)
    others = [other for other in case.others if other.program in programs]
    commands = [Command((*kdump(), *case.kdump), before=case.before).over(folder)]
    commands += [
        Command((*programs[other.program], *other.arguments), other.stdin, other.before).over(
            folder
        )
        for other in others
    ]
    ours, *theirs = measure_in_turn(commands, pairs)
    compared = [
        Compared(other.program.value, runs) for other, runs in zip(others, theirs, strict=True)
    ]
    peaks = None if case.worker_peak_mb is None else peaks_of(commands[0])
    for command in commands:
        _remove_copy(command.before, folder)
    return line_of(case, ours, compared, peaks)


def _remove_copy(call: str, folder: Path) -> None:
    """Remove what a call of ``copy_partitions`` has made."""
    found = re.fullmatch(r"copy_partitions\('[^']*', '([^']*)', folder\)", call)
    if found:
        shutil.rmtree(folder / found[1], ignore_errors=True)


def _measure_rate(case: RateCase, folder: Path) -> Line:
    for data in case.data:
        make(data.call, folder)
    program, *arguments = (word.format(data=folder) for word in case.words)
    words = [sys.executable, str(ROOT / "bench" / program), *arguments]
    said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout
    return rate_line_of(case, float(said.splitlines()[-1].split()[0]))


if __name__ == "__main__":
    sys.exit(main())
