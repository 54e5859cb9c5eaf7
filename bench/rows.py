"""Keep each measured row in a file beside the data, so that a run can continue an earlier one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from measuring import Measured, Peaks

_ROWS: Final = "rows.jsonl"


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured of a case.

    Attributes:
        runs: the runs of kdump, and of each program that it is compared with, by name.
        peaks: the memory of kdump's processes, if it was looked at.
        rate: the rate, of a case that measures its own.
    """

    runs: Mapping[str, Sequence[Measured]]
    peaks: Peaks | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """What figures have to share to stand in one table.

    Attributes:
        kdump: the version and the commit that were measured.
        machine: the machine.
    """

    kdump: str
    machine: str


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of a case, and where they come from.

    Attributes:
        case: name of the case.
        setting: what was measured, and on which machine.
        date: when, in UTC.
        pairs: runs of each command; 0 for a case that does not depend on them.
        seconds: how long measuring took, without making data.
        figures: what was measured.
    """

    case: str
    setting: Setting
    date: str
    pairs: int
    seconds: float
    figures: Figures

    def estimate(self, pairs: int) -> float:
        """The seconds that so many pairs are expected to take; one more run warms up."""
        return self.seconds * (pairs + 1) / (self.pairs + 1) if self.pairs else self.seconds


def counting(rows: Sequence[Row], setting: Setting, pairs: int) -> dict[str, Row]:
    """Return the last row of each case that has this setting, and enough pairs."""
    return {
        row.case: row
        for row in rows
        if row.setting == setting and (row.pairs >= pairs or not row.pairs)
    }


def add_row(row: Row, folder: Path) -> None:
    """Add a row to the file."""
    with (folder / _ROWS).open("a") as file:
        file.write(json.dumps(asdict(row)) + "\n")


def read_rows(folder: Path) -> list[Row]:
    """Return all rows, in the order in which they were measured.

    Raises:
        SystemExit: a line is no row.
    """
    path = folder / _ROWS
    rows = []
    if path.exists():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                rows.append(_row_of(json.loads(line)))
            except (ValueError, TypeError, KeyError) as failure:
                said = f"{path}, line {number}: not a row of figures ({failure}); delete the line"
                raise SystemExit(said) from failure
    return rows


def _row_of(fields: dict[str, Any]) -> Row:
    found = fields["figures"]
    runs = {name: [Measured(**run) for run in each] for name, each in found["runs"].items()}
    peaks = None if found["peaks"] is None else Peaks(**found["peaks"])
    figures = Figures(runs, peaks, found["rate"])
    return Row(**{**fields, "setting": Setting(**fields["setting"]), "figures": figures})


@contextlib.contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Keep other runs from the folder: they would delete the copies that this one works on.

    Raises:
        SystemExit: another run measures there.
    """
    opened = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as failure:
            raise SystemExit(f"{folder}: another run of the bench measures here") from failure
        yield
    finally:
        os.close(opened)
