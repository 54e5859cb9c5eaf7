"""Segments of Kafka 0.7 are checked message by message."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.message_sets import message_07
from builders.verified import NOW_MS
from kdump.check.batches import SegmentScope
from kdump.check.part import Level, SegmentPart
from kdump.check.segment_check import check_part
from kdump.formats.compression import Codec
from kdump.storage.local_disk import local

MESSAGES = [message_07(b"first"), message_07(b"second"), message_07(b"third")]


def checked(tmp_path: Path, content: bytes, level: Level = Level.DEEP) -> SegmentPart:
    path = tmp_path / "00000000000.kafka"
    path.write_bytes(content)
    part = check_part(SegmentScope(local(path), 0), 0, None, level, NOW_MS)
    assert part.account.total_bytes == len(content)
    return part


def test_valid_messages_are_counted(tmp_path: Path) -> None:
    part = checked(tmp_path, b"".join(MESSAGES))
    assert (part.findings, part.records) == ((), 3)
    assert part.max_offset == sum(map(len, MESSAGES)) - 1


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (MESSAGES[0] + MESSAGES[1][:-1] + b"X" + MESSAGES[2], "batch-checksum"),
        (b"".join(MESSAGES)[:-1], "torn-tail"),
        (b"".join(MESSAGES) + bytes(50), "zero-fill"),
        (MESSAGES[0] + b"\xff\xff\xff\xff" + MESSAGES[1], "batch-length"),
        (MESSAGES[0] + b"\0\0\0\x08\x07" + bytes(7), "batch-magic"),
        (message_07(b"nonsense", attributes=int(Codec.GZIP)), "batch-codec"),
    ],
)
def test_damage_has_the_same_code_as_in_newer_formats(
    tmp_path: Path, content: bytes, code: str
) -> None:
    assert [finding.code for finding in checked(tmp_path, content).findings] == [code]


def test_a_quick_check_computes_no_checksum(tmp_path: Path) -> None:
    damaged = MESSAGES[0][:-1] + b"X"
    assert not checked(tmp_path, damaged, Level.QUICK).findings
