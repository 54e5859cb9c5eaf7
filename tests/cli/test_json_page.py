"""The objects that ``docs/json.md`` shows are those that commands write."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders.in_process import run_kdump
from builders.json_answers import all_objects

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "json.md"
CRASHED: Final = (
    "verify d1",
    "verify --repair --dry-run d1",
    "recover --dry-run d1",
    "explain foreign-file",
    "ls --topic crash-none d1",
    "dump-segment --limit 1 d1/crash-none-0/00000000000000000100.log",
    "checkpoint set d1 log-start-offset crash-none-0=10",
    "undo d1",
    "recover --policy salvage d1",
    "undo --list d1",
    "undo --dry-run d1",
)
"""In this order, on a directory after a crash; then a page of a log was overwritten."""
CLEAN: Final = (
    "groups d1 d2",
    "grep -F key-0 --topic 1-2-3 d2",
    "grep --count '' --topic 1-2-3 d2",
    "export --isolation-level read_committed --topic txn-abort-index --out OUT d2",
    "undelete --dry-run d1",
    "identity d1 d2",
)
CLUSTER: Final = (
    "txns --topic txn-* b1-d1 b2-d1 b2-d2 b3-d1",
    "metadata history --topic div-a c1001 c1002 c1003",
    "metadata diff --from 400 --topic to-delete c1001",
    "quorum show c1002",
    "metadata collect --out OUT/b1.json b1-d1 b2-d1 b2-d2 b3-d1",
    "metadata plan --controller 4001@h:9093 --out OUT/plan.json OUT/b1.json",
)
NOT_RUN: Final = {"interrupted"}
"""Types of runs that were killed; ``test_json_schemas.py`` holds the example to the schema."""
VARYING: Final = ("created_ms", "kept_bytes", "seconds")
"""Fields that differ from run to run."""
ON_THIS_DISK: Final = {"summary": "lost_bytes", "partition": "size_bytes"}
"""Fields that depend on the holes in files, and on the library that writes Parquet, by type."""


def objects_of(text: str) -> Iterator[dict[str, Any]]:
    """Give the objects of the page: of the sections, and of the session at its beginning."""
    for line in text.splitlines():
        if line.startswith("    {"):
            yield json.loads(line)


def written(lines: tuple[str, ...], folder: Path, out: Path) -> Iterator[dict[str, Any]]:
    """Give the objects that commands write, and the changes and previews in them."""
    for line in lines:
        words = shlex.split(line.replace("OUT", str(out)))
        answer = all_objects(run_kdump([*words, "--output", "jsonl"], folder).stdout)
        for each in answer:
            yield each
            yield from each.get("operations", ())


def comparable(row: dict[str, Any]) -> str:
    """An object without what differs from run to run, and from machine to machine."""
    own = ON_THIS_DISK.get(row.get("type", ""))
    kept = {name: value for name, value in row.items() if name not in (*VARYING, own)}
    if "path" in kept:
        kept["path"] = "/".join(Path(kept["path"]).parts[-2:])
    return json.dumps(kept)


@pytest.fixture
def crashed(fixtures: Path, tmp_path: Path) -> Path:
    shutil.copytree(fixtures / "out" / "crashed" / "d1", tmp_path / "d1")
    with (tmp_path / "d1" / "crash-none-0" / f"{100:020d}.log").open("r+b") as log:
        log.seek(81920)
        log.write(bytes(4096))
    return tmp_path


@pytest.mark.slow
def test_the_page_shows_what_is_written(crashed: Path, fixtures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    found = {
        comparable(each)
        for lines, folder in (
            (CRASHED, crashed),
            (CLEAN, fixtures / "out" / "clean"),
            (CLUSTER, fixtures / "states" / "clean"),
        )
        for each in written(lines, folder, out)
    }
    shown = objects_of(PAGE.read_text(encoding="utf-8"))
    assert [
        each for each in shown if each.get("type") not in NOT_RUN and comparable(each) not in found
    ] == []
