"""The valid batches of a log, and the damage between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import batches
from kdump.log.valid_windows import Damage, LogPart, valid_windows
from kdump.scan.batches import WINDOW_BYTES
from kdump.storage.local_disk import local

LAST_OFFSET_DELTA_AT = 23
COUNT = 8


def found_in(path: Path, window_bytes: int) -> tuple[list[int], list[tuple[int, int]]]:
    """The base offsets of the valid batches, and the ranges of damaged bytes."""
    offsets: list[int] = []
    damages: list[tuple[int, int]] = []
    with local(path).open_file() as log:
        for step in valid_windows(log, LogPart(), window_bytes=window_bytes):
            if isinstance(step, Damage):
                damages.append((step.start, step.end))
            else:
                offsets += step.batches.base_offset.tolist()
    return offsets, damages


@pytest.mark.parametrize("damaged", range(COUNT))
@pytest.mark.parametrize("windows", [1, 2, 3, WINDOW_BYTES])
def test_an_offset_in_a_damaged_batch_condemns_no_other(
    damaged: int, windows: int, tmp_path: Path
) -> None:
    """Wherever the windows end in which the log is read."""
    valid = batches(COUNT)
    size = len(valid[0])
    log = bytearray(b"".join(valid))
    log[damaged * size + LAST_OFFSET_DELTA_AT] = 0x7F
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(log)
    offsets, damages = found_in(path, min(windows * size, WINDOW_BYTES))
    assert offsets == [3 * number for number in range(COUNT) if number != damaged]
    assert damages == [(damaged * size, (damaged + 1) * size)]
