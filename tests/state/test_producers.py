"""Producers' state from columns is what it is batch by batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.recovery import marker, of_producer
from kdump.scan.batches import read_windows
from kdump.state.producer_state import ProducerState, in_java_order
from kdump.state.producers import InvalidMarker, Producer, append_batches
from kdump.target.refusal import Refused
from kdump.target.virtual_directory import BytesSource, VirtualDirectory

LARGE = 1 << 20
DATA, TRANSACTIONAL, MARKER = range(3)

written = st.lists(
    st.tuples(
        st.sampled_from([DATA, DATA, DATA, TRANSACTIONAL, TRANSACTIONAL, MARKER]),
        st.sampled_from([7, 8, 200_000]),
        st.integers(0, 2),
    ),
    max_size=60,
)


class Replay:
    """Takes batches in, and keeps what was said of transactions."""

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self.said: list[object] = []

    def producer(self, producer_id: int) -> Producer:
        return self.producers.setdefault(producer_id, Producer(producer_id))

    def begin_txn(self, producer_id: int, first_offset: int) -> None:
        self.said.append((producer_id, first_offset))

    def end_txn(self, ended: object) -> None:
        self.said.append(ended)


def replayed(log: bytes, window_bytes: int) -> Replay | str:
    replay = Replay()
    try:
        for window in read_windows(BytesSource(log), window_bytes=window_bytes):
            append_batches(window, window.batches.count, replay, "log")
    except Refused as refused:
        return refused.refusal.exception
    return replay


@given(written)
def test_many_batches_together_leave_what_they_leave_one_by_one(
    rows: list[tuple[int, int, int]],
) -> None:
    log = b"".join(
        marker(offset, producer_id, epoch=epoch)
        if kind == MARKER
        else of_producer(
            offset, producer_id, epoch=epoch, sequence=offset, transactional=kind == TRANSACTIONAL
        )
        for offset, (kind, producer_id, epoch) in enumerate(rows)
    )
    together, one_by_one = replayed(log, LARGE), replayed(log, 1)

    if isinstance(together, str) or isinstance(one_by_one, str):
        assert together == one_by_one
    else:
        assert list(together.producers) == list(one_by_one.producers)
        assert together.producers == one_by_one.producers
        assert sorted(map(str, together.said)) == sorted(map(str, one_by_one.said))


def test_only_so_many_batches_are_taken_in_as_asked_for() -> None:
    replay = Replay()
    (window,) = read_windows(BytesSource(of_producer(0) + of_producer(1, 8)))

    append_batches(window, 1, replay, "log")

    assert list(replay.producers) == [7]


@pytest.mark.parametrize(
    ("bad", "raised"),
    [
        (marker(0, key=b"\0"), InvalidMarker),
        (marker(0, key=b"\xff\0\0\0"), InvalidMarker),
        (marker(0, value=b"\xff\0\0\0\0\0"), InvalidMarker),
        (marker(0, value=b"\0\0"), Refused),
        (marker(0, key=b"\0\0\0\x02"), Refused),
    ],
)
def test_markers_that_kafka_cannot_read_are_told_apart(bad: bytes, raised: type[Exception]) -> None:
    (window,) = read_windows(BytesSource(bad))

    with pytest.raises(raised):
        append_batches(window, 1, Replay(), "log")


def test_a_transaction_that_ends_twice_is_refused(empty_workspace: VirtualDirectory) -> None:
    state = ProducerState(empty_workspace, None)
    log = of_producer(0, 7, transactional=True) + of_producer(0, 8, transactional=True)
    windows = read_windows(BytesSource(log + marker(1, 7) + marker(2, 8)))

    with pytest.raises(Refused, match="without having begun"):
        state.load_segment_part(windows, "log")


def test_entries_come_in_the_order_of_a_java_hash_map() -> None:
    ids = [17, 1, 33, 2, 0, 1 << 32]

    ordered = [producer.producer_id for producer in in_java_order(map(Producer, ids))]

    assert ordered == [0, 17, 1, 33, 1 << 32, 2]
