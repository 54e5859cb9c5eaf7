"""Logs of transactions, and what is open at their end by the simplest reading."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from builders.log_directories import write_log_directory, write_partition
from builders.recovery import marker, of_producer
from kdump.formats import producer_snapshot
from kdump.formats.names import FileKind, OffsetFileName
from kdump.scan.batches import read_windows
from kdump.state.transactions.producers import Producers, append_batches
from kdump.target.virtual_directory import BytesSource


@dataclass(frozen=True, slots=True)
class Step:
    """A batch of a producer: data in a transaction, or the marker that ends it."""

    offset: int
    producer_id: int
    is_marker: bool
    data: bytes


def random_steps(seed: int, count: int) -> list[Step]:
    """Batches of four producers, whose transactions begin and end at random."""
    drawn = random.Random(seed)
    steps = []
    for offset in range(count):
        producer_id = drawn.randint(7, 10)
        is_marker = drawn.random() < 0.3
        data = (
            marker(offset, producer_id, commit=drawn.random() < 0.5)
            if is_marker
            else of_producer(offset, producer_id, transactional=True)
        )
        steps.append(Step(offset, producer_id, is_marker, data))
    return steps


def open_after(steps: Sequence[Step]) -> dict[int, int]:
    """First offsets of the transactions that are open after some batches, by producer."""
    found: dict[int, int] = {}
    for step in steps:
        if step.is_marker:
            found.pop(step.producer_id, None)
        else:
            found.setdefault(step.producer_id, step.offset)
    return found


def snapshot_after(steps: Sequence[Step]) -> bytes:
    """The producer snapshot that a broker writes after some batches."""
    producers = Producers()
    for window in read_windows(BytesSource(b"".join(step.data for step in steps))):
        for txn in append_batches(window, window.batches.count, producers, "log"):
            producers.complete(txn)
    return producer_snapshot.encode(each.entry() for each in producers.by_id.values())


def write_transactional_log(
    root: Path, steps: Sequence[Step], *, bases: Sequence[int], clean: bool
) -> Path:
    """Write a log directory with ``orders-0``, whose segments begin at ``bases``.

    Each segment but the first begins with a snapshot; after a clean stop there is one at the end.
    """
    ends = [*bases[1:], len(steps)]
    others = {
        str(OffsetFileName(offset, FileKind.PRODUCER_SNAPSHOT)): snapshot_after(steps[:offset])
        for offset in (*bases[1:], *([len(steps)] if clean else []))
    }
    logs = {
        base: b"".join(step.data for step in steps[base:end])
        for base, end in zip(bases, ends, strict=True)
    }
    write_log_directory(
        root,
        clean=clean,
        recovery_points={("orders", 0): len(steps)},
        high_watermarks={("orders", 0): len(steps)},
    )
    return write_partition(root / "orders-0", logs, others=others)
