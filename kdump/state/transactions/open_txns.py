"""The open transactions of a partition, by first offset."""

from __future__ import annotations

import heapq


class OpenTxns:
    """Producer ids by first offset; follows ``ongoingTxns`` of ``ProducerStateManager``.

    All operations take logarithmic time: a log may have tens of thousands of open transactions.
    """

    def __init__(self) -> None:
        self._producer_ids: dict[int, int] = {}
        # Ended transactions are dropped from the heap once they reach the top.
        self._first_offsets: list[int] = []

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Open a transaction; it replaces one with the same first offset."""
        if first_offset not in self._producer_ids:
            heapq.heappush(self._first_offsets, first_offset)
        self._producer_ids[first_offset] = producer_id

    def end(self, first_offset: int) -> bool:
        """Close the transaction that began at ``first_offset``; returns whether it was open."""
        return self._producer_ids.pop(first_offset, None) is not None

    def clear(self) -> None:
        """Remove all transactions."""
        self._producer_ids.clear()
        self._first_offsets.clear()

    def first_offset(self) -> int | None:
        """The lowest first offset; None if no transaction is open."""
        heap = self._first_offsets
        while heap and heap[0] not in self._producer_ids:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def first_offset_of_others(self, producer_id: int) -> int | None:
        """The lowest first offset of other producers; None if they have none open."""
        own = []
        while (first := self.first_offset()) is not None:
            if self._producer_ids[first] != producer_id:
                break
            own.append(heapq.heappop(self._first_offsets))
        for first_offset in own:
            heapq.heappush(self._first_offsets, first_offset)
        return first
