"""Cases that read records: dump, search, look up, groups, export, query."""

from __future__ import annotations

from typing import Final

from case import (
    GIB,
    LOCAL,
    Case,
    Data,
    Other,
    Program,
    RateCase,
    compactable,
    log,
    partitions,
    segment,
)

KEYED_MILLION_BYTES: Final = {"none": 102_310_000, "zstd": 28_960_000, "lz4": 49_690_000}
"""Size of a million records of the shape of :func:`case.compactable`, by codec."""

ONE_GIB: Final = "one-gib,1024,97,text,none"
_11_KB: Final = "11-kb-batches,80,97,text,none"
_11_KB_RANDOM: Final = "11-kb-batches-random,80,97,random,none"
_1_KB: Final = "1-kb-batches,27,9,text,none"
_1_KB_134: Final = "1-kb-batches-134-mb,128,9,text,none"
_ZSTD: Final = "zstd,27,97,text,zstd"
_LZ4: Final = "lz4,27,97,text,lz4"
_EIGHT_HUNDRED: Final = "eight-hundred-mb,800,97,text,none"
CLEAN_8_GIB: Final = partitions("clean-11-kb", ONE_GIB, 8, is_clean=True)


def _dump(name: str, shape: str, ratio: float, *options: str) -> Case:
    """Make a case that both tools run with the same arguments over one segment."""
    folder = shape.partition(",")[0]
    arguments = (*options, "--files", log(folder))
    others = (Other(Program.DUMP_TOOL, arguments),)
    return Case(name, ("dump-segment", *arguments), others, (segment(shape),), ratio=ratio)


DUMPS: Final = (
    Case("kdump --version", ("--version",), seconds=0.15),
    _dump("dump headers, 81 MB of 11 KB batches", _11_KB, 0.35),
    _dump("dump headers, 134 MB of 1 KB batches", _1_KB_134, 0.22),
    _dump("dump data, text values", _11_KB, 0.10, "--print-data-log"),
    _dump("dump data, random bytes", _11_KB_RANDOM, 0.25, "--print-data-log"),
    _dump("dump data, 1 KB batches", _1_KB, 0.12, "--print-data-log"),
    _dump("dump data, zstd", _ZSTD, 0.20, "--print-data-log"),
    _dump("dump data, lz4", _LZ4, 0.16, "--print-data-log"),
    Case("dump headers, 1 GiB", ("dump-segment", log("one-gib")), data=(segment(ONE_GIB),)),
    Case(
        "dump data, 1 GiB",
        ("dump-segment", "--print-data-log", log("one-gib")),
        data=(segment(ONE_GIB),),
    ),
)


def _searched(name: str, *pattern: str, is_compared: bool = True) -> Case:
    """Search a segment of 800 MB, compared with grep over its dump."""
    path = log("eight-hundred-mb")
    return Case(
        f"kdump grep, 800 MB, {name}",
        ("grep", *LOCAL, *pattern, path),
        (Other(Program.DUMP_AND_GREP, (path, *pattern)),) if is_compared else (),
        (segment(_EIGHT_HUNDRED),),
        ratio=0.2 if is_compared else None,
        worker_peak_mb=150,
    )


SEARCHES: Final = (
    _searched("a string in no record", "-F", "order-4711"),
    _searched("a regular expression", "-e", "key-00001[0-9]*7"),
    _searched("all records match", "", is_compared=False),
)

LOOKUPS: Final = tuple(
    Case(
        f"kdump lookup {' '.join(asked)}, 1 GiB segment",
        ("lookup", "--partition", "topic-0", *asked, "{data}/clean-11-kb"),
        data=(CLEAN_8_GIB,),
        seconds=0.3,
    )
    for asked in (("--offset", "5000000"), ("--timestamp", "max"))
)

_OFFSETS_BYTES: Final = 2 * GIB
_OFFSETS_LOGS: Final = ",".join(
    f"{{data}}/offsets-2-gib/__consumer_offsets-0/{base_offset:020d}.log"
    for base_offset in (0, 11_773_480)
)
GROUPS: Final = (
    Case(
        "kdump groups, 2 GiB of __consumer_offsets",
        ("groups", *LOCAL, "--output", "jsonl", "{data}/offsets-2-gib"),
        (Other(Program.DUMP_TOOL, ("--offsets-decoder", "--files", _OFFSETS_LOGS)),),
        (
            Data(
                f"make_group_offsets('offsets-2-gib', {_OFFSETS_BYTES}, folder)",
                2.2,
                "offsets-2-gib",
            ),
        ),
        ratio=0.3,
        worker_peak_mb=150,
    ),
)

QUERIES: Final = tuple(
    Case(
        f"kdump query, {name}",
        ("query", "--output", "csv", statement, "{data}/clean-11-kb"),
        data=(CLEAN_8_GIB,),
        seconds=seconds,
        peak_mb=None,
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

_KEYED: Final = compactable("keyed", KEYED_MILLION_BYTES["none"])
_KEYED_ZSTD: Final = compactable("keyed-zstd", KEYED_MILLION_BYTES["zstd"], "zstd")
_ONE_RECORD: Final = Data(
    "make_one_record_batches(2_000_000, folder)", 0.4, "one-record-batches-2000000"
)


def _source(name: str, folder: str, data: Data, columns: str, at_least: float) -> RateCase:
    """Read records through the data source as a worker of Spark does."""
    words = ("records.py", f"{{data}}/{folder}", "--columns", columns)
    return RateCase(f"data source, {name}", words, (data,), at_least)


RATES: Final = (
    _source("keys", "keyed", _KEYED, "offset,timestamp,key", 8.0),
    _source("keys and values", "keyed", _KEYED, "offset,timestamp,key,value", 7.0),
    _source(
        "one record a batch",
        "one-record-batches-2000000",
        _ONE_RECORD,
        "offset,timestamp,key,value",
        2.0,
    ),
    _source("zstd", "keyed-zstd", _KEYED_ZSTD, "offset,timestamp,key,value", 3.0),
    *(
        RateCase(
            f"export --format {file_format}",
            ("exports.py", "{data}/keyed", "--format", file_format),
            (_KEYED,),
            at_least,
        )
        for file_format, at_least in (("parquet", 1.0), ("csv", 0.8), ("jsonl", 0.6))
    ),
)
