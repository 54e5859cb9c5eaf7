"""The parts of the suite: lint, fast, slow, differential and soak. Each test is in exactly one.

``./dev test --soak`` runs the property tests of all parts again, with more examples.

``lint``, ``slow``, ``differential`` and ``soak`` are markers. A test that asks for Kafka's classes
is differential, and one that asks for Spark is slow, whether or not it is marked; a soak test may
ask for either.
"""

from __future__ import annotations

import enum
import functools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]


class Part(enum.Enum):
    """A part; the value is its option of ``./dev test``."""

    LINT = "lint"
    FAST = "fast"
    SLOW = "slow"
    DIFFERENTIAL = "differential"
    SOAK = "soak"


NEEDS_KAFKA: Final = frozenset(
    {
        "kafka_classpath",
        "java_classpath",
        "loader_server",
        "newest_kafka_jars",
        "newest_loader_server",
    }
)
NEEDS_SPARK: Final = frozenset({"running_spark", "spark"})

SHARED: Final = ("broker_host", "cluster_disks", "loader_server", "machine_release", "spark")
"""Session fixtures that take seconds to set up, and that tests of several files use."""

LONGEST: Final = (
    "tests/cli/test_object_failures.py",
    "tests/cluster/test_streamed_log.py",
    "tests/cluster/test_readers_beside_broker.py",
    "cluster_disks",
    "tests/pipeline/test_places_in_spark.py",
    "machine_release",
    "tests/engine/test_spark_standalone.py",
    "spark",
    "tests/cli/test_restored_moments.py",
    "tests/cli/test_hdfs.py",
    "tests/engine/test_spark_cluster.py",
    "loader_server",
    "broker_host",
    "tests/cluster/test_erased_cluster.py",
    "tests/serve/test_spark_kafka_source.py",
    "tests/cli/test_backup_to_store.py",
    "tests/cli/test_wrecked_disks.py",
    "tests/cli/test_memory_of_partitions.py",
    "tests/cluster/test_backup_beside_broker.py",
)
"""Groups of tests that take minutes in a part of the suite, the longest first."""

MOST_CPU_SECONDS: Final = 10.0
"""CPU time that a fast test and its processes may use. Other load hardly changes it."""


def implied_markers(fixture_names: Collection[str]) -> Iterator[str]:
    """Return the markers of a test that asks for these fixtures."""
    if not NEEDS_KAFKA.isdisjoint(fixture_names):
        yield Part.DIFFERENTIAL.value
    if not NEEDS_SPARK.isdisjoint(fixture_names):
        yield Part.SLOW.value


def part_of(markers: Collection[str]) -> Part:
    """Return the part of a test with these markers."""
    for part in (Part.LINT, Part.SOAK, Part.DIFFERENTIAL, Part.SLOW):
        if part.value in markers:
            return part
    return Part.FAST


@functools.cache
def group_of(name: str) -> str:
    """Return the shared fixture that the tests of a file use, or the file.

    One process runs all tests of a group.

    Args:
        name: the path from the root of the repository.
    """
    text = (_ROOT / name).read_text()
    return next((fixture for fixture in SHARED if f"{fixture}: " in text), name)


def rank(group: str, *, is_slow: bool) -> int:
    """Return the place of a group in the order in which groups start."""
    if group in LONGEST:
        return LONGEST.index(group)
    return len(LONGEST) + (not is_slow)


def summary_lines(
    results: Iterable[tuple[Collection[str], str | None]],
) -> Iterator[str]:
    """Summarize how many tests of each part ran, which were skipped, and why.

    Args:
        results: for each test its markers, and the reason why it was skipped, or None.
    """
    ran: Counter[Part] = Counter()
    skipped: dict[Part, Counter[str]] = {part: Counter() for part in Part}
    for markers, reason in results:
        part = part_of(markers)
        if reason is None:
            ran[part] += 1
        else:
            skipped[part][reason] += 1
    for part in Part:
        if ran[part] or skipped[part]:
            line = f"{part.value}: {ran[part]} run"
            for reason, count in skipped[part].most_common():
                line += f"; {count} skipped: {reason}"
            yield line
        else:
            yield f"{part.value}: not selected"


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it has waited for."""
    return sum(os.times()[:4])
