"""Cases of many partitions, compared with a bare walk of them, and of many bytes."""

from __future__ import annotations

from typing import Final

from case import (
    LOCAL,
    MANY_KEYS,
    Case,
    Data,
    Other,
    Program,
    compactable,
    copied,
    in_part,
    linked,
    partitions,
)
from compact_cases import compaction
from dump_cases import KEYED_MILLION_BYTES, ONE_GIB


def _retained(retention_ms: int) -> tuple[str, ...]:
    """Return the words of kdump that say which segments are due."""
    return (
        *("retain", "--dry-run", "--topic", "*", "--config", "remote.storage.enable=false"),
        *("--config", "cleanup.policy=delete", "--config", f"retention.ms={retention_ms}"),
    )


_CENTURY_MS: Final = 36_525 * 86_400_000
_RETAIN_WALKS: Final = 6.0
_WALKS: Final = (
    (("ls",), "", 3.0),
    (("info",), "", 1.5),
    (("verify",), "", 12.0),
    (("verify", "--quick"), "", 3.0),
    (("recover", "--dry-run"), "-unclean", 10.0),
    (_retained(86_400_000), "", _RETAIN_WALKS),
)
"""Words of kdump, the suffix of the directory, and the limit in walks."""


_READ_SECONDS: Final = (
    (("export", "--out", "{data}/exported"), "remove('exported', folder)", 15.0),
    (("report", "--force", "--out", "{data}/report.html"), "", 8.0),
    (("diff", "{data}/partitions-10000-unclean"), "", 8.0),
    (("grep", "-F", "order-4711"), "", 6.0),
)
"""Words of kdump, what comes before each run, and the limit in seconds of processor time."""


def _partitions(count: int, suffix: str) -> Data:
    make = f"make_partitions_of_three({count}, folder)"
    if suffix:
        make += f"; make_unclean('partitions-{count}', folder, is_preallocated=False)"
    return Data(make, count * 0.00007, f"partitions-{count}{suffix}")


def _walked(words: tuple[str, ...], suffix: str, walks: float, note: str = "") -> Case:
    directory = f"{{data}}/partitions-10000{suffix}"
    return Case(
        f"{_shown(words)}{note}, 10,000 partitions, 30,000 segments",
        (*words, directory),
        (Other(Program.WALK, (directory,)),),
        (_partitions(10_000, suffix),),
        ratio=walks,
        peak_mb=300,
    )


def _read(words: tuple[str, ...], before: str, cpu_seconds: float) -> Case:
    """Read the records of all partitions."""
    return Case(
        f"{words[0]}, 10,000 partitions, 30,000 segments",
        (*words, "{data}/partitions-10000"),
        data=(_partitions(10_000, ""), _partitions(10_000, "-unclean")),
        before=before,
        copies_gb=0.5,
        cpu_seconds=cpu_seconds,
        peak_mb=300,
    )


def _doubled(words: tuple[str, ...], suffix: str) -> Case:
    return Case(
        f"{_shown(words)}, 20,000 partitions",
        (*words, f"{{data}}/partitions-20000{suffix}"),
        in_part(Program.KDUMP_ON_HALF, *words, f"{{data}}/partitions-10000{suffix}"),
        (_partitions(10_000, suffix), _partitions(20_000, suffix)),
        ratio=2.1,
        peak_mb=300,
    )


def _shown(words: tuple[str, ...]) -> str:
    return " ".join(words[:2])


MANY_PARTITIONS: Final = (
    *(_walked(*each) for each in _WALKS),
    _walked(_retained(_CENTURY_MS), "", _RETAIN_WALKS, ", nothing is due"),
    *(_read(*each) for each in _READ_SECONDS),
    *(_doubled(words, suffix) for words, suffix, _ in _WALKS),
    Case(
        "metadata collect, 10,000 partitions",
        (
            *("metadata", "collect", "--force", "--out", "{data}/collection.json"),
            "{data}/partitions-10000",
        ),
        data=(_partitions(10_000, ""),),
        seconds=3.0,
    ),
)

_PER_GIB: Final = 8 * 1.15
"""Limit of the time over 32 GiB, as a multiple of that over 4 GiB."""

_DAMAGED: Final = Data("make_damaged('damaged-10-gib', 10, 500, folder)", 11, "damaged-10-gib")


def _linked_damage(name: str, partitions: int, segments: int) -> Data:
    call = f"link_damaged({name!r}, 'damaged-10-gib', {partitions}, {segments}, folder)"
    return Data(call, 0.1, name)


_SALVAGE: Final = ("recover", *LOCAL, "--policy", "salvage", "--dry-run")
_DELETE_ALL: Final = (
    *("retain", *LOCAL, "--topic", "topic", "--config", "remote.storage.enable=false"),
    *("--config", "cleanup.policy=delete", "--config", "retention.ms=1"),
)

_VERIFY: Final = ("verify", *LOCAL)


def _false_lengths(name: str, size_bytes: int) -> Data:
    return Data(f"make_false_lengths({name!r}, {size_bytes}, folder)", size_bytes >> 30, name)


MANY_BYTES: Final = (
    Case(
        "verify, 32 MiB of headers that each claim half of it",
        (*_VERIFY, "{data}/false-lengths-32-mib"),
        in_part(Program.KDUMP_ON_A_QUARTER, *_VERIFY, "{data}/false-lengths-8-mib"),
        (
            _false_lengths("false-lengths-32-mib", 32 << 20),
            _false_lengths("false-lengths-8-mib", 8 << 20),
        ),
        ratio=4 * 1.15,
        peak_mb=300,
    ),
    Case(
        "salvage, 32 GiB in four partitions",
        (*_SALVAGE, "{data}/damaged-32-gib"),
        in_part(Program.KDUMP_ON_AN_EIGHTH, *_SALVAGE, "{data}/damaged-4-gib"),
        (
            _DAMAGED,
            _linked_damage("damaged-32-gib", 4, 8),
            _linked_damage("damaged-4-gib", 2, 2),
        ),
        ratio=_PER_GIB,
        peak_mb=300,
        worker_peak_mb=300,
    ),
    Case(
        "compact, 31 GiB in 40 partitions",
        compaction("keyed-40-partitions-to-compact", *LOCAL),
        (
            Other(
                Program.KDUMP_ON_AN_EIGHTH,
                compaction("keyed-5-partitions-to-compact", *LOCAL),
                before=copied("keyed-5-partitions", "to-compact"),
            ),
        ),
        (
            compactable("keyed", KEYED_MILLION_BYTES["none"]),
            linked("keyed-40-partitions", "keyed", 40),
            linked("keyed-5-partitions", "keyed", 5),
        ),
        copied("keyed-40-partitions", "to-compact"),
        copies_gb=2,
        ratio=_PER_GIB,
        peak_mb=300,
        worker_peak_mb=300,
    ),
    Case(
        "compact --dry-run, 54 M keys in a partition",
        compaction(MANY_KEYS.folder, *LOCAL, "--dry-run"),
        in_part(Program.KDUMP_ON_AN_EIGHTH, *compaction("many-keys-eighth", *LOCAL, "--dry-run")),
        (MANY_KEYS, compactable("many-keys-eighth", 120 << 20, keys=100_000_000)),
        ratio=_PER_GIB,
        peak_mb=None,
        worker_peak_mb=800,
    ),
    Case(
        "retain, 32 GiB in 32 partitions",
        (*_DELETE_ALL, "{data}/clean-32-gib-to-retain"),
        (
            Other(
                Program.KDUMP_ON_AN_EIGHTH,
                (*_DELETE_ALL, "{data}/clean-4-gib-to-retain"),
                before=copied("clean-4-gib", "to-retain"),
            ),
        ),
        (
            partitions("clean-32-gib", ONE_GIB, 32, is_clean=True),
            partitions("clean-4-gib", ONE_GIB, 4, is_clean=True),
        ),
        copied("clean-32-gib", "to-retain"),
        ratio=_PER_GIB,
        peak_mb=300,
    ),
)
