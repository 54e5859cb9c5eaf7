"""The distinct keys of records, found over Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kdump.scan.batches import Column

KEY_TYPE: Final = pa.large_binary()

Codes = npt.NDArray[np.int32]
"""Numbers of distinct values, from 0 on; of shape (n,)."""

_WORD_BYTES: Final = 8
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(_WORD_BYTES + 1)], np.uint64)
"""Masks of the first bytes of a word, by number of bytes."""
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
LONGEST_HASHED_BYTES: Final = 1024
"""If a key is longer, keys are not compared by words, and hashed by their length alone."""


def last_rows(key: pa.Array) -> Column:
    """The last row of each distinct key, in the order of the first occurrence of the keys."""
    return _coded(key)[1]


def key_codes(key: pa.Array) -> tuple[Codes, int]:
    """The number of each key, equal for equal keys, and how many there are."""
    codes, row = _coded(key)
    return codes, len(row)


def _coded(key: pa.Array) -> tuple[Codes, Column]:
    """As :func:`_last_of_each`.

    Keys are distinguished by hashes, if keys with equal hashes prove to be equal: Arrow encodes
    integers several times as fast as bytes.
    """
    words = list(_words(key))
    if words:
        size = _sizes(key)
        codes, row = _last_of_each(pa.array(_hashes(size, words)))
        if _are_equal(size, words, row[codes]):
            return codes, row
    return _last_of_each(key)


def _last_of_each(values: pa.Array) -> tuple[Codes, Column]:
    """The code of the distinct value of each row, and the last row of each code."""
    encoded = values.dictionary_encode()
    codes: Codes = encoded.indices.to_numpy()
    row = np.empty(len(encoded.dictionary), np.int64)
    # With several values for one index, NumPy keeps the last.
    row[codes] = np.arange(len(codes))
    return codes, row


Words = tuple[Column | slice, npt.NDArray[np.uint64]]
"""The keys that are long enough, and their next eight bytes as a number."""


def _words(key: pa.Array) -> Iterator[Words]:
    """The bytes of all keys of a large_binary array, eight bytes of each at a time.

    Yields nothing if a key is too long.
    """
    size = _sizes(key)
    longest = int(size.max(initial=0))
    if longest > LONGEST_HASHED_BYTES:
        return
    _, edges, data = key.buffers()
    edge = np.frombuffer(edges, np.int64, len(key) + 1, 8 * key.offset)
    padded = np.zeros(int(edge[-1] - edge[0]) + _WORD_BYTES, np.uint8)
    padded[:-_WORD_BYTES] = np.frombuffer(data or b"", np.uint8)[edge[0] : edge[-1]]
    start = edge[:-1] - edge[0]
    is_one_size = len(size) > 0 and int(size.min()) == longest
    rows: Column | slice = slice(None)
    for step in range(0, longest, _WORD_BYTES):
        if is_one_size:
            # A strided view.
            words = np.ndarray(len(key), "<u8", padded, step, (longest,))
            mask = _MASKS[min(longest - step, _WORD_BYTES)]
        else:
            rows = np.flatnonzero(size > step)
            at = np.ndarray(len(padded) - _WORD_BYTES + 1, "<u8", padded, strides=(1,))
            words = at[start[rows] + step]
            mask = _MASKS[np.minimum(size[rows] - step, _WORD_BYTES)]
        yield rows, words & mask


def hashes_of(key: pa.Array) -> npt.NDArray[np.uint64]:
    """A hash of each key of a large_binary array, the same in every process."""
    return _hashes(_sizes(key), _words(key))


def _sizes(key: pa.Array) -> Column:
    """Sizes of the keys of a large_binary array, in bytes."""
    sizes: Column = pc.binary_length(key).to_numpy()
    return sizes


def _hashes(size: Column, words: Iterable[Words]) -> npt.NDArray[np.uint64]:
    """A hash of each key."""
    hashes = size.astype(np.uint64)
    for rows, word in words:
        mixed = (hashes[rows] ^ word) * _ODD
        hashes[rows] = mixed ^ (mixed >> np.uint64(32))
    return hashes


def _are_equal(size: Column, words: Iterable[Words], other: Column) -> bool:
    """Whether each key equals the key in its row ``other``."""
    if not (size == size[other]).all():
        return False
    for rows, word in words:
        if isinstance(rows, slice):
            of_row = word
        else:
            of_row = np.zeros(len(size), np.uint64)
            of_row[rows] = word
        if not (of_row == of_row[other]).all():
            return False
    return True
