"""The numbers behind the pictures of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kdump.check.log_map import ByteRun, RunKind
from kdump.check.partition_statistics import SegmentMap
from kdump.cli.output.report.island import Strings, exact
from kdump.cli.output.report.redaction import Redaction
from kdump.formats.compression import Codec
from kdump.formats.names import quarantined_range
from kdump.jobs.report.collected import CollectedResults, statistics_of
from kdump.jobs.report.consumer_lag import GroupLag
from kdump.jobs.report.freeable_space import FreeableSpace
from kdump.jobs.report.open_transactions_found import UnstablePartition
from kdump.jobs.verify.verify_partition import PartitionReport
from kdump.scan.batch_statistics import CELL_WIDTHS_MS, BatchStatistics, TimeHistogram, Volume

MOST_MAPS: Final = 40
"""The damaged partitions with a map; the others are in the table."""
MOST_SEGMENTS: Final = 25
"""The segments in a map."""
MOST_TOPICS: Final = 250
"""The topics in the picture of sizes; the others are one."""
MOST_SERIES: Final = 6
"""The topics with a color of their own over time."""
MOST_BARS: Final = 160
"""The times on the axis."""
MOST_GROUPS: Final = 20
"""The bars of groups, and of topics with something to free."""
MOST_UNSTABLE: Final = 12
"""The partitions with a picture of their transactions."""
_EARLIEST_MS: Final = 1_293_840_000_000
"""2011, when Kafka was published: an earlier timestamp is no time."""
_SKEW_MS: Final = 86_400_000


def partition_name(report: PartitionReport) -> str:
    """The name of a partition's directory."""
    return report.partition.path.name


def map_picture(
    reports: Iterable[PartitionReport], strings: Strings, redaction: Redaction
) -> dict[str, Any]:
    """The maps of damaged partitions, those with the most damaged bytes first."""
    found = [
        (damaged, bool(quarantined), report, quarantined)
        for report in reports
        for quarantined in [_quarantined(report)]
        for damaged in [_damaged_bytes(statistics_of(report).maps)]
        if damaged or quarantined
    ]
    found.sort(key=lambda each: each[:2], reverse=True)
    maps = [
        {
            "name": strings.number(redaction.text(partition_name(report))),
            "dir": strings.number(redaction.path(report.log_dir)),
            "verdict": strings.number(redaction.text(report.verdict)),
            "damaged": damaged,
            **_segments(statistics_of(report).maps, quarantined, strings),
        }
        for damaged, _, report, quarantined in found[:MOST_MAPS]
    ]
    return {"maps": maps, "left_out": len(found) - len(maps)}


def _damaged_bytes(maps: Iterable[SegmentMap]) -> int:
    kinds = (RunKind.DAMAGED, RunKind.MIXED)
    return sum(run.end - run.start for each in maps for run in each.runs if run.kind in kinds)


Quarantined = Mapping[str, list[tuple[int, int]]]


def _quarantined(report: PartitionReport) -> Quarantined:
    """Which bytes salvage has quarantined, by the name of the log that they are from."""
    found: dict[str, list[tuple[int, int]]] = {}
    for name in report.partition.foreign:
        parsed = quarantined_range(name)
        if parsed is not None:
            found.setdefault(parsed[0], []).append(parsed[1:])
    return found


def _segments(
    maps: Sequence[SegmentMap], quarantined: Quarantined, strings: Strings
) -> dict[str, Any]:
    kinds = list(RunKind)
    by_log = {each.log_name: each.runs for each in maps if _is_worth_a_line(each, quarantined)}
    logs = list(dict.fromkeys([*by_log, *quarantined]))
    segments = [
        {
            "log": strings.number(log),
            "runs": [_run(run, kinds) for run in by_log.get(log, ())],
            "quarantined": [[exact(start), exact(end)] for start, end in quarantined.get(log, ())],
        }
        for log in logs[:MOST_SEGMENTS]
    ]
    return {"segments": segments, "more": len(logs) - len(segments)}


def _is_worth_a_line(segment: SegmentMap, quarantined: Quarantined) -> bool:
    kinds = {run.kind for run in segment.runs}
    return bool(kinds & {RunKind.DAMAGED, RunKind.MIXED}) or segment.log_name in quarantined


def _run(run: ByteRun, kinds: Sequence[RunKind]) -> list[Any]:
    offsets = (run.first_offset, run.last_offset)
    return [
        kinds.index(run.kind),
        run.start,
        run.end,
        *(None if each is None else exact(each) for each in offsets),
    ]


def size_picture(
    reports: Iterable[PartitionReport], strings: Strings, redaction: Redaction
) -> list[dict[str, Any]]:
    """The size on disk of each topic, the largest first."""
    topics: dict[str, list[int]] = {}
    for report in reports:
        key = report.partition.topic_partition
        counts = topics.setdefault(partition_name(report) if key is None else key.topic, [0, 0, 0])
        counts[0] += report.partition.total_bytes
        counts[1] += 1
        counts[2] += report.worst is not None and report.worst.is_damage
    largest = sorted(topics.items(), key=lambda each: (-each[1][0], each[0]))
    shown = [
        {"name": strings.number(redaction.text(name)), **_size(counts)}
        for name, counts in largest[:MOST_TOPICS]
    ]
    rest = [counts for _, counts in largest[MOST_TOPICS:]]
    if rest:
        name = strings.number(f"{len(rest)} other topics")
        shown.append({"name": name, **_size([sum(each) for each in zip(*rest, strict=True)])})
    return shown


def _size(counts: Sequence[int]) -> dict[str, int]:
    return dict(zip(("bytes", "partitions", "damaged"), counts, strict=True))


def time_picture(
    results: CollectedResults, now_ms: int, strings: Strings, redaction: Redaction
) -> dict[str, Any] | None:
    """Bytes and records over time, by topic; None if no batch has a time."""
    total = results.statistics
    cells = {
        number: volume
        for number, volume in total.times.cells.items()
        if _EARLIEST_MS <= number * total.times.width_ms <= now_ms + _SKEW_MS
    }
    outside = sum(
        volume.size_bytes for number, volume in total.times.cells.items() if number not in cells
    )
    if not cells:
        return None
    start, end = min(cells), max(cells)
    width = _width(total.times.width_ms, start, end)
    first = start * total.times.width_ms // width
    count = end * total.times.width_ms // width - first + 1
    largest = sorted(
        results.topics, key=lambda each: results.topics[each].total.size_bytes, reverse=True
    )
    series = [
        (redaction.text(topic), results.topics[topic].times) for topic in largest[:MOST_SERIES]
    ]
    others = sum((results.topics[each].times for each in largest[MOST_SERIES:]), TimeHistogram())
    if others.cells:
        series.append((f"{len(largest) - MOST_SERIES} other topics", others))
    return {
        "start": first * width,
        "width": width,
        "count": count,
        "outside": outside,
        "untimed": total.untimed.size_bytes,
        "series": [
            {"name": strings.number(name), **_columns(times, width, first, count)}
            for name, times in series
        ],
    }


def _width(width_ms: int, start: int, end: int) -> int:
    """The width of bars, so that there are not too many."""
    for width in CELL_WIDTHS_MS:
        if width >= width_ms and (end - start) * width_ms // width < MOST_BARS:
            return width
    return CELL_WIDTHS_MS[-1]


def _columns(
    times: TimeHistogram, width_ms: int, first: int, count: int
) -> dict[str, list[tuple[int, int]]]:
    """Bytes and records of each bar that has some, as pairs of its number and the amount."""
    if times.width_ms > width_ms:
        return {"bytes": [], "records": []}
    bars = [
        (number - first, volume)
        for number, volume in sorted(times.widened(width_ms).cells.items())
        if 0 <= number - first < count
    ]
    return {
        "bytes": [(number, volume.size_bytes) for number, volume in bars],
        "records": [(number, volume.records) for number, volume in bars],
    }


def batch_picture(statistics: BatchStatistics) -> dict[str, Any]:
    """Batches by size, and bytes by codec."""
    return {
        "sizes": [[number, *volume] for number, volume in sorted(statistics.sizes.items())],
        "codecs": [
            [_codec(number), *volume] for number, volume in _largest_first(statistics.codecs)
        ],
    }


def _largest_first(volumes: Mapping[int, Volume]) -> list[tuple[int, Volume]]:
    return sorted(volumes.items(), key=lambda each: -each[1].size_bytes)


def _codec(number: int) -> str:
    known = {each.value: each.label for each in Codec}
    return known.get(number, f"unknown ({number})")


def lag_picture(lags: Iterable[GroupLag], strings: Strings, redaction: Redaction) -> dict[str, Any]:
    """The lag of each group, the largest first."""
    groups: dict[str, list[int]] = {}
    for each in lags:
        counts = groups.setdefault(each.group, [0, 0, 0])
        counts[0] += each.lag or 0
        counts[1] += 1
        counts[2] += each.lag is None
    largest = sorted(groups.items(), key=lambda each: (-each[1][0], each[0]))
    return {
        "groups": [
            {
                "name": strings.number(redaction.text(name)),
                "lag": exact(lag),
                "partitions": count,
                "unknown": unknown,
            }
            for name, (lag, count, unknown) in largest[:MOST_GROUPS]
        ],
        "left_out": max(0, len(largest) - MOST_GROUPS),
    }


def transaction_picture(
    partitions: Sequence[UnstablePartition], strings: Strings, redaction: Redaction
) -> dict[str, Any]:
    """Where open transactions begin, between the start and the end of the log."""

    def held(each: UnstablePartition) -> int:
        stable = each.stability.last_stable_offset
        return each.log_end_offset - (each.log_start_offset if stable is None else stable)

    most_held = sorted(partitions, key=held, reverse=True)
    return {
        "partitions": [
            {
                "name": strings.number(redaction.text(str(each.key))),
                "start": exact(each.log_start_offset),
                "end": exact(each.log_end_offset),
                "stable": _known(each.stability.last_stable_offset),
                "mark": _known(each.high_watermark),
                "open": [exact(txn.txn.first_offset) for txn in each.transactions[:200]],
            }
            for each in most_held[:MOST_UNSTABLE]
        ],
        "left_out": max(0, len(most_held) - MOST_UNSTABLE),
    }


def space_picture(
    space: FreeableSpace | None, strings: Strings, redaction: Redaction
) -> dict[str, Any]:
    """What retention and compaction would free of each topic, the most first."""
    topics: dict[str, list[int]] = {}
    for each in () if space is None else space.partitions:
        counts = topics.setdefault(each.topic, [0, 0])
        counts[0] += each.retention_bytes
        counts[1] += each.cleanable_bytes
    most_first = sorted(topics.items(), key=lambda each: (-sum(each[1]), each[0]))
    return {
        "topics": [
            {
                "name": strings.number(redaction.text(name)),
                "retention": retention,
                "cleanable": cleanable,
            }
            for name, (retention, cleanable) in most_first[:MOST_GROUPS]
        ],
        "left_out": max(0, len(most_first) - MOST_GROUPS),
        "retention": sum(each[0] for each in topics.values()),
        "cleanable": sum(each[1] for each in topics.values()),
    }


def _known(offset: int | None) -> int | str | None:
    return None if offset is None else exact(offset)
