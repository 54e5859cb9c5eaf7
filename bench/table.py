"""Judge what was measured by the limits of a case, and word it as a line of the table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from case import Case, RateCase
from measuring import Measured, Peaks, median_of

HEADER: Final = (
    "| case | kdump | CPU | other program | its time | its CPU | ratio | at most "
    "| kdump's peak | its peak |\n|---|---:|---:|---|---:|---:|---:|---:|---:|---:|"
)
RATE_HEADER: Final = "| case | rate | at least |\n|---|---:|---:|"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table.

    Attributes:
        text: the line, in Markdown.
        excess: which limit does not hold, or nothing.
    """

    text: str
    excess: str


@dataclass(frozen=True, slots=True)
class Compared:
    """The runs of a counterpart, in the order of those of kdump."""

    name: str
    runs: Sequence[Measured]


def ratio_of(ours: Sequence[Measured], theirs: Sequence[Measured], more_seconds: float) -> float:
    """Return the median of the ratios of pairs; ``more_seconds`` of kdump's time are free."""
    pairs = zip(ours, theirs, strict=True)
    return statistics.median((our.seconds - more_seconds) / their.seconds for our, their in pairs)


def line_of(
    case: Case, runs: Sequence[Measured], others: Sequence[Compared], peaks: Peaks | None
) -> Line:
    """Judge the runs of a case beside those of the fastest of the others."""
    ours = median_of(runs)
    found = [f"{ours.seconds:.3f} s", f"{ours.cpu_seconds:.2f} s", "", "", "", "", ""]
    excesses = []
    peak = f"{ours.peak_mb:.0f} MB"
    their_peak = ""
    if others:
        fastest = min(others, key=lambda other: median_of(other.runs).seconds)
        theirs = median_of(fastest.runs)
        times = [f"{theirs.seconds:.2f} s", f"{theirs.cpu_seconds:.2f} s"]
        shown = ratio_of(runs, fastest.runs, 0)
        found[2:6] = [fastest.name.replace("|", r"\|"), *times, f"{shown:.2f}"]
        their_peak = f"{theirs.peak_mb:.0f} MB"
        judged = ratio_of(runs, fastest.runs, case.more_seconds)
        if case.ratio is not None and judged > case.ratio:
            excesses.append(f"{shown:.2f} of {fastest.name}, at most {limit_of(case)}")
    elif case.ratio is not None:
        excesses.append("nothing to compare with")
    if case.seconds is not None and ours.seconds > case.seconds:
        excesses.append(f"{ours.seconds:.2f} s, at most {limit_of(case)}")
    if case.cpu_seconds is not None and ours.cpu_seconds > case.cpu_seconds:
        excesses.append(f"{ours.cpu_seconds:.2f} s of CPU, at most {limit_of(case)}")
    if case.peak_mb is not None and ours.peak_mb > case.peak_mb:
        excesses.append(f"peak of {ours.peak_mb:.0f} MB, at most {case.peak_mb:.0f} MB")
    if peaks is not None and case.worker_peak_mb is not None:
        peak += f", a worker's {peaks.worker:.0f} MB"
        if peaks.worker > case.worker_peak_mb:
            excesses.append(
                f"worker of {peaks.worker:.0f} MB, at most {case.worker_peak_mb:.0f} MB"
            )
    found[6] = limit_of(case) + (" **over**" if excesses else "")
    cells = " | ".join([case.name, *found, peak, their_peak])
    return Line(f"| {cells} |", "; ".join(excesses))


def limit_of(case: Case) -> str:
    """Word the limit of a case's time, or nothing."""
    if case.seconds is not None:
        return f"{case.seconds:.2f} s"
    if case.cpu_seconds is not None:
        return f"{case.cpu_seconds:.2f} s of CPU"
    if case.ratio is None:
        return ""
    return f"{case.ratio:.2f}" + (f" + {case.more_seconds:.0f} s" if case.more_seconds else "")


def rate_line_of(case: RateCase, rate: float) -> Line:
    """Judge a rate."""
    is_slow = case.at_least is not None and rate < case.at_least
    limit = "" if case.at_least is None else f"{case.at_least:.2f}"
    mark = " **under**" if is_slow else ""
    excess = f"{rate:.2f} {case.unit}, at least {limit}" if is_slow else ""
    return Line(f"| {case.name} | {rate:.2f} {case.unit} | {limit}{mark} |", excess)
