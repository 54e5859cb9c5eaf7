"""All cases of the bench, in the order of its table."""

from __future__ import annotations

from typing import Final

from backup_cases import BACKUPS
from case import Case, RateCase
from check_cases import GROWING, RECOVERIES, REPORTS, SCRUBS, VERIFICATIONS
from compact_cases import COMPACTIONS, ERASURES
from dump_cases import DUMPS, GROUPS, LOOKUPS, QUERIES, RATES, SEARCHES
from engine_cases import ENGINES, SPEED_UPS
from linear_cases import MANY_BYTES, MANY_PARTITIONS
from serve_cases import SERVES

CASES: Final[tuple[Case, ...]] = (
    *DUMPS,
    *SEARCHES,
    *LOOKUPS,
    *VERIFICATIONS,
    *RECOVERIES,
    *COMPACTIONS,
    *ERASURES,
    *BACKUPS,
    *GROUPS,
    *MANY_PARTITIONS,
    *MANY_BYTES,
    *GROWING,
    *REPORTS,
    *QUERIES,
    *ENGINES,
)
RATE_CASES: Final[tuple[RateCase, ...]] = (*RATES, *SCRUBS, *SERVES, *SPEED_UPS)
