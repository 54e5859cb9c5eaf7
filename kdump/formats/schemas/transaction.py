"""The records of ``__transaction_state``: the state of each transactional id.

There is one type of them (``TransactionCoordinatorRecordSerde``).
"""

from __future__ import annotations

from typing import Final

from kdump.formats.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    array,
    by_id,
    coordinator_record,
    field,
    struct,
)

_PARTITIONS_SCHEMA: Final = struct(
    "PartitionsSchema",
    field("topic", STRING),
    field("partitionIds", array(INT32)),
)

TRANSACTION_LOG: Final = coordinator_record(
    0,
    "TransactionLog",
    key=[field("transactionalId", STRING)],
    value=[
        field("producerId", INT64),
        field("previousProducerId", INT64, "1+", tag=0, default=-1),
        field("nextProducerId", INT64, "1+", tag=1, default=-1),
        field("producerEpoch", INT16),
        field("nextProducerEpoch", INT16, "1+", tag=3, default=-1),
        field("transactionTimeoutMs", INT32),
        field("transactionStatus", INT8),
        field("transactionPartitions", array(_PARTITIONS_SCHEMA), nullable=True),
        field("transactionLastUpdateTimestampMs", INT64),
        field("transactionStartTimestampMs", INT64),
        field("clientTransactionVersion", INT16, "1+", tag=2),
    ],
    versions="0-1",
    flexible="1+",
)

RECORD_TYPES: Final = by_id(
    TRANSACTION_LOG,
)
