"""A search finds what Python finds in each record, however the log is stored and divided."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from google.type import money_pb2
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import schema_topic
from builders.batches import batch, record
from builders.log_directories import write_partition
from builders.message_sets import message, wrapper
from kdump.dump.text_options import TextOptions
from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.engine.range_splits import RangeSplit, RecordRange
from kdump.formats.compression import Codec
from kdump.jobs.grep import grep as pipeline
from kdump.jobs.grep import search
from kdump.jobs.grep.grep import GrepRequest, grep
from kdump.jobs.grep.search import GrepJob, SearchResult, Shown
from kdump.payloads.payload_format import PayloadFormat
from kdump.payloads.record_payloads import RecordPayloads
from kdump.scan.record_patterns import HeaderPattern, Patterns, RecordPart, RecordPatterns
from kdump.storage.local_disk import local
from kdump.tables.kafka_log.found_partitions import lone_partition

Contents = tuple[bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]
"""Key, value and headers of a record."""

TEXTS = st.text("abAB1é ^.", max_size=6).map(str.encode)
BYTES = st.one_of(TEXTS, st.binary(max_size=4), st.just(b"a\xffb"))


def records_of(texts: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Contents]]:
    header = st.tuples(st.sampled_from([b"a", b"b"]), st.none() | texts)
    contents = st.tuples(st.none() | texts, st.none() | texts, st.lists(header, max_size=3))
    return st.lists(contents.map(lambda each: (*each[:2], tuple(each[2]))), min_size=1, max_size=9)


def batches_of(records: Sequence[Contents], cuts: Sequence[int], codecs: Sequence[Codec]) -> bytes:
    """Encode records in batches that end at ``cuts``, each with the next codec."""
    edges = sorted({0, len(records), *(cut % len(records) for cut in cuts)})
    return b"".join(
        batch(
            [record(n, *records[n]) for n in range(begin, end)], codec=codecs[begin % len(codecs)]
        )
        for begin, end in itertools.pairwise(edges)
    )


LAYOUTS = st.tuples(st.lists(st.integers(0, 8)), st.lists(st.sampled_from(Codec), min_size=1))


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Draw a regular expression that means the same to RE2 and to Python."""
    atoms = st.sampled_from(
        ["a", "b", "A", "1", "é", r"\.", ".", "[ab]", "[^a]", " ", "a b", r"\b"]
    )
    repeated = st.tuples(atoms, st.sampled_from(["", "", "*", "+", "?", "{2}"])).map(
        lambda pair: pair[0] if pair[0] == r"\b" else f"(?:{pair[0]}){pair[1]}"
    )
    branches = draw(st.lists(st.lists(repeated, max_size=3).map("".join), min_size=1, max_size=2))
    return draw(st.sampled_from(["", "^", r"\A"])) + f"(?:{'|'.join(branches)})"


Matches = Callable[[bytes], bool]


@dataclass(frozen=True)
class Wanted:
    """Patterns, and what Python says of them."""

    patterns: Patterns
    matches: Matches


def patterns_of(wanted: Wanted | None) -> Patterns | None:
    return None if wanted is None else wanted.patterns


@st.composite
def wanted_texts(draw: st.DrawFn) -> Wanted:
    """Draw strings to find."""
    texts = draw(st.lists(BYTES, min_size=1, max_size=2))
    return Wanted(
        Patterns(tuple(texts), is_fixed=True), lambda found: any(text in found for text in texts)
    )


@st.composite
def wanted_expressions(draw: st.DrawFn) -> Wanted:
    """Draw regular expressions."""
    texts = draw(st.lists(expressions(), min_size=1, max_size=2))
    ignores_case = draw(st.booleans())
    flags = re.ASCII | (re.IGNORECASE if ignores_case else re.NOFLAG)
    compiled = [re.compile(text, flags) for text in texts]
    patterns = Patterns(tuple(map(str.encode, texts)), ignores_case=ignores_case)
    return Wanted(patterns, lambda found: any(each.search(found.decode()) for each in compiled))


@dataclass(frozen=True)
class Query:
    """Conditions, and what Python says of them."""

    patterns: RecordPatterns
    matches: Callable[[Contents], bool]


@st.composite
def queries(draw: st.DrawFn, wanted: st.SearchStrategy[Wanted]) -> Query:
    """Draw conditions."""
    anywhere, key, value, header = (draw(st.none() | wanted) for _ in range(4))
    parts = draw(st.frozensets(st.sampled_from(RecordPart), min_size=1))
    names = draw(st.lists(st.sampled_from([b"a", b"b"]), max_size=2))
    is_inverted = draw(st.booleans())

    def has(one: Wanted | None, *found: bytes | None) -> bool:
        return one is None or any(each is not None and one.matches(each) for each in found)

    def matches(contents: Contents) -> bool:
        found_key, found_value, found_headers = contents
        searched = [
            *([found_key] if RecordPart.KEY in parts else []),
            *([found_value] if RecordPart.VALUE in parts else []),
            *(
                each
                for pair in (found_headers if RecordPart.HEADERS in parts else ())
                for each in pair
            ),
        ]
        meets = has(anywhere, *searched) and has(key, found_key) and has(value, found_value)
        if names:
            meets &= any(name in names and has(header, text) for name, text in found_headers)
        return meets != is_inverted

    return Query(
        RecordPatterns(
            patterns_of(anywhere),
            parts,
            patterns_of(key),
            patterns_of(value),
            tuple(HeaderPattern(name, patterns_of(header)) for name in names),
            is_inverted,
        ),
        matches,
    )


def offsets_in(found: Iterator[SearchResult]) -> list[int]:
    return [row["offset"] for each in found for row in each.rows]


def split_of(log: bytes, folder: Path) -> RangeSplit:
    path = folder / f"{0:020d}.log"
    path.write_bytes(log)
    return RangeSplit(local(path), size_bytes=len(log))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("searched")


@given(
    st.one_of(
        st.tuples(records_of(BYTES), queries(wanted_texts())),
        st.tuples(records_of(TEXTS), queries(wanted_expressions())),
    ),
    LAYOUTS,
)
def test_the_records_found_are_those_that_python_finds(
    folder: Path, searched: tuple[list[Contents], Query], layout: tuple[list[int], list[Codec]]
) -> None:
    records, query = searched
    split = split_of(batches_of(records, *layout), folder)
    found = GrepJob(query.patterns, Shown.ROWS).parts(split)
    assert offsets_in(found) == [n for n, each in enumerate(records) if query.matches(each)]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("v{899}", [1, 2]),
        ("v{1000}", []),
        ("v{500}v{399}", [1, 2]),
        ("v{300}w", [3]),
        ("v{300}\u00e4{300}", [4]),
        ("xv{899}", [1]),
        ("xv{900}", []),
        ("v{0}w{1}", [3]),
        ("v{899}|w", [1, 2, 3]),
    ],
)
def test_long_strings_are_found_wherever_they_are(
    folder: Path, pattern: str, found: list[int]
) -> None:
    values = ["v" * 898, "x" + "v" * 899, "v" * 999, "v" * 300 + "w", "v" * 300 + "\u00e4" * 300]
    records: list[Contents] = [(None, b"\xff" + each.encode(), ()) for each in values]
    split = split_of(batches_of(records, [], [Codec.NONE]), folder)
    patterns = RecordPatterns(value=Patterns((pattern.encode(),)))
    assert offsets_in(GrepJob(patterns, Shown.ROWS).parts(split)) == found


@pytest.mark.parametrize("is_fixed", [True, False])
def test_a_megabyte_that_almost_matches_a_long_string_is_searched_in_seconds(
    folder: Path, is_fixed: bool
) -> None:
    values = [b"v" * 898] * 1200 + [b"v" * 899]
    split = split_of(batches_of([(None, each, ()) for each in values], [], [Codec.NONE]), folder)
    pattern = b"v" * 899 if is_fixed else b"v{899}"
    patterns = RecordPatterns(value=Patterns((pattern,), is_fixed=is_fixed))
    assert offsets_in(GrepJob(patterns, Shown.ROWS).parts(split)) == [1200]


@given(
    st.lists(st.tuples(st.none() | BYTES, st.none() | BYTES), min_size=1, max_size=6),
    queries(wanted_texts()),
    st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY]),
    st.sampled_from([0, 1]),
)
def test_messages_of_magic_0_and_1_are_searched_like_records_without_headers(
    folder: Path,
    pairs: list[tuple[bytes | None, bytes | None]],
    query: Query,
    codec: Codec,
    magic: int,
) -> None:
    inner = [message(n, key, value, magic=magic) for n, (key, value) in enumerate(pairs)]
    log = (
        b"".join(inner)
        if codec is Codec.NONE
        else wrapper(inner, codec, offset=len(pairs) - 1, magic=magic)
    )
    found = GrepJob(query.patterns, Shown.ROWS).parts(split_of(log, folder))
    expected = [n for n, pair in enumerate(pairs) if query.matches((*pair, ()))]
    assert offsets_in(found) == expected


IN_HERE = EngineOptions(EngineChoice.LOCAL, processes=1)
BY_WORKERS = EngineOptions(EngineChoice.LOCAL, processes=2)
ON_SPARK = EngineOptions(EngineChoice.SPARK)
EVEN = RecordPatterns(Patterns((b"[02468]$",)))
LINES = GrepJob(EVEN, Shown.LINES)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Two segments of 600 records, with a damaged batch, large batches and old messages."""
    logs = dict[int, bytes]()
    for base in (0, 600):
        chunks = []
        for n in range(base, base + 600, 20):
            numbers = range(n, n + 20)
            if n % 180 == 40:
                entries = [message(i, b"%d" % i, b"old", magic=0) for i in numbers]
                chunks.append(wrapper(entries, Codec.GZIP, offset=n + 19, magic=0))
                continue
            size = 3000 if n % 120 == 60 else 30
            records = [record(i, b"%d" % i, b"x" * size) for i in numbers]
            chunks.append(batch(records, codec=Codec.ZSTD if n % 80 == 60 else Codec.NONE))
        logs[base] = b"".join(chunks)
    damaged = bytearray(logs[600])
    damaged[len(damaged) // 2] ^= 1
    return write_partition(tmp_path / "logs" / "orders-0", {**logs, 600: bytes(damaged)})


def searched(
    path: Path, job: GrepJob, options: EngineOptions = IN_HERE, **request: Any
) -> list[SearchResult]:
    target = lone_partition(local(path))
    return [each.found for each in grep(GrepRequest([target], job, **request), options)]


def text_of(found: Sequence[SearchResult]) -> bytes:
    return b"".join(each.text for each in found)


@pytest.fixture
def expected(partition: Path) -> bytes:
    """What a single search of each log finds."""
    return text_of(searched(partition, LINES))


@pytest.mark.parametrize("result_bytes", [1, 5000])
@pytest.mark.parametrize("split_bytes", [1000, 1 << 20])
def test_what_is_found_does_not_depend_on_how_the_work_is_divided(
    partition: Path,
    expected: bytes,
    split_bytes: int,
    result_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "_SPLIT_BYTES", split_bytes)
    monkeypatch.setattr(search, "RESULT_BYTES", result_bytes)
    found = searched(partition, LINES)
    assert text_of(found) == expected
    assert sum(each.matches for each in found) == expected.count(b" key: ")
    assert {str(damage) for each in found for damage in each.damages} == {
        str(damage) for each in searched(partition, LINES) for damage in each.damages
    }


def test_a_result_does_not_grow_with_what_a_small_split_holds(tmp_path: Path) -> None:
    records = [record(n, None, bytes(1 << 20)) for n in range(40)]
    split = split_of(batch(records, codec=Codec.ZSTD), tmp_path)
    assert split.size_bytes < 100_000
    found = GrepJob(RecordPatterns(), Shown.LINES).run(split)
    assert found.rest is not None
    assert found.rest.from_offset == found.matches
    assert len(found.text) < search.RESULT_BYTES + (4 << 20)


@pytest.mark.parametrize("most", [1, 7, 250, 10_000])
@pytest.mark.parametrize("options", [IN_HERE, BY_WORKERS], ids=["here", "workers"])
def test_a_search_stops_after_the_most_records_asked_for(
    partition: Path,
    expected: bytes,
    most: int,
    options: EngineOptions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "_SPLIT_BYTES", 4096)
    found = searched(partition, replace(LINES, most=most), options, most=most)
    lines = expected.splitlines(keepends=True)
    assert text_of(found) == b"".join(lines[:most])


def test_a_search_by_workers_finds_the_same(
    partition: Path, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_SPLIT_BYTES", 4096)
    assert text_of(searched(partition, LINES, BY_WORKERS)) == expected


def test_a_search_on_spark_finds_the_same(
    partition: Path, expected: bytes, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_SPLIT_BYTES", 4096)
    assert text_of(searched(partition, LINES, ON_SPARK)) == expected


@given(st.integers(0, 1300), st.integers(0, 1300))
def test_a_range_of_offsets_leaves_out_the_others(
    ranges_log: Path, from_offset: int, to_offset: int
) -> None:
    job = GrepJob(RecordPatterns(), Shown.ROWS)
    found = searched(ranges_log, job, records=RecordRange(from_offset, to_offset))
    assert offsets_in(iter(found)) == list(range(from_offset, min(to_offset, 1200)))


@pytest.fixture(scope="module")
def ranges_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments of 600 records."""
    logs = {
        base: b"".join(batch([record(n + i) for i in range(5)]) for n in range(base, base + 600, 5))
        for base in (0, 600)
    }
    return write_partition(tmp_path_factory.mktemp("logs") / "orders-0", logs)


SMALL = [
    batch([record(n), record(n + 1)], codec=codec)
    for n, codec in ((0, Codec.NONE), (2, Codec.ZSTD))
]


def test_a_log_that_was_cut_at_any_byte_is_searched_up_to_its_last_whole_batch(
    folder: Path,
) -> None:
    ends = list(itertools.accumulate(map(len, SMALL), initial=0))
    for cut in range(ends[-1] + 1):
        split = split_of(b"".join(SMALL)[:cut], folder)
        found = GrepJob(RecordPatterns(), Shown.ROWS).run(split)
        whole = sum(end <= cut for end in ends) - 1
        assert offsets_in(iter([found])) == list(range(2 * whole))
        assert [damage.start for damage in found.damages] == ([] if cut in ends else [ends[whole]])


def test_a_changed_byte_never_makes_a_search_fail(folder: Path) -> None:
    log = b"".join(SMALL)
    job = GrepJob(RecordPatterns(Patterns((b"value",))), Shown.LINES)
    for at in range(len(log)):
        changed = bytearray(log)
        changed[at] ^= 0x55
        found = job.run(split_of(bytes(changed), folder))
        assert found.failure is None
        assert found.matches <= 4


def test_workers_decode_payloads_as_one_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = schema_topic.new_client()
    avro = AvroSerializer(client, '{"type": "map", "values": "long"}')
    money = ProtobufSerializer(money_pb2.Money, client)
    values = [
        avro({"units": n}, schema_topic.context("avro"))
        if n % 3
        else money(money_pb2.Money(units=n), schema_topic.context("protobuf"))
        for n in range(600)
    ]
    log = b"".join(batch([record(n, None, value)]) for n, value in enumerate(values))
    path = write_partition(tmp_path / "logs" / "orders-0", {0: log})
    registry = schema_topic.registry_with(client)
    payloads = RecordPayloads.of(None, PayloadFormat.AUTO, registry)
    job = GrepJob(
        RecordPatterns(Patterns((rb'"units":"?\d*[02468]\b',))),
        Shown.LINES,
        text=TextOptions(payloads),
        payloads=payloads,
    )
    alone = text_of(searched(path, job))
    assert alone.count(b"\n") == 300
    monkeypatch.setattr(pipeline, "_SPLIT_BYTES", 4096)
    by_workers = searched(path, job, BY_WORKERS)
    assert len(by_workers) > 8
    assert text_of(by_workers) == alone
