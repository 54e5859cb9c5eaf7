"""Producer state computed from columns equals the state computed batch by batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.recovery import marker, of_producer
from kdump.formats.record_batch import decode_header
from kdump.scan.batches import read_windows
from kdump.state.transactions.markers import NO_MARKERS, InvalidMarker
from kdump.state.transactions.producer_events import EventBuilder
from kdump.state.transactions.producer_state_manager import ProducerStateManager, in_java_order
from kdump.state.transactions.producers import CompletedTxn, Producer, Producers, append_batches
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


def replayed(log: bytes, window_bytes: int) -> tuple[Producers, list[CompletedTxn]] | str:
    """Return the producers after a log and the completed transactions, or Kafka's exception."""
    producers = Producers()
    completed: list[CompletedTxn] = []
    try:
        for window in read_windows(BytesSource(log), window_bytes=window_bytes):
            for txn in append_batches(window, window.batches.count, producers, "log"):
                completed.append(txn)
                producers.complete(txn)
    except Refused as refused:
        return refused.refusal.exception
    return producers, completed


@given(written)
def test_applying_batches_together_gives_the_same_state_as_one_by_one(
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
        assert list(together[0].by_id) == list(one_by_one[0].by_id)
        assert together[0].by_id == one_by_one[0].by_id
        assert together[0].open_txns() == one_by_one[0].open_txns()
        assert together[0].first_open_offset == one_by_one[0].first_open_offset
        assert together[1] == one_by_one[1]


def test_only_the_given_number_of_batches_is_applied() -> None:
    producers = Producers()
    (window,) = read_windows(BytesSource(of_producer(0) + of_producer(1, 8)))

    assert not list(append_batches(window, 1, producers, "log"))

    assert list(producers.by_id) == [7]


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
def test_a_malformed_marker_is_invalid_or_refused_as_in_kafka(
    bad: bytes, raised: type[Exception]
) -> None:
    (window,) = read_windows(BytesSource(bad))

    with pytest.raises(raised):
        list(append_batches(window, 1, Producers(), "log"))


def test_a_transaction_that_ends_twice_is_refused(empty_workspace: VirtualDirectory) -> None:
    state = ProducerStateManager(empty_workspace, None)
    log = of_producer(0, 7, transactional=True) + of_producer(0, 8, transactional=True)
    windows = read_windows(BytesSource(log + marker(1, 7) + marker(2, 8)))

    with pytest.raises(Refused, match="without having begun"):
        state.load_segment_part(windows, "log")


def test_entries_have_the_order_of_a_java_hash_map() -> None:
    ids = [17, 1, 33, 2, 0, 1 << 32]

    ordered = [producer.producer_id for producer in in_java_order(map(Producer, ids))]

    assert ordered == [0, 17, 1, 33, 1 << 32, 2]


def test_an_open_transaction_has_its_producer_first_offset_and_start_time() -> None:
    log = marker(0, 7, epoch=4) + of_producer(1, 7, epoch=5, transactional=True)

    outcome = replayed(log + of_producer(2, 7, epoch=5, transactional=True), LARGE)

    assert not isinstance(outcome, str)
    (txn,) = outcome[0].open_txns()
    assert (txn.producer_id, txn.producer_epoch, txn.first_offset) == (7, 5, 1)
    assert txn.coordinator_epoch == 0
    assert txn.start_timestamp == decode_header(of_producer(1)).base_timestamp


def test_events_of_two_parts_of_a_log_join_to_those_of_the_whole_log() -> None:
    log = b"".join(of_producer(n, 7 + n % 2, sequence=n // 2) for n in range(40))
    (window,) = read_windows(BytesSource(log))
    whole, joined = EventBuilder(), EventBuilder()
    whole.add(window.batches, NO_MARKERS)

    for rows in (slice(0, 17), slice(17, None)):
        part = EventBuilder()
        part.add(window.batches.rows(rows), NO_MARKERS)
        joined.extend(part.events())

    assert joined.events() == whole.events()
    assert len(whole.events()) == 2
