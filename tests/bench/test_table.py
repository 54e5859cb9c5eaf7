"""The bench judges what it measured by the limits of a case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_PROGRAM: Final = """
import json
from case import Case, RateCase
from measuring import Measured, Peaks
from table import Compared, line_of, rate_line_of

def runs(*seconds):
    return [Measured(each, each, 100.0) for each in seconds]

beside = Case("a", (), ratio=0.5, peak_mb=150)
print(json.dumps({
    # The machine became slower in between: each pair has the ratio 0.4.
    "pairs": line_of(beside, runs(4, 40), [Compared("b", runs(10, 100))], None).excess,
    "over": line_of(beside, runs(6, 6), [Compared("b", runs(10, 10))], None).excess,
    "fastest": line_of(
        beside, runs(4, 4), [Compared("b", runs(10, 10)), Compared("c", runs(7, 7))], None
    ).excess,
    "alone": line_of(beside, runs(4, 4), [], None).excess,
    "start": line_of(
        Case("a", (), ratio=0.5, more_seconds=2), runs(6), [Compared("b", runs(10))], None
    ).excess,
    "seconds": line_of(Case("a", (), seconds=1), runs(2), [], None).excess,
    "cpu": line_of(Case("a", (), cpu_seconds=1), runs(2), [], None).excess,
    "peak": line_of(Case("a", (), peak_mb=50), runs(1), [], None).excess,
    "worker": line_of(Case("a", (), worker_peak_mb=50), runs(1), [], Peaks(worker=60)).excess,
    "rate": rate_line_of(RateCase("a", (), (), 2.0), 1.5).excess,
    "enough": rate_line_of(RateCase("a", (), (), 2.0), 2.5).excess,
}))
"""


def _run(program: str, repository_root: Path) -> str:
    """Run a program beside the modules of the bench; return what it prints."""
    path = os.pathsep.join((str(repository_root / "bench"), str(repository_root)))
    return subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ).stdout


def test_limits_are_judged_by_pairs_and_beside_the_fastest(repository_root: Path) -> None:
    assert json.loads(_run(_PROGRAM, repository_root)) == {
        "pairs": "",
        "over": "0.60 of b, at most 0.50",
        "fastest": "0.57 of c, at most 0.50",
        "alone": "nothing to compare with",
        "start": "",
        "seconds": "2.00 s, at most 1.00 s",
        "cpu": "2.00 s of CPU, at most 1.00 s of CPU",
        "peak": "peak of 100 MB, at most 50 MB",
        "worker": "worker of 60 MB, at most 50 MB",
        "rate": "1.50 M records/s a core, at least 2.00",
        "enough": "",
    }


def test_each_case_has_its_own_name_and_data_of_its_own_size(repository_root: Path) -> None:
    program = """
from cases import CASES, RATE_CASES
from memory_cases import memory_cases
names = [case.name for case in (*CASES, *RATE_CASES, *memory_cases())]
assert len(set(names)) == len(names), names
sizes = {}
for case in (*CASES, *RATE_CASES):
    for data in case.data:
        assert sizes.setdefault(data.call, data.gb) == data.gb, data
"""
    _run(program, repository_root)


def test_no_folder_with_a_segment_has_the_name_of_a_partition(repository_root: Path) -> None:
    # The folder with the data would be a log directory, and kdump exports nothing into one.
    program = """
from cases import CASES, RATE_CASES
from kdump.formats.names import is_accepted_name
for case in (*CASES, *RATE_CASES):
    for data in case.data:
        if data.call.startswith(("make_segment(", "make_partitions(")):
            assert not is_accepted_name(data.folder), data
"""
    _run(program, repository_root)


def test_the_table_of_memory_marks_what_is_too_much_and_what_is_unknown(
    repository_root: Path,
) -> None:
    program = """
from measuring import Peaks
from memory import memory_table
found = {"ls, partitions-10000": Peaks(46), "info, partitions-10000": Peaks(301)}
print(memory_table(found, "auto"))
"""
    rows = _run(program, repository_root).splitlines()
    first_cells = {row.split(" | ")[0]: row.split(" | ")[1] for row in rows if " | " in row}
    assert first_cells["| ls"] == "46"
    assert first_cells["| info"] == "**301**"
    assert first_cells["| verify"] == "?"
