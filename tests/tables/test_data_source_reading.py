"""The data source without Spark: columns, paths, ranges, filters, transactions and damage."""

from __future__ import annotations

import datetime as dt
import json
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import batches, large_segments, log_directories
from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.large_segments import LargeSegment
from builders.message_sets import TIMESTAMP_MS, message, wrapped_values
from builders.recovery import marker, of_producer
from builders.source_tables import offsets_of, rows_of, splits_of, table_of, wanted_by
from kdump.errors import KdumpError, UsageProblem
from kdump.formats.compression import Codec
from kdump.payloads.record_payloads import RecordPayloads
from kdump.storage.local_disk import LocalFile
from kdump.tables.kafka_log.damage import DamagedLogError
from kdump.tables.kafka_log.options import parse_options
from kdump.tables.kafka_log.pushed_filters import Interval, push
from kdump.tables.kafka_log.reader import SourceReading
from kdump.tables.kafka_log.splits import grouped

COMMITTED = {"kafka.isolation.level": "read_committed"}


def partition(path: Path, *segments: tuple[int, list[bytes]], name: str = "orders-0") -> Path:
    """Write a partition of segments, given by base offset."""
    logs = {base: b"".join(parts) for base, parts in segments}
    return log_directories.write_partition(path / name, logs)


def timed(base_offset: int, *times: int) -> bytes:
    return batch([record(base_offset + at, timestamp=ms) for at, ms in enumerate(times)])


# ---- Columns ----


def test_a_row_has_the_fields_of_the_record_and_its_batch(tmp_path: Path) -> None:
    data = batch(
        [record(7, b"k", None, headers=[(b"h", b"1"), (b"\xff", None)]), record(9, None, b"v")],
        codec=Codec.LZ4,
        partition_leader_epoch=3,
        producer_id=11,
        producer_epoch=2,
        base_sequence=5,
    )
    path = partition(tmp_path, (7, [data]))
    columns = (
        "key,value,topic,partition,offset,timestampType,headers,leaderEpoch,producerId,"
        "producerEpoch,sequence,transactionState,controlType,magic,codec,segment,batchPosition"
    )
    first, second = rows_of(path, columns=columns)
    assert first == {
        "key": b"k",
        "value": None,
        "topic": "orders",
        "partition": 0,
        "offset": 7,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "�", "value": None}],
        "leaderEpoch": 3,
        "producerId": 11,
        "producerEpoch": 2,
        "sequence": 5,
        "transactionState": None,
        "controlType": None,
        "magic": 2,
        "codec": "lz4",
        "segment": str(path / f"{7:020d}.log"),
        "batchPosition": 0,
    }
    assert (second["key"], second["headers"], second["sequence"]) == (None, None, 7)


def nullable(size: int) -> st.SearchStrategy[bytes | None]:
    return st.none() | st.binary(max_size=size)


@pytest.mark.slow
@given(
    contents=st.lists(
        st.tuples(
            nullable(20),
            nullable(200),
            st.lists(st.tuples(st.text(max_size=4), nullable(9)), max_size=4),
        ),
        min_size=1,
        max_size=70,
    ),
    codec=st.sampled_from(list(Codec)),
    records_each=st.integers(1, 30),
)
def test_keys_values_and_headers_are_read_as_written(
    tmp_path_factory: pytest.TempPathFactory,
    contents: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: Codec,
    records_each: int,
) -> None:
    records = [
        record(at, key, value, headers=[(name.encode(), each) for name, each in headers])
        for at, (key, value, headers) in enumerate(contents)
    ]
    parts = [
        batch(records[at : at + records_each], codec=codec)
        for at in range(0, len(records), records_each)
    ]
    path = partition(tmp_path_factory.mktemp("any"), (0, parts))
    rows = rows_of(path, columns="key,value,headers")
    found = [
        (row["key"], row["value"], [(h["key"], h["value"]) for h in row["headers"] or []])
        for row in rows
    ]
    assert found == contents
    assert all(row["headers"] != [] for row in rows)


def test_missing_fields_of_a_batch_are_null(tmp_path: Path) -> None:
    path = partition(tmp_path, (0, [message(0, magic=0), message(1)]))
    first, second = rows_of(path)
    none = ("leaderEpoch", "producerId", "producerEpoch", "sequence", "transactionState")
    assert [first[name] for name in none] == [None] * 5
    assert [each["timestampType"] for each in (first, second)] == [-1, 0]
    assert first["timestamp"] == dt.datetime(1969, 12, 31, 23, 59, 59, 999000, dt.UTC)
    assert second["timestamp"] == dt.datetime.fromtimestamp(TIMESTAMP_MS / 1000, dt.UTC)


def test_a_timestamp_out_of_range_is_null(tmp_path: Path) -> None:
    path = partition(tmp_path, (0, [timed(0, 2**62, BASE_TIMESTAMP_MS)]))
    assert [row["timestamp"] is None for row in rows_of(path)] == [True, False]


def test_messages_of_a_compressed_set_are_rows(tmp_path: Path) -> None:
    path = partition(
        tmp_path,
        (
            0,
            [
                wrapped_values([b"a", b"b"]),
                message(2, value=b"c"),
                *batches.batches(1, base_offset=3),
            ],
        ),
    )
    assert [row["value"] for row in rows_of(path)][:3] == [b"a", b"b", b"c"]


def test_columns_are_selected_in_any_order_and_case(tmp_path: Path) -> None:
    path = partition(tmp_path, (0, batches.batches(1)))
    assert table_of(path, columns="OFFSET, key").column_names == ["offset", "key"]


def test_an_unknown_column_is_rejected_by_name() -> None:
    with pytest.raises(UsageProblem, match="no column 'keys'; it has key, value, topic"):
        parse_options({"path": ".", "columns": "keys"})


# ---- Paths and partitions ----


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    path = log_directories.write_log_directory(
        tmp_path / "data", log_start_offsets={("orders", 0): 4}
    )
    partition(path, (0, batches.batches(2)), (6, batches.batches(2, base_offset=6)))
    partition(path, (0, batches.batches(1)), name="orders-1")
    partition(path, (0, batches.batches(1)), name="payments-0")
    for state in ("delete", "future", "stray"):
        partition(path, (0, batches.batches(1)), name=f"orders-2.{'ab' * 16}-{state}")
    return path


def partitions_in(path: Path, **options: str) -> list[str]:
    table = table_of(path, columns="topic,partition", **options)
    pairs = zip(table["topic"].to_pylist(), table["partition"].to_pylist(), strict=True)
    return sorted({f"{topic}-{number}" for topic, number in pairs})


def test_future_and_deleted_partitions_of_a_log_directory_are_not_read(log_dir: Path) -> None:
    assert partitions_in(log_dir) == ["orders-0", "orders-1", "payments-0"]


def test_a_partition_given_by_path_is_read_in_any_state(log_dir: Path) -> None:
    assert len(offsets_of(log_dir / f"orders-2.{'ab' * 16}-stray")) == 3


def test_all_log_directories_below_a_directory_are_read(log_dir: Path) -> None:
    assert partitions_in(log_dir.parent) == ["orders-0", "orders-1", "payments-0"]


def test_a_partition_is_read_from_its_log_start_offset(log_dir: Path) -> None:
    assert offsets_of(log_dir / "orders-0")[0] == 4


def test_a_segment_is_read_from_its_first_record(log_dir: Path) -> None:
    assert offsets_of(log_dir / "orders-0" / f"{0:020d}.log") == [0, 1, 2, 3, 4, 5]


def test_a_leftover_segment_can_be_read(log_dir: Path) -> None:
    log = log_dir / "orders-0" / f"{6:020d}.log"
    log.rename(log.with_suffix(".log.deleted"))
    assert offsets_of(log.with_suffix(".log.deleted")) == [6, 7, 8, 9, 10, 11]


def test_a_path_without_kafka_logs_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="neither a Kafka log directory nor a partition"):
        splits_of(tmp_path)
    with pytest.raises(UsageProblem, match="does not exist"):
        splits_of(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "orders, payments"}, ["orders-0", "orders-1", "payments-0"]),
        ({"subscribePattern": "pay.*"}, ["payments-0"]),
        ({"subscribePattern": "pay"}, []),
        ({"assign": '{"orders":[1],"payments":[0]}'}, ["orders-1", "payments-0"]),
    ],
)
def test_topics_are_selected_as_in_sparks_own_source(
    log_dir: Path, options: dict[str, str], expected: list[str]
) -> None:
    assert partitions_in(log_dir, **options) == expected


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"subscribe": "orders, order"}, "order"),
        ({"assign": '{"orders":[1,3],"payments":[7]}'}, "orders-3, payments-7"),
        ({"startingOffsets": '{"orders":{"2":1}}'}, "orders-2"),
        ({"endingOffsetsByTimestamp": '{"order":{"0":1}}'}, "order-0"),
    ],
)
def test_a_missing_topic_or_partition_is_rejected_by_name(
    log_dir: Path, options: dict[str, str], missing: str
) -> None:
    with pytest.raises(UsageProblem, match=f"finds no {missing} in {log_dir}; run kdump ls"):
        splits_of(log_dir, **options)


def test_a_subscribed_topic_may_be_in_any_of_several_paths(log_dir: Path) -> None:
    paths = json.dumps([str(log_dir / "orders-0"), str(log_dir / "payments-0")])
    assert partitions_in(log_dir / "orders-1", paths=paths, subscribe="payments") == ["payments-0"]


def test_a_filter_on_topics_does_not_make_a_topic_missing(log_dir: Path) -> None:
    filters = [("EqualTo", "topic", "orders")]
    assert splits_of(log_dir, filters, subscribe="payments") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "a", "assign": "{}"}, "mutually exclusive"),
        ({"startingOfsets": "earliest"}, "no option 'startingofsets'"),
        ({"startingOffsets": "latest"}, "not earliest or offsets"),
        ({"endingOffsets": '{"a":{"0":"x"}}'}, "such as"),
        ({"startingTimestamp": "yesterday"}, "epoch milliseconds"),
        ({"startingTimestamp": "--5"}, "epoch milliseconds"),
        ({"endingTimestamp": str(2**63)}, "epoch milliseconds"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "numbers from -2 to 9223372036854775807"),
        ({"endingOffsets": '{"a":{"0":9223372036854775808}}'}, "numbers from -2"),
        ({"subscribe": " ,"}, "topics, separated by commas"),
        ({"columns": "offset,Offset"}, "column offset is selected more than once"),
        ({"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "Value"}, "that no other column has"),
        ({"path": "ftp://host/logs"}, "ftp:// is not a place that kafka-log reads"),
        ({"mode": "brave"}, "FAILFAST, DROPMALFORMED, PERMISSIVE"),
        ({"valueFormat": "xml"}, "auto, avro, json, protobuf, string, hex"),
        ({"keyFormat": "auto", "schemas": "[1]"}, "a JSON array of paths"),
        ({"keyFormat": "auto", "schemas": "ftp://host/schemas"}, "is not a place"),
        ({"schemas": "/schemas"}, "no effect without keyFormat or valueFormat"),
        ({"kafka.isolation.level": "none"}, "read_uncommitted or read_committed"),
        ({"includeHeaders": "yes"}, "true or false"),
        ({"startingOffsets": '{"a":{"00":3}}'}, "such as"),
        ({"startingOffsets": '{"a":{"\u0661":3}}'}, "such as"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "without -1, as in Spark's source"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "without -2, as in Spark's source"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"maxRecordsPerPartition": "10"}, "kafka-log has no option 'maxrecordsperpartition'"),
        ({"startingOffsetsByTimestampStrategy": "error"}, "not latest"),
        ({"minPartitions": "0"}, "a number of at least 1"),
        ({"minPartitions": "\uff11"}, "a number of at least 1"),
        ({"subscribePattern": "("}, "a regular expression"),
    ],
)
def test_an_invalid_option_is_rejected(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageProblem, match=message):
        parse_options({"path": ".", **options})


def test_options_for_brokers_have_no_effect() -> None:
    options = {"path": ".", "kafka.bootstrap.servers": "host:9092", "groupIdPrefix": "a"}
    assert parse_options(options) == parse_options({"path": "."})


# ---- Offset and time ranges ----


def by_partition(name: str, number: int) -> dict[str, str]:
    return {name: json.dumps({"orders": {"0": number}})}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest"}, range(4, 12)),
        (by_partition("startingOffsets", 7), range(7, 12)),
        (by_partition("startingOffsets", -2), range(4, 12)),
        (by_partition("endingOffsets", 7), range(4, 7)),
        (by_partition("endingOffsets", -1), range(4, 12)),
        # Records before the log start offset can be read until their segment is deleted.
        (by_partition("startingOffsets", 1), range(1, 12)),
        ({"startingTimestamp": str(BASE_TIMESTAMP_MS + 8)}, range(8, 12)),
        ({"endingTimestamp": str(BASE_TIMESTAMP_MS + 8)}, range(4, 8)),
        ({"startingTimestamp": str(BASE_TIMESTAMP_MS + 99)}, []),
        ({"endingTimestamp": str(BASE_TIMESTAMP_MS + 99)}, range(4, 12)),
        (by_partition("startingOffsetsByTimestamp", BASE_TIMESTAMP_MS + 5), range(5, 12)),
        (by_partition("endingOffsetsByTimestamp", BASE_TIMESTAMP_MS + 5), range(4, 5)),
    ],
)
def test_a_range_can_be_given_by_offsets_or_times(
    log_dir: Path, options: dict[str, str], expected: Iterator[int]
) -> None:
    assert offsets_of(log_dir / "orders-0", **options) == list(expected)


@pytest.mark.parametrize(
    ("options", "what", "left"),
    [
        (by_partition("startingOffsets", 13), "startingOffsets is 13", []),
        (by_partition("endingOffsets", 13), "endingOffsets is 13", list(range(4, 12))),
    ],
)
def test_an_offset_outside_of_the_log_fails_the_query_unless_losses_are_accepted(
    log_dir: Path, options: dict[str, str], what: str, left: list[int]
) -> None:
    options |= {"assign": '{"orders":[0]}'}
    with pytest.raises(KdumpError, match=rf"{what}, outside of its log \(0 to 12\)"):
        offsets_of(log_dir, **options)
    assert offsets_of(log_dir, failOnDataLoss="false", **options) == left


def test_the_offset_where_a_log_ends_is_in_it(log_dir: Path) -> None:
    options = {"assign": '{"orders":[0]}', **by_partition("startingOffsets", 12)}
    assert offsets_of(log_dir, **options) == []


def test_a_starting_time_selects_from_the_first_record_at_or_after_it(tmp_path: Path) -> None:
    path = partition(tmp_path, (0, [timed(0, 100, 900, 300)]), (3, [timed(3, 200, 500)]))
    assert offsets_of(path, startingTimestamp="400") == [1, 2, 3, 4]
    assert offsets_of(path, endingTimestamp="400") == [0]


# ---- Filters ----


def moment(ms: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=ms)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("EqualTo", 5, [5]),
        ("EqualNullSafe", 5, [5]),
        ("GreaterThan", 9, [10, 11]),
        ("GreaterThanOrEqual", 9, [9, 10, 11]),
        ("LessThan", 5, [4]),
        ("LessThanOrEqual", 5, [4, 5]),
        ("EqualTo", 99, []),
    ],
)
def test_a_filter_on_offsets_is_exact(
    log_dir: Path, kind: str, value: int, expected: list[int]
) -> None:
    assert offsets_of(log_dir / "orders-0", [(kind, "offset", value)]) == expected


@pytest.mark.parametrize(
    ("kind", "ms", "expected"),
    [
        ("EqualTo", 5, [5]),
        ("EqualTo", 5.5, []),
        ("GreaterThan", 9, [10, 11]),
        ("GreaterThan", 8.5, [9, 10, 11]),
        ("GreaterThanOrEqual", 9, [9, 10, 11]),
        ("GreaterThanOrEqual", 9.001, [10, 11]),
        ("LessThan", 5, [4]),
        ("LessThan", 5.5, [4, 5]),
        ("LessThanOrEqual", 5, [4, 5]),
        ("LessThanOrEqual", 4.999, [4]),
    ],
)
def test_a_filter_on_times_is_exact(
    log_dir: Path, kind: str, ms: float, expected: list[int]
) -> None:
    filters = [(kind, "timestamp", moment(BASE_TIMESTAMP_MS + ms))]
    assert offsets_of(log_dir / "orders-0", filters) == expected


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("EqualTo", "topic", "orders")], ["orders-0", "orders-1"]),
        ([("In", "topic", ("payments", "x"))], ["payments-0"]),
        ([("StringStartsWith", "topic", "pay")], ["payments-0"]),
        ([("EqualTo", "topic", "orders"), ("EqualTo", "topic", "payments")], []),
        ([("EqualTo", "partition", 1)], ["orders-1"]),
        ([("LessThan", "partition", 1)], ["orders-0", "payments-0"]),
    ],
)
def test_a_filter_on_topic_or_partition_skips_other_partitions(
    log_dir: Path, filters: list[tuple[str, str, Any]], expected: list[str]
) -> None:
    read = {f"{s.origin.topic}-{s.origin.partition}" for s in splits_of(log_dir, filters)}
    assert sorted(read) == expected


def test_conditions_that_ranges_cannot_express_let_more_through() -> None:
    wanted = wanted_by([("In", "offset", (9, 4))])
    assert wanted.offsets == Interval(4, 9)
    for kind, column in (("EqualTo", "value"), ("StringContains", "topic"), ("IsNull", "offset")):
        assert push(wanted, kind, column, b"") == wanted


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a partition with a segment that is read in several splits."""
    segment = LargeSegment.of(600)
    path = tmp_path_factory.mktemp("large")
    return large_segments.write(path, segment, index=segment.index()).path.local_path


@pytest.mark.parametrize("bounds", [(0, 1), (5, 6), (700, 900), (899, 1799), (1799, 1800)])
def test_an_offset_range_reads_only_the_bytes_around_it(
    large: Path, bounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, end = bounds
    options = {
        **by_partition("startingOffsets", first),
        **by_partition("endingOffsets", end),
        "minPartitions": "8",
    }
    read_bytes = count_read_bytes(monkeypatch)
    assert offsets_of(large, **options) == list(range(first, end))
    window_bytes = 2 << 20
    wanted_bytes = (end - first) * 950
    assert sum(read_bytes) < wanted_bytes + 64 * 1024 + window_bytes // 4
    splits = splits_of(large, **options)
    assert all(split.start <= (split.end or 1 << 40) for split in splits)


def count_read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that collects the number of bytes of each read of a log."""
    counts: list[int] = []
    read_into = LocalFile.read_into

    def counted(self: LocalFile, buffer: memoryview, position: int) -> int:
        filled = read_into(self, buffer, position)
        if self.location.name.endswith(".log"):
            counts.append(filled)
        return filled

    monkeypatch.setattr(LocalFile, "read_into", counted)
    return counts


def test_the_splits_of_a_segment_return_each_record_once(large: Path) -> None:
    splits = splits_of(large, minPartitions="8")
    assert len(splits) >= 8
    assert offsets_of(large, minPartitions="8") == list(range(1800))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 9, 100])
@pytest.mark.parametrize("bounds", [(0, 24), (4, 20), (4, 5)])
def test_small_segments_are_split_into_the_requested_number_of_tasks(
    tmp_path: Path, count: int, bounds: tuple[int, int]
) -> None:
    """Eight batches of three records; one is alone in its segment."""
    made = batches.batches(8)
    path = partition(tmp_path, (0, made[:1]), (3, made[1:]))
    options = {
        **by_partition("startingOffsets", bounds[0]),
        **by_partition("endingOffsets", bounds[1]),
        "minPartitions": str(count),
    }
    groups = grouped(splits_of(path, **options), parse_options({"path": str(path), **options}))
    touched = (bounds[1] - 1) // 3 - bounds[0] // 3 + 1
    assert len(groups) >= min(count, touched)
    assert offsets_of(path, **options) == list(range(*bounds))


def test_segments_before_a_time_filter_are_not_opened(tmp_path: Path) -> None:
    path = partition(tmp_path, (0, [timed(0, 100)]), (1, [timed(1, 200)]), (2, [timed(2, 300)]))
    for base in (0, 1, 2):
        entry = log_directories.time_index((100 * (base + 1), 0))
        (path / f"{base:020d}.timeindex").write_bytes(entry)
    filters = [("GreaterThan", "timestamp", moment(150))]
    assert [split.origin.segment[-5] for split in splits_of(path, filters)] == ["1", "2"]
    assert offsets_of(path, filters) == [1, 2]


def test_a_time_index_with_an_offset_outside_the_segment_excludes_nothing(tmp_path: Path) -> None:
    path = partition(tmp_path, (0, [timed(0, 500)]), (1, [timed(1, 200)]))
    # Offset 77 is outside the segment.
    (path / f"{0:020d}.timeindex").write_bytes(log_directories.time_index((100, 77)))
    assert offsets_of(path, [("GreaterThan", "timestamp", moment(400))]) == [0]


def test_splits_and_readings_can_be_pickled(large: Path) -> None:
    options = parse_options({"path": str(large), "columns": "offset,key"})
    reading = SourceReading.of(options, options.columns, wanted_by([]), RecordPayloads())
    splits = splits_of(large)
    carried, parts = pickle.loads(pickle.dumps((reading, splits)))
    assert parts == splits
    assert len(pickle.dumps(splits[0])) < 600
    assert sum(table.num_rows for split in parts for table in carried.read(split)) == 1800


# ---- Transactions ----


def test_read_committed_skips_aborted_records(tmp_path: Path) -> None:
    path = partition(
        tmp_path,
        (
            0,
            [
                of_producer(0, 1, transactional=True),
                of_producer(1, 2, transactional=True),
                batch([record(2)]),
                marker(3, 1),
                marker(4, 2, commit=True),
                of_producer(5, 1, transactional=True),
            ],
        ),
        (6, [marker(6, 1, commit=True)]),
    )
    assert offsets_of(path) == [0, 1, 2, 5]
    assert offsets_of(path, **COMMITTED) == [1, 2, 5]
    states = [row["transactionState"] for row in rows_of(path)]
    assert states == ["aborted", "committed", None, "committed"]


def test_read_committed_ends_at_the_first_open_transaction(tmp_path: Path) -> None:
    parts = [batch([record(0)]), of_producer(1, 1, transactional=True), batch([record(2)])]
    path = partition(tmp_path, (0, parts))
    assert offsets_of(path, **COMMITTED) == [0]
    assert [row["transactionState"] for row in rows_of(path)] == [None, "open", None]


def test_control_records_are_rows_only_with_include_control_records(tmp_path: Path) -> None:
    parts = [of_producer(0, 1, transactional=True), marker(1, 1, commit=True)]
    path = partition(tmp_path, (0, parts))
    rows = rows_of(path, includeControlRecords="true")
    assert [(row["offset"], row["controlType"]) for row in rows] == [(0, None), (1, "COMMIT")]


@pytest.mark.parametrize("cuts", ["1", "40"])
def test_the_end_of_a_transaction_is_found_in_any_split(tmp_path: Path, cuts: str) -> None:
    parts, aborted, offset = [], set[int](), 0
    for number in range(300):
        producer = number % 3
        data = [record(offset + at, value=bytes(2000)) for at in range(3)]
        parts.append(batch(data, attributes=16, producer_id=producer, producer_epoch=0))
        if number % 2:
            aborted |= set(range(offset, offset + 3))
        offset += 3
        if number % 3 == 2:
            for each in range(3):
                is_aborted = (number - 2 + each) % 2
                parts.append(marker(offset, each, commit=not is_aborted))
                offset += 1
    path = partition(tmp_path, (0, parts))
    assert len(splits_of(path, minPartitions=cuts)) >= int(cuts) // 2
    found = set(offsets_of(path, minPartitions=cuts, **COMMITTED))
    assert found.isdisjoint(aborted)
    assert len(found) == 450


# ---- Damage ----


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Write a partition of four batches of three records; the second has a flipped bit."""
    parts = batches.batches(4)
    log = bytearray(b"".join(parts))
    log[len(parts[0]) + 70] ^= 1
    return partition(tmp_path, (0, [bytes(log)]))


def test_damage_fails_the_query_with_its_location(damaged: Path) -> None:
    size = len(batches.batches(1)[0])
    with pytest.raises(DamagedLogError) as caught:
        rows_of(damaged)
    assert f"{0:020d}.log: bytes {size} to {2 * size}: its checksum is wrong" in str(caught.value)


def test_damage_is_skipped_and_counted(damaged: Path, caplog: pytest.LogCaptureFixture) -> None:
    size = len(batches.batches(1)[0])
    with caplog.at_level(logging.WARNING, "kdump"):
        assert offsets_of(damaged, mode="DROPMALFORMED") == [0, 1, 2, *range(6, 12)]
    assert f"skipped {size} bytes in 1 damaged range" in caplog.text


def test_damage_is_a_separate_row_in_mode_permissive(damaged: Path) -> None:
    rows = rows_of(damaged, mode="PERMISSIVE")
    (corrupt,) = [row for row in rows if row["_corrupt_record"] is not None]
    assert [row["offset"] for row in rows if row is not corrupt] == [0, 1, 2, *range(6, 12)]
    assert (corrupt["topic"], corrupt["partition"], corrupt["offset"]) == ("orders", 0, None)
    assert "its checksum is wrong" in corrupt["_corrupt_record"]
    assert offsets_of(damaged, [("GreaterThan", "offset", -1)], mode="PERMISSIVE")[3] == 6


def test_damage_outside_the_selected_offsets_is_ignored(damaged: Path) -> None:
    assert offsets_of(damaged, **by_partition("endingOffsets", 3)) == [0, 1, 2]


def test_garbage_between_batches_is_damage(tmp_path: Path) -> None:
    first, second = batches.batches(2)
    path = partition(tmp_path, (0, [first, b"\xff" * 40, second]))
    with pytest.raises(DamagedLogError):
        rows_of(path)
    assert offsets_of(path, mode="DROPMALFORMED") == list(range(6))


def test_a_torn_batch_at_the_end_is_damage(tmp_path: Path) -> None:
    first, second = batches.batches(2)
    path = partition(tmp_path, (0, [first, second[:-1]]))
    with pytest.raises(DamagedLogError, match="batch reaches past the end of the file"):
        rows_of(path)
    assert offsets_of(path, mode="DROPMALFORMED") == [0, 1, 2]


def test_preallocated_space_is_damage_only_before_the_last_segment(
    tmp_path: Path,
) -> None:
    padded = b"".join(batches.batches(1)) + bytes(100_000)
    path = partition(tmp_path, (0, [padded]))
    assert offsets_of(path) == [0, 1, 2]
    (path / f"{3:020d}.log").write_bytes(batches.batches(1, base_offset=3)[0])
    with pytest.raises(DamagedLogError, match="zeroes instead of a batch"):
        offsets_of(path)
