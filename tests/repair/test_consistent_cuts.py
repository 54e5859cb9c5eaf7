"""Cuts keep each transaction as a whole or not at all, and are not lower than they have to be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.rewindable_clusters import (
    DATA,
    LOGS,
    START_MS,
    STATES,
    TICK_MS,
    RandomCluster,
    broken_promises,
)
from builders.samples import examples
from kdump.formats.names import TopicPartition
from kdump.repair.rewind.consistent_cuts import broken, find_transactions, lowered
from kdump.repair.rewind.log_facts import TransactionPart


def cuts_of(cluster: RandomCluster, time_ms: int) -> dict[TopicPartition, int]:
    transactions = find_transactions(cluster.parts(), cluster.coordinators())
    return lowered(cluster.cuts_at(time_ms), transactions)


@settings(max_examples=examples(0.5))
@given(st.integers(0, 2**32), st.integers(-5, 130))
def test_every_transaction_is_there_as_a_whole_or_not_at_all(seed: int, tick: int) -> None:
    cluster = RandomCluster(seed)
    cuts = cuts_of(cluster, START_MS + tick * TICK_MS)
    assert [*broken_promises(cluster, cuts)] == []


@settings(max_examples=examples(0.5))
@given(st.integers(0, 2**32), st.integers(-5, 130))
def test_cuts_are_lowered_by_no_more_than_clocks_differ(seed: int, tick: int) -> None:
    cluster = RandomCluster(seed)
    time_ms = START_MS + tick * TICK_MS
    cuts = cuts_of(cluster, time_ms)
    by_time = cluster.cuts_at(time_ms)
    surely_before = time_ms - cluster.most_skew_ms
    for log in LOGS:
        assert cuts.get(log, cluster.end(log)) <= by_time.get(log, cluster.end(log))
        for step in cluster.of(log):
            if START_MS + step.tick * TICK_MS <= surely_before:
                assert step.offset < cuts.get(log, step.offset + 1), step


@settings(max_examples=examples(0.5))
@given(st.integers(0, 2**32), st.integers(0, 120))
def test_clocks_that_agree_move_no_cut(seed: int, tick: int) -> None:
    cluster = RandomCluster(seed, most_skew_ms=0)
    time_ms = START_MS + tick * TICK_MS
    assert cuts_of(cluster, time_ms) == cluster.cuts_at(time_ms)


def test_each_part_belongs_to_the_transaction_that_wrote_it() -> None:
    for seed in range(40):
        cluster = RandomCluster(seed)
        found = find_transactions(cluster.parts(), cluster.coordinators())
        for transaction in found:
            assert transaction.log in STATES, seed
        parts = sorted((str(log), part.first) for each in found for log, part in each.parts.items())
        assert parts == sorted(
            (str(log), part.first)
            for log, own in cluster.parts().items()
            for part in own
            if not part.is_empty
        )


@settings(max_examples=examples(0.5))
@given(st.integers(0, 2**32), st.integers(1, 120))
def test_no_part_belongs_to_an_earlier_transaction_if_the_coordinator_was_read_earlier(
    seed: int, tick: int
) -> None:
    cluster = RandomCluster(seed, most_skew_ms=TICK_MS // 2)
    number_at = {(each.log, each.offset): each.transaction for each in cluster.steps}
    for each in find_transactions(cluster.parts(), cluster.coordinators(before_tick=tick)):
        if each.log is None:
            continue
        of_coordinator = [*each.added.values(), each.decided, each.completed]
        numbers = {number_at[each.log, offset] for offset in of_coordinator if offset is not None}
        assert {number_at[log, part.first] for log, part in each.parts.items()} <= numbers


def test_a_part_that_no_coordinator_knows_is_kept_whole_or_not_at_all() -> None:
    parts = {DATA[0]: [TransactionPart(9, 0, first=4, last=6, marker=8)]}
    (transaction,) = find_transactions(parts, {})
    assert lowered({DATA[0]: 7}, [transaction]) == {DATA[0]: 4}
    assert lowered({DATA[0]: 9}, [transaction]) == {DATA[0]: 9}
    assert lowered({DATA[0]: 4}, [transaction]) == {DATA[0]: 4}


def test_one_that_was_open_before_stays_open() -> None:
    parts = {DATA[0]: [TransactionPart(9, 0, first=4, last=6)]}
    (transaction,) = find_transactions(parts, {})
    assert [*broken({DATA[0]: 5}, transaction)] == []


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_transactions_does_not_matter(seed: int) -> None:
    cluster = RandomCluster(seed)
    found = find_transactions(cluster.parts(), cluster.coordinators())
    cuts = cluster.cuts_at(START_MS + 60 * TICK_MS)
    assert lowered(cuts, found) == lowered(cuts, found[::-1])
