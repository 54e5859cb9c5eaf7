"""Open transactions by first offset, compared with a plain dictionary."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kdump.state.transactions.open_txns import OpenTxns

OFFSETS = st.integers(0, 12)
PRODUCER_IDS = st.integers(0, 3)


class OpenTxnsAgainstADictionary(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.txns = OpenTxns()
        self.expected: dict[int, int] = {}

    @rule(first_offset=OFFSETS, producer_id=PRODUCER_IDS)
    def begin(self, first_offset: int, producer_id: int) -> None:
        self.txns.begin(first_offset, producer_id)
        self.expected[first_offset] = producer_id

    @rule(first_offset=OFFSETS)
    def end(self, first_offset: int) -> None:
        was_open = self.expected.pop(first_offset, None) is not None
        assert self.txns.end(first_offset) == was_open

    @rule()
    def clear(self) -> None:
        self.txns.clear()
        self.expected.clear()

    @rule(producer_id=PRODUCER_IDS)
    def look_for_others(self, producer_id: int) -> None:
        others = [first for first, owner in self.expected.items() if owner != producer_id]
        assert self.txns.first_offset_of_others(producer_id) == min(others, default=None)

    @invariant()
    def the_first_offset_is_the_lowest(self) -> None:
        assert self.txns.first_offset() == min(self.expected, default=None)


TestOpenTxns = OpenTxnsAgainstADictionary.TestCase
