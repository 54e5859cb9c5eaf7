"""The official tool reads the reset CSV as it was meant, whatever names groups have."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import Final

import pytest

from builders.batches import batch, record
from builders.in_process import run_kdump
from builders.log_directories import write_log_directory, write_partition

NAMES: Final = (
    "plain-group_1.x",
    "группа, q",
    'with "quotes", doubled ""',
    " blanks around ",
    "#comment",
    "tab\tand\rreturn",
    "back\\slash",
    "'single'",
    "1",
    "日本語",
)


def commit(offset: int, group: str, partition: int) -> tuple[int, bytes, bytes]:
    name, topic = group.encode(), b"orders"
    key = b"\0\1" + len(name).to_bytes(2, "big") + name + len(topic).to_bytes(2, "big") + topic
    value = b"\0\3" + (100 + offset).to_bytes(8, "big") + bytes(4) + bytes(2) + bytes(8)
    return offset, key + partition.to_bytes(4, "big"), value


def directory_of(tmp_path: Path, names: tuple[str, ...]) -> Path:
    root = write_log_directory(tmp_path / "logs")
    commits = [commit(number, name, number % 3) for number, name in enumerate(names)]
    log = batch([record(*each) for each in commits])
    write_partition(root / "__consumer_offsets-0", {0: log})
    return root


def read_by_the_tool(classpath: str, path: Path, *, has_groups: bool) -> list[list[str]]:
    words = ["java", "-cp", classpath, "ResetCsv", str(path), str(has_groups).lower()]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    texts = 2 if has_groups else 1
    return [
        [base64.b64decode(each).decode() for each in words[:texts]] + words[texts:]
        for words in (line.split("\t") for line in said.splitlines())
    ]


@pytest.mark.parametrize("names", [NAMES, NAMES[:1]], ids=["several groups", "one group"])
def test_the_tool_reads_what_was_committed(
    names: tuple[str, ...], java_classpath: str, tmp_path: Path
) -> None:
    root = directory_of(tmp_path, names)

    outcome = run_kdump(["groups", "--output", "reset-csv", str(root)], tmp_path)

    assert outcome.exit_status == 0
    path = tmp_path / "offsets.csv"
    path.write_bytes(outcome.stdout)
    has_groups = len(names) > 1
    expected = [
        [*([name] if has_groups else []), "orders", str(number % 3), str(100 + number)]
        for number, name in enumerate(names)
    ]
    assert sorted(read_by_the_tool(java_classpath, path, has_groups=has_groups)) == sorted(expected)
