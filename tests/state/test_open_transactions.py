"""Open transactions found in columns equal those found batch by batch."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.log_directories import write_partition
from builders.recovery import marker, of_producer
from kdump.log.directory import read_lone_partition
from kdump.log.valid_windows import Damage
from kdump.scan.batches import read_windows
from kdump.state.transactions import open_transactions
from kdump.state.transactions.open_transactions import last_stable_offset
from kdump.state.transactions.producers import OpenTxn, Producers, append_batches
from kdump.storage.local_disk import local
from kdump.target.virtual_directory import BytesSource

DATA, MARKER, DAMAGED = range(3)

written = st.lists(
    st.tuples(
        st.sampled_from([DATA, DATA, DATA, MARKER, MARKER, DAMAGED]),
        st.integers(7, 10),
        st.integers(0, 2),
    ),
    max_size=40,
)


def one_by_one(parts: list[bytes], kinds: list[int]) -> list[OpenTxn]:
    """Find the open transactions at the end of a log, batch by batch."""
    producers = Producers()
    is_after_damage = False
    for part, kind in zip(parts, kinds, strict=True):
        if kind == DAMAGED:
            is_after_damage = True
            continue
        if is_after_damage:
            producers.forget_open_txns()
            is_after_damage = False
        for window in read_windows(BytesSource(part)):
            for txn in append_batches(window, window.batches.count, producers, "log"):
                producers.complete(txn)
    return producers.open_txns()


@pytest.mark.parametrize("rows_together", [1, 7, 1 << 16])
@given(rows=written)
def test_open_transactions_equal_those_found_batch_by_batch(
    rows_together: int, rows: list[tuple[int, int, int]]
) -> None:
    parts = []
    for offset, (kind, producer_id, epoch) in enumerate(rows):
        if kind == MARKER:
            part = marker(offset, producer_id, epoch=epoch)
        else:
            part = of_producer(offset, producer_id, epoch=epoch, transactional=True)
        parts.append(part if kind != DAMAGED else part[:-1] + bytes([part[-1] ^ 1]))
    expected = one_by_one(parts, [kind for kind, _, _ in rows])

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_transactions, "_MAX_ROWS_TOGETHER", rows_together)
        path = write_partition(Path(folder) / "orders-0", {0: b"".join(parts)})
        partition = read_lone_partition(local(path), path.name)
        damages: list[Damage] = []
        found = open_transactions.open_transactions(partition, [], damages.append)
        first_offset = last_stable_offset(partition, [], lambda _: None)

    assert found == expected
    assert first_offset == (expected[0].first_offset if expected else None)
    assert bool(damages) == any(kind == DAMAGED for kind, _, _ in rows)
