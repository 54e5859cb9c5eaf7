"""The small segments of a log as one window."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from builders.batches import batches
from builders.log_directories import write_partition
from builders.message_sets import message
from builders.samples import seeds
from kdump.formats.names import FileKind
from kdump.log.directory import read_lone_partition
from kdump.log.joined_segments import JoinedLogs, joined_window
from kdump.log.valid_windows import segment_part, valid_windows
from kdump.scan.batches import Window
from kdump.storage.local_disk import local

LOGS = {
    0: b"".join(batches(3)),
    9: b"",
    12: b"".join(batches(2, base_offset=12)),
    18: batches(1, base_offset=18)[0],
}


def joined(path: Path, logs: Mapping[int, bytes]) -> Window | None:
    partition = read_lone_partition(local(write_partition(path, logs)), "orders-0")
    return joined_window(partition, partition.segments)


def require_what_each_log_has_by_itself(window: Window, path: Path) -> None:
    assert isinstance(window.source, JoinedLogs)
    by_log = {each.name: own for each, _, own in window.source.by_log(window)}
    partition = read_lone_partition(local(path), "orders-0")
    for segment, following in partition.with_following():
        log = partition.segment_path(segment, FileKind.LOG)
        with log.open_file() as source:
            for alone in valid_windows(source, segment_part(segment, following)):
                assert isinstance(alone, Window), alone
                found = by_log.pop(log.name)
                assert found.data.tobytes() == alone.data.tobytes()
                for name, column in alone.batches.columns().items():
                    assert np.array_equal(found.batches.columns()[name], column), name
    assert not by_log


def test_each_log_has_the_batches_that_it_has_by_itself(tmp_path: Path) -> None:
    window = joined(tmp_path / "orders-0", LOGS)
    assert window is not None
    require_what_each_log_has_by_itself(window, tmp_path / "orders-0")


def changed_at_random(chance: random.Random) -> dict[int, bytes]:
    """Some bytes, sizes and places of the logs are others."""
    logs = dict(LOGS)
    for _ in range(chance.randint(1, 3)):
        base = chance.choice([each for each, log in logs.items() if log])
        log = bytearray(logs[base])
        match chance.randrange(5):
            case 0:
                log[chance.randrange(len(log))] ^= 1 << chance.randrange(8)
            case 1:  # in a header: its first bytes and its leader epoch have no checksum
                log[chance.randrange(min(21, len(log)))] ^= 1 << chance.randrange(8)
            case 2:
                del log[chance.randrange(1, len(log)) :]
            case 3:
                log += bytes(chance.choice((1, 17, 100)))
            case _:
                log += logs[chance.choice(list(logs))]
        logs[base] = bytes(log)
    return logs


@pytest.mark.parametrize("seed", seeds(0, count=20, in_main=2))
def test_what_is_changed_at_random_is_left_or_as_each_log_has_it(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    found = 0
    for number in range(100):
        path = tmp_path / str(number) / "orders-0"
        window = joined(path, changed_at_random(chance))
        if window is not None:
            found += 1
            require_what_each_log_has_by_itself(window, path)
    assert found


@pytest.mark.parametrize(
    "changed",
    [
        {0: LOGS[0][:-1]},
        {0: LOGS[0][:30] + b"?" + LOGS[0][31:]},
        {18: LOGS[18] + bytes(100)},
        {18: message(18, b"key", b"value")},
        {12: b"".join(batches(2, base_offset=9))},
        {12: b"".join(batches(3, base_offset=12))},
        {12: LOGS[12][: len(LOGS[12]) // 2] * 2},
    ],
    ids=["torn", "damaged", "padded", "old", "before", "after", "twice"],
)
def test_what_has_to_be_judged_is_left_to_who_reads_segments(
    changed: Mapping[int, bytes], tmp_path: Path
) -> None:
    assert joined(tmp_path / "orders-0", {**LOGS, **changed}) is None


def test_a_log_that_has_changed_since_it_was_listed_is_left(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "orders-0", LOGS)
    partition = read_lone_partition(local(path), "orders-0")
    with (path / partition.segments[0].log_name).open("ab") as log:
        log.write(batches(1, base_offset=9)[0])
    assert joined_window(partition, partition.segments) is None


@pytest.mark.parametrize(
    ("changed", "is_copy"),
    [
        ({}, True),
        ({18: batches(1, 2, base_offset=18)[0]}, False),
        ({10: b"", 9: None}, False),
    ],
    ids=["same", "other bytes", "other segments"],
)
def test_only_the_same_segments_are_parsed_once(
    changed: Mapping[int, bytes | None], is_copy: bool, tmp_path: Path
) -> None:
    first = joined(tmp_path / "one" / "orders-0", LOGS)
    assert first is not None
    logs = {base: log for base, log in {**LOGS, **changed}.items() if log is not None}
    path = write_partition(tmp_path / "other" / "orders-0", logs)
    partition = read_lone_partition(local(path), "orders-0")
    second = joined_window(partition, partition.segments, [first])
    assert second is not None
    assert (second.batches is first.batches) == is_copy
    assert isinstance(second.source, JoinedLogs)
    assert str(second.source.location) == str(path / "00000000000000000000.log")
