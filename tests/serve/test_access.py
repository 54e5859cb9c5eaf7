"""Who may in, and what they see."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode
from scramp import ScramClient

from builders.batches import batch, record
from builders.log_directories import write_log_directory, write_partition
from builders.serving import PATIENCE_S, RunningServer, framed, opened, received
from builders.serving_securely import (
    ACLS,
    PASSWORD,
    RECORDS,
    Connection,
    admission,
    client_options,
    fetch_of,
)
from kdump.serve.fetch_answers import LARGEST_FETCH_BYTES

CLIENT: Final = {"client_software_name": "test", "client_software_version": "1"}


@pytest.fixture(scope="module")
def by_tls(two_topics: Path) -> Iterator[RunningServer]:
    server = opened(two_topics)
    server.admission = admission(two_topics.parent, ACLS)
    with server:
        yield server


# ---- Authentication ----


def test_requests_before_authentication_end_the_connection(plain: RunningServer) -> None:
    connection = Connection(plain)
    connection.socket.sendall(framed(3, 12, topics=None))
    assert connection.is_closed()


def test_anyone_may_ask_for_the_versions(plain: RunningServer) -> None:
    connection = Connection(plain)
    found = connection.ask(18, 3, **CLIENT)
    assert {17, 36} <= {each.api_key for each in found.api_keys}


def test_a_wrong_password_is_refused_and_the_connection_closed(plain: RunningServer) -> None:
    connection = Connection(plain)
    last = connection.authenticate("alice", "SCRAM-SHA-256", "looking-glass")
    assert last.error_code is ErrorCode.sasl_authentication_failed
    assert connection.is_closed()


@pytest.mark.parametrize(
    ("user", "mechanism"), [("eve", "SCRAM-SHA-256"), ("bob", "SCRAM-SHA-256")]
)
def test_a_user_without_that_credential_is_refused(
    user: str, mechanism: str, plain: RunningServer
) -> None:
    connection = Connection(plain)
    last = connection.authenticate(user, mechanism)
    assert last.error_code is ErrorCode.sasl_authentication_failed
    assert connection.is_closed()


def test_other_mechanisms_are_refused(plain: RunningServer) -> None:
    connection = Connection(plain)
    found = connection.ask(17, 1, mechanism="PLAIN")
    assert found.error_code is ErrorCode.unsupported_sasl_mechanism
    assert found.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert connection.is_closed()


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xfe", b"n,,", b"n,,n=alice", b"n,,r=x,n=alice", b"c=biws,r=x,p=x", b"," * 9],
)
def test_malformed_proofs_are_refused(data: bytes, plain: RunningServer) -> None:
    connection = Connection(plain)
    connection.ask(17, 1, mechanism="SCRAM-SHA-256")
    assert connection.ask(36, 2, auth_bytes=data).error_code is ErrorCode.sasl_authentication_failed
    assert connection.is_closed()


def test_a_large_request_before_authentication_ends_the_connection(plain: RunningServer) -> None:
    connection = Connection(plain)
    connection.socket.sendall((64 << 10).to_bytes(4, "big"))
    assert connection.is_closed()


def test_strangers_do_not_keep_other_things_from_being_said(
    two_topics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdump.serve.served_notices._MOST_REFUSALS", 2)
    server = opened(two_topics)
    server.admission = admission(two_topics.parent, (), with_tls=False)
    with server:
        for user in ("ann", "ben", "cid", "dan", "ann"):
            Connection(server).authenticate(user, "SCRAM-SHA-256")
    refused = "closed a connection of 127.0.0.1: user '{}' has no SCRAM-SHA-256 credential"
    assert server.lines == [
        refused.format("ann"),
        refused.format("ben"),
        "more than 2 kinds of refusals: no others are said",
    ]
    assert server.notices.refused == 5


def test_many_requests_before_authentication_end_the_connection(plain: RunningServer) -> None:
    connection = Connection(plain)
    connection.socket.sendall(framed(18, 3, **CLIENT) * 20)
    answered = 0
    while received(connection.socket):
        answered += 1
    assert answered < 10


def test_who_is_known_stays_who_it_is(plain: RunningServer) -> None:
    connection = Connection.of(plain, "alice")
    found = connection.ask(17, 1, mechanism="SCRAM-SHA-256")
    assert found.error_code is ErrorCode.illegal_sasl_state
    first = ScramClient(["SCRAM-SHA-256"], "root", PASSWORD).get_client_first().encode()
    found = connection.ask(36, 2, auth_bytes=first)
    assert found.error_code is ErrorCode.illegal_sasl_state
    assert {each.name for each in connection.ask(3, 12, topics=None).topics} == {"orders"}


def test_the_mechanism_is_not_changed_on_the_way(plain: RunningServer) -> None:
    connection = Connection(plain)
    assert connection.ask(17, 1, mechanism="SCRAM-SHA-512").error_code is ErrorCode.none
    found = connection.ask(17, 1, mechanism="SCRAM-SHA-256")
    assert found.error_code is ErrorCode.illegal_sasl_state
    assert connection.is_closed()


def test_a_proof_before_the_handshake_is_no_proof(plain: RunningServer) -> None:
    connection = Connection(plain)
    first = ScramClient(["SCRAM-SHA-256"], "root", PASSWORD).get_client_first().encode()
    assert connection.ask(36, 2, auth_bytes=first).error_code is ErrorCode.illegal_sasl_state
    assert connection.is_closed()


def test_the_operator_is_told_why_a_user_is_not_let_in(plain: RunningServer) -> None:
    for user, password in (("eve", PASSWORD), ("alice", "looking-glass")):
        connection = Connection(plain)
        connection.authenticate(user, "SCRAM-SHA-256", password)
        assert connection.is_closed()
    said = "closed a connection of 127.0.0.1: "
    assert said + "user 'eve' has no SCRAM-SHA-256 credential" in plain.lines
    assert said + "the password of user 'alice' is wrong" in plain.lines


def test_a_proof_is_not_taken_twice(plain: RunningServer) -> None:
    """What another connection sent proves nothing: the server has its own nonce in it."""
    said: list[bytes] = []
    for replays in (False, True):
        connection = Connection(plain)
        connection.ask(17, 1, mechanism="SCRAM-SHA-256")
        client = ScramClient(["SCRAM-SHA-256"], "root", PASSWORD, c_nonce="n" * 24)
        first = connection.ask(36, 2, auth_bytes=client.get_client_first().encode())
        client.set_server_first(first.auth_bytes.decode())
        if not replays:
            said.append(client.get_client_final().encode())
        last = connection.ask(36, 2, auth_bytes=said[0])
        assert (last.error_code is ErrorCode.none) != replays


def test_a_wrong_password_is_answered_late(plain: RunningServer) -> None:
    started = time.monotonic()
    Connection(plain).authenticate("alice", "SCRAM-SHA-256", "looking-glass")
    assert time.monotonic() - started >= 0.1


def test_half_handshakes_end_in_time(
    two_topics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdump.serve.server._EARLY_S", 0.1)
    server = opened(two_topics)
    server.admission = admission(tmp_path, ACLS)
    with server, server.connect() as silent, server.connect() as half:
        half.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
        for each in (silent, half):
            each.settimeout(PATIENCE_S)
            assert ended(each)


def test_a_flood_before_authentication_is_bounded_and_locks_nobody_out(
    two_topics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdump.serve.server._MOST_EARLY_CONNECTIONS", 3)
    server = opened(two_topics)
    server.admission = admission(two_topics.parent, ACLS, with_tls=False)
    with server:
        inside = Connection.of(server, "alice")
        waiting = [Connection(server) for _ in range(3)]
        for each in waiting:
            each.ask(18, 3, **CLIENT)
        assert Connection.of(server, "bob").ask(3, 12, topics=None).topics
        assert waiting[0].is_closed()
        assert waiting[1].ask(18, 3, **CLIENT).api_keys
        assert inside.ask(3, 12, topics=None).topics
    assert len(server.lines) == 1


def test_a_client_without_tls_is_told_to_the_operator(
    two_topics: Path, by_tls: RunningServer
) -> None:
    with by_tls.connect() as plaintext:
        plaintext.sendall(framed(18, 3, **CLIENT))
        assert ended(plaintext)
    # Who comes later is answered after that was said.
    Connection.of(by_tls, "alice", two_topics.parent / "server.pem")
    assert any("127.0.0.1: TLS: " in line for line in by_tls.lines)


def test_two_requests_at_once_are_answered_by_tls(two_topics: Path, by_tls: RunningServer) -> None:
    """A transport of TLS that may buffer nothing waits for the client after each write."""
    connection = Connection.of(by_tls, "alice", two_topics.parent / "server.pem")
    connection.socket.settimeout(PATIENCE_S)
    connection.socket.sendall(framed(18, 3, **CLIENT) * 2)
    for _ in range(2):
        assert connection.answer(18, 3).api_keys


def test_a_slow_reader_by_tls_has_no_responses_read_ahead(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "logs", high_watermarks={("orders", 0): 600})
    # 20 KB in each of 600 batches.
    stored = b"".join(batch([record(each, value=bytes(20_000))]) for each in range(600))
    write_partition(root / "orders-0", {0: stored})
    server = opened(root)
    server.admission = admission(tmp_path, ACLS)
    with server:
        slow = Connection.of(server, "alice", tmp_path / "server.pem")
        slow.socket.sendall(fetch_of("orders", most_bytes=LARGEST_FETCH_BYTES) * 10)
        other = Connection.of(server, "bob", tmp_path / "server.pem")
        while not server.notices.fetched_bytes:
            other.ask(18, 3, **CLIENT)
        for _ in range(50):
            other.ask(18, 3, **CLIENT)
        # Two or three of the ten are in the buffers of the system.
        assert server.notices.fetched_bytes <= 5 * LARGEST_FETCH_BYTES
        for _ in range(10):
            assert len(slow.answer(1, 12).responses[0].partitions[0].records) > 1 << 20


def ended(connection: socket.socket) -> bool:
    try:
        while connection.recv(1024):
            pass
    except ConnectionError:
        pass
    return True


# ---- librdkafka ----


def options_of(root: Path, server: RunningServer, user: str, mechanism: str) -> dict[str, Any]:
    other = {"bootstrap.servers": server.address, "group.id": "tests", "log_level": 0}
    return client_options(root.parent, user, mechanism, **other)


def test_librdkafka_reads_by_tls_with_scram(two_topics: Path, by_tls: RunningServer) -> None:
    consumer = Consumer(options_of(two_topics, by_tls, "alice", "SCRAM-SHA-256"))
    try:
        assert offsets_read(consumer, RECORDS) == list(range(RECORDS))
    finally:
        consumer.close()


def test_librdkafka_reads_large_responses_by_tls(tmp_path: Path) -> None:
    count = 400
    root = write_log_directory(tmp_path / "logs", high_watermarks={("orders", 0): count})
    values = random.Random(1).randbytes(20_000)
    stored = b"".join(batch([record(each, value=values)]) for each in range(count))
    write_partition(root / "orders-0", {0: stored})
    server = opened(root)
    server.admission = admission(tmp_path, ACLS)
    with server:
        consumer = Consumer(options_of(root, server, "alice", "SCRAM-SHA-256"))
        try:
            assert offsets_read(consumer, count) == list(range(count))
        finally:
            consumer.close()


def offsets_read(consumer: Consumer, count: int) -> list[int | None]:
    """The offsets of so many records of orders-0."""
    consumer.assign([TopicPartition("orders", 0, 0)])
    found: list[int | None] = []
    while len(found) < count:
        each = consumer.poll(PATIENCE_S)
        assert each is not None
        assert each.error() is None, each.error()
        found.append(each.offset())
    return found


def test_librdkafka_lists_what_another_user_may_see(
    two_topics: Path, by_tls: RunningServer
) -> None:
    admin = AdminClient(options_of(two_topics, by_tls, "bob", "SCRAM-SHA-512"))
    assert set(admin.list_topics(timeout=PATIENCE_S).topics) == {"orders"}


def test_librdkafka_with_a_wrong_password_sees_nothing(
    two_topics: Path, by_tls: RunningServer
) -> None:
    options = options_of(two_topics, by_tls, "alice", "SCRAM-SHA-256")
    admin = AdminClient({**options, "sasl.password": "looking-glass"})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
