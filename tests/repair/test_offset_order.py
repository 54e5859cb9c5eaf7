"""The longest sequence of batches with increasing offsets is kept."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kdump.broker.loader.valid_batches import ValidBatches
from kdump.repair.salvage.offset_order import increasing_batches, log_order

Spans = list[tuple[int, int]]

spans = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 4)).map(lambda pair: (pair[0], sum(pair))),
    max_size=7,
)


def batches(*found: tuple[int, int]) -> ValidBatches:
    """Make batches with these offsets, a hundred bytes each."""
    count = len(found)
    first, last = np.array(found, np.int64).reshape(count, 2).T
    ones = np.ones(count, np.int64)
    return ValidBatches(
        batches=ones,
        position=np.arange(count) * 100,
        size_bytes=100 * ones,
        first_offset=first,
        last_offset=last,
        records_count=ones,
        crc=ones,
        producer_id=-ones,
        producer_epoch=-ones,
        base_sequence=-ones,
        last_sequence=-ones,
        leader_epoch=-ones,
        attributes=0 * ones,
        damaged=(),
    )


def kept(found: Spans) -> Spans:
    keep = increasing_batches({0: batches(*found)}, {})[0]
    return list(itertools.compress(found, keep.tolist()))


def rises(found: Spans) -> bool:
    return all(before[1] < after[0] for before, after in itertools.pairwise(found))


def most(found: Spans) -> int:
    """Return how many batches can be kept, by trying all choices."""
    choices = itertools.product([False, True], repeat=len(found))
    rows = (list(itertools.compress(found, choice)) for choice in choices)
    return max(len(row) for row in rows if rises(row))


@given(spans)
def test_kept_batches_increase_and_no_more_can_be_kept(found: Spans) -> None:
    row = kept(found)

    assert rises(row)
    assert len(row) == most(found)


def test_of_two_batches_with_the_same_offsets_the_one_next_to_its_neighbour_is_kept() -> None:
    assert kept([(0, 4), (10, 14), (10, 14), (15, 19)]) == [(0, 4), (10, 14), (15, 19)]
    keep = increasing_batches({0: batches((0, 4), (10, 14), (10, 14), (15, 19))}, {})[0]
    assert keep.tolist() == [True, False, True, True]


def test_a_batch_within_its_segment_is_preferred() -> None:
    keep = increasing_batches({0: batches((0, 4), (20, 24)), 20: batches((20, 24), (40, 44))}, {})

    assert (keep[0].tolist(), keep[20].tolist()) == ([True, False], [True, True])


def test_logs_are_ordered_by_their_offsets() -> None:
    logs = {0: batches((50, 54)), 50: batches((0, 4)), 70: batches()}

    assert log_order(logs) == [50, 0, 70]


def test_a_log_with_increasing_offsets_can_be_one_row() -> None:
    increasing = batches((0, 4), (5, 9), (20, 24)).collapsed()

    assert increasing.is_collapsed
    assert (int(increasing.first_offset[0]), int(increasing.last_offset[0])) == (0, 24)
    assert int(increasing.size_bytes[0]) == 300
    assert not batches((5, 9), (0, 4)).collapsed().is_collapsed
