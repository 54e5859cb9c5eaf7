"""The official tool and kdump on the same files, compared.

As a script it prints the differences over generated segments, valid and damaged:
``PYTHONPATH=tests python -m builders.duel CLASSPATH [--seed N] [--count N] [--kind KIND]``.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from builders import damage
from builders.golden import Recorded, differences
from builders.in_process import run_kdump
from builders.official import OfficialTool

Files = Mapping[str, bytes]
"""The files of one directory: name to content."""

LOG_OPTIONS: Final = (
    (),
    ("--deep-iteration",),
    ("--print-data-log",),
    ("--print-data-log", "--skip-record-metadata"),
    ("--deep-iteration", "--skip-record-metadata"),
)
"""Ways to print logs and KRaft snapshots."""

INDEX_OPTIONS: Final = ((), ("--verify-index-only",), ("--index-sanity-check",))
"""Ways to print offset and time indexes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparison of two runs over the same files, one of each tool."""

    args: tuple[str, ...]
    differences: tuple[str, ...]
    official_end: str

    def __str__(self) -> str:
        end = f"\n  (the official tool ended with {self.official_end})" if self.official_end else ""
        return f"{' '.join(self.args)}{end}\n  " + "\n  ".join(self.differences)


class Duel:
    """Both tools, and their working directory ``arena``."""

    def __init__(self, official: OfficialTool, arena: Path) -> None:
        self._official = official
        self._arena = arena

    def compare(self, files: Files, *runs: Sequence[str]) -> list[Verdict]:
        """Run both tools with each of ``runs`` over ``files``; return the verdicts that differ.

        In the arguments, files are named ``case/NAME``. The files are written again for each run,
        because the official tool changes them. A change by kdump is a difference, too.
        """
        directory = self._arena / "case"
        directory.mkdir()
        try:
            verdicts = [self._compare_one(directory, files, tuple(args)) for args in runs]
        finally:
            _lay(directory, {})
            directory.rmdir()
        return [verdict for verdict in verdicts if verdict.differences]

    def _compare_one(self, directory: Path, files: Files, args: tuple[str, ...]) -> Verdict:
        _lay(directory, files)
        before = _stamps(directory)
        ours = run_kdump(["dump-segment", *args], self._arena)
        found = []
        if _stamps(directory) != before:
            found.append("files: kdump changed what it only reads")
        _lay(directory, files)
        theirs = self._official.run(args)
        recorded = Recorded(
            name=" ".join(args),
            args=args,
            cwd=self._arena,
            stdout=theirs.stdout,
            stderr=theirs.stderr,
            died=bool(theirs.end),
        )
        found += differences(recorded, ours)
        return Verdict(args, tuple(found), theirs.end)


def runs_over(files: Files) -> Iterator[tuple[str, ...]]:
    """Yield arguments for each of the files, with each way to print its kind."""
    for name in sorted(files):
        match Path(name).suffix:
            case ".log" | ".checkpoint":
                options: tuple[tuple[str, ...], ...] = LOG_OPTIONS
            case ".index" | ".timeindex":
                options = INDEX_OPTIONS
            case _:
                options = ((),)
        for option in options:
            yield (*option, "--files", f"case/{name}")


def files_of(directory: Path) -> dict[str, bytes]:
    """Read the files of ``directory``."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def _lay(directory: Path, files: Files) -> None:
    """Make ``directory`` contain exactly ``files``, writing only files that differ."""
    for path in directory.iterdir():
        if path.name not in files:
            path.unlink()
    for name, content in files.items():
        path = directory / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def _stamps(directory: Path) -> dict[str, tuple[int, int, int]]:
    return {
        path.name: (path.stat().st_mtime_ns, path.stat().st_size, path.stat().st_ino)
        for path in directory.iterdir()
    }


def generate(
    classpath: str, program: str, directory: Path, seed: int, count: int, *kind: str
) -> None:
    """Let ``SegmentWriter`` or ``InternalTopicWriter`` make partitions in ``directory``."""
    subprocess.run(
        [
            "java",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "-cp",
            classpath,
            program,
            directory,
            str(seed),
            str(count),
            *kind,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def main() -> int:
    """Compare the tools over generated segments; return 1 if they differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("classpath")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--kind")
    parser.add_argument("--damages", type=int, default=5, help="damaged copies of each segment")
    parser.add_argument("--show", type=int, default=5, help="differences to print")
    options = parser.parse_args()
    kinds = [options.kind] if options.kind else []
    count: Counter[str] = Counter()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        segments, arena = Path(scratch, "segments"), Path(scratch, "arena")
        arena.mkdir()
        generate(options.classpath, "SegmentWriter", segments, options.seed, options.count, *kinds)
        with OfficialTool(options.classpath, arena) as official:
            duel = Duel(official, arena)
            for path in sorted(segments.iterdir()):
                whole = files_of(path)
                cases = [("whole", whole)]
                for number in range(options.damages):
                    rng = random.Random(f"{options.seed} {path.name} {number}")
                    cases.append(damage.damaged(rng, whole))
                for label, files in cases:
                    runs = list(runs_over(files))
                    verdicts = duel.compare(files, *runs)
                    count["runs"] += len(runs)
                    count["differing"] += len(verdicts)
                    for verdict in verdicts:
                        count[f"differing after {label}"] += 1
                        if count["shown"] < options.show:
                            count["shown"] += 1
                            print(f"{path.name}, {label}: {verdict}")
    print(dict(count), f"{time.monotonic() - begin:.1f} s")
    return min(count["differing"], 1)


if __name__ == "__main__":
    sys.exit(main())
