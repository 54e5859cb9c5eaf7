"""If offsets are missing, a transaction index is trusted as far as a broker trusts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.log_directories import write_partition
from builders.recovery import joined, marker, of_producer
from builders.verified import said_of
from kdump.check.findings import Finding
from kdump.formats import producer_snapshot, transaction_index
from kdump.formats.names import FileKind, OffsetFileName
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.transaction_index import AbortedTxn

PRODUCER_ID = 7
BEGAN, LOST, NEXT = 0, 5, 10
"""A transaction began, ended with offsets that are missing, and another began among those."""


def codes(path: Path, begins: int) -> set[str]:
    """Verify a log whose first segment begins a transaction that the second segment aborts."""
    logs = {
        0: of_producer(BEGAN, transactional=True),
        NEXT: joined([of_producer(NEXT, sequence=9, transactional=True), marker(NEXT + 1)]),
    }
    open_txn = ProducerEntry(PRODUCER_ID, 0, 8, NEXT - 1, 0, 0, -1, LOST)
    aborted = AbortedTxn(PRODUCER_ID, begins, NEXT + 1, NEXT + 2)
    write_partition(
        path / "orders-0",
        logs,
        others={
            str(OffsetFileName(NEXT, FileKind.PRODUCER_SNAPSHOT)): producer_snapshot.encode(
                [open_txn]
            ),
            str(OffsetFileName(NEXT, FileKind.TRANSACTION_INDEX)): transaction_index.encode(
                [aborted]
            ),
        },
    )
    return {each.code for each in said_of(path) if isinstance(each, Finding)}


def test_an_entry_that_a_snapshot_confirms_is_valid(tmp_path: Path) -> None:
    assert "transaction-index-mismatch" not in codes(tmp_path, LOST)


@pytest.mark.parametrize("begins", [LOST + 1, NEXT])
def test_an_entry_that_nothing_confirms_is_a_contradiction(tmp_path: Path, begins: int) -> None:
    assert "transaction-index-mismatch" in codes(tmp_path, begins)


@pytest.mark.parametrize(("begins", "is_valid"), [(1, True), (0, False)])
def test_an_abort_marker_alone_may_have_an_entry_of_its_own(
    tmp_path: Path, begins: int, is_valid: bool
) -> None:
    name = str(OffsetFileName(0, FileKind.TRANSACTION_INDEX))
    aborted = transaction_index.encode([AbortedTxn(PRODUCER_ID, begins, 1, 2)])
    write_partition(
        tmp_path / "orders-0",
        {0: joined([of_producer(0), marker(1)])},
        others={name: aborted},
    )
    found = {each.code for each in said_of(tmp_path) if isinstance(each, Finding)}
    assert ("transaction-index-mismatch" not in found) == is_valid
