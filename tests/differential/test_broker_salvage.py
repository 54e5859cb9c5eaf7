"""After salvage a real broker serves the records that kdump predicted.

A broker writes topics and stops. One topic gets an empty ``.swap`` beside a log, one gets a segment
of another partition, one loses a segment, and one gets a flipped bit in flushed data. A broker on a
copy shows the losses without salvage, another broker the records served after salvage.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from builders.broker import BrokerHost, Consumed
from builders.freeing import of_type, rows_of, run
from kdump.formats import names

pytestmark = [pytest.mark.differential, pytest.mark.slow]

SWAPPED: Final = "empty-swap"
INVADED: Final = "foreign-segment"
HOLED: Final = "hole"
FLIPPED: Final = "flushed-bit-flip"
SOURCE: Final = "source"
READ: Final = (SWAPPED, INVADED, HOLED, FLIPPED)
DAMAGE: Final = ("error", "severe")


@dataclass(frozen=True, slots=True)
class Story:
    """Observations, in the order in which they were made; findings and partitions by topic.

    ``advice`` is the last line of verify's output, ``predicted`` are the verdicts of the preview.
    """

    before: dict[str, Consumed]
    found: dict[str, list[dict[str, Any]]]
    advice: str
    predicted: dict[str, str]
    unsalvaged: Consumed
    salvaged: dict[str, dict[str, Any]]
    left: dict[str, list[dict[str, Any]]]
    after: dict[str, Consumed]


@pytest.fixture(scope="module")
def story(broker_host: BrokerHost, broker_log_dirs: list[Path]) -> Story:
    """Run the scenario."""
    host, log_dirs = broker_host, broker_log_dirs
    with host.broker(log_dirs, "log.cleaner.enable=false"):
        write(host)
        before = {topic: host.read(topic) for topic in READ}
    damage(log_dirs)
    found = findings(log_dirs)
    advice = run("verify", *log_dirs).stdout.decode().splitlines()[-1]
    preview = of_type(rows_of("recover", "--dry-run", *log_dirs), "partition")
    copy = log_dirs[0].parents[1] / "copy"
    shutil.copytree(log_dirs[0].parent, copy)
    with host.broker([copy / path.name for path in log_dirs]):
        unsalvaged = host.read(SWAPPED)
    said = of_type(rows_of("recover", *log_dirs, "--policy=salvage", "--no-undo"), "partition")
    left = findings(log_dirs)
    with host.broker(log_dirs):
        after = {topic: host.read(topic) for topic in READ}
    salvaged = {row["topic"]: row for row in said}
    predicted = {row["topic"]: row["verdict_kind"] for row in preview}
    return Story(before, found, advice, predicted, unsalvaged, salvaged, left, after)


def write(host: BrokerHost) -> None:
    now_ms = time.time_ns() // 1_000_000
    small = {"internal_segment_bytes": "8192", "index_interval_bytes": "400"}
    for number, topic in enumerate((*READ, SOURCE)):
        host.create_topic(topic, cleanup_policy="delete", retention_ms="-1", **small)
        host.open_producer(topic)
        for turn in range(40):
            # The size of batches depends on the topic, so that segments begin at different offsets.
            pairs: list[tuple[bytes | None, bytes | None]] = [
                (b"%d" % each, b"%s %d %d " % (topic.encode(), turn, each) * 3)
                for each in range(20 + 3 * number)
            ]
            host.send(topic, topic, now_ms, pairs)


def damage(log_dirs: list[Path]) -> None:
    for path in log_dirs:
        (path / names.CLEAN_SHUTDOWN_MARKER).unlink()
    log = logs(log_dirs, SWAPPED)[1]
    log.with_name(f"{log.name}.swap").write_bytes(b"")
    foreign = logs(log_dirs, SOURCE)[2]
    invaded = logs(log_dirs, INVADED)[0].parent
    assert not (invaded / foreign.name).exists()
    shutil.copy(foreign, invaded)
    flip(logs(log_dirs, FLIPPED)[1])
    gone = logs(log_dirs, HOLED)[2]
    for file in gone.parent.glob(f"{gone.stem}.*"):
        file.unlink()


def flip(log: Path) -> None:
    """Flip a bit in the middle of a log."""
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)


def logs(log_dirs: list[Path], topic: str) -> list[Path]:
    return sorted(log for log_dir in log_dirs for log in log_dir.glob(f"{topic}-0/*.log"))


def findings(log_dirs: list[Path]) -> dict[str, list[dict[str, Any]]]:
    """Return verify's findings of damage in each topic."""
    found = of_type(rows_of("verify", *log_dirs), "finding")
    return {
        topic: [
            row
            for row in found
            if f"{topic}-0" in row["path"]
            and row["severity"] in DAMAGE
            and row["code"] != "file-permissions"
        ]
        for topic in READ
    }


def missing(before: Consumed, after: Consumed) -> list[int]:
    """Return the offsets that are no longer served; check that all others have the same records."""
    assert all(before.records[offset] == record for offset, record in after.records.items())
    return sorted(before.records.keys() - after.records.keys())


def test_a_broker_loses_the_records_that_verify_reports_for_an_incomplete_swap(
    story: Story,
) -> None:
    (finding,) = [row for row in story.found[SWAPPED] if row["code"] == "swap-incomplete"]
    lost = missing(story.before[SWAPPED], story.unsalvaged)

    assert lost == list(range(finding["offset"], finding["offset"] + len(lost)))
    assert f"{len(lost)} records" in finding["loss"]
    assert f"(offsets {lost[0]}–{lost[-1]})" in finding["loss"]  # noqa: RUF001 - a range


def test_nothing_is_lost_if_the_swap_was_salvaged(story: Story) -> None:
    assert story.after[SWAPPED] == story.before[SWAPPED]
    assert story.left[SWAPPED] == []


def test_only_the_segment_of_another_partition_is_removed(story: Story) -> None:
    (aside,) = story.salvaged[INVADED]["quarantined"]

    assert aside["kind"] == "foreign"
    assert story.after[INVADED] == story.before[INVADED]
    assert story.left[INVADED] == []


def test_a_missing_segment_is_reported_with_its_offsets(story: Story) -> None:
    (gap,) = [row for row in story.found[HOLED] if row["code"] == "segment-gap"]
    (noted,) = story.salvaged[HOLED]["quarantined"]
    lost = missing(story.before[HOLED], story.after[HOLED])

    assert gap["severity"] == "error"
    assert f"offsets {lost[0]} to {lost[-1]} are missing" in gap["what"]
    assert lost == list(range(lost[0], lost[-1] + 1))
    assert (noted["kind"], noted["first_offset"], noted["last_offset"]) == (
        "missing",
        lost[0],
        lost[-1],
    )
    assert story.left[HOLED] == []


def test_a_flushed_damaged_batch_is_found_only_by_verify(story: Story) -> None:
    assert [row["code"] for row in story.found[FLIPPED]] == ["batch-checksum"]
    assert story.predicted[FLIPPED] in ("valid", "unclean")
    assert "kdump recover --policy salvage" in story.advice
    assert f"--partition {FLIPPED}-0 " in story.advice


def test_after_salvage_only_the_flushed_damaged_batch_is_missing(story: Story) -> None:
    (aside,) = story.salvaged[FLIPPED]["quarantined"]
    lost = missing(story.before[FLIPPED], story.after[FLIPPED])

    assert lost == list(range(aside["first_offset"], aside["last_offset"] + 1)) != []
    assert len(lost) == aside["records"]
    assert story.after[FLIPPED].end_offset == story.before[FLIPPED].end_offset
    assert story.left[FLIPPED] == []


def test_salvage_of_one_partition_leaves_a_clean_directory_clean(
    story: Story, broker_host: BrokerHost, broker_log_dirs: list[Path]
) -> None:
    markers = [path / names.CLEAN_SHUTDOWN_MARKER for path in broker_log_dirs]
    assert all(each.exists() for each in markers)
    flip(logs(broker_log_dirs, SOURCE)[1])
    options = ("--policy=salvage", "--no-undo", f"--partition={SOURCE}-0")
    (row,) = of_type(rows_of("recover", *broker_log_dirs, *options), "partition")
    (aside,) = row["quarantined"]
    assert all(each.exists() for each in markers)

    with broker_host.broker(broker_log_dirs):
        source = broker_host.read(SOURCE)
        others = {topic: broker_host.read(topic) for topic in READ}

    lost = range(aside["first_offset"], aside["last_offset"] + 1)
    assert set(range(source.end_offset)) - source.records.keys() == set(lost) != set()
    assert others == story.after
