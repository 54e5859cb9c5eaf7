"""Records that only a stray or moving directory has are left out, but not in silence."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from builders.batches import batches
from builders.in_process import run_kdump
from builders.log_directories import write_log_directory, write_partition
from builders.serving import opened
from kdump.formats import names

ID: Final = "184f5a4c945d4277a4671794019b3c74"


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Path, Path]:
    """Return two log directories of a broker that was moving orders-0 from one to the other."""
    roots = tmp_path / "d1", tmp_path / "d2"
    for root in roots:
        write_log_directory(root)
        write_partition(root / "orders-0", {0: b"".join(batches(2))})
    (roots[1] / "orders-0").rename(roots[1] / f"orders-0.{ID}-future")
    write_partition(roots[1] / "payments-0", {0: b"".join(batches(2))})
    return roots


def said(command: str, *disks: Path) -> str:
    """Return what a command says, and not what it prints."""
    places = [str(each) for each in disks]
    words = {
        "export": ["export", *places, "--out", str(disks[0].parent / "out")],
        "query": ["query", "SELECT COUNT(*) FROM records", *places],
    }
    outcome = run_kdump(words[command], disks[0].parent)
    assert outcome.exit_status == 0, outcome.stderr
    return outcome.stderr.decode()


@pytest.mark.parametrize("state", ["future", "stray"])
def test_an_export_names_partitions_that_only_copies_have(
    state: str, disks: tuple[Path, Path]
) -> None:
    check_that_it_names_them("export", state, disks)


@pytest.mark.slow
@pytest.mark.usefixtures("running_spark")
@pytest.mark.parametrize("state", ["future", "stray"])
def test_a_query_names_partitions_that_only_copies_have(
    state: str, disks: tuple[Path, Path]
) -> None:
    check_that_it_names_them("query", state, disks)


def check_that_it_names_them(command: str, state: str, disks: tuple[Path, Path]) -> None:
    assert "directories have" not in said(command, *disks)
    copy = disks[1] / f"orders-0.{ID}-future"
    path = copy.rename(disks[1] / f"orders-0.{ID}-{state}")
    shutil.rmtree(disks[0] / "orders-0")
    shutil.rmtree(disks[0].parent / "out", ignore_errors=True)
    expected = f"1 partition that only -stray or -future directories have (first: {path})"
    assert expected in said(command, *disks)


def test_a_server_names_them_when_it_starts(disks: tuple[Path, Path]) -> None:
    with opened(*disks) as server:
        assert not any("directories have" in line for line in server.lines)
    shutil.rmtree(disks[0] / "orders-0")
    with opened(*disks) as server:
        assert any("not served: 1 partition that only" in line for line in server.lines)


def test_a_server_of_one_broker_names_only_those_of_that_broker(
    disks: tuple[Path, Path],
) -> None:
    properties = disks[1] / names.META_PROPERTIES
    properties.write_bytes(properties.read_bytes().replace(b"node.id=7", b"node.id=8"))
    shutil.rmtree(disks[0] / "orders-0")
    for broker_id, is_named in ((7, False), (8, True)):
        with opened(*disks, broker_id=broker_id) as server:
            assert any("directories have" in line for line in server.lines) is is_named


def test_a_directory_that_is_named_itself_is_read(disks: tuple[Path, Path]) -> None:
    shutil.rmtree(disks[0] / "orders-0")
    moving = disks[1] / f"orders-0.{ID}-future"
    assert "directories have" not in said("export", disks[1], moving)
