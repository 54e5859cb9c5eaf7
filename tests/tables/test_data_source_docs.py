"""``docs/kafka-log.md`` is complete, and its examples run as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from builders import log_directories
from builders.batches import batch, record
from builders.programs import in_a_fresh_process
from kdump.tables.kafka_log.columns import COLUMNS, TRANSACTION_STATES
from kdump.tables.kafka_log.options import OPTIONS, Mode, parse_options


def page(repository_root: Path) -> str:
    return (repository_root / "docs" / "kafka-log.md").read_text(encoding="utf-8")


def test_every_column_and_option_is_documented(repository_root: Path) -> None:
    named = set(re.findall(r"`([\w.]+)`", page(repository_root)))
    wanted = {column.name for column in COLUMNS} | set(OPTIONS) - {"path", "paths"}
    wanted |= {mode.value for mode in Mode} | {state for state in TRANSACTION_STATES if state}
    assert wanted - named == set()


def test_the_options_of_the_examples_are_valid(repository_root: Path) -> None:
    given = re.findall(r'\.option\("([^"]+)", "([^"]+)"\)', page(repository_root))
    assert given
    for name, value in given:
        parse_options({"path": ".", name: value})


def example(text: str, language: str, log_dir: Path) -> str:
    """Return the first example in a language, which is a query."""
    found, *_ = re.findall(f"```{language}\n(.*?)```", text, re.DOTALL)
    return str(found).replace("/data/kafka", str(log_dir))


@pytest.mark.soak
@pytest.mark.usefixtures("quick_sessions")
def test_the_examples_run_in_a_plain_pyspark_session(repository_root: Path, tmp_path: Path) -> None:
    log_dir = log_directories.write_log_directory(tmp_path / "kafka")
    records = [record(at, b"k%d" % (at % 2), b"v%d" % at) for at in range(1000, 1007)]
    log_directories.write_partition(log_dir / "orders-0", {1000: batch(records)})
    text = page(repository_root)
    queries = example(text, "sql", log_dir)
    program = example(text, "python", log_dir) + (
        "import sys\n"
        "for query in filter(str.strip, sys.argv[1].split(';')):\n"
        "    spark.sql(query).show()\n"
    )
    said = in_a_fresh_process(program, queries).stdout
    for row in ("orders| 0| 7|", "k0| v1006|", "k1| v1005|", "7|"):
        assert re.search(r"\|\s*" + re.sub(r"[| ]+", r"\\s*\\|\\s*", row), said), (row, said)
