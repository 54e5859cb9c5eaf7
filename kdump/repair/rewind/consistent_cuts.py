"""Where all logs can be cut together so that each transaction is there as a whole, or not at all.

Clocks of brokers and producers differ. So cuts at one time may keep the marker of a transaction in
one log, and in another log lose its records. What happened to a transaction has an order, though:
the coordinator notes a partition, then records are written there, then the coordinator decides,
then markers are written, then the coordinator completes. From that order follow *conditions*: if
this is kept, that has to be kept, too. Cuts that break one are lowered until none is broken.

Each condition only asks for more before a cut, never after it. So there is one greatest set of
cuts that fulfils all, the order does not matter in which they are lowered, and it is never lower
than any moment at which the cluster really was: cuts move by no more than clocks differ.

Kept so, a transaction is one of these:

- committed or aborted in every log;
- decided by its coordinator, with all of its records if that is a commit: it needs the missing
  markers (see :mod:`~kdump.repair.rewind.ended_transactions`);
- open, with the coordinator knowing every log that has records of it: it is aborted at its timeout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from kdump.formats.names import TopicPartition
from kdump.repair.rewind.log_facts import CoordinatorEntry, TransactionPart
from kdump.state.transactions.transaction_coordinator import (
    CoordinatorState,
    CoordinatorTransaction,
)

Cuts = Mapping[TopicPartition, int]
"""By log, the first offset that is not kept; a log without one is kept as a whole."""

_OWN_EPOCHS = 2
"""Since this transaction version, a producer has another epoch in each transaction (KIP-890)."""
_ENDED = (CoordinatorState.COMPLETE_COMMIT, CoordinatorState.COMPLETE_ABORT)


class Transaction(Struct):
    """A transaction, as its coordinator and the logs have it.

    Attributes:
        log: of its coordinator; None if no coordinator's record of it was found.
        transactional_id: likewise.
        epochs: of its producer, before and after the coordinator decided.
        timeout_ms: after which the coordinator aborts it.
        added: by partition, the offset of the coordinator's record that first names it; None if
            that was compacted.
        decided: the offset of the record with the outcome; None if there is none.
        prepared: what that record says; None if there is none.
        completed: the offset of the record that completes it; None if there is none.
        last_ms: the time of the coordinator's last record of it.
        has_own_epoch: whether no other transaction of its producer has the epoch of its records, as
            with transaction version 2.
        parts: its records and markers, by log.
    """

    log: TopicPartition | None
    transactional_id: str | None
    producer_id: int
    epochs: set[int]
    timeout_ms: int = 0
    added: dict[TopicPartition, int | None] = field(default_factory=dict)
    decided: int | None = None
    prepared: CoordinatorTransaction | None = None
    completed: int | None = None
    last_ms: int = 0
    has_own_epoch: bool = False
    parts: dict[TopicPartition, TransactionPart] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """The epoch of its records, if it has its own."""
        return max(self.epochs) if self.prepared is None else self.prepared.producer_epoch - 1

    @property
    def is_commit(self) -> bool:
        """Whether the coordinator decided to commit it."""
        return self.prepared is not None and self.prepared.state.is_commit

    @property
    def is_committed(self) -> bool:
        """Whether the outcome is a commit, as its coordinator or a marker says it."""
        markers = (each for each in self.parts.values() if each.marker is not None)
        return self.is_commit or any(not each.is_abort for each in markers)


class Broken(Struct, frozen=True):
    """A condition that cuts break.

    Attributes:
        log: whose cut keeps too much.
        lowered: the cut that it would have to have.
        transaction: that is not there as a whole.
        hangs: whether its records would be open and no coordinator would end it.
    """

    log: TopicPartition
    lowered: int
    transaction: Transaction
    hangs: bool


def find_transactions(
    parts: Mapping[TopicPartition, Sequence[TransactionPart]],
    coordinators: Mapping[TopicPartition, Sequence[CoordinatorEntry]],
) -> list[Transaction]:
    """Put together what coordinators and logs know of each transaction.

    Args:
        parts: of transactions, by log, in order.
        coordinators: records, by partition of ``__transaction_state``, in order.
    """
    known = [each for log, entries in coordinators.items() for each in _of_log(log, entries)]
    by_producer = defaultdict[int, list[Transaction]](list)
    for transaction in known:
        by_producer[transaction.producer_id].append(transaction)
    lone: list[Transaction] = []
    for log, own in parts.items():
        of_producer = defaultdict[int, list[TransactionPart]](list)
        for part in own:
            of_producer[part.producer_id].append(part)
        for producer_id, in_log in of_producer.items():
            for part in _unmatched(log, in_log, by_producer.get(producer_id, ())):
                epochs = {part.producer_epoch}
                lone.append(Transaction(None, None, producer_id, epochs, parts={log: part}))
    return [*known, *lone]


def _of_log(log: TopicPartition, entries: Iterable[CoordinatorEntry]) -> Iterator[Transaction]:
    """The transactions that one coordinator had, in order for each transactional id."""
    current: dict[str, Transaction] = {}
    for entry in entries:
        state, now = entry.state, current.get(entry.transactional_id)
        if state is None or state.state in (CoordinatorState.EMPTY, CoordinatorState.DEAD):
            if now is not None:
                yield current.pop(entry.transactional_id)
            continue
        is_end = state.state in _ENDED
        begins = now is None or (
            state.state is CoordinatorState.ONGOING and now.decided is not None
        )
        if begins and is_end and now is None:
            continue  # all that came before was compacted
        if begins:
            if now is not None:
                yield now
            now = current[entry.transactional_id] = _begun(log, state)
        assert now is not None
        _take(now, entry.offset, state)
        if is_end:
            yield current.pop(entry.transactional_id)
    yield from current.values()


def _begun(log: TopicPartition, state: CoordinatorTransaction) -> Transaction:
    return Transaction(log, state.transactional_id, state.producer_id, set())


def _take(transaction: Transaction, offset: int, state: CoordinatorTransaction) -> None:
    transaction.timeout_ms, transaction.last_ms = state.timeout_ms, state.last_change_ms
    transaction.has_own_epoch = state.client_transaction_version >= _OWN_EPOCHS
    if state.state is CoordinatorState.ONGOING:
        transaction.epochs.add(state.producer_epoch)
        for partition in state.partitions:
            transaction.added.setdefault(partition, offset)
    elif state.state in _ENDED:
        transaction.completed = offset
    elif transaction.decided is None:
        transaction.decided, transaction.prepared = offset, state
        # With transaction version 2, the decision raises the epoch (KIP-890).
        transaction.epochs |= {state.producer_epoch, state.producer_epoch - 1}
        for partition in state.partitions:
            transaction.added.setdefault(partition, None)


def _unmatched(
    log: TopicPartition, parts: Sequence[TransactionPart], known: Sequence[Transaction]
) -> Iterator[TransactionPart]:
    """Give the parts that a producer has in a log to its transactions; yield those of none.

    From the last one back, because compaction takes the first ones from a coordinator's log. A
    producer's transactions follow each other in both logs, and each has a marker in every log that
    its coordinator knows. With transaction version 2, each has an epoch of its own. Otherwise the
    order tells. Where a marker may not be written yet, or was written twice, the times have to:
    they do if the clocks of brokers differ by less than a producer's transaction lasts.

    A backup beside brokers stores the coordinator's log before the others: their last parts may be
    of later transactions.
    """
    candidates = [each for each in known if log in each.added]
    count = _count_of_known(parts, candidates)
    yield from (each for each in parts[count:] if not each.is_empty)
    if candidates and _count_of_ended(parts, candidates) < count:
        part = parts[count - 1]
        if part.marker is not None:  # decided after the coordinator's log was read
            last = candidates.pop()
            count -= 1
            if not part.is_empty:
                last.parts[log] = part
    for number in reversed(range(count)):
        part = parts[number]
        before = parts[number - 1] if number else None
        at = _last_that_fits(part, candidates)
        if at is not None and at and candidates[at].completed is None:
            earlier = candidates[at - 1]
            if _fits(part, earlier) and not _is_of_later(part, earlier, candidates[at]):
                at -= 1
        if at is None:
            if not part.is_empty:
                yield part
            continue
        if part.is_empty and before is not None and _fits(before, candidates[at]):
            is_of_later = not at or _is_of_later(before, candidates[at - 1], candidates[at])
            if before.marker is not None and is_of_later:
                continue  # a new coordinator wrote the same marker again
        if not part.is_empty:
            candidates[at].parts[log] = part
        del candidates[at:]


def _count_of_known(parts: Sequence[TransactionPart], candidates: Sequence[Transaction]) -> int:
    """How many parts come before those of transactions that the coordinator's log lacks."""
    if not candidates:
        return len(parts)
    *earlier, last = candidates
    if last.prepared is None:
        return min(_count_of_ended(parts, candidates) + 1, len(parts))
    if last.has_own_epoch:
        return sum(each.producer_epoch - each.is_empty <= last.epoch for each in parts)
    fitting = [
        number for number, each in enumerate(parts) if each.marker is not None and _fits(each, last)
    ]
    decided_ms = last.prepared.last_change_ms
    if last.completed is not None:
        found = sorted(
            fitting,
            key=lambda each: max(
                decided_ms - parts[each].marker_ms, parts[each].marker_ms - last.last_ms, 0
            ),
        )
    elif earlier:
        found = [each for each in fitting if _is_of_later(parts[each], earlier[-1], last)]
    else:
        found = [each for each in fitting if parts[each].marker_ms >= decided_ms]
    return found[0] + 1 if found else len(parts)


def _count_of_ended(parts: Sequence[TransactionPart], candidates: Sequence[Transaction]) -> int:
    """How many parts come before that of the last transaction, if it is not decided."""
    *earlier, last = candidates
    if last.prepared is not None:
        return len(parts)
    if last.has_own_epoch:
        return sum(each.producer_epoch - each.is_empty < last.epoch for each in parts)
    if earlier:
        return _count_of_known(parts, earlier)
    return sum(each.marker is not None and each.marker_ms <= last.last_ms for each in parts)


def _last_that_fits(part: TransactionPart, candidates: Sequence[Transaction]) -> int | None:
    numbers = reversed(range(len(candidates)))
    return next((at for at in numbers if _fits(part, candidates[at])), None)


def _is_of_later(part: TransactionPart, earlier: Transaction, later: Transaction) -> bool:
    """Whether a marker is from after ``later`` was decided, rather than before ``earlier`` ended.

    Both are times of the coordinator, and the marker has that of another broker.
    """
    decided_ms = 0 if later.prepared is None else later.prepared.last_change_ms
    return 2 * part.marker_ms > earlier.last_ms + decided_ms


def _fits(part: TransactionPart, transaction: Transaction) -> bool:
    if part.producer_epoch not in transaction.epochs:
        return False
    if part.marker is None:
        return transaction.completed is None
    return transaction.decided is not None and transaction.is_commit != part.is_abort


def lowered(cuts: Cuts, transactions: Sequence[Transaction]) -> dict[TopicPartition, int]:
    """The greatest cuts, none above the given ones, that keep or drop each transaction as a whole.

    Args:
        cuts: where logs would be cut.
        transactions: all of them.
    """
    found = dict(cuts)
    is_stable = False
    while not is_stable:
        is_stable = True
        for transaction in transactions:
            for each in broken(found, transaction):
                found[each.log] = min(each.lowered, found.get(each.log, each.lowered))
                is_stable = False
    return found


def is_kept(cuts: Cuts, log: TopicPartition, offset: int | None) -> bool:
    """Whether the batch at an offset is before the cut; None is no batch."""
    return offset is not None and (log not in cuts or offset < cuts[log])


def broken(cuts: Cuts, transaction: Transaction) -> Iterator[Broken]:
    """The conditions of one transaction that cuts break."""
    if transaction.log is None:
        yield from _broken_without_coordinator(cuts, transaction)
        return
    coordinator = transaction.log
    is_decided = is_kept(cuts, coordinator, transaction.decided)
    is_completed = is_kept(cuts, coordinator, transaction.completed)
    for log, part in transaction.parts.items():
        has_marker = is_kept(cuts, log, part.marker)
        if has_marker and not is_decided:
            assert part.marker is not None
            yield Broken(log, part.marker, transaction, hangs=False)
        if is_completed and part.marker is not None and not has_marker:
            assert transaction.completed is not None
            hangs = is_kept(cuts, log, part.first)
            yield Broken(coordinator, transaction.completed, transaction, hangs=hangs)
        if is_decided and transaction.is_commit and not is_kept(cuts, log, part.last):
            assert transaction.decided is not None
            yield Broken(coordinator, transaction.decided, transaction, hangs=False)
        added = transaction.added.get(log)
        is_added = added is None or is_kept(cuts, coordinator, added)
        if is_kept(cuts, log, part.first) and not is_added:
            yield Broken(log, part.first, transaction, hangs=True)


def _broken_without_coordinator(cuts: Cuts, transaction: Transaction) -> Iterator[Broken]:
    """A part that no coordinator's log knows: nobody would write its marker again.

    Which parts of other logs belong to it is not known either.
    """
    for log, part in transaction.parts.items():
        if part.marker is not None and log in cuts and part.first < cuts[log] <= part.marker:
            yield Broken(log, part.first, transaction, hangs=True)
