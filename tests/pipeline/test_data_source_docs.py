"""The page about the data source names all of it, and what its examples show is there."""

from __future__ import annotations

import re
from pathlib import Path

from kdump.pipeline.kafka_log.columns import COLUMNS, TRANSACTION_STATES
from kdump.pipeline.kafka_log.options import OPTIONS, Mode, parse_options


def page(repository_root: Path) -> str:
    return (repository_root / "docs" / "kafka-log.md").read_text(encoding="utf-8")


def test_every_column_and_option_has_its_line(repository_root: Path) -> None:
    named = set(re.findall(r"`([\w.]+)`", page(repository_root)))
    wanted = {column.name for column in COLUMNS} | set(OPTIONS) - {"path", "paths"}
    wanted |= {mode.value for mode in Mode} | {state for state in TRANSACTION_STATES if state}
    assert wanted - named == set()


def test_the_options_of_the_examples_are_taken(repository_root: Path) -> None:
    given = re.findall(r'\.option\("([^"]+)", "([^"]+)"\)', page(repository_root))
    assert given
    for name, value in given:
        parse_options({"path": ".", name: value})
