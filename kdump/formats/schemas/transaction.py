"""The records of ``__transaction_state``: the state of each transactional id.

There is one type of them (``TransactionCoordinatorRecordSerde``).
"""

from __future__ import annotations

from typing import Final

from kdump.formats.schemas.definitions import read_record_types

RECORD_TYPES: Final = read_record_types("transaction.txt")
TRANSACTION_LOG: Final = RECORD_TYPES[0]
