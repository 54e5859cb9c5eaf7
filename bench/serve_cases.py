"""Cases of ``kdump serve``."""

from __future__ import annotations

from typing import Final

from case import RateCase, compactable
from check_cases import MANY_PARTITIONS
from dump_cases import KEYED_MILLION_BYTES

SERVES: Final = (
    RateCase(
        "serve, a consumer of 3 M records",
        ("served.py", "throughput"),
        (),
        at_least=1 / 1.1,
        unit="of a broker's speed",
    ),
    RateCase(
        "serve, start with 10,000 partitions",
        ("served.py", "start", "{data}/partitions-10000"),
        (MANY_PARTITIONS,),
        at_least=10_000 / 3,
        unit="partitions/s",
    ),
    RateCase(
        "serve, peak memory with 50 consumers",
        ("served.py", "memory", "{data}/keyed"),
        (compactable("keyed", KEYED_MILLION_BYTES["none"]),),
        at_least=1.0,
        unit="of it are 200 MB",
    ),
    RateCase(
        "serve, 1,000 idle connections",
        ("served.py", "idle", "{data}/keyed"),
        (compactable("keyed", KEYED_MILLION_BYTES["none"]),),
        at_least=0.999,
        unit="of the time idle",
    ),
)
