"""Readers read a partition with an interrupted swap as a starting broker would load it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from builders import swap_steps
from builders.apply_target import apply_target
from builders.batches import batch, record
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.read_records import all_records, committed_records, data_records
from builders.recovery import files_after, joined, marker, of_producer, recovered
from builders.source_tables import offsets_of, rows_of
from kdump.cli.main import cli
from kdump.errors import KdumpError

COMMITTED = {"kafka.isolation.level": "read_committed"}
BASES = (0, 10, 20, 30)


def settled(path: Path, logs: dict[int, bytes]) -> dict[str, bytes]:
    """Return the files of a partition with these logs after a broker's start and clean shutdown."""
    path.mkdir()
    for base_offset, log in logs.items():
        (path / f"{base_offset:020d}.log").write_bytes(log)
    files = files_after(path)
    shutil.rmtree(path)
    return files


def old_logs() -> dict[int, bytes]:
    """Make segments of ten offsets each, with an aborted and a committed transaction."""
    return {
        base: joined(
            batch([record(base, key=b"a"), record(base + 1, key=b"b")]),
            of_producer(base + 2, 7, sequence=2 * number, count=2, transactional=True),
            marker(base + 4, 7, commit=bool(number % 2)),
            of_producer(base + 5, 8, sequence=number, transactional=True),
            batch([record(base + 6), record(base + 8)]),
            marker(base + 9, 8, commit=True),
        )
        for number, base in enumerate(BASES)
    }


def cleaned_logs() -> list[dict[int, bytes]]:
    """Make possible results of cleaning the segments at 0 and 10: one segment or two."""
    one = joined(
        batch([record(1, key=b"b")]),
        of_producer(12, 7, sequence=2, count=2, transactional=True),
        marker(14, 7, commit=True),
        batch([record(16), record(18)]),
        marker(19, 8, commit=True),
    )
    return [
        {0: one},
        {
            0: joined(batch([record(1, key=b"b")]), batch([record(6), record(8)])),
            10: joined(batch([record(16), record(18)]), marker(19, 8, commit=True)),
        },
        {0: b"", 10: batch([record(18)])},
    ]


def directories(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Write every state in which a swap of the first two segments can be interrupted."""
    before = settled(tmp_path / "before-0", old_logs())
    for number, logs in enumerate(cleaned_logs()):
        made = settled(tmp_path / "new-0", logs)
        new = [
            (base, {name: made[name] for name in made if name.startswith(f"{base:020d}.")})
            for base in sorted(logs)
        ]
        points = swap_steps.crash_points(before, BASES[:2], new)
        for step, (label, files) in enumerate(points):
            path = tmp_path / f"swap{number}x{step}-0"
            path.mkdir()
            for name, content in files.items():
                (path / name).write_bytes(content)
            yield label, path


@pytest.mark.slow
def test_after_an_interrupted_swap_readers_return_what_a_starting_broker_keeps(
    tmp_path: Path,
) -> None:
    counts = set()
    for label, path in directories(tmp_path):
        found, found_committed = offsets_of(path), offsets_of(path, **COMMITTED)
        ends = ls_and_info(path)
        apply_target(path, recovered(path).files)
        records = all_records(path)
        counts.add(len(records))
        assert found == [each.offset for each in data_records(records)], label
        assert found_committed == [each.offset for each in committed_records(records)], label
        assert ends == ls_and_info(path), label
    assert len(counts) == 4, "three swaps, each completed or deleted"


def ls_and_info(path: Path) -> tuple[object, ...]:
    """Return segments and offsets from ``ls``, and the counts of ``info --deep``."""
    listed = run_kdump(["ls", "--output", "json", str(path)], path.parent)
    info = run_kdump(["info", "--deep", "--output", "json", str(path)], path.parent)
    (row,), (summary,) = objects(listed.stdout), objects(info.stdout)
    names = ("segments", "log_bytes", "log_start_offset", "log_end_offset")
    counts = ("batches", "records", "producers", "control_batches")
    return (
        *(row[name] for name in names),
        *(summary[name] for name in (*names, *counts)),
    )


def test_the_segment_column_names_the_swap_file_that_was_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "orders-0"
    path.mkdir()
    (path / f"{0:020d}.log.swap").write_bytes(batch([record(0)]))
    (row,) = rows_of(path, columns="segment")
    assert row["segment"] == str(path / f"{0:020d}.log.swap")


def test_every_reader_fails_on_a_swap_that_a_broker_cannot_finish(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    path.mkdir()
    (path / f"{0:020d}.log").write_bytes(batch([record(0)]))
    (path / "abc.swap").write_bytes(b"")
    for mode in ("FAILFAST", "DROPMALFORMED", "PERMISSIVE"):
        with pytest.raises(KdumpError, match="an interrupted swap cannot be finished"):
            offsets_of(path, mode=mode)
    for command in ("ls", "info"):
        outcome = CliRunner().invoke(cli, [command, str(path)], standalone_mode=False)
        assert outcome.return_value == 4
        assert "an interrupted swap cannot be finished" in outcome.stderr


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_after_a_killed_cleaner_readers_return_what_the_real_broker_kept(
    fixtures: Path, number: int
) -> None:
    (folder,) = (fixtures / "out").glob(f"leftover-{number}-*[!d]")
    compared = 0
    for path in sorted(folder.glob("**/*-0")):
        if not any(path.glob("*.swap")) and not any(path.glob("*.cleaned")):
            continue
        after = Path(f"{folder}-recovered") / path.relative_to(folder)
        if after.is_dir():
            compared += 1
            assert offsets_of(path) == [each.offset for each in data_records(all_records(after))]
    assert compared
