"""What a server remembers of segments is bounded, and what was forgotten does not count."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import batch, record
from builders.log_directories import write_log_directory, write_partition
from kdump.formats.names import TopicPartition
from kdump.log.partition import read_partition
from kdump.serve import verified_batches
from kdump.serve.verified_batches import SegmentBatches, VerifiedBatches
from kdump.storage.local_disk import local

_BATCHES = 10


def test_a_segment_that_was_forgotten_while_it_was_read_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified_batches, "_MOST_BATCHES", 2 * _BATCHES)
    rows = [batch([record(at)]) for at in range(4 * _BATCHES)]
    root = write_log_directory(tmp_path)
    starts = range(0, len(rows), _BATCHES)
    segments = {start: b"".join(rows[start : start + _BATCHES]) for start in starts}
    write_partition(root / "orders-0", segments)
    partition = read_partition(local(root / "orders-0"), TopicPartition("orders", 0))
    remembered = VerifiedBatches()

    def read(number: int) -> SegmentBatches:
        segment = partition.segments[number]
        known = remembered.of(partition, segment, None)
        with known.path.open_file() as log:
            assert list(known.steps_from(log, segment.base_offset))
        return known

    first = read(0)
    for number in (1, 2, 3):
        remembered.note_size(read(number))
    remembered.note_size(first)
    for number in (2, 3):
        segment = partition.segments[number]
        assert remembered.of(partition, segment, None).batches == _BATCHES
