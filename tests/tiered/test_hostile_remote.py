"""Remote segments that are doubled, cut, overlapping or missing: each record once, or an error."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from builders.aiven_objects import AivenWriter
from builders.in_process import run_kdump
from builders.tiered_fixture import Record, TieredFixture, records_by_partition
from kdump.errors import KdumpError
from kdump.log.headers import batch_spans
from kdump.storage.local_disk import local

LEVEL: Final = "read_uncommitted"
OTHER: Final = "A" * 22
Damage = Callable[[Path], None]


def segments(folder: Path) -> list[Path]:
    """The logs of a partition."""
    return sorted(folder.glob("*.log"))


def copied(log: Path, start: int | None = None) -> Path:
    """Copy the files of a segment, as one with another id; returns the log."""
    offset = int(log.name[:20]) if start is None else start
    for file in list(log.parent.glob(f"{log.stem}.*")):
        shutil.copy2(file, log.parent / f"{offset:020d}-{OTHER}{file.suffix}")
    return log.parent / f"{offset:020d}-{OTHER}.log"


def two_copies(folder: Path) -> None:
    for log in segments(folder)[1:2]:
        copied(log)


def half_of_a_second_copy(folder: Path) -> None:
    log = copied(segments(folder)[1])
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])


def half_of_a_second_copy_of_the_last(folder: Path) -> None:
    log = copied(segments(folder)[-1])
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])


def a_second_copy_without_indexes(folder: Path) -> None:
    log = copied(segments(folder)[1])
    for file in folder.glob(f"{log.stem}.*"):
        if file != log:
            file.unlink()


def a_second_copy_without_bytes(folder: Path) -> None:
    copied(segments(folder)[1]).write_bytes(b"")


def a_segment_over_two_others(folder: Path) -> None:
    first, second = segments(folder)[1:3]
    log = copied(second, int(first.name[:20]))
    log.write_bytes(first.read_bytes() + second.read_bytes())
    for suffix in (".index", ".timeindex", ".txnindex"):
        log.with_suffix(suffix).unlink(missing_ok=True)


def without_indexes(folder: Path) -> None:
    for log in segments(folder):
        for suffix in (".index", ".timeindex"):
            log.with_suffix(suffix).unlink()


def without_leader_epochs(folder: Path) -> None:
    segments(folder)[1].with_suffix(".leader_epoch_checkpoint").unlink()


def foreign_files(folder: Path) -> None:
    (folder / "=cmd()").mkdir()
    (folder / f"{0:020d}-short.log").write_bytes(b"x")
    (folder / f"{7:020d}-{OTHER}.unknown").write_bytes(b"x")


def missing(folder: Path) -> None:
    log = segments(folder)[1]
    for file in list(folder.glob(f"{log.stem}.*")):
        file.unlink()


def empty(folder: Path) -> None:
    segments(folder)[1].write_bytes(b"")


def cut(folder: Path) -> None:
    log = segments(folder)[1]
    log.write_bytes(log.read_bytes()[:-9])


def cut_after_a_batch(folder: Path) -> None:
    log = segments(folder)[1]
    with local(log).open_file() as file:
        last = list(batch_spans(file))[-1].position
    log.write_bytes(log.read_bytes()[:last])


def longer(folder: Path) -> None:
    log = segments(folder)[1]
    log.write_bytes(log.read_bytes() + b"garbage after the last batch" * 9)


def zeroed(folder: Path) -> None:
    log = segments(folder)[1]
    log.write_bytes(bytes(log.stat().st_size))


HARMLESS: Final = (
    two_copies,
    half_of_a_second_copy,
    half_of_a_second_copy_of_the_last,
    a_second_copy_without_indexes,
    a_second_copy_without_bytes,
    a_segment_over_two_others,
    without_indexes,
    without_leader_epochs,
    foreign_files,
)
HARMFUL: Final = (missing, empty, cut, cut_after_a_batch, longer, zeroed)


def damaged(disks: TieredFixture, damage: Damage, *, with_metadata: bool) -> list[Record]:
    """Damage the remote part of ``tx-0``; returns what a consumer has to get."""
    (folder,) = disks.remote.glob("kafka-tiered-storage/tx-0-*")
    damage(folder)
    if not with_metadata:
        for each in disks.leader.glob("__remote_log_metadata-*"):
            shutil.rmtree(each)
    return disks.consumed(LEVEL)["tx-0"]


@pytest.mark.parametrize("with_metadata", [True, False])
@pytest.mark.parametrize("damage", HARMLESS)
def test_each_record_is_read_once(
    tiered_copy: TieredFixture, damage: Damage, with_metadata: bool
) -> None:
    wanted = damaged(tiered_copy, damage, with_metadata=with_metadata)
    remote = str(tiered_copy.remote)
    assert records_by_partition(("tx",), tiered_copy.leader, remote=remote)["tx-0"] == wanted
    end = tiered_copy.offsets["tx-0"]["latest-tiered"]
    alone = records_by_partition(("tx",), tiered_copy.remote, remote=remote)["tx-0"]
    assert alone == [each for each in wanted if each[0] <= end]


@pytest.mark.parametrize("with_metadata", [True, False])
@pytest.mark.parametrize("damage", HARMFUL)
def test_nothing_is_left_out_without_an_error(
    tiered_copy: TieredFixture, damage: Damage, with_metadata: bool, tmp_path: Path
) -> None:
    damaged(tiered_copy, damage, with_metadata=with_metadata)
    remote = tiered_copy.remote
    for directory in (tiered_copy.leader, remote):
        with pytest.raises((KdumpError, OSError)):
            records_by_partition(("tx",), directory, remote=str(remote))
        words = ["--remote", str(remote), "--topic", "tx", str(directory)]
        verified = run_kdump(["verify", *words], tmp_path)
        assert verified.exit_status & 12, verified.stdout.decode()
        out = f"out-{directory.name}"
        exported = run_kdump(["export", "--format", "jsonl", "--out", out, *words], tmp_path)
        assert exported.exit_status & 12, exported.stdout.decode()
        assert b"Traceback" not in verified.stderr + exported.stderr


@pytest.mark.parametrize("suffix", ["log", "rsm-manifest"])
@pytest.mark.parametrize("is_cut", [True, False])
def test_objects_of_the_plugin_that_are_missing_or_cut_are_errors(
    tiered_copy: TieredFixture, tmp_path: Path, suffix: str, is_cut: bool
) -> None:
    prefix = tmp_path / "prefix"
    AivenWriter(is_compressed=True).write(tiered_copy.remote / "kafka-tiered-storage", prefix)
    path = sorted(prefix.glob(f"tx-*/0/*.{suffix}"))[1]
    if is_cut:
        path.write_bytes(path.read_bytes()[:-9])
    else:
        path.unlink()
    for directory in (tiered_copy.leader, prefix):
        with pytest.raises((KdumpError, OSError)):
            records_by_partition(("tx",), directory, remote=str(prefix))
        outcome = run_kdump(
            ["verify", "--remote", str(prefix), "--topic", "tx", str(directory)], tmp_path
        )
        assert outcome.exit_status & 12, outcome.stdout.decode()
