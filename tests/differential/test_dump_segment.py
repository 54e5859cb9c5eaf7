"""``kdump dump-segment`` prints what ``kafka-dump-log`` prints, for valid and damaged files.

The files come from Kafka's own classes. :func:`builders.golden.differences` describes what kdump
must print if the official tool fails or reports damage.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from builders import damage
from builders.duel import Duel, Files, Verdict, files_of, generate, runs_over
from builders.samples import seeds

pytestmark = pytest.mark.differential

KINDS = (
    "plain",
    "transactions",
    "magic-0",
    "magic-1",
    "mixed-magics",
    "control",
    "compacted",
    "timestamps",
    "no-text",
    "far-offsets",
    "checkpoint",
    "sequences",
    "one-each",
    "padded",
    "large",
)
TOPICS = (
    "offsets",
    "transaction-log",
    "share-group-state",
    "cluster-metadata",
    "remote-log-metadata",
)
DECODERS = tuple(f"--{topic}-decoder" for topic in TOPICS)
CLASSES = ("StringDecoder", "IntegerDecoder", "LongDecoder")


def of_kind(partitions: Mapping[str, Files], kind: str) -> list[tuple[str, Files]]:
    return [(name, files) for name, files in partitions.items() if name.startswith(f"{kind}-")]


def logs_of(files: Files) -> list[str]:
    return [f"case/{name}" for name in files if name.endswith((".log", ".checkpoint"))]


def no_differences(found: Sequence[tuple[str, Verdict]]) -> None:
    """Fail with the first few of the differences, if there are any."""
    if found:
        shown = "\n".join(f"{label}: {verdict}" for label, verdict in found[:3])
        pytest.fail(f"{len(found)} runs differ, such as\n{shown}", pytrace=False)


@pytest.mark.parametrize("kind", KINDS)
def test_valid_files_are_printed_as_the_official_tool_prints_them(
    duel: Duel, segments: dict[str, Files], kind: str
) -> None:
    partitions = of_kind(segments, kind)
    assert partitions
    no_differences(
        [
            (name, verdict)
            for name, files in partitions
            for verdict in duel.compare(files, *runs_over(files))
        ]
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "large"])
def test_max_bytes_ends_the_dump_at_the_same_batch(
    duel: Duel, segments: dict[str, Files], kind: str
) -> None:
    def runs(files: Files) -> Iterator[tuple[str, ...]]:
        for log in logs_of(files):
            size = len(files[log.removeprefix("case/")])
            for limit in (
                0,
                1,
                17,
                61,
                100,
                size // 3,
                size // 2,
                size - 1,
                size,
                size + 1,
                2**31 - 1,
            ):
                yield ("--deep-iteration", "--max-bytes", str(limit), "--files", log)

    no_differences(
        [
            (name, verdict)
            for name, files in of_kind(segments, kind)
            for verdict in duel.compare(files, *runs(files))
        ]
    )


@pytest.mark.parametrize("size", ["0", "16", "17", "61", "200", "100000"])
def test_max_message_size_bounds_what_is_read_after_an_index_entry(
    duel: Duel, segments: dict[str, Files], size: str
) -> None:
    no_differences(
        [
            (name, verdict)
            for name, files in of_kind(segments, "plain") + of_kind(segments, "magic-1")
            for index in files
            if index.endswith(".index")
            for verdict in duel.compare(
                files, ("--max-message-size", size, "--files", f"case/{index}")
            )
        ]
    )


@pytest.mark.parametrize("kind", ["plain", "transactions", "magic-1", "compacted", "far-offsets"])
def test_several_files_are_printed_in_one_run(
    duel: Duel, segments: dict[str, Files], kind: str
) -> None:
    for name, files in of_kind(segments, kind):
        paths = [f"case/{file}" for file in files]
        both_ways = [",".join(paths), ",".join(reversed(paths)), ",".join(paths + paths)]
        runs = [
            (*options, "--files", joined)
            for joined in both_ways
            for options in ((), ("--print-data-log",), ("--verify-index-only",))
        ]
        no_differences([(name, verdict) for verdict in duel.compare(files, *runs)])


def test_mismatches_of_several_files_are_reported_in_the_order_of_the_official_tool(
    duel: Duel, segments: dict[str, Files]
) -> None:
    """The order depends on the names only: the tool keeps them in a hash map by path."""
    (_, files), *_ = of_kind(segments, "plain")
    (log,) = (name for name in files if name.endswith(".log"))
    copies = {}
    for base in (5, 7, 40, 41, 1000, 123_456, 99):
        for suffix in (".log", ".index", ".timeindex"):
            copies[f"{base:020d}{suffix}"] = files[log.replace(".log", suffix)]
    joined = ",".join(f"case/{name}" for name in copies)
    runs = [("--files", joined), ("--deep-iteration", "--files", joined)]
    no_differences([("copies", verdict) for verdict in duel.compare(copies, *runs)])


@pytest.mark.parametrize("topic", TOPICS)
def test_internal_topics_are_decoded_as_the_official_tool_decodes_them(
    duel: Duel, internal_topics: dict[str, Files], topic: str
) -> None:
    no_differences(
        [
            (name, verdict)
            for name, files in of_kind(internal_topics, topic)
            for log in logs_of(files)
            for verdict in duel.compare(
                files,
                (f"--{topic}-decoder", "--files", log),
                (f"--{topic}-decoder", "--skip-record-metadata", "--files", log),
            )
        ]
    )


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("kind", ["plain", "magic-1", "control", "checkpoint"])
def test_decoders_report_records_of_another_topic_as_the_official_tool_does(
    duel: Duel, segments: dict[str, Files], kind: str, decoder: str
) -> None:
    no_differences(
        [
            (name, verdict)
            for name, files in of_kind(segments, kind)
            for log in logs_of(files)
            for verdict in duel.compare(files, (decoder, "--files", log))
        ]
    )


@pytest.mark.parametrize("option", ["--key-decoder-class", "--value-decoder-class"])
@pytest.mark.parametrize("name", CLASSES)
def test_decoders_can_be_selected_by_kafkas_class_names(
    duel: Duel, segments: dict[str, Files], option: str, name: str
) -> None:
    java_name = f"org.apache.kafka.tools.api.{name}"
    no_differences(
        [
            (partition, verdict)
            for partition, files in of_kind(segments, "plain") + of_kind(segments, "no-text")
            for log in logs_of(files)
            for verdict in duel.compare(files, (option, java_name, "--files", log))
        ]
    )


@pytest.mark.parametrize("round_number", seeds(0, count=3, in_main=1))
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_printed_at_least_as_far_as_by_the_official_tool(
    duel: Duel, segments: dict[str, Files], kind: str, round_number: int
) -> None:
    no_differences(
        list(damaged_differences(duel, of_kind(segments, kind), range(round_number, 6, 3)))
    )


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2, 3])
def test_damaged_files_of_other_seeds(
    duel: Duel, java_classpath: str, tmp_path: Path, seed: int
) -> None:
    generate(java_classpath, "SegmentWriter", tmp_path, seed, len(KINDS))
    partitions = [(path.name, files_of(path)) for path in sorted(tmp_path.iterdir())]
    no_differences(list(damaged_differences(duel, partitions, range(12))))


def damaged_differences(
    duel: Duel, partitions: Sequence[tuple[str, Files]], numbers: range
) -> Iterator[tuple[str, Verdict]]:
    """Damage each partition in the ways with these numbers; return the differences."""
    for name, files in partitions:
        for number in numbers:
            label, after = damage.damaged(random.Random(f"{name} {number}"), files)
            for verdict in duel.compare(after, *runs_over(after)):
                yield f"{name}, {label} ({number})", verdict


@pytest.mark.parametrize("number", seeds(0, count=3, in_main=1))
@pytest.mark.parametrize("internal_topic", TOPICS)
def test_damaged_internal_topics_are_decoded_at_least_as_far_as_by_the_official_tool(
    duel: Duel, internal_topics: dict[str, Files], internal_topic: str, number: int
) -> None:
    found = []
    for name, files in of_kind(internal_topics, internal_topic):
        label, after = damage.damaged(random.Random(f"{name} {number}"), files)
        runs = [(f"--{internal_topic}-decoder", "--files", log) for log in logs_of(after)]
        found += [
            (f"{name}, {label} ({number})", verdict) for verdict in duel.compare(after, *runs)
        ]
    no_differences(found)


@pytest.mark.parametrize(
    "name",
    [
        "no-dot",
        "unknown.suffix",
        "00000000000000000000.log.swap",
        "00000000000000000000.log.deleted",
        "00000000000000000000.index.cleaned",
        "not-a-number.log",
        "not-a-number.index",
        "7.log",
        "-5.log",
        "00000000000000000012.txnindex",
        "00000000000000000012.snapshot",
        "00000000000000000012.timeindex",
        "00000000000000000012-0000000003.checkpoint",
        "bootstrap.checkpoint",
        "other.checkpoint",
    ],
)
def test_odd_names_and_empty_files_have_the_same_outcome(duel: Duel, name: str) -> None:
    files = {name: b""}
    runs = [("--files", f"case/{name}"), ("--print-data-log", "--files", f"case/{name}")]
    no_differences([(name, verdict) for verdict in duel.compare(files, *runs)])
