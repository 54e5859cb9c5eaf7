"""Compare the transaction index with the abort markers of its segment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kdump.check import invariants
from kdump.check.collector import Collector
from kdump.check.findings import Finding, Place
from kdump.formats.transaction_index import ENTRY_BYTES, AbortedTxn, TransactionIndex
from kdump.state.transactions.producers import NO_TRANSACTION
from kdump.storage.location import Location
from kdump.words import counted


def check_aborted(
    path: Location,
    index: TransactionIndex | None,
    aborted: Iterable[AbortedTxn],
    into: Collector,
    *,
    is_whole: bool,
    open_before: Mapping[int, int],
) -> None:
    """Compare the entries of a transaction index with the transactions aborted in its segment.

    Args:
        index: its content; None if it is missing.
        aborted: from the log; an unknown first offset is negative.
        into: takes the findings.
        is_whole: whether the log has all batches ever written to it; otherwise compaction or
            retention may have removed what only the index has.
        open_before: first offsets of the transactions that are open in the snapshot at the start of
            the segment, by producer. If offsets are missing before it, such a transaction may have
            ended there, and another begun.
    """
    wanted = {(each.producer_id, each.last_offset): each for each in aborted}
    entries = () if index is None else index.entries
    if index is None and any(each.first_offset != NO_TRANSACTION for each in wanted.values()):
        into.add(
            invariants.TRANSACTION_INDEX_MISSING.finding(
                Place(str(path)),
                "transactions were aborted in a segment that has no transaction index",
                expected=counted(len(wanted), "entry", "entries"),
                loss="readers of committed records get their records",
            )
        )
        return
    for slot, entry in enumerate(entries):
        if entry.last_stable_offset > entry.last_offset + 1:
            into.add(
                invariants.TRANSACTION_INDEX_MISMATCH.finding(
                    Place(str(path), slot * ENTRY_BYTES, entry.last_offset),
                    "a last stable offset after the marker: brokers do not look at later entries",
                    expected=f"at most {entry.last_offset + 1}",
                    found=entry.last_stable_offset,
                    loss="readers of committed records get those of later aborted transactions",
                )
            )
            continue
        known = wanted.get((entry.producer_id, entry.last_offset))
        if known is not None and entry.first_offset == open_before.get(entry.producer_id):
            continue
        place = Place(str(path), slot * ENTRY_BYTES, entry.last_offset)
        finding = _entry_finding(place, entry, known, is_whole=is_whole)
        if finding is not None:
            into.add(finding)
    seen = {(entry.producer_id, entry.last_offset) for entry in entries}
    for key, known in wanted.items():
        if key not in seen and known.first_offset != NO_TRANSACTION:
            into.add(
                invariants.TRANSACTION_INDEX_MISMATCH.finding(
                    Place(str(path), None, known.last_offset),
                    "an aborted transaction is missing from the transaction index",
                    expected=_words(known),
                    loss="readers of committed records get its records",
                )
            )


def _entry_finding(
    place: Place, entry: AbortedTxn, known: AbortedTxn | None, *, is_whole: bool
) -> Finding | None:
    """The finding about an entry; None if it agrees with ``known``, the log's abort marker."""
    if known is None:
        if not is_whole:
            return None
        return invariants.TRANSACTION_INDEX_MISMATCH.finding(
            place,
            "the transaction index has an entry without an abort marker",
            found=_words(entry),
        )
    if known.first_offset == NO_TRANSACTION:
        # Brokers before 3.0 write an entry for the marker alone, which hides no record.
        if not is_whole or entry.first_offset == entry.last_offset:
            return None
        return invariants.TRANSACTION_INDEX_MISMATCH.finding(
            place,
            "the transaction index has an entry for a transaction without records",
            found=_words(entry),
            loss="committed records from there on, for readers of committed records",
        )
    is_same = (entry.first_offset, entry.last_stable_offset) == (
        known.first_offset,
        known.last_stable_offset,
    )
    if entry.first_offset <= known.first_offset and (is_same or not is_whole):
        return None
    return invariants.TRANSACTION_INDEX_MISMATCH.finding(
        place,
        "an entry of the transaction index contradicts the log",
        expected=_words(known),
        found=_words(entry),
    )


def _words(aborted: AbortedTxn) -> str:
    return (
        f"producer {aborted.producer_id}, offsets {aborted.first_offset} to"
        f" {aborted.last_offset}, last stable offset {aborted.last_stable_offset}"
    )
