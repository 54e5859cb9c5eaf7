"""Walking a segment: selected records, and damage that is skipped."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import BASE_TIMESTAMP_MS, batch, batches, record
from builders.message_sets import message, wrapped_values
from builders.sources import BytesSource
from kdump.formats import record_batch
from kdump.scan.batches import Stop, StopReason, Window
from kdump.scan.records import RecordColumns
from kdump.scan.selection import Selection
from kdump.scan.walk import MessageSet, Skipped, Step, walk_segment

RECORDS_EACH = 3


def walk(
    data: bytes,
    selection: Selection | None = None,
    *,
    with_records: bool = True,
    follow_bad: bool = False,
) -> list[Step]:
    return list(
        walk_segment(
            BytesSource(data),
            with_records=with_records,
            selection=selection or Selection(),
            follow_bad=follow_bad,
        )
    )


def offsets(steps: list[Step]) -> list[int]:
    found: list[int] = []
    for step in steps:
        if isinstance(step, RecordColumns):
            found += step.offset.tolist()
        elif isinstance(step, MessageSet):
            found += [entry.offset for entry in step.messages]
    return found


def bases(steps: list[Step]) -> list[int]:
    return [
        base
        for step in steps
        if isinstance(step, Window)
        for base in step.batches.base_offset.tolist()
    ]


MIXED = (
    message(0, b"a", magic=0)
    + wrapped_values([b"x", b"y", b"z"], first_offset=1, magic=1)
    + message(4, b"a", magic=1)
    + b"".join(batches(3, RECORDS_EACH, base_offset=5))
    + message(14, magic=1)
)


def test_records_of_all_magics_are_read_in_file_order() -> None:
    assert offsets(walk(MIXED)) == list(range(15))


def test_the_last_step_is_the_stop() -> None:
    assert walk(MIXED)[-1] == Stop(len(MIXED), StopReason.END)


@given(
    from_offset=st.none() | st.integers(-2, 17),
    to_offset=st.none() | st.integers(-2, 17),
    limit=st.none() | st.integers(1, 17),
)
def test_an_offset_range_selects_the_same_records_as_slicing(
    from_offset: int | None, to_offset: int | None, limit: int | None
) -> None:
    selection = Selection(from_offset=from_offset, to_offset=to_offset, limit=limit)
    expected = [
        offset
        for offset in range(15)
        if (from_offset is None or offset >= from_offset)
        and (to_offset is None or offset < to_offset)
    ]
    assert offsets(walk(MIXED, selection)) == expected[:limit]


def test_a_time_range_selects_by_record_timestamp_not_by_batch() -> None:
    times = [50, 10, 30, 20]
    part = batch([record(n, timestamp=time) for n, time in enumerate(times)])
    assert offsets(walk(part, Selection(from_time_ms=20, to_time_ms=50))) == [2, 3]


def test_a_key_is_found_in_batches_of_every_magic() -> None:
    assert offsets(walk(MIXED, Selection(key=b"a"))) == [0, 4]


def test_another_key_of_the_same_length_is_not_selected() -> None:
    part = batch([record(0, b"abc"), record(1, b"abd"), record(2, None), record(3, b"abcd")])
    assert offsets(walk(part, Selection(key=b"abd"))) == [1]


def test_batches_without_a_selected_record_are_skipped() -> None:
    data = b"".join(batches(6, RECORDS_EACH))
    steps = walk(data, Selection(from_offset=7, to_offset=10))
    (columns,) = [step for step in steps if isinstance(step, RecordColumns)]
    assert columns.batches.base_offset.tolist() == [6, 9]


def test_whole_batches_are_selected_without_decoding_records() -> None:
    data = b"".join(batches(6, RECORDS_EACH))
    steps = walk(data, Selection(from_offset=7, to_offset=10), with_records=False)
    assert bases(steps) == [6, 9]


def test_the_limit_counts_batches_if_records_are_not_decoded() -> None:
    data = b"".join(batches(6, RECORDS_EACH))
    assert bases(walk(data, Selection(limit=2), with_records=False)) == [0, 3]


def test_an_end_time_before_all_records_selects_none() -> None:
    data = b"".join(batches(2, RECORDS_EACH))
    assert offsets(walk(data, Selection(to_time_ms=BASE_TIMESTAMP_MS))) == []


def damaged_length(part: bytes, length: int) -> bytes:
    return part[:8] + struct.pack(">i", length) + part[12:]


@pytest.mark.parametrize("length", [-1, 0, 13, 14, 40, 90, 100, 300, 2**31 - 1])
@pytest.mark.parametrize("victim", [0, 2, 4])
def test_a_wrong_length_loses_only_its_batch(length: int, victim: int) -> None:
    parts = batches(5, RECORDS_EACH)
    parts[victim] = damaged_length(parts[victim], length)
    steps = walk(b"".join(parts), follow_bad=True)
    kept = [n for n in range(15) if n // RECORDS_EACH != victim]
    found = offsets(steps)
    assert [offset for offset in found if offset in kept] == kept
    assert any(isinstance(step, Skipped) for step in steps)


def test_damage_inside_a_batch_skips_no_other_batch() -> None:
    parts = batches(3, RECORDS_EACH)
    parts[1] = parts[1][: record_batch.CRC_START] + b"\0\0\0\0" + parts[1][21:]
    steps = walk(b"".join(parts), with_records=False, follow_bad=True)
    assert bases(steps) == [0, 3, 6]
    assert not any(isinstance(step, Skipped) for step in steps)


@given(st.lists(st.binary(max_size=80), max_size=4), st.booleans())
def test_skipped_and_walked_bytes_add_up_to_the_file_size(
    noise: list[bytes], with_tail: bool
) -> None:
    data = b"".join(
        part
        for junk, valid in zip(noise, batches(len(noise)), strict=True)
        for part in (junk, valid)
    )
    data += b"tail" * with_tail
    steps = walk(data, with_records=False, follow_bad=True)
    walked = sum(int(step.batches.size_bytes.sum()) for step in steps if isinstance(step, Window))
    skipped = sum(step.end - step.start for step in steps if isinstance(step, Skipped))
    assert walked + skipped == len(data)
    assert isinstance(steps[-1], Stop)
