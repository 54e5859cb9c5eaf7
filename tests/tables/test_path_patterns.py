"""Paths with patterns, as the data source takes them."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from builders.batches import batches
from builders.log_directories import write_log_directory, write_partition
from builders.object_server import object_server
from kdump.errors import UsageProblem
from kdump.tables.kafka_log.path_patterns import _matched, paths_of

if TYPE_CHECKING:
    from kdump.engine.spark import SparkEngine

NAMES: Final = (
    "a",
    "b",
    "ab",
    "a-1",
    "a-2",
    "a[1]",
    "a{b}",
    "a,b",
    "a^b",
    "a]b",
    "ü",
    "a b",
    "a&&b",
)
PATTERNS: Final = (
    "*", "a*", "?", "??", "[ab]", "[^ab]", "[a-b]*", "{a,b}", "a{,b}", "a-{1,2}", "{a,{b,ab}}",
    "a\\[1\\]", "a\\{b\\}", "a[&&]*", "*b", "*[12]", "{a,b}*{1,b}", "a[^-]b", "[^a]*", "a?b", "x*",
)  # fmt: skip


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    """Two log directories, one with partitions set aside, and files beside them."""
    for disk in ("d1", "d2"):
        root = write_log_directory(tmp_path / disk)
        for name in ("orders-0", "orders-1", "payments-0", f"orders-2.{'0' * 32}-delete"):
            write_partition(root / name, {0: b"".join(batches(1))})
    (tmp_path / "d3").mkdir()
    (tmp_path / ".d4").mkdir()
    (tmp_path / "notes.txt").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("d?", ["d1", "d2"]),
        ("*", ["d1", "d2"]),
        ("d1/*", ["d1/orders-0", "d1/orders-1", "d1/payments-0"]),
        ("{d2,d1}/orders-[1-9]", ["d1/orders-1", "d2/orders-1"]),
        ("d[^1]/*-0", ["d2/orders-0", "d2/payments-0"]),
        ("d1/orders-*-delete", [f"d1/orders-2.{'0' * 32}-delete"]),
        ("*/orders-0/*.log", [f"d{n}/orders-0/{'0' * 20}.log" for n in (1, 2)]),
        ("d*/orders-1", ["d1/orders-1", "d2/orders-1"]),
    ],
)
def test_a_pattern_is_all_of_kafka_that_it_matches(
    pattern: str, expected: list[str], disks: Path
) -> None:
    assert paths_of(f"{disks}/{pattern}") == [f"{disks}/{each}" for each in expected]


def test_a_relative_pattern_stays_relative(disks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(disks)
    assert paths_of("d*") == ["d1", "d2"]
    assert paths_of("./d1/pay*") == ["./d1/payments-0"]


def test_a_path_that_exists_is_itself(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "a[1]{b,c}*")
    write_log_directory(tmp_path / "a1b")
    assert paths_of(str(root)) == [str(root)]
    assert paths_of("no-such") == ["no-such"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("e*", "Path does not exist: .*/e[*]$"),
        ("*/nope-*", "Path does not exist: "),
        ("nope/*", "Path does not exist: "),
        ("notes*", "matches neither a Kafka log directory nor a partition"),
        ("d[12", r"a bracket is not closed in the pattern d\[12"),
        ("d[1[2]", "a bracket is not closed"),
        ("d{1,2", "a brace is not closed in the pattern d{1,2"),
    ],
)
def test_a_pattern_that_matches_nothing_is_refused(pattern: str, message: str, disks: Path) -> None:
    with pytest.raises(UsageProblem, match=message):
        paths_of(f"{disks}/{pattern}")


@pytest.mark.slow
def test_places_elsewhere_have_patterns_too(disks: Path) -> None:
    with tarfile.open(disks / "all.tar", "w") as archive:
        archive.add(disks / "d1", "d1")
        archive.add(disks / "d2", "d2")
    inside = f"{disks}/all.tar!"
    assert paths_of(f"{inside}/d[12]") == [f"{inside}/d1", f"{inside}/d2"]
    assert paths_of(f"{inside}/*/pay*") == [f"{inside}/{each}/payments-0" for each in ("d1", "d2")]
    with object_server() as server:
        bucket = server.upload(disks / "d1", "cluster/d1").removesuffix("/d1")
        server.upload(disks / "d2", "cluster/d2")
        assert paths_of(f"{bucket}/d*") == [f"{bucket}/d1", f"{bucket}/d2"]
        # A question mark begins the options of a URI.
        assert paths_of(f"{bucket}/d{{2,3}}/orders-*?scheme=http") == [
            f"{bucket}/d2/orders-{number}?scheme=http" for number in (0, 1)
        ]
        with pytest.raises(UsageProblem, match="Path does not exist: s3://"):
            paths_of(f"{bucket}/e*")


@pytest.mark.slow
def test_names_match_as_in_hadoop(running_spark: SparkEngine, tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).mkdir()
    context = running_spark._session.context
    hadoop = context._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.getLocal(context._jsc.hadoopConfiguration())
    for pattern in PATTERNS:
        found = files.globStatus(hadoop.Path(f"{tmp_path}/{pattern}"))
        wanted = sorted(str(each.getPath().getName()) for each in found)
        own = [Path(each).name for each in _matched(f"{tmp_path}/{pattern}", "", re.compile("."))]
        assert (pattern, sorted(own)) == (pattern, wanted)
