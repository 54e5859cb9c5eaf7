"""A valid record that is larger than the limit is no damage, and is decoded where the limit allows.

The limit keeps a few bytes of compressed zeroes from taking all memory.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import batch, record
from builders.compactable_directories import closed
from builders.in_process import run_kdump
from builders.log_directories import write_partition
from builders.message_sets import message
from builders.source_tables import table_of
from kdump.formats.compression import Codec
from kdump.tables.kafka_log.damage import DamagedLogError

pytestmark = pytest.mark.slow

LARGE = 40 << 20
ENOUGH = ("--max-record-bytes", "64MiB")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a segment with a record of 40 MB in 39 KB of gzip, between small ones."""
    large = batch([record(1, value=bytes(LARGE))], codec=Codec.GZIP)
    content = batch([record(0)]) + large + batch([record(2)])
    root = tmp_path_factory.mktemp("logs")
    return write_partition(root / "orders-0", {0: content}) / f"{0:020}.log"


def test_verify_counts_it_separately(log: Path) -> None:
    outcome = run_kdump(["verify", "--deep", str(log)], log.parent)
    assert outcome.exit_status == 0
    assert b"1 batch not decoded: over the limit" in outcome.stdout
    assert b" 0 damaged" in outcome.stdout


def test_verify_decodes_it_with_a_higher_limit(log: Path) -> None:
    outcome = run_kdump(["verify", "--deep", *ENOUGH, str(log)], log.parent)
    assert outcome.exit_status == 0
    assert b"3 records" in outcome.stdout
    assert b"not decoded" not in outcome.stdout


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_dump_segment_reports_what_it_skips(log: Path, form: str) -> None:
    args = ["dump-segment", "--deep-iteration", "--output", form, str(log)]
    outcome = run_kdump(args, log.parent)
    assert outcome.exit_status == 8
    assert b"not decoded: a record is over the limit" in outcome.stderr


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_dump_segment_prints_it_with_a_higher_limit(log: Path, form: str) -> None:
    args = ["dump-segment", "--deep-iteration", *ENOUGH, "--output", form, str(log)]
    outcome = run_kdump(args, log.parent)
    assert (outcome.exit_status, outcome.stderr) == (0, b"")


def test_the_data_source_fails_or_reads_it(log: Path) -> None:
    with pytest.raises(DamagedLogError, match="over the limit"):
        table_of(log, columns="offset")
    table = table_of(log, columns="offset", maxRecordBytes=str(64 << 20))
    assert table["offset"].to_pylist() == [0, 1, 2]


@pytest.fixture
def compactable(tmp_path: Path) -> Path:
    """Return a log directory whose first segment has a key three times, and such a record."""
    large = batch(
        [record(0, b"k"), record(1, b"large", bytes(LARGE)), record(2, b"k")], codec=Codec.GZIP
    )
    logs = {0: large, 3: batch([record(3, b"k")]), 4: batch([record(4, b"other")])}
    write_partition(tmp_path / "logs" / "users-0", logs)
    return closed(tmp_path / "logs")


COMPACT = ("compact", "--topic", "users", "--config", "cleanup.policy=compact")


def test_compact_leaves_such_a_log_unchanged_and_names_the_option(compactable: Path) -> None:
    before = (compactable / "users-0" / f"{0:020}.log").read_bytes()
    outcome = run_kdump([*COMPACT, str(compactable)], compactable)
    assert outcome.exit_status == 4
    assert b"over the limit (raise it with --max-record-bytes)" in outcome.stdout
    assert (compactable / "users-0" / f"{0:020}.log").read_bytes() == before


def test_compact_reads_it_with_a_higher_limit(compactable: Path) -> None:
    outcome = run_kdump([*COMPACT, *ENOUGH, str(compactable)], compactable)
    assert outcome.exit_status == 0
    table = table_of(compactable / "users-0", columns="key", maxRecordBytes=str(64 << 20))
    assert table["key"].to_pylist() == [b"large", b"k", b"other"]


def test_a_large_uncompressed_message_is_read_without_a_higher_limit(tmp_path: Path) -> None:
    """A message that is not compressed needs no limit but that of its file."""
    log = (
        write_partition(tmp_path / "orders-0", {0: message(0, value=bytes(5 << 20), magic=1)})
        / f"{0:020}.log"
    )
    verified = run_kdump(["verify", "--deep", str(log)], tmp_path)
    assert (verified.exit_status, b"1 record" in verified.stdout) == (0, True)
    dumped = run_kdump(["dump-segment", "--deep-iteration", str(log)], tmp_path)
    assert (dumped.exit_status, dumped.stderr) == (0, b"")


def test_a_limit_of_zero_is_not_the_default(tmp_path: Path) -> None:
    """What is left is the limit of 16 times the size of the batch."""
    content = batch([record(0, value=bytes(8 << 20))], codec=Codec.GZIP)
    log = write_partition(tmp_path / "orders-0", {0: content}) / f"{0:020}.log"
    dump = ("dump-segment", "--deep-iteration", str(log))
    assert run_kdump([*dump], tmp_path).exit_status == 0
    limited = run_kdump([*dump, "--max-record-bytes", "0"], tmp_path)
    assert b"not decoded: a record is over the limit" in limited.stderr
