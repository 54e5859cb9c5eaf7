"""The disks of a real cluster with tiered storage (``fixtures/tiered.tar.xz``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdump.jobs.table_rows.table_reader import open_table
from kdump.tables.kafka_log.pushed_filters import PushedFilters

Record = tuple[int, int, str | None, str | None]
"""Offset, timestamp in milliseconds, key and value."""


@dataclass(frozen=True, slots=True)
class TieredFixture:
    """The disks, and what a consumer read.

    Attributes:
        folder: has ``b1`` and ``b2``, the disks of the brokers, and ``remote``. Broker 2 led all
            partitions at the end; broker 1 has less: it was behind, and truncated its logs.
    """

    folder: Path

    @property
    def leader(self) -> Path:
        return self.folder / "b2"

    @property
    def follower(self) -> Path:
        return self.folder / "b1"

    @property
    def remote(self) -> Path:
        return self.folder / "remote"

    @property
    def offsets(self) -> Mapping[str, Mapping[str, int]]:
        """The answers to ListOffsets, by partition and word."""
        found: Mapping[str, Mapping[str, int]] = self._said()["offsets"]
        return found

    def consumed(self, level: str) -> dict[str, list[Record]]:
        """What the consumer read at an isolation level, by partition."""
        rows: dict[str, list[list[Any]]] = self._said()[level]
        return {name: [(r[0], r[1], r[2], r[3]) for r in each] for name, each in rows.items()}

    def _said(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads((self.folder / "consumed.json").read_text())
        return said


def records_by_partition(
    topics: Iterable[str], path: Path, **options: str
) -> dict[str, list[Record]]:
    """Read topics with the data source's reader; records are in the order of their splits."""
    given = {"path": str(path), "subscribe": ",".join(topics), **options}
    reader = open_table(given)
    found: dict[str, list[Record]] = {}
    for split in reader.splits(PushedFilters()):
        for batch in reader.read(split, PushedFilters()):
            for row in batch.to_pylist():
                time_ms = round(row["timestamp"].timestamp() * 1000)
                record = (row["offset"], time_ms, row["key"].decode(), row["value"].decode())
                found.setdefault(f"{row['topic']}-{row['partition']}", []).append(record)
    return found
