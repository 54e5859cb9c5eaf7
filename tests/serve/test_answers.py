"""Answers to single requests, over a small log."""

from __future__ import annotations

import resource
import shutil
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from builders.batches import BASE_TIMESTAMP_MS, batch, batches, record
from builders.lock_holder import held_elsewhere
from builders.log_directories import TOPIC_ID, file_name, write_log_directory, write_partition
from builders.serving import PATIENCE_S, USUAL, RunningServer, decoded, framed, opened, received
from kdump.formats.names import FileKind
from kdump.log.lock_holders import forget_holders
from kdump.serve.messages import built, decode_request, versions_of

FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
EPOCH: Final = 23
OFFERED: Final = (
    *(0, FETCH, LIST_OFFSETS, METADATA, *range(8, 17), 18, EPOCH),
    *(35, 60, 61, 65, 66, 68, 69, 75, 77, 89, 90),
)


def fetch(server: RunningServer, offset: int, version: int = 12, **fields: Any) -> Any:
    """Fetch from orders-0; gives the answer for the partition."""
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    partition |= {key: fields.pop(key) for key in list(fields) if key in PARTITION_FIELDS}
    topic = {"topic": "orders", "topic_id": TOPIC_ID, "partitions": [partition]}
    answer = server.ask(
        FETCH,
        version,
        **{
            "replica_id": -1,
            "max_wait": WAIT,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "topics": [topic],
            "forgotten_topics_data": [],
            **fields,
        },
    )
    if not answer.responses:
        return answer
    return answer.responses[0].partitions[0]


PARTITION_FIELDS: Final = {"current_leader_epoch", "partition_max_bytes", "partition"}
WAIT: Final = timedelta(0)


def offset_of(server: RunningServer, timestamp: int, version: int = 11) -> Any:
    partition = {"partition_index": 0, "timestamp": timestamp}
    topics = [{"name": "orders", "partitions": [partition]}]
    answer = server.ask(
        LIST_OFFSETS, version, replica_id=-1, isolation_level=0, topics=topics, timeout=WAIT
    )
    return answer.topics[0].partitions[0]


def test_only_what_is_answered_is_offered(server: RunningServer) -> None:
    found = server.ask(18, 3, client_software_name="test", client_software_version="1")
    offered = {each.api_key: (each.min_version, each.max_version) for each in found.api_keys}
    assert offered == {key: versions_of(key) for key in OFFERED}


def test_a_client_that_is_too_new_learns_the_versions(server: RunningServer) -> None:
    with server.connect() as connection:
        connection.sendall(b"\0\0\0\x0a\0\x12\0\x63\0\0\0\x07\xff\xff")
        data = connection.recv(4096)
    assert int.from_bytes(data[8:10], "big") == ErrorCode.unsupported_version
    assert int.from_bytes(data[10:14], "big") == len(OFFERED)


NEWER: Final = bytes([1, 99, 3]) + b"new"
"""A tagged field that no schema has."""


@pytest.mark.parametrize("at", [16, -4, -1], ids=["header", "topic", "body"])
def test_tagged_fields_of_newer_clients_are_ignored(at: int, server: RunningServer) -> None:
    plain = framed(3, 12, topics=[{"name": "orders", "topic_id": None}])[4:]
    assert plain[at] == 0
    request = plain[:at] + NEWER + plain[len(plain[:at]) + 1 :]
    with server.connect() as connection:
        connection.sendall(len(request).to_bytes(4, "big") + request)
        answer = decoded(3, 12, received(connection))
    assert [each.name for each in answer.topics] == ["orders"]


def test_newer_fields_within_tagged_fields_are_ignored() -> None:
    state = {"replica_id": 3, "replica_epoch": 4}
    fields = {"max_wait": WAIT, "min_bytes": 1, "topics": [], "forgotten_topics_data": []}
    plain = framed(FETCH, 17, replica_state=state, **fields)[4:]
    size, content = plain[-14], plain[-13:]
    assert size == len(content)
    within = content[:-1] + NEWER
    request = plain[:-14] + bytes([len(within)]) + within
    assert decode_request(request, frozenset({FETCH})).body == built(
        load_request_schema(FETCH, 17), {**USUAL, "replica_state": state, **fields}
    )


@pytest.mark.parametrize("version", range(4, 19))
def test_batches_are_fetched_as_they_are_stored(
    version: int, server: RunningServer, log_dir: Path
) -> None:
    stored = (log_dir / "orders-0" / "00000000000000000000.log").read_bytes()
    found = fetch(server, 0, version)
    assert (found.error_code, found.high_watermark) == (ErrorCode.none, 30)
    assert found.records == stored


def test_a_fetch_begins_with_the_batch_that_has_the_offset(server: RunningServer) -> None:
    assert fetch(server, 7).records == b"".join(batches(10)[2:])


def test_a_fetch_has_whole_batches_within_the_limit(server: RunningServer) -> None:
    size = len(batches(1)[0])
    assert fetch(server, 0, partition_max_bytes=2 * size + 1).records == b"".join(batches(2))
    assert fetch(server, 0, max_bytes=2 * size + 1).records == b"".join(batches(2))


def test_a_fetch_keeps_few_logs_open(log_dir: Path) -> None:
    (first,) = batches(1)
    empty = dict.fromkeys(range(3, 1003), b"")
    last = batch([record(1003)])
    write_partition(log_dir / "orders-1", {0: first} | empty | {1003: last})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with opened(log_dir) as server:
        largest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (largest + 100, hard))
        try:
            found = fetch(server, 3, partition=1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found.records == last


def test_the_first_batch_is_fetched_even_if_it_is_larger(server: RunningServer) -> None:
    assert fetch(server, 0, partition_max_bytes=1).records == batches(1)[0]


def test_the_end_of_the_log_has_no_records(server: RunningServer) -> None:
    found = fetch(server, 30)
    assert (found.error_code, found.records) == (ErrorCode.none, b"")


def test_a_long_poll_waits(server: RunningServer) -> None:
    started = time.monotonic()
    fetch(server, 30, max_wait=timedelta(milliseconds=200))
    assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize("offset", [-1, 31])
def test_other_offsets_are_out_of_range(offset: int, server: RunningServer) -> None:
    assert fetch(server, offset).error_code is ErrorCode.offset_out_of_range


def test_nothing_past_the_high_watermark_is_fetched(log_dir: Path) -> None:
    write_log_directory(log_dir, high_watermarks={("orders", 0): 12})
    with opened(log_dir) as server:
        assert fetch(server, 0).records == b"".join(batches(4))
        assert fetch(server, 12).records == b""
        assert fetch(server, 13).error_code is ErrorCode.none


def test_followers_and_sessions_are_refused(server: RunningServer) -> None:
    follower = fetch(server, 0, replica_id=3)
    assert follower.error_code is ErrorCode.cluster_authorization_failed
    session = fetch(server, 0, session_id=5, session_epoch=2)
    assert session.error_code is ErrorCode.fetch_session_id_not_found


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_are_listed(version: int, server: RunningServer) -> None:
    assert offset_of(server, -1, version).offset == 30
    assert offset_of(server, -2, version).offset == 0
    found = offset_of(server, BASE_TIMESTAMP_MS + 4, version)
    assert (found.offset, found.timestamp) == (4, BASE_TIMESTAMP_MS + 4)


def test_a_time_after_all_records_has_no_offset(server: RunningServer) -> None:
    found = offset_of(server, BASE_TIMESTAMP_MS + 1000)
    assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.none, -1, -1)


def test_the_largest_time_is_listed_from_version_7_on(server: RunningServer) -> None:
    found = offset_of(server, -3, 7)
    assert (found.offset, found.timestamp) == (29, BASE_TIMESTAMP_MS + 29)
    assert offset_of(server, -3, 6).error_code is ErrorCode.unsupported_version


def epoch_end(server: RunningServer, epoch: int) -> Any:
    topics = [{"topic": "orders", "partitions": [{"partition": 0, "leader_epoch": epoch}]}]
    return server.ask(EPOCH, 4, topics=topics).topics[0].partitions[0]


def test_the_end_of_a_leader_epoch(server: RunningServer) -> None:
    found = epoch_end(server, 0)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.none, 0, 30)
    assert epoch_end(server, 9).end_offset == -1


@pytest.mark.parametrize("version", range(14))
def test_topics_are_described(version: int, server: RunningServer) -> None:
    found = server.ask(METADATA, version, topics=() if version == 0 else None)
    assert [each.name for each in found.topics] == ["orders"]
    (broker,) = found.brokers
    assert (broker.host, broker.port) == ("127.0.0.1", server.port)
    (partition,) = found.topics[0].partitions
    assert partition.leader_id == broker.node_id


def test_all_topics_are_listed_for_librdkafka(server: RunningServer) -> None:
    """It sends three bytes too many, which a broker ignores."""
    assert set(
        AdminClient({"bootstrap.servers": server.address}).list_topics(timeout=30).topics
    ) == {"orders"}


def test_unknown_topics_are_not_created(server: RunningServer) -> None:
    asked = [{"name": "other", "topic_id": None}]
    found = server.ask(METADATA, 12, topics=asked, allow_auto_topic_creation=True)
    assert found.topics[0].error_code is ErrorCode.unknown_topic_or_partition
    assert fetch(server, 0, partition=1).error_code is ErrorCode.unknown_topic_or_partition


def test_topics_are_described_in_parts(log_dir: Path) -> None:
    for number in range(1, 5):
        write_partition(log_dir / f"orders-{number}", {0: b""})
    write_partition(log_dir / "payments-0", {0: b""})
    seen, cursor = [], None
    with opened(log_dir) as server:
        while True:
            found = server.ask(75, 0, topics=[], response_partition_limit=2, cursor=cursor)
            seen += [
                (topic.name, each.partition_index)
                for topic in found.topics
                for each in topic.partitions
            ]
            if found.next_cursor is None:
                break
            cursor = {
                "topic_name": found.next_cursor.topic_name,
                "partition_index": found.next_cursor.partition_index,
            }
    assert seen == [*(("orders", number) for number in range(5)), ("payments", 0)]


def test_the_cluster_is_described(server: RunningServer) -> None:
    found = server.ask(60, 2, endpoint_type=1)
    assert [(each.host, each.port) for each in found.brokers] == [("127.0.0.1", server.port)]
    controllers = server.ask(60, 2, endpoint_type=2)
    assert controllers.error_code is ErrorCode.mismatched_endpoint_type


@pytest.mark.parametrize("version", range(7))
def test_the_one_node_coordinates_everything(version: int, server: RunningServer) -> None:
    found = server.ask(10, version, key="g", key_type=0, coordinator_keys=["g"])
    coordinator = found if version < 4 else found.coordinators[0]
    assert (coordinator.host, coordinator.port) == ("127.0.0.1", server.port)


def test_a_producer_is_refused(server: RunningServer, log_dir: Path) -> None:
    stored = (log_dir / "orders-0" / "00000000000000000000.log").read_bytes()
    failures: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": server.address})
    producer.produce("orders", b"value", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert [each and each.code() for each in failures] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    assert (log_dir / "orders-0" / "00000000000000000000.log").read_bytes() == stored


def replace_orders(log_dir: Path, bases: list[int]) -> list[bytes]:
    """Write ten batches into segments with these base offsets; return the batches."""
    shutil.rmtree(log_dir / "orders-0")
    rows = batches(10)
    ends = [*bases[1:], 30]
    logs = {
        base: b"".join(rows[base // 3 : end // 3]) for base, end in zip(bases, ends, strict=True)
    }
    write_partition(log_dir / "orders-0", logs)
    return rows


@pytest.mark.parametrize("bases", [[0], [0, 15]])
def test_a_log_that_is_replaced_by_later_records_is_an_error_of_its_partition(
    bases: list[int], log_dir: Path
) -> None:
    """A consumer would wait for the records that it had when its end was looked up."""
    rows = replace_orders(log_dir, bases)
    path = log_dir / "orders-0" / file_name(bases[-1], FileKind.LOG)
    later = [(int.from_bytes(row[:8]) + 100).to_bytes(8) + row[8:] for row in rows]
    with opened(log_dir) as server:
        assert offset_of(server, -1).offset == 30
        path.write_bytes(b"".join(later[bases[-1] // 3 :]))
        assert fetch(server, 21).error_code is ErrorCode.kafka_storage_error
    assert any("was replaced" in line and path.name in line for line in server.lines)


@pytest.mark.parametrize("kept", [0, 3])
@pytest.mark.parametrize("bases", [[0], [0, 15]])
def test_a_file_that_becomes_shorter_is_an_error_of_its_partition(
    bases: list[int], kept: int, log_dir: Path
) -> None:
    rows = replace_orders(log_dir, bases)
    path = log_dir / "orders-0" / file_name(0, FileKind.LOG)
    with opened(log_dir) as server:
        assert offset_of(server, -1).offset == 30
        with path.open("r+b") as log:
            log.truncate(kept * len(rows[0]))
        if kept:
            assert fetch(server, 0).records == b"".join(rows[:kept])
        assert fetch(server, 9).error_code is ErrorCode.kafka_storage_error
    assert any("became shorter" in line and path.name in line for line in server.lines)


def test_a_file_that_vanishes_is_an_error_of_its_partition(log_dir: Path) -> None:
    write_partition(log_dir / "other-0", {0: b"".join(batches(2))})
    with opened(log_dir) as server:
        shutil.rmtree(log_dir / "orders-0")
        assert fetch(server, 0).error_code is ErrorCode.kafka_storage_error
        assert server.read([("other", 0)])["other", 0]
    assert any("orders-0" in line for line in server.lines)


def append(log_dir: Path, data: bytes) -> None:
    with (log_dir / "orders-0" / file_name(0, FileKind.LOG)).open("ab") as log:
        log.write(data)


def test_the_end_of_a_log_that_a_broker_appends_to_is_its_end_by_now(locked_dir: Path) -> None:
    write_log_directory(locked_dir, clean=False, high_watermarks={("orders", 0): 27})
    *earlier, last = batches(10)
    write_partition(locked_dir / "orders-0", {0: b"".join(earlier)})
    with opened(locked_dir) as server:
        assert offset_of(server, -1).offset == 27
        append(locked_dir, last)
        assert offset_of(server, -1).offset == 30
        assert offset_of(server, -3).offset == 29


def test_a_broker_that_is_started_meanwhile_is_read_to_its_end(log_dir: Path) -> None:
    """Its high watermark is not written down so soon."""
    try:
        with opened(log_dir) as server:
            assert fetch(server, 30).records == b""
            with held_elsewhere(log_dir):
                forget_holders()
                append(log_dir, batches(11)[10])
                assert fetch(server, 30).records == batches(11)[10]
    finally:
        forget_holders()
