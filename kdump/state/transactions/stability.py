"""The last stable offset of a partition, and what pins it.

Consumers of committed records read up to there, and the log cleaner compacts no further. Follows
``UnifiedLog.lastStableOffset``.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from kdump.state.transactions.open_transactions import LogTransactions


class Pin(enum.Enum):
    """What pins a last stable offset; the value is its name for programs."""

    TRANSACTION = "transaction"
    """An open transaction."""
    UNREPLICATED_TRANSACTION = "unreplicated_transaction"
    """A transaction whose marker is past the high watermark."""
    HIGH_WATERMARK = "high_watermark"
    """No transaction: all records that are replicated are stable."""


class Stability(NamedTuple):
    """A last stable offset and what pins it; both are None if damage hides them."""

    last_stable_offset: int | None
    pinned_by: Pin | None


UNKNOWN = Stability(None, None)


def stability(log: LogTransactions, log_start_offset: int, high_watermark: int | None) -> Stability:
    """Find the last stable offset of a log.

    Args:
        high_watermark: of the log; None if it is unknown. The last stable offset is then known only
            if a transaction pins it.
    """
    if log.has_damage:
        return UNKNOWN
    unstable = log.first_unstable_offset
    if unstable is not None:
        unstable = max(unstable, log_start_offset)
    if unstable is None or (high_watermark is not None and high_watermark <= unstable):
        return UNKNOWN if high_watermark is None else Stability(high_watermark, Pin.HIGH_WATERMARK)
    is_open = bool(log.open_txns) and log.open_txns[0].first_offset <= unstable
    return Stability(unstable, Pin.TRANSACTION if is_open else Pin.UNREPLICATED_TRANSACTION)
