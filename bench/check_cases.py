"""Cases that check and repair: verify, recover, report."""

from __future__ import annotations

from typing import Final

from case import (
    LOCAL,
    SPARK,
    Case,
    Data,
    Other,
    Program,
    RateCase,
    copied,
    in_part,
    loading,
    partitions,
)
from dump_cases import CLEAN_8_GIB, ONE_GIB

_ONE_GIB_1_KB: Final = "one-gib-1-kb,1024,9,text,none"
_UNFLUSHED: Final = "unflushed-11-kb,394,97,text,none"
_UNFLUSHED_1_KB: Final = "unflushed-1-kb,209,9,text,none"
_UNFLUSHED_QUARTER: Final = "unflushed-quarter-11-kb,191,97,text,none"


def _checked(name: str, folder: str, shape: str, ratio: float) -> Case:
    """Verify eight partitions of a segment each, compared with their checksums alone."""
    path = f"{{data}}/{folder}/topic-%d/{0:020d}.log"
    return Case(
        name,
        ("verify", *LOCAL, f"{{data}}/{folder}"),
        (Other(Program.CHECKSUMS, tuple(path % number for number in range(8))),),
        (partitions(folder, shape, 8, is_clean=True),),
        ratio=ratio,
    )


def _predicted(name: str, folder: str, shape: str, ratio: float) -> Case:
    """Verify two partitions after a crash, compared with a broker that loads them."""
    return Case(
        name,
        ("verify", *LOCAL, f"{{data}}/{folder}"),
        (loading(folder),),
        (partitions(folder, shape, 2, is_clean=False),),
        ratio=ratio,
    )


def _recovered(name: str, folder: str, shape: str, count: int, ratio: float) -> Case:
    """Recover partitions after a crash, compared with a broker that loads them."""
    return Case(
        name,
        ("recover", *LOCAL, f"{{data}}/{folder}-to-recover"),
        (loading(folder),),
        (partitions(folder, shape, count, is_clean=False),),
        copied(folder, "to-recover"),
        ratio=ratio,
        peak_mb=300,
        worker_peak_mb=300,
    )


VERIFICATIONS: Final = (
    _checked("verify, 8 GiB of 11 KB batches", "clean-11-kb", ONE_GIB, 1 / 0.6),
    _checked("verify, 8 GiB of 1 KB batches", "clean-1-kb", _ONE_GIB_1_KB, 1 / 0.25),
    _predicted("verify, 826 MB of 11 KB batches, unclean", "unclean-11-kb", _UNFLUSHED, 0.20),
    _predicted("verify, 438 MB of 1 KB batches, unclean", "unclean-1-kb", _UNFLUSHED_1_KB, 0.25),
    Case(
        "verify on Spark, 8 GiB of 11 KB batches",
        ("verify", *SPARK, "{data}/clean-11-kb"),
        (Other(Program.KDUMP_IN_PROCESS, ("verify", *LOCAL, "{data}/clean-11-kb")),),
        (CLEAN_8_GIB,),
        ratio=1.25,
        more_seconds=5,
        worker_peak_mb=600,
    ),
)

RECOVERIES: Final = (
    _recovered("recover, 826 MB of 11 KB batches", "unclean-11-kb", _UNFLUSHED, 2, 0.25),
    _recovered(
        "recover, 800 MB of 11 KB batches in four partitions",
        "crashed-11-kb",
        _UNFLUSHED_QUARTER,
        4,
        0.3,
    ),
    _recovered("recover, 438 MB of 1 KB batches", "unclean-1-kb", _UNFLUSHED_1_KB, 2, 0.30),
)

MANY_PARTITIONS: Final = Data("make_partitions_of_three(10_000, folder)", 0.7, "partitions-10000")

REPORTS: Final = (
    Case(
        "report, 8 GiB of 11 KB batches",
        ("report", *LOCAL, "--force", "--out", "{data}/report.html", "{data}/clean-11-kb"),
        (Other(Program.KDUMP, ("verify", *LOCAL, "{data}/clean-11-kb")),),
        (CLEAN_8_GIB,),
        ratio=1.5,
        more_seconds=1,
        peak_mb=300,
    ),
)


def _growing(command: str, things: str, count: int, *options: str) -> Case:
    """Make a case that is compared with itself over a quarter of the input."""
    make = f"make_many_{things.replace('-', '_')}"
    quarter = count // 4
    words = (command, *options)
    return Case(
        f"{' '.join(words)}, {count:,} {things.replace('-', ' ')}",
        (*words, f"{{data}}/{things}-{count}"),
        in_part(Program.KDUMP_ON_A_QUARTER, *words, f"{{data}}/{things}-{quarter}"),
        (Data(f"{make}({count}, folder); {make}({quarter}, folder)", 0.3, f"{things}-{count}"),),
        ratio=5.0,
        peak_mb=300,
    )


GROWING: Final = tuple(
    _growing(command, things, count, *options)
    for command, *options in (("verify",), ("recover", "--dry-run"), ("rebuild-index", "--dry-run"))
    for things, count in (("segments", 20_000), ("open-txns", 20_000), ("producers", 100_000))
    if (command, things) != ("rebuild-index", "producers")
)

SCRUBS: Final = (
    RateCase(
        "a producer's p99 beside a scrub",
        ("beside_broker.py", "latency"),
        (),
        at_least=1 / 1.2,
        unit="of it alone",
    ),
    RateCase(
        "pages in memory after a scrub",
        ("beside_broker.py", "pages", "{data}/scrubbed"),
        (partitions("scrubbed", "64-mib,64,97,text,none", 8, is_clean=True),),
        at_least=0.99,
        unit="as before",
    ),
)
