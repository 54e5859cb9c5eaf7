"""The same work on each engine: ``--engine auto`` has to take the one that finishes first."""

from __future__ import annotations

from typing import Final

from case import (
    GIB,
    LOCAL,
    MIB,
    Case,
    Data,
    Other,
    Program,
    RateCase,
    compactable,
    copied,
    linked,
    partitions,
)
from compact_cases import compaction

_SPARK: Final = ("--engine", "spark")
_AT_MOST: Final = 1.1
_PARTS: Final = {0.5: (64, 8), 2: (256, 8), 8: (1024, 8), 32: (1024, 32)}
"""The size of each partition in MiB, and how many there are, by the GiB of both together."""
_COMPACTED_BYTES: Final = 512 * MIB
"""The size of a partition to compact; links make as many as are needed."""
_COMPACTED: Final = compactable("engine-keyed", _COMPACTED_BYTES // 8)
_EXPORTED: Final = 0.6
"""How many bytes an export has for each byte that it reads, at most."""


def _on_each_engine(
    words: tuple[str, ...], gib: float, *data: Data, before: str = "", copies_gb: float = 0
) -> Case:
    """Run a command as kdump chooses, compared with both engines."""
    command, *rest = words
    return Case(
        f"engine: {command}, {gib:g} GiB",
        words,
        (
            Other(Program.KDUMP_IN_PROCESS, (command, *LOCAL, *rest), before=before),
            Other(Program.KDUMP_ON_SPARK, (command, *_SPARK, *rest), before=before),
        ),
        data,
        before,
        copies_gb=copies_gb,
        ratio=_AT_MOST,
        peak_mb=None,
    )


def _scanned(gib: float) -> tuple[str, Data]:
    """Return a log directory of this size, and how to make it."""
    mib, count = _PARTS[gib]
    folder = f"engine-{gib:g}-gib"
    return folder, partitions(folder, f"{mib}-mib,{mib},97,text,none", count, is_clean=True)


def _verified(gib: float) -> Case:
    folder, data = _scanned(gib)
    return _on_each_engine(("verify", f"{{data}}/{folder}"), gib, data)


def _exported(gib: float) -> Case:
    folder, data = _scanned(gib)
    words = ("export", "--out", "{data}/exported", f"{{data}}/{folder}")
    written_gb = gib * GIB * _EXPORTED / 1e9
    return _on_each_engine(
        words, gib, data, before="remove('exported', folder)", copies_gb=written_gb
    )


def _compacted(gib: float) -> Case:
    folder = f"engine-keyed-{gib:g}-gib"
    return _on_each_engine(
        compaction(f"{folder}-to-compact"),
        gib,
        _COMPACTED,
        _partitions_to_compact(folder, gib),
        before=copied(folder, "to-compact"),
        copies_gb=gib * 0.05,
    )


def _partitions_to_compact(folder: str, gib: float) -> Data:
    return linked(folder, "engine-keyed", int(gib * GIB) // _COMPACTED_BYTES)


ENGINES: Final = tuple(make(gib) for gib in _PARTS for make in (_verified, _compacted, _exported))

_SPEED_UP: Final = 1.7
_CLUSTER_GIB: Final = {"verify": 512, "compact": 16}
"""Enough that the start of the command, which no worker speeds up, hardly counts."""


def _sped_up(before: str, data: tuple[Data, ...], *words: str) -> RateCase:
    """Run a command on a cluster of one worker of one core, and of two."""
    return RateCase(
        f"speed-up from one worker to two, {words[0]}, {_CLUSTER_GIB[words[0]]} GiB",
        ("speed_up.py", "--data", "{data}", "--before", before, *words),
        data,
        _SPEED_UP,
        "times",
    )


_CLUSTER_SCANNED: Final = f"cluster-{_CLUSTER_GIB['verify']}-gib"
_CLUSTER_KEYED: Final = f"cluster-keyed-{_CLUSTER_GIB['compact']}-gib"

SPEED_UPS: Final = (
    _sped_up(
        "",
        (
            partitions(
                _CLUSTER_SCANNED,
                "1024-mib,1024,97,text,none",
                _CLUSTER_GIB["verify"],
                is_clean=True,
            ),
        ),
        "verify",
        f"{{data}}/{_CLUSTER_SCANNED}",
    ),
    _sped_up(
        copied(_CLUSTER_KEYED, "to-compact"),
        (_COMPACTED, _partitions_to_compact(_CLUSTER_KEYED, _CLUSTER_GIB["compact"])),
        *compaction(f"{_CLUSTER_KEYED}-to-compact"),
    ),
)
