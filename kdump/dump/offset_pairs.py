"""Pairs of offsets or timestamps to report, in little memory.

NumPy is imported for many of them: most segments have one, between nothing and their first offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Offsets: TypeAlias = NDArray[np.int64]

_BLOCK_PAIRS: Final = 1 << 16
_MOST_SINGLE: Final = 1 << 10


class OffsetPairs:
    """Pairs of signed 64-bit integers in little memory: a compacted log has millions of gaps.

    A block has its first pair and the differences to the next ones, in the smallest integers that
    fit (two bytes for a pair where compaction removed a few offsets at a time).
    """

    def __init__(self) -> None:
        self._single: list[tuple[int, int]] = []
        self._blocks: list[tuple[Offsets, NDArray[np.signedinteger]]] = []
        self._pending: list[tuple[Offsets, Offsets]] = []
        self._pending_count = 0
        self._last_key: int | None = None
        self._keys_ascend = True

    def append(self, key: int, value: int) -> None:
        self._keys_ascend &= self._last_key is None or key > self._last_key
        self._last_key = key
        self._single.append((key, value))
        if len(self._single) >= _MOST_SINGLE:
            self._take_single()

    def extend(self, keys: Offsets, values: Offsets) -> None:
        """Append pairs; the arrays are of equal length."""
        if not len(keys):
            return
        self._take_single()
        ascending = bool((keys[1:] > keys[:-1]).all())
        follows = self._last_key is None or int(keys[0]) > self._last_key
        self._keys_ascend = self._keys_ascend and ascending and follows
        self._last_key = int(keys[-1])
        self._add(keys, values)

    def _add(self, keys: Offsets, values: Offsets) -> None:
        self._pending.append((keys, values))
        self._pending_count += len(keys)
        if self._pending_count >= _BLOCK_PAIRS:
            self._pack()

    def _take_single(self) -> None:
        if self._single:
            import numpy as np

            keys, values = np.array(self._single, np.int64).T
            self._single.clear()
            self._add(keys, values)

    def as_arrived(self) -> Iterator[tuple[int, int]]:
        """All pairs, in the order they came."""
        if not self._blocks and not self._pending:
            yield from self._single
            return
        self._pack()
        for block in self._blocks:
            yield from _each_pair(_unpacked(block))

    def ascending(self) -> Iterator[tuple[int, int]]:
        """By key, the last value of each key: how a ``TreeMap`` keeps them."""
        if self._keys_ascend:
            yield from self.as_arrived()
        else:
            yield from _each_pair(self._as_tree())

    def descending(self) -> Iterator[tuple[int, int]]:
        """By key from the greatest down, the last value of each key."""
        self._pack()
        if self._keys_ascend:
            for block in reversed(self._blocks):
                yield from _each_pair(_unpacked(block)[:, ::-1])
        else:
            yield from _each_pair(self._as_tree()[:, ::-1])

    def _as_tree(self) -> Offsets:
        import numpy as np

        self._pack()
        pairs = np.concatenate([_unpacked(block) for block in self._blocks], axis=1)
        pairs = pairs[:, np.argsort(pairs[0], kind="stable")]
        last_of_key = np.append(pairs[0, 1:] != pairs[0, :-1], True)
        return pairs[:, last_of_key]

    def _pack(self) -> None:
        self._take_single()
        if not self._pending:
            return
        import numpy as np

        pairs = np.array(
            [
                np.concatenate([keys for keys, _ in self._pending]),
                np.concatenate([values for _, values in self._pending]),
            ],
            dtype=np.int64,
        )
        self._pending.clear()
        self._pending_count = 0
        steps = np.diff(pairs, axis=1)
        if steps.size:
            reach = min(int(steps.min()), -int(steps.max()) - 1)
            steps = steps.astype(np.min_scalar_type(reach))
        self._blocks.append((pairs[:, :1].copy(), steps))


def _unpacked(block: tuple[Offsets, NDArray[np.signedinteger]]) -> Offsets:
    import numpy as np

    # Differences and sums are both modulo 2**64, so the original values come back.
    first, steps = block
    return np.cumsum(np.concatenate([first, steps.astype(np.int64)], axis=1), axis=1)


def _each_pair(pairs: Offsets) -> Iterator[tuple[int, int]]:
    return zip(pairs[0].tolist(), pairs[1].tolist(), strict=True)
