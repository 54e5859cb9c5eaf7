"""The transactions of a coordinator, from the records of ``__transaction_state``.

Each partition of that topic has the transactional ids of one coordinator. Its state is the last
record of each id. Follows ``TransactionStateManager.loadTransactionMetadata`` and
``TransactionLog.read``.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.formats.cursor import Cursor
from kdump.formats.errors import FormatError
from kdump.formats.message_decoder import MessageValue, decode
from kdump.formats.message_encoder import encode
from kdump.formats.names import TopicPartition
from kdump.formats.schemas.transaction import TRANSACTION_LOG
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet
from kdump.state.transactions.transaction_records import rows_that_matter

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"

_NONE: Final = -1
_FIRST_OFFSET: Final = 0
_LATEST_TRANSACTION_VERSION: Final = 2
_RAISES_EPOCHS: Final = 2
"""The transaction version from which on each transaction has an epoch of its own (KIP-890)."""


class CoordinatorState(enum.Enum):
    """The state of a transactional id; the value is Kafka's name.

    In the order of the numbers in the records (``TransactionState``).
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @property
    def is_open(self) -> bool:
        """Whether the coordinator has a transaction that it has not completed."""
        return self in _OPEN

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided: a starting coordinator writes the missing markers."""
        return self in (CoordinatorState.PREPARE_COMMIT, CoordinatorState.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        """Whether the outcome is a commit."""
        return self in (CoordinatorState.PREPARE_COMMIT, CoordinatorState.COMPLETE_COMMIT)


_STATES: Final = tuple(CoordinatorState)
_OPEN: Final = frozenset(
    {
        CoordinatorState.ONGOING,
        CoordinatorState.PREPARE_COMMIT,
        CoordinatorState.PREPARE_ABORT,
        CoordinatorState.PREPARE_EPOCH_FENCE,
    }
)


_COMPLETED: Final = {
    CoordinatorState.PREPARE_COMMIT: CoordinatorState.COMPLETE_COMMIT,
    CoordinatorState.PREPARE_ABORT: CoordinatorState.COMPLETE_ABORT,
}


class CoordinatorTransaction(Struct, frozen=True):
    """What a coordinator knows of a transactional id; follows ``TransactionMetadata``.

    Attributes:
        previous_producer_id: of the last committed transaction; None if there is none.
        next_producer_id: the one that the producer goes on with; None if it is not another.
        timeout_ms: after which the coordinator aborts a transaction.
        start_time_ms: of the transaction; None if there was none.
        last_change_ms: time of the last change.
        partitions: in the transaction, as far as they are not completed, in order.
        client_transaction_version: feature level of ``transaction.version`` at the client.
        offset: of the record.
        is_certain: whether nothing unreadable after the record may have replaced it.
        version: of the record's value.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    previous_producer_id: int | None
    next_producer_id: int | None
    state: CoordinatorState
    timeout_ms: int
    start_time_ms: int | None
    last_change_ms: int
    partitions: tuple[TopicPartition, ...]
    client_transaction_version: int
    offset: int
    is_certain: bool = True
    version: int = 0

    @property
    def has_own_epoch(self) -> bool:
        """Whether each transaction of the producer has another epoch (KIP-890)."""
        return self.client_transaction_version >= _RAISES_EPOCHS


class UnreadableRecord(Struct, frozen=True):
    """A record that no coordinator can read: it loads nothing from there on.

    Attributes:
        transactional_id: that it is about; None if that cannot be read either.
        what: what is wrong.
    """

    offset: int
    transactional_id: str | None
    what: str


class CoordinatorLog(Struct, frozen=True):
    """The transactions of one partition of ``__transaction_state``.

    Attributes:
        transactions: by transactional id, without those that were deleted.
        unreadable: the first record that no coordinator can read; None if there is none.
        unknown_versions: the number of records that a coordinator ignores, because their version is
            unknown.
        is_complete: whether an id that is not there is certainly unknown to the coordinator.
    """

    transactions: tuple[CoordinatorTransaction, ...]
    unreadable: UnreadableRecord | None = None
    unknown_versions: int = 0
    is_complete: bool = True


class CoordinatorLogReader:
    """Collects the transactions of one partition from its records, in the order of offsets.

    A coordinator stops loading at a record that it cannot read, and serves what it has by then.
    Here reading goes on, and everything that such a record, or damage, may have replaced is marked.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, CoordinatorTransaction] = {}
        self._unreadable: UnreadableRecord | None = None
        self._unreadable_ids: set[str] = set()
        self._unknown_versions = 0
        self._is_complete = True
        self._is_after_damage = False
        self._uncertain_before = _FIRST_OFFSET
        self._next_offset = _FIRST_OFFSET

    def take(self, records: RecordColumns | MessageSet) -> None:
        """Take in the next records."""
        if self._is_after_damage:
            self._is_after_damage = self._is_complete = False
            self._uncertain_before = self._next_offset
        if isinstance(records, MessageSet):
            for message in records.messages:
                self._take(message.key, message.value, message.offset)
            return
        rows = rows_that_matter(records)
        for row, offset in zip(rows.tolist(), records.offset[rows].tolist(), strict=True):
            self._take(records.key(row), records.value(row), offset)

    def take_damage(self) -> None:
        """Take in that records are missing, which may have been about any id.

        At the end of the log that changes nothing: a starting broker truncates the log before it.
        """
        self._is_after_damage = True

    def log(self) -> CoordinatorLog:
        """What the records taken so far add up to."""
        return CoordinatorLog(
            tuple(self._marked(self._by_id[each]) for each in sorted(self._by_id)),
            self._unreadable,
            self._unknown_versions,
            self._is_complete,
        )

    def _marked(self, found: CoordinatorTransaction) -> CoordinatorTransaction:
        is_loaded = self._unreadable is None or found.offset < self._unreadable.offset
        is_last = found.offset >= self._uncertain_before
        is_last &= found.transactional_id not in self._unreadable_ids
        return found if is_loaded and is_last else replace(found, is_certain=False)

    def _take(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        self._next_offset = offset + 1
        transactional_id = None
        try:
            if key is None:
                self._take_unreadable(UnreadableRecord(offset, None, "the record has no key"))
                return
            transactional_id = _read_key(key)
            if transactional_id is None:
                self._unknown_versions += 1
                return
            found = None if value is None else _read_value(transactional_id, value, offset)
        except _UnknownVersion:
            self._unknown_versions += 1
        except FormatError as problem:
            if transactional_id is None:
                self._uncertain_before = offset
            self._take_unreadable(UnreadableRecord(offset, transactional_id, problem.what))
        else:
            self._unreadable_ids.discard(transactional_id)
            if found is None:
                self._by_id.pop(transactional_id, None)
            else:
                self._by_id[transactional_id] = found

    def _take_unreadable(self, record: UnreadableRecord) -> None:
        self._is_complete = False
        self._unreadable = self._unreadable or record
        if record.transactional_id is not None:
            self._unreadable_ids.add(record.transactional_id)


class _UnknownVersion(Exception):
    """A value of a version that a coordinator ignores."""


def read_transaction(
    key: bytes | None, value: bytes | None, offset: int
) -> tuple[str, CoordinatorTransaction | None] | None:
    """The transactional id of one record, and what the record says; None if the id was deleted.

    Returns:
        None if a coordinator ignores the record.

    Raises:
        FormatError: no coordinator can read it.
    """
    if key is None:
        raise FormatError("the record has no key")
    transactional_id = _read_key(key)
    if transactional_id is None:
        return None
    try:
        found = None if value is None else _read_value(transactional_id, value, offset)
    except _UnknownVersion:
        return None
    return transactional_id, found


def _read_key(key: bytes) -> str | None:
    """The transactional id of a record; None if a coordinator ignores the record.

    Raises:
        FormatError: no coordinator can read the key.
    """
    cursor = Cursor(key)
    if cursor.int16() != TRANSACTION_LOG.id:
        return None
    assert TRANSACTION_LOG.key is not None
    return str(decode(TRANSACTION_LOG.key, cursor, 0)["transactionalId"])


def _read_value(transactional_id: str, value: bytes, offset: int) -> CoordinatorTransaction:
    """Read the value of a record.

    Raises:
        _UnknownVersion: a coordinator ignores it.
        FormatError: no coordinator can read it.
    """
    cursor = Cursor(value)
    version = cursor.int16()
    if version not in TRANSACTION_LOG.value.versions:
        raise _UnknownVersion
    fields = decode(TRANSACTION_LOG.value, cursor, version)
    status = fields["transactionStatus"]
    if not 0 <= status < len(_STATES):
        raise FormatError("unknown state of a transaction", found=status)
    state = _STATES[status]
    client_version = fields["clientTransactionVersion"] if version else 0
    if not 0 <= client_version <= _LATEST_TRANSACTION_VERSION:
        raise FormatError("unknown transaction version of a client", found=client_version)
    return CoordinatorTransaction(
        transactional_id=transactional_id,
        producer_id=fields["producerId"],
        producer_epoch=fields["producerEpoch"],
        previous_producer_id=_or_none(fields.get("previousProducerId", _NONE)),
        next_producer_id=_or_none(fields.get("nextProducerId", _NONE)),
        state=state,
        timeout_ms=fields["transactionTimeoutMs"],
        start_time_ms=_or_none(fields["transactionStartTimestampMs"]),
        last_change_ms=fields["transactionLastUpdateTimestampMs"],
        partitions=_partitions(state, fields["transactionPartitions"]),
        client_transaction_version=client_version,
        offset=offset,
        version=version,
    )


def completion_of(prepared: CoordinatorTransaction) -> tuple[bytes, bytes]:
    """The record, key and value, that completes a transaction whose outcome is decided.

    Follows ``TransactionMetadata.prepareComplete`` and ``TransactionLog.valueToBytes``, apart from
    the time of the last change, which stays: the record is the same in every run.
    """
    assert TRANSACTION_LOG.key is not None
    completed = _COMPLETED[prepared.state]
    producer_id, epoch = prepared.producer_id, prepared.producer_epoch
    following = prepared.next_producer_id
    if following is not None and prepared.has_own_epoch:
        producer_id, epoch = following, 0
    value: dict[str, object] = {
        "producerId": producer_id,
        "producerEpoch": epoch,
        "transactionTimeoutMs": prepared.timeout_ms,
        "transactionStatus": _STATES.index(completed),
        "transactionPartitions": [],
        "transactionLastUpdateTimestampMs": prepared.last_change_ms,
        "transactionStartTimestampMs": _NONE
        if prepared.start_time_ms is None
        else prepared.start_time_ms,
    }
    if prepared.version:
        value["previousProducerId"] = prepared.producer_id
        value["clientTransactionVersion"] = prepared.client_transaction_version
    key = encode(TRANSACTION_LOG.key, {"transactionalId": prepared.transactional_id}, 0)
    return (
        TRANSACTION_LOG.id.to_bytes(2, "big") + key,
        prepared.version.to_bytes(2, "big")
        + encode(TRANSACTION_LOG.value, value, prepared.version),
    )


def _partitions(
    state: CoordinatorState, topics: Sequence[MessageValue] | None
) -> tuple[TopicPartition, ...]:
    if state is CoordinatorState.EMPTY:
        return ()
    if topics is None:
        raise FormatError(f"null partitions in state {state.value}")
    return tuple(
        sorted({TopicPartition(each["topic"], n) for each in topics for n in each["partitionIds"]})
    )


def _or_none(number: int) -> int | None:
    return None if number == _NONE else number
