"""Binary search in an index, in the steps in which Kafka searches.

In an ascending column every binary search finds the same slot. In another one (an index with
padding after its entries, or a damaged one) the result depends on the slots that are compared. So
these are the steps of ``AbstractIndex.indexSlotRangeFor``, which searches the last entries, those
in a broker's caches, separately.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]

NO_SLOT: Final = -1

_WARM_BYTES: Final = 8192


def largest_lower_bounds(keys: Column, targets: Column, entry_bytes: int) -> Column:
    """Find for each target the slot of the largest key at or below it.

    Args:
        keys: one key a slot, shape (n,); meant to ascend.
        targets: what to look for, shape (m,).
        entry_bytes: size of an entry on disk, which decides how many are searched separately.

    Returns:
        Slots, shape (m,); :data:`NO_SLOT` where the first key is above the target, and everywhere
        if there are no keys.

    """
    if not len(keys):
        return np.full(len(targets), NO_SLOT, np.int64)
    last = len(keys) - 1
    first_warm = max(0, last - _WARM_BYTES // entry_bytes)
    is_warm = keys[first_warm] < targets
    low = np.where(is_warm, first_warm, 0)
    high = np.where(is_warm, last, first_warm)
    while (searching := low < high).any():
        middle = (low + high + 1) >> 1
        found = keys[middle]
        low = np.where(searching & (found <= targets), middle, low)
        high = np.where(searching & (found == targets), middle, high)
        high = np.where(searching & (found > targets), middle - 1, high)
    return np.where(~is_warm & (keys[0] > targets), NO_SLOT, low)
