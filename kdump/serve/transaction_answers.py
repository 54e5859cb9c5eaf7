"""Answers about transactions and producers."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kdump.clock import current_time_ms
from kdump.errors import KdumpError
from kdump.formats.names import TopicPartition
from kdump.jobs.loading.loaded_producers import loaded_producers
from kdump.jobs.problems.unreadable import Unreadable
from kdump.jobs.transactions.open_transactions import TxnsRequest, txns
from kdump.log.selection import PartitionSelection
from kdump.serve.answering import Answering, Caller, Serving, ServingAnswers
from kdump.serve.disk_groups import IN_THIS_PROCESS
from kdump.serve.messages import Answer, Request
from kdump.serve.served_log import ServedLog
from kdump.serve.served_log_0_7 import ServedLog07
from kdump.state.transactions.transaction_coordinator import (
    TRANSACTION_STATE_TOPIC,
    CoordinatorState,
    CoordinatorTransaction,
)

DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66
_NONE: Final = -1
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class TransactionAnswers(ServingAnswers):
    """Answers ``ListTransactions``, ``DescribeTransactions`` and ``DescribeProducers``."""

    def __init__(self, serving: Serving) -> None:
        super().__init__(serving)
        self._lock = threading.Lock()

    def handlers(self) -> Mapping[int, Answering]:
        return {
            DESCRIBE_PRODUCERS: self.describe_producers,
            DESCRIBE_TRANSACTIONS: self.describe_transactions,
            LIST_TRANSACTIONS: self.list_transactions,
        }

    # ---- What coordinators know ----

    async def _transactions(self) -> Mapping[str, CoordinatorTransaction]:
        return await self._serving.threads.run(self._read)

    def _read(self) -> Mapping[str, CoordinatorTransaction]:
        with self._lock:
            return self._found

    @cached_property
    def _found(self) -> Mapping[str, CoordinatorTransaction]:
        """What all coordinators know, read once; without the ids that are being removed."""
        request = TxnsRequest(
            directories=self._cluster.directories,
            selection=PartitionSelection((TRANSACTION_STATE_TOPIC,)),
            now_ms=current_time_ms(),
        )
        report = txns(request, IN_THIS_PROCESS)
        for problem in (*report.damages, *report.problems):
            self._serving.notices.note(str(problem))
        return {
            each.transactional_id: each
            for _, each in report.transactions()
            if each.state is not CoordinatorState.DEAD
        }

    async def list_transactions(self, request: Request, _caller: Caller) -> Answer:
        """Follows ``TransactionStateManager.listTransactionStates``."""
        body = request.body
        known = {each.value for each in CoordinatorState}
        states = set(body.state_filters)
        producers = set(body.producer_id_filters)
        duration_ms = getattr(body, "duration_filter", _NONE)
        started_before = current_time_ms() - duration_ms if duration_ms >= 0 else None
        return {
            "unknown_state_filters": sorted(states - known),
            "transaction_states": [
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer_id,
                    "transaction_state": each.state.value,
                }
                for each in (await self._transactions()).values()
                if (not states or each.state.value in states)
                and (not producers or each.producer_id in producers)
                and (started_before is None or _started_ms(each) < started_before)
            ],
        }

    async def describe_transactions(self, request: Request, _caller: Caller) -> Answer:
        found = await self._transactions()
        return {
            "transaction_states": [
                {"transactional_id": each, **_described(found.get(each))}
                for each in request.body.transactional_ids
            ]
        }

    # ---- What leaders know ----

    async def describe_producers(self, request: Request, _caller: Caller) -> Answer:
        return await self._serving.threads.run(self._describe_producers, request)

    def _describe_producers(self, request: Request) -> Answer:
        # Each takes long: one that is named again is answered once.
        asked: dict[str, dict[int, None]] = {}
        for topic in request.body.topics:
            asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        return {
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {
                            "partition_index": number,
                            **self._producers(TopicPartition(name, number)),
                        }
                        for number in numbers
                    ],
                }
                for name, numbers in asked.items()
            ]
        }

    def _producers(self, key: TopicPartition) -> Answer:
        log = self._serving.readable(self._cluster.partition(key))
        if isinstance(log, ServedLog07):
            log = ErrorCode.unsupported_for_message_format
        if not isinstance(log, ServedLog):
            return {"error_code": log, "active_producers": ()}
        replica = log.replica
        try:
            found = loaded_producers(replica.partition, replica.log_directory)
        except (OSError, KdumpError) as failure:
            error = self._serving.failure(key, failure)
            return {"error_code": error, "active_producers": ()}
        if not isinstance(found, tuple):
            what = found.what if isinstance(found, Unreadable) else found
            self._serving.notices.note(f"{key}: the producers are not known: {what}")
            return {"error_code": ErrorCode.kafka_storage_error, "active_producers": ()}
        return {
            "active_producers": [
                {
                    "producer_id": each.producer_id,
                    "producer_epoch": each.epoch,
                    "last_sequence": each.last_sequence,
                    "last_timestamp": each.timestamp,
                    "coordinator_epoch": each.coordinator_epoch,
                    "current_txn_start_offset": each.current_txn_first_offset,
                }
                for each in found
            ]
        }


def _described(found: CoordinatorTransaction | None) -> Answer:
    if found is None:
        return {
            "error_code": ErrorCode.transactional_id_not_found,
            "transaction_state": "",
            "transaction_timeout": dt.timedelta(0),
            "transaction_start_time": _EPOCH,
            "producer_id": _NONE,
            "producer_epoch": _NONE,
            "topics": (),
        }
    topics: dict[str, list[int]] = {}
    for key in found.partitions:
        topics.setdefault(key.topic, []).append(key.partition)
    answer: dict[str, Any] = {
        "transaction_state": found.state.value,
        "transaction_timeout": dt.timedelta(milliseconds=found.timeout_ms),
        "transaction_start_time": _EPOCH + dt.timedelta(milliseconds=_started_ms(found)),
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": partitions} for topic, partitions in topics.items()
        ],
    }
    return answer


def _started_ms(transaction: CoordinatorTransaction) -> int:
    return _NONE if transaction.start_time_ms is None else transaction.start_time_ms
