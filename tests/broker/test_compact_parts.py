"""Steps of a compaction: extents to read again, discardable transactions, rebuilt batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from kdump.broker.cleaner.cleaned_transactions import (
    NO_TXN_BATCHES,
    CleanedTransactions,
    Marker,
    TxnBatches,
    collect_aborted,
)
from kdump.broker.cleaner.compaction_parts import (
    Amount,
    Extents,
    ScannedSegment,
    parts_to_rewrite,
)
from kdump.broker.cleaner.live_records import LiveRecords
from kdump.broker.cleaner.rebuilt_batches import rebuilt_batches
from kdump.broker.cleaner.record_retention import NO_HORIZON, LastRecords, RetentionRules
from kdump.formats import record_batch
from kdump.formats.compression import Codec, decompress
from kdump.formats.transaction_index import AbortedTxn
from kdump.scan.batches import Column, Flags, Window, read_windows
from kdump.scan.records import RecordColumns
from kdump.storage.local_disk import local
from kdump.target.refusal import Refused
from kdump.target.virtual_directory import BytesSource

NOW_MS = BASE_TIMESTAMP_MS


def rules(
    live: list[int], last_records: list[tuple[int, int, int]] | None = None, end_offset: int = 1000
) -> RetentionRules:
    columns = np.array(last_records or [], np.int64).reshape(-1, 3).T
    records = LiveRecords.of(np.array(live, np.int64), np.zeros(len(live), np.bool_))
    return RetentionRules(records, LastRecords(*columns), end_offset, NOW_MS, 0)


def segment(txn_batches: TxnBatches = NO_TXN_BATCHES) -> ScannedSegment:
    """Four extents of ten offsets and a hundred bytes each."""
    rows = [(at * 100, at * 100 + 100, at * 10, at * 10 + 9, 2, 10) for at in range(4)]
    discardable = np.ones(len(txn_batches.position), np.bool_)
    return ScannedSegment(local("a.log"), 0, Extents.of_rows(rows), txn_batches, discardable, True)


def txns(*rows: tuple[int, int, int, int, Marker]) -> TxnBatches:
    """Position, base offset, last offset, producer and marker of each batch."""
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    return TxnBatches(*columns)


def test_only_extents_with_live_records_are_read() -> None:
    parts, skipped = parts_to_rewrite(segment(), rules([12, 25]))

    assert [part.ranges for part in parts] == [((100, 300),)]
    assert skipped == Amount(200, 4, 20)


def test_an_extent_with_the_last_batch_of_a_producer_is_read() -> None:
    last = [(7, 35, 0), (8, -1, 0), (9, 40, 0)]

    parts, _ = parts_to_rewrite(segment(), rules([], last))

    assert [part.ranges for part in parts] == [((300, 400),)]


def test_an_extent_with_a_transaction_is_read() -> None:
    parts, _ = parts_to_rewrite(segment(txns((150, 15, 15, 7, Marker.COMMIT))), rules([]))

    assert [part.ranges for part in parts] == [((100, 200),)]
    assert parts[0].discardable.tolist() == [150]


def test_the_extent_with_the_last_offset_of_the_range_is_read() -> None:
    parts, _ = parts_to_rewrite(segment(), rules([], end_offset=40))

    assert [part.ranges for part in parts] == [((300, 400),)]


def test_an_extent_is_read_for_a_message_inside_a_wrapper_with_a_larger_offset() -> None:
    rows = [(0, 100, 9, 9, 1, 10), (100, 200, 19, 19, 1, 10)]
    wrapped = ScannedSegment(
        local("a.log"), 0, Extents.of_rows(rows), NO_TXN_BATCHES, np.empty(0, np.bool_), True
    )

    parts, _ = parts_to_rewrite(wrapped, rules([11]))

    assert [part.ranges for part in parts] == [((100, 200),)]


def aborted(producer_id: int, first: int, last: int) -> AbortedTxn:
    return AbortedTxn(producer_id, first, last, last + 1)


def test_aborted_data_is_discardable_and_so_are_markers_without_data() -> None:
    transactions = CleanedTransactions()
    transactions.add([aborted(7, 10, 30), aborted(7, 50, 50)])
    batches = txns(
        (0, 0, 5, 7, Marker.NONE),
        (1, 6, 6, 7, Marker.COMMIT),
        (2, 10, 20, 7, Marker.NONE),
        (3, 30, 30, 7, Marker.ABORT),
        (4, 31, 39, 7, Marker.NONE),
        (5, 40, 40, 8, Marker.COMMIT),
        (6, 50, 50, 7, Marker.ABORT),
        (7, 60, 60, -1, Marker.OTHER),
        (8, 70, 70, 7, Marker.EMPTY),
    )

    found = transactions.discardable(batches)

    assert found.tolist() == [False, False, True, False, False, True, True, False, True]
    assert transactions.kept == [aborted(7, 10, 30)]


def test_aborted_transactions_that_overlap_the_range_are_collected() -> None:
    first = [aborted(1, 0, 5), aborted(2, 3, 20)]
    second = [AbortedTxn(3, 30, 40, 60), aborted(4, 31, 70)]

    assert collect_aborted([first, second], 6, 35) == [aborted(2, 3, 20), second[0]]


def window_of(data: bytes) -> Window:
    return next(iter(read_windows(BytesSource(data))))


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.integers(-(2**31), 2**40),
            st.binary(max_size=90) | st.none(),
            st.binary(max_size=90) | st.none(),
            st.lists(st.tuples(st.just(b"h"), st.binary(max_size=70) | st.none()), max_size=2),
        ),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from([Codec.NONE, Codec.ZSTD]),
    st.sampled_from([NO_HORIZON, NOW_MS]),
)
def test_a_rebuilt_batch_equals_that_of_the_plain_encoder(
    rows: list[tuple[bool, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]],
    codec: Codec,
    horizon_ms: int,
) -> None:
    records = [
        record(offset, key, value, headers, timestamp=BASE_TIMESTAMP_MS + delta)
        for offset, (_, delta, key, value, headers) in enumerate(rows)
    ]
    live = [row[0] for row in rows]
    live[-1] = True
    kept = [each for each, is_kept in zip(records, live, strict=True) if is_kept]

    def is_kept(columns: RecordColumns, _: Column) -> Flags:
        return np.array(live)[columns.offset]

    (new,) = rebuilt_batches(
        window_of(batch(records, codec=codec)), np.array([horizon_ms]), is_kept, "a.log"
    )

    header = record_batch.decode_header(new.data)
    base_timestamp = kept[0].timestamp if horizon_ms == NO_HORIZON else horizon_ms
    body = decompress(codec, new.data[record_batch.HEADER_BYTES :], limit_bytes=1 << 20)
    encoded = (record_batch.encode_record(each, 0, base_timestamp) for each in kept)
    assert body == b"".join(encoded)
    assert header.crc == record_batch.compute_crc(new.data)
    assert header.last_offset == len(records) - 1
    assert (header.base_timestamp, header.records_count) == (base_timestamp, len(kept))
    assert header.max_timestamp == max(each.timestamp for each in kept)


def test_impossible_producer_fields_are_refused() -> None:
    data = batch([record(0), record(1)], producer_id=7, producer_epoch=0, base_sequence=-1)

    def is_kept(columns: RecordColumns, _: Column) -> Flags:
        flags: Flags = columns.offset == 1
        return flags

    with pytest.raises(Refused, match="impossible producer fields"):
        rebuilt_batches(window_of(data), np.array([NO_HORIZON]), is_kept, "a.log")
