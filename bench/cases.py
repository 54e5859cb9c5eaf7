"""The cases of the bench: measured commands, their comparisons and limits."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30


class Program(enum.Enum):
    """A program that kdump is compared with; the value is its name in the table."""

    DUMP_TOOL = "kafka-dump-log"
    DUMP_AND_GREP = "kafka-dump-log | grep"
    """``--print-data-log`` of a segment, into ``grep``; takes the segment and the pattern."""
    LOADER = "Kafka's loading"
    """``LogManager``, which loads and recovers a log directory, and shuts down."""
    CLEANER = "Kafka's cleaner"
    """``Cleaner``, which loads and compacts one partition after the other."""
    CHECKSUMS = "crc32c alone"
    KDUMP = "kdump in process"
    KDUMP_ON_A_QUARTER = "kdump on a quarter"
    """The same command over a quarter of the input, to check that time grows linearly."""


@dataclass(frozen=True, slots=True)
class Other:
    """A command that kdump is compared with.

    Attributes:
        program: the program.
        arguments: its arguments; ``{data}`` stands for the folder with the data.
        stdin: its standard input; ``{data}`` likewise.
        before: call in :mod:`data` that runs before each run, and is not measured.
    """

    program: Program
    arguments: tuple[str, ...]
    stdin: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """A case: a command and its limits.

    Attributes:
        name: name of the line in the table.
        kdump: arguments of kdump; ``{data}`` stands for the folder with the data.
        other: command to compare with.
        data: call in :mod:`data` that makes the data.
        before: call in :mod:`data` that runs before each run of kdump, and is not measured.
        ratio: limit of kdump's time, as a multiple of the other command's.
        more_seconds: added to that limit.
        seconds: limit of kdump's time.
        peak_mib: limit of kdump's resident memory.
        worker_peak_mib: limit for any Python process that works for kdump; takes one more run.
    """

    name: str
    kdump: tuple[str, ...]
    other: Other | None = None
    data: str = ""
    before: str = ""
    ratio: float | None = None
    more_seconds: float = 0
    seconds: float | None = None
    peak_mib: float | None = 150.0
    worker_peak_mib: float | None = None


def _dump(name: str, shape: str, ratio: float, *options: str) -> Case:
    """Make a case that both tools run with the same arguments over one segment."""
    (folder,) = shape.split(",", 1)[:1]
    arguments = (*options, "--files", _log(folder))
    other = Other(Program.DUMP_TOOL, arguments)
    return Case(name, ("dump-segment", *arguments), other, _segment(shape), ratio=ratio)


def _log(folder: str) -> str:
    return f"{{data}}/{folder}/{0:020d}.log"


def _shape(shape: str) -> str:
    """Convert ``name, MiB, records per batch, values, codec`` to a call that makes the shape."""
    name, mib, records, values, codec = shape.split(",")
    return f"SegmentShape({name!r}, {int(mib) * MIB}, {records}, {values!r}, {codec!r})"


def _segment(shape: str) -> str:
    return f"make_segment({_shape(shape)}, folder)"


def _partitions(name: str, shape: str, count: int, *, is_clean: bool) -> str:
    return f"make_partitions({name!r}, {_shape(shape)}, {count}, folder, is_clean={is_clean})"


_11_KB: Final = "11-kb-batches,80,97,text,none"
_11_KB_RANDOM: Final = "11-kb-batches-random,80,97,random,none"
_1_KB: Final = "1-kb-batches,27,9,text,none"
_ZSTD: Final = "zstd,27,97,text,zstd"
_LZ4: Final = "lz4,27,97,text,lz4"
_LARGE: Final = "one-gib,1024,97,text,none"
_EIGHT_HUNDRED: Final = "eight-hundred-mb,800,97,text,none"
_LARGE_1_KB: Final = "one-gib-1-kb,1024,9,text,none"
_UNFLUSHED: Final = "unflushed-11-kb,394,97,text,none"
_UNFLUSHED_1_KB: Final = "unflushed-1-kb,209,9,text,none"
_UNFLUSHED_QUARTER: Final = "unflushed-quarter-11-kb,191,97,text,none"

_NOW_MS: Final = "1800000000000"
_MILLION_BYTES: Final = {"none": 102_310_000, "zstd": 28_960_000, "lz4": 49_690_000}
"""Size of a million records in such a shape, by codec."""

_DUMPS: Final = (
    Case("kdump --version", ("--version",), seconds=0.15),
    _dump("80 MB of 11 KB batches", _11_KB, 0.8),
    _dump("80 MB of 11 KB batches, --print-data-log", _11_KB, 0.35, "--print-data-log"),
    _dump("80 MB of random values, --print-data-log", _11_KB_RANDOM, 0.35, "--print-data-log"),
    _dump("27 MB of 1 KB batches", _1_KB, 0.8),
    _dump("27 MB of 1 KB batches, --print-data-log", _1_KB, 0.5, "--print-data-log"),
    _dump("27 MB of zstd, --print-data-log", _ZSTD, 0.5, "--print-data-log"),
    _dump("27 MB of lz4, --print-data-log", _LZ4, 0.5, "--print-data-log"),
    Case("1 GiB", ("dump-segment", _log("one-gib")), data=_segment(_LARGE)),
    Case(
        "1 GiB, --print-data-log",
        ("dump-segment", "--print-data-log", _log("one-gib")),
        data=_segment(_LARGE),
    ),
)


def _searched(name: str, *pattern: str, is_compared: bool = True) -> Case:
    """Search a segment of 800 MB, compared with grep over its dump."""
    log = _log("eight-hundred-mb")
    return Case(
        f"kdump grep, 800 MB, {name}",
        ("grep", "--engine", "local", *pattern, log),
        Other(Program.DUMP_AND_GREP, (log, *pattern)) if is_compared else None,
        _segment(_EIGHT_HUNDRED),
        ratio=0.2 if is_compared else None,
        worker_peak_mib=150,
    )


_SEARCHES: Final = (
    _searched("a string in no record", "-F", "order-4711"),
    _searched("a regular expression", "-e", "key-00001[0-9]*7"),
    _searched("all records match", "", is_compared=False),
)

_MANY_PARTITIONS: Final = "{data}/directory-10000"

_LISTINGS: Final = tuple(
    Case(
        f"kdump {command}, 10 000 partitions, 60 000 files",
        (command, _MANY_PARTITIONS),
        data="make_log_directory(folder, 10_000)",
        seconds=1.0,
    )
    for command in ("ls", "info")
)

_COLLECTED: Final = (
    Case(
        "kdump metadata collect, 10 000 partitions, 60 000 files",
        ("metadata", "collect", "--force", "--out", "{data}/collection.json", _MANY_PARTITIONS),
        data="make_log_directory(folder, 10_000)",
        seconds=3.0,
    ),
)


_LOOKUPS: Final = tuple(
    Case(
        f"kdump lookup {' '.join(asked)}, 1 GiB segment",
        ("lookup", "--partition", "topic-0", *asked, "{data}/clean-11-kb"),
        data=_partitions("clean-11-kb", _LARGE, 8, is_clean=True),
        seconds=0.3,
    )
    for asked in (("--offset", "5000000"), ("--timestamp", "max"))
)


def _checked(name: str, folder: str, shape: str, ratio: float) -> Case:
    """Verify eight partitions of a segment each, compared with their checksums alone."""
    log = f"{{data}}/{folder}/topic-%d/{0:020d}.log"
    return Case(
        name,
        ("verify", "--engine", "local", f"{{data}}/{folder}"),
        Other(Program.CHECKSUMS, tuple(log % number for number in range(8))),
        _partitions(folder, shape, 8, is_clean=True),
        ratio=ratio,
    )


def _loading(folder: str) -> Other:
    """Make the comparison with a broker that loads a copy of a log directory."""
    request = ("whole", f"{{data}}/{folder}-to-load", _NOW_MS, "86400000")
    return Other(
        Program.LOADER,
        (),
        "\t".join((*request, "index.interval.bytes=4096")) + "\n",
        _copied(folder, "to-load"),
    )


def _copied(folder: str, suffix: str) -> str:
    return f"copy_partitions({folder!r}, '{folder}-{suffix}', folder)"


def _predicted(name: str, folder: str, shape: str) -> Case:
    """Verify two partitions after a crash, compared with a broker that loads them."""
    return Case(
        name,
        ("verify", "--engine", "local", f"{{data}}/{folder}"),
        _loading(folder),
        _partitions(folder, shape, 2, is_clean=False),
        ratio=0.5,
    )


def _recovered(name: str, folder: str, shape: str, partitions: int, ratio: float) -> Case:
    """Recover partitions after a crash, compared with a broker that loads them."""
    return Case(
        name,
        ("recover", "--engine", "local", f"{{data}}/{folder}-to-recover"),
        _loading(folder),
        _partitions(folder, shape, partitions, is_clean=False),
        _copied(folder, "to-recover"),
        ratio=ratio,
        peak_mib=300,
        worker_peak_mib=300,
    )


_VERIFICATIONS: Final = (
    _checked("kdump verify, 8 GiB of 11 KB batches", "clean-11-kb", _LARGE, 1 / 0.6),
    _checked("kdump verify, 8 GiB of 1 KB batches", "clean-1-kb", _LARGE_1_KB, 1 / 0.25),
    _predicted("kdump verify, 826 MB of 11 KB batches, unclean", "unclean-11-kb", _UNFLUSHED),
    _predicted("kdump verify, 438 MB of 1 KB batches, unclean", "unclean-1-kb", _UNFLUSHED_1_KB),
    Case(
        "kdump verify on Spark, 8 GiB of 11 KB batches",
        ("verify", "--engine", "spark", "--master", "local[2]", "{data}/clean-11-kb"),
        Other(Program.KDUMP, ("verify", "--engine", "local", "{data}/clean-11-kb")),
        _partitions("clean-11-kb", _LARGE, 8, is_clean=True),
        ratio=1.25,
        more_seconds=5,
        worker_peak_mib=600,
    ),
    Case(
        "kdump verify, 10 000 partitions, 60 000 files",
        ("verify", "{data}/directory-10000"),
        data="make_log_directory(folder, 10_000)",
        seconds=8.0,
    ),
)


def _reported(name: str, folder: str, data: str, ratio: float, seconds: float) -> Case:
    """Make a page, compared with a verification, which reads the same once."""
    return Case(
        name,
        (
            *("report", "--engine", "local", "--force", "--out", "{data}/report.html"),
            f"{{data}}/{folder}",
        ),
        Other(Program.KDUMP, ("verify", "--engine", "local", f"{{data}}/{folder}")),
        data,
        ratio=ratio,
        more_seconds=seconds,
        peak_mib=300,
    )


_REPORTS: Final = (
    _reported(
        "kdump report, 8 GiB of 11 KB batches",
        "clean-11-kb",
        _partitions("clean-11-kb", _LARGE, 8, is_clean=True),
        1.5,
        1,
    ),
    _reported(
        "kdump report, 10 000 partitions, 60 000 files",
        "directory-10000",
        "make_log_directory(folder, 10_000)",
        1.5,
        5,
    ),
)

_RECOVERIES: Final = (
    _recovered(
        "kdump recover, 800 MB of 11 KB batches in four partitions",
        "crashed-11-kb",
        _UNFLUSHED_QUARTER,
        4,
        0.5,
    ),
    _recovered(
        "kdump recover, 438 MB of 1 KB batches in two partitions",
        "unclean-1-kb",
        _UNFLUSHED_1_KB,
        2,
        0.8,
    ),
)


def _compacted(name: str, data: str, ratio: float, *engine: str) -> Case:
    """Compact a log directory, compared with Kafka's cleaner, which has one thread by default."""
    folder = data.split("'")[1]
    return Case(
        name,
        (
            *("compact", "--engine", *(engine or ("local",)), "--topic", "topic"),
            *("--now", _NOW_MS, "--config", "cleanup.policy=compact"),
            f"{{data}}/{folder}-to-compact",
        ),
        Other(
            Program.CLEANER,
            (),
            "\t".join((f"{{data}}/{folder}-to-clean", _NOW_MS, "cleanup.policy=compact")) + "\n",
            _copied(folder, "to-clean"),
        ),
        data,
        _copied(folder, "to-compact"),
        ratio=ratio,
        peak_mib=None,
        worker_peak_mib=800,
    )


def _compactable(
    name: str, segment_bytes: int, codec: str = "none", *, partitions: int = 1, keys: int = 200_000
) -> str:
    """Make the call for partitions of eight inactive segments."""
    shape = f"SegmentShape('', {segment_bytes}, 97, 'short', {codec!r}, keys={keys})"
    return f"make_compactable({name!r}, {shape}, 8, {partitions}, folder)"


_SPARK: Final = ("spark", "--master", "local[2]")
_COMPACTIONS: Final = (
    _compacted(
        "kdump compact, 8 M records, 200 k keys", _compactable("keyed", _MILLION_BYTES["none"]), 0.5
    ),
    _compacted(
        "kdump compact, 8 M records, 200 k keys, zstd",
        _compactable("keyed-zstd", _MILLION_BYTES["zstd"], "zstd"),
        0.7,
    ),
    _compacted(
        "kdump compact, 8 M records, 200 k keys, lz4",
        _compactable("keyed-lz4", _MILLION_BYTES["lz4"], "lz4"),
        0.7,
    ),
    _compacted(
        "kdump compact on Spark, 8 GiB, 84 M records, 200 k keys",
        _compactable("keyed-whole", GIB - 20_000),
        0.5,
        *_SPARK,
    ),
    _compacted(
        "kdump compact on Spark, 8 partitions of 8 M records, 200 k keys in each",
        _compactable("keyed-8-partitions", _MILLION_BYTES["none"], partitions=8),
        0.5,
        *_SPARK,
    ),
)


def _growing(command: str, things: str, count: int, *options: str) -> Case:
    """Make a case that is compared with itself over a quarter of the input."""
    make = f"make_many_{things.replace('-', '_')}"
    quarter = count // 4
    return Case(
        f"kdump {command}, {count} {things.replace('-', ' ')}",
        (command, *options, f"{{data}}/{things}-{count}"),
        Other(Program.KDUMP_ON_A_QUARTER, (command, *options, f"{{data}}/{things}-{quarter}")),
        f"{make}({count}, folder); {make}({quarter}, folder)",
        ratio=5.0,
        peak_mib=300,
    )


_GROWING: Final = tuple(
    _growing(command, things, count, *options)
    for command, *options in (("verify",), ("recover", "--dry-run"), ("rebuild-index", "--dry-run"))
    for things, count in (("segments", 20_000), ("open-txns", 20_000), ("producers", 100_000))
    if (command, things) != ("rebuild-index", "producers")
)

_OFFSETS_BYTES: Final = 2 * GIB
_OFFSETS_LOGS: Final = ",".join(
    f"{{data}}/offsets-2-gib/__consumer_offsets-0/{base_offset:020d}.log"
    for base_offset in (0, 11_773_480)
)
_GROUPS: Final = (
    Case(
        "kdump groups, 2 GiB of __consumer_offsets",
        ("groups", "--engine", "local", "--output", "jsonl", "{data}/offsets-2-gib"),
        Other(Program.DUMP_TOOL, ("--offsets-decoder", "--files", _OFFSETS_LOGS)),
        f"make_group_offsets('offsets-2-gib', {_OFFSETS_BYTES}, folder)",
        ratio=0.3,
        worker_peak_mib=150,
    ),
)

_EXPORTS: Final = tuple(
    Case(
        f"kdump export --format {file_format}, 80 MB of 11 KB batches",
        (
            *("export", "--engine", "local", "--format", file_format),
            *("--out", "{data}/exported", "{data}/eleven-kb-of-topic/topic-0"),
        ),
        data=_partitions("eleven-kb-of-topic", _11_KB, 1, is_clean=True),
        before="remove_export(folder)",
        peak_mib=300,
        worker_peak_mib=300,
    )
    for file_format in ("parquet", "csv", "jsonl")
)

_QUERIES: Final = tuple(
    Case(
        f"kdump query, {name}",
        ("query", "--output", "csv", statement, "{data}/clean-11-kb"),
        data=_partitions("clean-11-kb", _LARGE, 8, is_clean=True),
        seconds=seconds,
        peak_mib=200,
    )
    for name, statement, seconds in (
        ("to the first row", "SELECT topic, offset FROM records LIMIT 1", 5.0),
        ("a count of 8 GiB of records", "SELECT count(*) FROM records", None),
        (
            "a count with a condition on offsets",
            "SELECT count(*) FROM records WHERE offset BETWEEN 1000 AND 2000",
            5.0,
        ),
    )
)

CASES: Final = (
    *_DUMPS,
    *_SEARCHES,
    *_LISTINGS,
    *_COLLECTED,
    *_LOOKUPS,
    *_VERIFICATIONS,
    *_RECOVERIES,
    *_COMPACTIONS,
    *_GROWING,
    *_GROUPS,
    *_REPORTS,
    *_EXPORTS,
    *_QUERIES,
)
