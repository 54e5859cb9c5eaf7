"""Remote segments that are doubled, cut, overlapping or missing: each record once, or an error."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from builders.aiven_objects import AivenWriter
from builders.damage import checksum_again
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


def records_of_cut(disks: TieredFixture) -> tuple[Path, list[tuple[int, int]]]:
    """The log with the metadata of ``cut-0``, and where its batches about that are."""
    (log,) = (
        each
        for each in disks.leader.glob("__remote_log_metadata-*/*.log")
        if b"\x04cut" in each.read_bytes()
    )
    data = log.read_bytes()
    with local(log).open_file() as file:
        spans = [(each.position, each.next_position) for each in batch_spans(file)]
    return log, [each for each in spans if b"\x04cut" in data[slice(*each)]]


def change_metadata(disks: TieredFixture, number: int, change: Callable[[bytearray], None]) -> None:
    """Change a batch about ``cut-0``, whose checksum stays valid."""
    log, spans = records_of_cut(disks)
    start, end = spans[number]
    data = bytearray(log.read_bytes())
    batch = data[start:end]
    change(batch)
    data[start:end] = batch
    checksum_again(data, start)
    log.write_bytes(data)


def offsets_in(batch: bytearray, offset: int, changed: bytes) -> None:
    """Change the first field of 64 bits that has an offset."""
    at = batch.index(offset.to_bytes(8, "big"))
    batch[at : at + 8] = changed


def unknown_state(batch: bytearray) -> None:
    batch[-6] = 9


def unknown_kind_of_record(batch: bytearray) -> None:
    batch[70] = 9


def unknown_version(batch: bytearray) -> None:
    batch[71] = 99


def negative_start(batch: bytearray) -> None:
    offsets_in(batch, 30, b"\xff" * 8)


def end_before_the_start(batch: bytearray) -> None:
    offsets_in(batch, 43, bytes(8))


def end_of_exabytes(batch: bytearray) -> None:
    offsets_in(batch, 43, b"\x7f" + b"\xff" * 7)


def negative_epoch(batch: bytearray) -> None:
    at = batch.rindex(b"\x02" + bytes(4) + (30).to_bytes(8, "big"))
    batch[at + 1 : at + 5] = b"\xff" * 4


HOSTILE_METADATA: Final = (
    unknown_state,
    unknown_kind_of_record,
    unknown_version,
    negative_start,
    end_before_the_start,
    end_of_exabytes,
    negative_epoch,
)


def require_an_error(disks: TieredFixture, tmp_path: Path) -> None:
    """Require that every reader says that ``cut-0`` is not whole."""
    remote = str(disks.remote)
    with pytest.raises((KdumpError, OSError)):
        records_by_partition(("cut",), disks.leader, remote=remote)
    words = ["--remote", remote, "--topic", "cut", str(disks.leader)]
    verified = run_kdump(["verify", *words], tmp_path)
    assert verified.exit_status & 12, verified.stdout.decode()
    exported = run_kdump(["export", "--format", "jsonl", "--out", "out", *words], tmp_path)
    assert exported.exit_status & 12, exported.stdout.decode()


@pytest.mark.parametrize("change", HOSTILE_METADATA)
def test_no_record_of_the_metadata_makes_records_vanish(
    tiered_copy: TieredFixture, change: Callable[[bytearray], None], tmp_path: Path
) -> None:
    change_metadata(tiered_copy, 4, change)
    require_an_error(tiered_copy, tmp_path)


@pytest.mark.parametrize("epochs", ["1\n99 0\n", "2\n2 0\n3 45\n"], ids=["all", "the-begin"])
def test_offsets_of_a_lineage_that_no_segment_has_are_missing(
    tiered_copy: TieredFixture, epochs: str, tmp_path: Path
) -> None:
    (tiered_copy.leader / "cut-0" / "leader-epoch-checkpoint").write_text(f"0\n{epochs}")
    require_an_error(tiered_copy, tmp_path)


def test_the_first_remote_segment_is_missed_by_where_the_log_begins(
    tiered_copy: TieredFixture, tmp_path: Path
) -> None:
    for each in tiered_copy.leader.glob("__remote_log_metadata-*"):
        shutil.rmtree(each)
    (folder,) = tiered_copy.remote.glob("kafka-tiered-storage/cut-0-*")
    for file in list(folder.glob(f"{segments(folder)[0].stem}.*")):
        file.unlink()
    require_an_error(tiered_copy, tmp_path)


def test_what_was_deleted_after_the_checkpoint_is_not_missing(
    tiered_copy: TieredFixture, tmp_path: Path
) -> None:
    path = tiered_copy.leader / "log-start-offset-checkpoint"
    path.write_text(path.read_text().replace("cut 0 33", "cut 0 7"))
    wanted = tiered_copy.consumed(LEVEL)["cut-0"]
    remote = str(tiered_copy.remote)
    found = records_by_partition(("cut",), tiered_copy.leader, remote=remote)["cut-0"]
    assert found[-len(wanted) :] == wanted
    words = ["verify", "--remote", remote, "--topic", "cut", str(tiered_copy.leader)]
    assert run_kdump(words, tmp_path).exit_status == 0


def test_a_malformed_topic_id_is_a_finding(tiered_copy: TieredFixture, tmp_path: Path) -> None:
    (tiered_copy.leader / "cut-0" / "partition.metadata").write_bytes(b"garbage")
    words = ["--remote", str(tiered_copy.remote), "--topic", "cut", str(tiered_copy.leader)]
    outcome = run_kdump(["verify", *words], tmp_path)
    assert b"partition-metadata" in outcome.stdout
    assert outcome.exit_status == 4


def test_leader_epochs_of_a_segment_that_go_back_are_found(
    tiered_copy: TieredFixture, tmp_path: Path
) -> None:
    (folder,) = tiered_copy.remote.glob("kafka-tiered-storage/cut-0-*")
    for file in folder.glob("*.leader_epoch_checkpoint"):
        file.write_text("0\n2\n5 0\n4 1\n")
    words = ["--remote", str(tiered_copy.remote), "--topic", "cut", str(tiered_copy.leader)]
    outcome = run_kdump(["verify", *words], tmp_path)
    assert outcome.stdout.count(b"leader epochs go back [remote-segment-file]") == 3


def test_links_in_circles_are_not_followed(tiered_copy: TieredFixture, tmp_path: Path) -> None:
    root = tiered_copy.remote / "kafka-tiered-storage"
    (folder,) = root.glob("cut-0-*")
    (root / f"x-0-{OTHER}").symlink_to(f"x-0-{OTHER}")
    (root / "up").symlink_to("..")
    (folder / "up").symlink_to("../..")
    words = ["--remote", str(tiered_copy.remote), str(tiered_copy.leader)]
    assert run_kdump(["verify", *words], tmp_path).exit_status == 0
    log = segments(folder)[0]
    log.unlink()
    log.symlink_to(log.name)
    require_an_error(tiered_copy, tmp_path)
