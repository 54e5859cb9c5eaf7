"""``kdump grep``: what is found, and how it is printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.golden import recorded_runs
from builders.in_process import run_kdump

RECORD = re.compile(rb"^(?=\| offset: |baseOffset: |offset: )", re.MULTILINE)


def official_lines(text: bytes) -> Iterator[bytes]:
    """The lines of records in what ``kafka-dump-log --print-data-log`` prints; some have breaks."""
    return (line for line in RECORD.split(text) if line.startswith(b"| offset"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clean", "legacy"])
@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        ("order", ()),
        (r"survivor 2[0-9]7\b|uniq-1-[0-9]{2}\b", ()),
        ("SHIPMENT (gamma|mu)", ("-i",)),
        ("ключ-[0-9]-ü.í", ()),
        ('"name":"kappa",', ("-F",)),
        ("m[a-z]+ (?:eta|xi).*chi", ()),
    ],
)
def test_the_same_records_are_found_as_in_the_output_of_the_official_tool(
    name: str, pattern: str, options: tuple[str, ...], fixtures: Path
) -> None:
    runs = [run for run in recorded_runs(fixtures, name, "*.log.deep") if not run.died]
    flags = re.IGNORECASE if "-i" in options else re.NOFLAG
    searched = re.compile(re.escape(pattern) if "-F" in options else pattern, flags)
    expected = [
        f"{run.args[-1]}:".encode() + line
        for run in runs
        for line in official_lines(run.stdout)
        if searched.search(line.decode())
    ]

    ours = run_kdump(["grep", *options, pattern, *(run.args[-1] for run in runs)], runs[0].cwd)

    assert ours.stdout == b"".join(expected)
    assert ours.exit_status & 1 == (not expected)
