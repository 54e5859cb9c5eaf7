"""Cases of log compaction, compared with Kafka's cleaner, and of erasing by key."""

from __future__ import annotations

from typing import Final

from case import GIB, LOCAL, NOW_MS, SPARK, Case, Data, Other, Program, compactable, copied, linked
from dump_cases import KEYED_MILLION_BYTES


def compaction(folder: str, *engine: str) -> tuple[str, ...]:
    """Return the words of kdump that compact a log directory."""
    options = ("--topic", "topic", "--now", NOW_MS, "--config", "cleanup.policy=compact")
    return ("compact", *engine, *options, f"{{data}}/{folder}")


def _compacted(
    name: str, ratio: float, data: Data, *source: Data, engine: tuple[str, ...] = LOCAL
) -> Case:
    """Compact a log directory, compared with Kafka's cleaner, which has one thread by default."""
    folder = data.folder
    request = "\t".join((f"{{data}}/{folder}-to-clean", NOW_MS, "cleanup.policy=compact"))
    return Case(
        name,
        compaction(f"{folder}-to-compact", *engine),
        (Other(Program.CLEANER, (), request + "\n", copied(folder, "to-clean")),),
        (*source, data),
        copied(folder, "to-compact"),
        copies_gb=1,
        ratio=ratio,
        peak_mb=None,
        worker_peak_mb=800,
    )


_KEYED: Final = compactable("keyed", KEYED_MILLION_BYTES["none"])

_LISTED: Final = Data("make_list_of_keys(100_000, folder)", 0.002, "listed-keys-100000")


def _erased(name: str, data: Data, *source: Data) -> Case:
    """Look for many keys in one pass, compared with how compaction looks for the last of each."""
    keys = ("--topic", "topic", "--keys-file", "{data}/listed-keys-100000/keys")
    compact = (*compaction(data.folder, *LOCAL), "--dry-run")
    return Case(
        name,
        ("erase", "--dry-run", *LOCAL, *keys, f"{{data}}/{data.folder}"),
        (Other(Program.KDUMP_COMPACT, compact),),
        (*source, data, _LISTED),
        ratio=1.5,
        worker_peak_mb=150,
    )


ERASURES: Final = (
    _erased("erase, 100 k keys, 8 M records", _KEYED),
    _erased(
        "erase, 100 k keys, 8 M records, zstd",
        compactable("keyed-zstd", KEYED_MILLION_BYTES["zstd"], "zstd"),
    ),
    _erased("erase, 100 k keys, 8 GiB", linked("keyed-11-partitions", "keyed", 11), _KEYED),
)

COMPACTIONS: Final = (
    _compacted("compact 8 M records, 200 k keys", 0.28, _KEYED),
    _compacted(
        "compact 8 M records, 200 k keys, zstd",
        0.28,
        compactable("keyed-zstd", KEYED_MILLION_BYTES["zstd"], "zstd"),
    ),
    _compacted(
        "compact 8 M records, 200 k keys, lz4",
        0.3,
        compactable("keyed-lz4", KEYED_MILLION_BYTES["lz4"], "lz4"),
    ),
    _compacted(
        "compact on Spark, 8 GiB, 84 M records, 200 k keys",
        0.5,
        compactable("keyed-whole", GIB - 20_000),
        engine=SPARK,
    ),
    _compacted(
        "compact on Spark, 8 partitions, 1.6 M keys",
        0.40,
        linked("keyed-8-partitions", "keyed", 8),
        _KEYED,
        engine=SPARK,
    ),
)
