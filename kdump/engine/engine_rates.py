"""What engines are expected to take for a job, from measured rates.

Both engines run the same functions of a job on every core, and Spark adds to that: a JVM has to
start, tasks cross it, and results come back through it. The rates were measured with

    ./dev bench --only 'engine:*'

from the page cache on two cores (``docs/engine.md`` has the table, and what they mean). Only how
the engines compare decides: with slower cores or disks both take longer.
"""

from __future__ import annotations

import enum
from typing import Final

from msgspec import Struct

_GIB: Final = 1 << 30


class JobKind(enum.Enum):
    """What a job does with the bytes that it reads."""

    SCAN = "scan"
    """Check batches, and return little for each file."""
    DECODE = "decode"
    """Decode records, and return many of them."""
    EXPORT = "export"
    """Decode records, and write them to files."""
    COMPACT = "compact"
    """Decode records, exchange their keys, and return the bytes of those that stay."""


class EngineRate(Struct, frozen=True):
    """How fast an engine does jobs of a kind.

    Attributes:
        start_seconds: before the first task, and after the last one.
        core_seconds_per_gib: processor time for a GiB; cores share it.
    """

    start_seconds: float
    core_seconds_per_gib: float

    def seconds(self, total_bytes: int, cores: int) -> float:
        """The expected time for a job over ``total_bytes`` on ``cores``."""
        return self.start_seconds + self.core_seconds_per_gib * total_bytes / _GIB / cores


LOCAL_RATES: Final = {
    JobKind.SCAN: EngineRate(0.1, 0.3),
    JobKind.DECODE: EngineRate(0.2, 5.2),
    JobKind.EXPORT: EngineRate(0.2, 5.1),
    JobKind.COMPACT: EngineRate(0.2, 4.9),
}
SPARK_RATES: Final = {
    JobKind.SCAN: EngineRate(2.7, 0.35),
    JobKind.DECODE: EngineRate(3.0, 6.0),
    JobKind.EXPORT: EngineRate(3.0, 6.4),
    JobKind.COMPACT: EngineRate(3.0, 6.5),
}
