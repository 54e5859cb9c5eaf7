"""The leader epochs of batches that may be right, where some contradict others."""

from __future__ import annotations

import numpy as np

from kdump.scan.batches import Column, Flags


def rising_epochs(epochs: Column, base_offsets: Column, end_offset: int) -> Flags:
    """Flag runs of batches whose leader epochs do not go back.

    Epochs never go back in a log, and no checksum covers that of a batch: one that is greater than
    a later one, or less than an earlier one, may be damaged. Those with fewer offsets are not
    flagged; if they have as many, neither are.

    Args:
        epochs: of consecutive batches of one epoch each.
        base_offsets: where these begin.
        end_offset: where the last of them end.
    """
    offsets = np.diff(base_offsets, append=end_offset)
    is_too_great = epochs > np.minimum.accumulate(epochs[::-1])[::-1]
    is_too_small = epochs < np.maximum.accumulate(epochs)
    too_great, too_small = int(offsets[is_too_great].sum()), int(offsets[is_too_small].sum())
    is_right = ~is_too_great if too_great <= too_small else np.ones_like(is_too_great)
    return is_right & ~is_too_small if too_small <= too_great else is_right
