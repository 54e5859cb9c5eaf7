"""Fields of batch headers of magic 2 as columns; :mod:`kdump.formats.record_batch` has the values.

They are apart so that the plain decoder does not import NumPy.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from kdump.formats import record_batch

HEADER_DTYPE: Final[np.dtype[np.void]] = np.dtype(
    [(name, f">{code}") for name, code in record_batch.HEADER_FIELDS]
)

_INT32_MAX: Final = 2**31 - 1


def increment_sequences(
    sequence: npt.NDArray[np.int64], increment: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """:func:`~kdump.formats.record_batch.increment_sequence` over columns."""
    room = (_INT32_MAX - increment).astype(np.int32)
    wrapped = np.where(
        sequence > room, increment - (_INT32_MAX - sequence) - 1, sequence + increment
    ).astype(np.int32)
    return wrapped.astype(np.int64)


def last_sequences(
    base_sequence: npt.NDArray[np.int64], last_offset_delta: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """:attr:`~kdump.formats.record_batch.BatchHeader.last_sequence` over columns."""
    return np.where(
        base_sequence == record_batch.NO_SEQUENCE,
        record_batch.NO_SEQUENCE,
        increment_sequences(base_sequence, last_offset_delta),
    )
