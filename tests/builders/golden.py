"""Recorded runs of ``kafka-dump-log`` over real directories, compared with kdump.

A collection, unpacked by :mod:`builders.archives`, has ``out/NAME/`` (a directory as a broker left
it) and ``golden/NAME/`` (what the official tool printed, run from ``out/NAME``), with one line of
``golden/NAME/INDEX.jsonl`` for each run.

As a script it prints each difference in a collection, or in one directory of it:
``PYTHONPATH=tests python -m builders.golden FOLDER [NAME] [--filter 'GLOB']``. The glob is matched
with ``file.mode``, such as ``*/__consumer_offsets-*.offsets``.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from builders.in_process import Outcome, run_kdump

SCRATCH: Final = "/SCRATCH/"
"""Prefix of absolute paths in the recorded standard error; the directory's name follows."""

SOUND: Final = 0
DAMAGE_LEFT: Final = 4
OPERATIONAL_ERROR: Final = 8

_REPORTS: Final = re.compile(
    rb"""^Found\ \d+\ invalid\ bytes\ at\ the\ end\ of\ |
         \ isvalid:\ false$ |
         \ isValid:\ false\  |
         ^Mismatches\ in\ : |
         ^Found\ timestamp\ mismatch\ in\ : |
         ^Found\ out\ of\ order\ timestamp\ in\ : |
         ^The\ following\ indexed\ offsets\ are\ not\ found\ in\ : |
         ^Snapshot\ (contained\ an\ unknown|failed|is\ corrupt) """,
    re.MULTILINE | re.VERBOSE,
)
"""Reports of damage by the official tool."""

_OWN_PROBLEM: Final = re.compile(rb"^\S+: byte \d+: .*\n", re.MULTILINE)
"""A line in which kdump reports damage."""

_UNWRITTEN: Final = b": never written"
"""What kdump says of space on which the official tool fails, and that is no damage."""

_OFFSETS: Final = re.compile(rb"^(?:base|)[oO]ffset: (\d+)(?: lastOffset: (\d+))?", re.MULTILINE)

_IGNORED: Final = b"Ignoring unknown file "

_GAP: Final = re.compile(rb"^  (-?\d+) is followed by (-?\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One run of the official tool: its arguments, working directory, output and error."""

    name: str
    args: tuple[str, ...]
    cwd: Path
    stdout: bytes
    stderr: bytes
    died: bool


def recorded_runs(collection: Path, name: str, pattern: str = "*") -> Iterator[Recorded]:
    """Return the runs over the directory ``name`` whose ``file.mode`` matches ``pattern``."""
    cwd = collection / "out" / name
    folder = collection / "golden" / name
    for line in (folder / "INDEX.jsonl").read_text().splitlines():
        run = json.loads(line)
        label = f"{run['file']}.{run['mode']}"
        if not fnmatch.fnmatchcase(label, pattern):
            continue
        stderr = (folder / run["err"]).read_bytes() if "err" in run else b""
        yield Recorded(
            name=label,
            args=tuple(run["args"]),
            cwd=cwd,
            stdout=(folder / run["out"]).read_bytes(),
            stderr=stderr.replace(f"{SCRATCH}{name}/".encode(), f"{cwd}/".encode()),
            died=run["rc"] != 0,
        )


def differences(recorded: Recorded, ours: Outcome) -> list[str]:
    """List the differences between kdump's outcome ``ours`` and the recorded run.

    If the official tool succeeded, standard output must be the same byte for byte, and so must
    standard error, except for damage that only kdump detects. If it failed, kdump must print the
    same up to the last line, may print more, and must report the error. For files that only kdump
    reads, only the first lines must be the same. The exit status must be 4 if the official tool
    failed or either tool reported damage, else 0, which it may also be for space that was never
    written; a file that both ignore may be an error.
    """
    found = []
    ignored = _IGNORED in recorded.stderr and _IGNORED not in ours.stderr
    partly = recorded.died or ignored
    expected = recorded.stdout[: recorded.stdout.rfind(b"\n") + 1] if partly else recorded.stdout
    if ours.stdout != expected and not (partly and ours.stdout.startswith(expected)):
        found.append("stdout: " + first_difference(expected, ours.stdout))
    echoed = _OWN_PROBLEM.sub(b"", ours.stderr)
    if recorded.died:
        if not ours.stderr.strip():
            found.append("stderr: nothing is said where the official tool died")
    elif recorded.stderr != echoed and not ignored:
        found.append("stderr: " + first_difference(recorded.stderr, echoed))
    told = echoed != ours.stderr or reports_damage(recorded.stdout, recorded.stderr)
    wanted = {DAMAGE_LEFT} if recorded.died or told else {SOUND}
    if _UNWRITTEN in ours.stderr:
        wanted |= {SOUND}
    if SOUND in wanted and _decreases(recorded.stdout):
        wanted = {SOUND, DAMAGE_LEFT}
    if _IGNORED in recorded.stderr:
        wanted |= {SOUND, DAMAGE_LEFT, OPERATIONAL_ERROR}
    if ours.exit_status not in wanted:
        said = ours.stderr.decode(errors="replace")[-600:]
        found.append(f"exit status: expected {wanted}, found {ours.exit_status}; stderr: {said}")
    return found


def reports_damage(stdout: bytes, stderr: bytes) -> bool:
    """Tell whether the official tool's output reports damage.

    A remark that an offset is followed by a greater one is not a report of damage: every segment
    after offset 0 (``-1 is followed by N``) and every compacted segment has it. A decreasing offset
    is damage.
    """
    if _REPORTS.search(stdout) or _REPORTS.search(stderr):
        return True
    return any(int(after) <= int(before) for before, after in _GAP.findall(stderr))


def _decreases(stdout: bytes) -> bool:
    """Tell whether offsets decrease from batch to batch.

    The official tool stores one successor of each offset, so that it may lose a decrease.
    """
    pairs = _OFFSETS.findall(stdout)
    ends = [int(last or first) for first, last in pairs]
    begins = [int(first) for first, _ in pairs]
    return any(begin <= end for end, begin in zip(ends, begins[1:], strict=False))


def first_difference(expected: bytes, found: bytes) -> str:
    """Format the first line in which two outputs differ, with its number."""
    theirs, ours = expected.split(b"\n"), found.split(b"\n")
    for number, (expected_line, found_line) in enumerate(zip(theirs, ours, strict=False), 1):
        if expected_line != found_line:
            return f"line {number}:\n  expected {_shown(expected_line, found_line)}"
    shared = min(len(theirs), len(ours))
    if shared < len(theirs):
        return f"line {shared + 1} is missing: {theirs[shared][:400]!r}"
    if shared < len(ours):
        return f"line {shared + 1} is too much: {ours[shared][:400]!r}"
    return "none"


def _shown(expected: bytes, found: bytes) -> str:
    """Format two lines, from shortly before the column where they differ."""
    pairs = zip(expected, found, strict=False)
    column = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    start = max(0, column - 80)
    mark = f"(from column {start}) " if start else ""
    ours, theirs = found[start : start + 400], expected[start : start + 400]
    return f"{mark}{theirs!r}\n     found {mark}{ours!r}"


def main() -> int:
    """Compare kdump with the recorded runs of a collection; return 1 if any differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("collection", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--filter", default="*")
    parser.add_argument("--show", type=int, default=5, help="differences to print")
    options = parser.parse_args()
    collection = options.collection.resolve()
    names = options.names or sorted(path.name for path in (collection / "golden").iterdir())
    runs = differing = 0
    begin = time.monotonic()
    for name in names:
        for recorded in recorded_runs(collection, name, options.filter):
            runs += 1
            found = differences(recorded, run_kdump(["dump-segment", *recorded.args], recorded.cwd))
            if found:
                differing += 1
                if differing <= options.show:
                    print(f"{name}: kdump dump-segment {' '.join(recorded.args)}")
                    print("  " + "\n  ".join(found))
    print(f"{runs - differing} of {runs} runs equal, {time.monotonic() - begin:.1f} s")
    return min(differing, 1)


if __name__ == "__main__":
    sys.exit(main())
