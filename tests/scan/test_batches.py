"""Windows of batches: their columns, and where and why reading stops."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders.batches import batch, batches, record
from builders.message_sets import message
from builders.sources import BytesSource
from kdump.formats import record_batch
from kdump.scan import batches as scanned
from kdump.scan.batches import Stop, StopReason, Window, new_buffer, read_windows

ZEROES = bytes(100)


def windows(data: bytes, window_bytes: int = 1 << 20, *, checksums: bool = True) -> list[Window]:
    return list(read_windows(BytesSource(data), window_bytes=window_bytes, checksums=checksums))


def stop_of(data: bytes) -> Stop:
    stop = windows(data)[-1].stop
    assert stop is not None
    return stop


def positions(found: list[Window]) -> list[int]:
    return [position for window in found for position in window.batches.position.tolist()]


def test_columns_equal_the_decoded_headers() -> None:
    parts = batches(5, records_each=4)
    (window,) = windows(b"".join(parts))
    headers = [record_batch.decode_header(part) for part in parts]
    assert [window.batches.header(row) for row in range(5)] == headers


@given(
    counts=st.lists(st.integers(1, 30), max_size=20),
    window_bytes=st.integers(64, 2_000),
)
def test_every_batch_is_in_one_window_at_any_window_size(
    counts: list[int], window_bytes: int
) -> None:
    parts = [batch([record(n) for n in range(count)]) for count in counts]
    found = windows(b"".join(parts), window_bytes)
    starts = [sum(map(len, parts[:n])) for n in range(len(parts))]
    assert positions(found) == starts


@given(first_bytes=st.integers(64, 500), room=st.sampled_from([100, 700, 5_000]))
def test_small_first_windows_and_a_shared_buffer_do_not_change_the_batches(
    first_bytes: int, room: int
) -> None:
    parts = [batch([record(n) for n in range(count)]) for count in (1, 9, 1, 30, 2, 2, 60)]
    parts[3] = parts[3][:-1] + b"?"
    whole = windows(b"".join(parts))[0].batches
    found = read_windows(
        BytesSource(b"".join(parts)),
        window_bytes=2_000,
        first_bytes=first_bytes,
        buffer=new_buffer(room),
    )
    rows = [
        (position, is_valid, bytes(window.batch_bytes(row)))
        for window in found
        for row, (position, is_valid) in enumerate(
            zip(window.batches.position.tolist(), window.batches.is_valid.tolist(), strict=True)
        )
    ]
    assert [row[:2] for row in rows] == list(
        zip(whole.position.tolist(), whole.is_valid.tolist(), strict=True)
    )
    assert [row[2] for row in rows] == parts


@given(needed_end=st.integers(0, 9_000), window_bytes=st.integers(64, 2_000))
def test_where_the_caller_stops_changes_windows_but_not_batches(
    needed_end: int, window_bytes: int
) -> None:
    parts = [batch([record(n) for n in range(count)]) for count in (1, 9, 1, 30, 2, 2, 60)]
    log = b"".join(parts)
    found = list(read_windows(BytesSource(log), window_bytes=window_bytes, needed_end=needed_end))
    assert positions(found) == positions(windows(log))
    starts = positions(found)
    if needed_end in starts[1:]:
        # No window has batches from before and after it.
        assert needed_end in [int(window.batches.position[0]) for window in found]


def test_a_window_ends_where_the_caller_stops() -> None:
    parts = [batch([record(n)]) for n in range(8)]
    ends = [len(b"".join(parts[:n])) for n in range(9)]
    found = list(read_windows(BytesSource(b"".join(parts)), needed_end=ends[3]))
    assert [window.batches.count for window in found] == [3, 5]


def test_a_batch_with_a_wrong_checksum_is_marked_and_reading_continues() -> None:
    first, second, third = batches(3)
    damaged = second[:-1] + bytes([second[-1] ^ 1])
    (window,) = windows(first + damaged + third)
    assert window.batches.is_valid.tolist() == [True, False, True]


def test_damage_inside_a_batch_is_not_detected_without_checksums() -> None:
    (part,) = batches(1)
    (window,) = windows(part[:-1] + b"\xff", checksums=False)
    assert window.batches.is_valid.tolist() == [True]


def test_magics_may_be_mixed() -> None:
    (window,) = windows(message(0, magic=0) + message(1, magic=1) + batch([record(2)]))
    assert window.batches.magic.tolist() == [0, 1, 2]
    assert window.batches.is_valid.all()
    assert window.batches.last_offset.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        pytest.param(b"", StopReason.END, id="end"),
        pytest.param(b"\1" * 17, StopReason.SHORT_TAIL, id="short tail"),
        pytest.param(batches(1)[0][:-1], StopReason.TORN_TAIL, id="torn tail"),
        pytest.param(ZEROES, StopReason.ZERO_FILL, id="zero fill"),
        pytest.param(struct.pack(">qi", 9, 13) + ZEROES, StopReason.BAD_LENGTH, id="too short"),
        pytest.param(struct.pack(">qi", 9, -1) + ZEROES, StopReason.BAD_LENGTH, id="negative"),
        pytest.param(
            struct.pack(">qiib", 9, 20, 0, 2) + bytes(15), StopReason.TORN_HEADER, id="no header"
        ),
    ],
)
def test_the_stop_has_its_reason_and_position(tail: bytes, reason: StopReason) -> None:
    valid = b"".join(batches(3))
    stop = stop_of(valid + tail)
    assert (stop.reason, stop.position) == (reason, len(valid))
    assert (stop.problem is None) == (reason is StopReason.END)


@given(st.binary(max_size=300), st.integers(1, 200))
@example(data=struct.pack(">qib", 0, 4 << 20, 0) + bytes(5), window_bytes=17)
def test_reading_random_bytes_ends_with_a_stop(data: bytes, window_bytes: int) -> None:
    found = windows(data, window_bytes)
    assert all(window.stop is None for window in found[:-1])
    assert found[-1].stop is not None
    assert found[-1].stop.position <= len(data)


def test_a_giant_batch_has_a_window_of_its_own_and_a_checked_checksum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scanned, "LARGEST_WINDOW_BYTES", 500)
    small, large = batches(1)[0], batch([record(9, value=bytes(2_000))])
    found = windows(small + large + small, window_bytes=300)
    assert [window.is_giant for window in found if window.batches.count] == [False, True, False]
    assert all(window.batches.is_valid.all() for window in found)
    assert positions(found) == [0, len(small), len(small) + len(large)]


def test_a_file_truncated_while_being_read_is_an_error() -> None:
    class Shrunk(BytesSource):
        @property
        def size_bytes(self) -> int:
            return len(self.data) + 50

    with pytest.raises(OSError, match="shorter"):
        list(read_windows(Shrunk(b"".join(batches(2)))))
