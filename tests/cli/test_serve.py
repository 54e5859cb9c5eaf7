"""``kdump serve`` as a program: what it says, whom it lets in, and how it ends."""

from __future__ import annotations

import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace

from builders.batches import batches
from builders.in_process import run_kdump
from builders.log_directories import TOPIC_ID, write_log_directory, write_partition
from builders.metadata_log import partition_record, topic_record, write_metadata_log
from builders.serving import answer_at
from builders.serving_securely import acl, client_options, credential, write_certificate
from builders.trees import contents_of
from kdump.formats import names
from kdump.formats.uuids import format_uuid
from kdump.state.metadata.image_records import ImageRecord

PATIENCE_S = 60


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    root = write_log_directory(tmp_path / "logs", high_watermarks={("orders", 0): 30})
    write_partition(root / "orders-0", {0: b"".join(batches(10))})
    return root


class Program:
    """The program, until it is stopped."""

    def __init__(self, log_dir: Path, *options: str) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kdump", "serve", "--listen", "127.0.0.1:0"),
                *(*options, str(log_dir)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.started = [self._process.stdout.readline()]
        while not self.started[-1].startswith("Stop"):
            self.started.append(self._process.stdout.readline())
            assert self.started[-1], self._process.communicate()

    def stop(self, number: signal.Signals) -> tuple[int, str, str]:
        """Stop it; gives the status and the rest of what it wrote."""
        self._process.send_signal(number)
        out, err = self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode, out, err

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def program(log_dir: Path) -> Iterator[Program]:
    running = Program(log_dir)
    yield running
    running.kill()


def test_it_says_what_it_serves_and_where(program: Program, log_dir: Path) -> None:
    first, *others = program.started
    assert re.fullmatch(
        r"Serving 1 topic with 1 partition of cluster a-cluster at 127\.0\.0\.1:\d+, read-only\n",
        first,
    )
    assert others == [
        f"  1 partition from {log_dir}\n",
        "  without the cluster's metadata: no log directory has __cluster_metadata\n",
        "Stop with Ctrl-C.\n",
    ]


def test_the_page_shows_what_it_says_of_a_cluster(fixtures: Path, repository_root: Path) -> None:
    page = (repository_root / "docs" / "serve.md").read_text(encoding="utf-8")
    found = re.search(r"^    kdump serve (/.*)\n\n((?:    .*\n)+)", page, re.MULTILINE)
    assert found is not None
    folder = str(fixtures / "states" / "clean")
    *others, last = found[1].replace("/copies", folder).split()
    running = Program(Path(last), *others)
    running.kill()
    said = "".join(f"    {line}" for line in running.started).replace(folder, "/copies")
    assert re.sub(r":\d+,", ":9092,", said) == found[2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_status_0_and_a_summary(
    number: signal.Signals, program: Program, log_dir: Path
) -> None:
    before = contents_of(log_dir)
    assert program.stop(number) == (
        0,
        "0 connections, 0 bytes of records served, 0 requests refused\n",
        "",
    )
    assert contents_of(log_dir) == before


def test_a_malformed_checkpoint_is_status_4(log_dir: Path) -> None:
    (log_dir / names.RECOVERY_POINT_CHECKPOINT).write_bytes(b"x")
    running = Program(log_dir)
    status, _, err = running.stop(signal.SIGTERM)
    assert status == 4
    assert names.RECOVERY_POINT_CHECKPOINT in err


def test_damage_that_a_client_met_is_status_4(log_dir: Path) -> None:
    path = log_dir / "orders-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-10])
    running = Program(log_dir)
    port = int(running.started[0].split(":")[-1].split(",")[0])
    asked = {"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}
    answer_at(port, 2, 6, replica_id=-1, isolation_level=0, topics=[asked])
    status, out, err = running.stop(signal.SIGTERM)
    assert status == 4
    assert out.count("orders-0: the log ends at offset 27, before") == 2
    assert err.count("orders-0: the log ends at offset 27, before") == 2


@pytest.mark.parametrize("address", ["0.0.0.0:9092", "10.1.2.3:9092", "example.org:9092", "[::]:0"])
@pytest.mark.parametrize(
    "options", [(), ("--tls-cert", "cert", "--tls-key", "key"), ("--sasl",)], ids=str
)
def test_other_machines_are_let_in_by_tls_and_sasl_alone(
    options: tuple[str, ...], address: str, log_dir: Path
) -> None:
    done = run_kdump(["serve", "--listen", address, *options, str(log_dir)], log_dir)
    assert done.exit_status == 16
    assert b"it requires --tls-cert, --tls-key and --sasl, or --allow-anyone" in done.stderr


def test_anyone_is_let_in_if_that_is_said(log_dir: Path) -> None:
    running = Program(log_dir, "--listen", "0.0.0.0:0", "--allow-anyone")
    try:
        assert any(
            line.endswith("may read everything, without a password\n") for line in running.started
        )
    finally:
        running.kill()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--tls-cert", "cert"), b"--tls-cert and --tls-key require each other"),
        (("--tls-key", "key"), b"--tls-cert and --tls-key require each other"),
        (("--super-user", "root"), b"--super-user requires --sasl"),
        (("--allow-anyone", "--sasl"), b"--allow-anyone and --sasl are mutually exclusive"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: tuple[str, ...], what: bytes, log_dir: Path
) -> None:
    done = run_kdump(["serve", *options, str(log_dir)], log_dir)
    assert done.exit_status == 16
    assert what in done.stderr


def test_a_certificate_without_its_key_is_refused(log_dir: Path, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    _, other_key = write_certificate(other)
    for own, private in ((certificate, other_key), (certificate, tmp_path / "none"), (key, key)):
        files = ("--tls-cert", str(own), "--tls-key", str(private))
        done = run_kdump(["serve", *files, str(log_dir)], log_dir)
        assert done.exit_status == 8
        assert done.stderr.startswith(f"kdump: {own}, {private}: ".encode())


def test_sasl_needs_metadata_with_credentials(log_dir: Path) -> None:
    done = run_kdump(["serve", "--sasl", str(log_dir)], log_dir)
    assert done.exit_status == 8
    assert b"no log directory has it" in done.stderr
    write_metadata_log(log_dir, [topic_record("orders", TOPIC_ID.int)])
    done = run_kdump(["serve", "--sasl", str(log_dir)], log_dir)
    assert done.exit_status == 8
    assert b"needs SCRAM credentials" in done.stderr


def test_sasl_needs_metadata_that_is_whole(log_dir: Path) -> None:
    """What is behind the damage may deny what is before it."""
    metadata = with_users(log_dir)
    log = metadata / "00000000000000000000.log"
    stored = bytearray(log.read_bytes())
    stored[-90] ^= 1
    log.write_bytes(stored + stored[:100])
    done = run_kdump(["serve", "--sasl", str(log_dir)], log_dir)
    assert done.exit_status == 8
    assert b"who may do what is not known" in done.stderr


def with_users(log_dir: Path) -> Path:
    """Write metadata with two users, one of whom may read orders; gives its directory."""
    alice, bob = (credential(each, "SCRAM-SHA-256") for each in ("alice", "bob"))
    may_read = acl("User:alice", "READ", "TOPIC:orders")
    may_read = replace(may_read, acl_id=format_uuid(UUID(int=7)))
    records = [
        topic_record("orders", TOPIC_ID.int),
        partition_record(TOPIC_ID.int, 0, [7], [1]),
        *(
            ImageRecord("USER_SCRAM_CREDENTIAL_RECORD", 0, each.record()).encode()
            for each in (alice, bob)
        ),
        ImageRecord("ACCESS_CONTROL_ENTRY_RECORD", 0, may_read.record()).encode(),
    ]
    write_metadata_log(log_dir, records)
    return log_dir / f"{names.CLUSTER_METADATA_TOPIC}-0"


@pytest.mark.parametrize("shakes_hands", [False, True])
def test_it_ends_at_once_although_clients_are_connected_by_tls(
    shakes_hands: bool, log_dir: Path, tmp_path: Path
) -> None:
    certificate, key = write_certificate(tmp_path)
    running = Program(log_dir, "--tls-cert", str(certificate), "--tls-key", str(key))
    try:
        host, port = running.started[0].split()[-2].removesuffix(",").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as client:
            if shakes_hands:
                trust = ssl.create_default_context(cafile=certificate)
                client = trust.wrap_socket(client, server_hostname=host)
            status, _, err = running.stop(signal.SIGTERM)
            client.close()
        assert (status, err) == (0, "")
    finally:
        running.kill()


def test_the_users_of_the_metadata_see_what_its_acls_allow(log_dir: Path, tmp_path: Path) -> None:
    with_users(log_dir)
    certificate, key = write_certificate(tmp_path)
    running = Program(
        log_dir,
        *("--tls-cert", str(certificate), "--tls-key", str(key), "--sasl"),
        *("--super-user", "bob"),
    )
    try:
        assert running.started[-3:-1] == [
            "  by TLS\n",
            "  for the 2 users with SCRAM credentials, as the cluster's ACLs allow\n",
        ]
        address = running.started[0].split()[-2].removesuffix(",")
        for user in ("alice", "bob"):
            options = client_options(tmp_path, user, "SCRAM-SHA-256")
            admin = AdminClient({"bootstrap.servers": address, **options})
            assert set(admin.list_topics(timeout=PATIENCE_S).topics) == {"orders"}
    finally:
        running.kill()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536"])
def test_an_address_has_a_port(address: str, log_dir: Path) -> None:
    done = run_kdump(["serve", "--listen", address, str(log_dir)], log_dir)
    assert done.exit_status == 16
    assert b"is not HOST:PORT" in done.stderr


def test_an_unknown_broker_is_refused(log_dir: Path) -> None:
    done = run_kdump(["serve", "--broker", "99", str(log_dir)], log_dir)
    assert done.exit_status == 16
    assert b"no log directory is of broker 99: they are of 7" in done.stderr


def test_a_log_directory_of_kafka_0_7_is_served(tmp_path: Path) -> None:
    (tmp_path / "logs" / "orders-0").mkdir(parents=True)
    (tmp_path / "logs" / "orders-0" / "00000000000000000000.kafka").write_bytes(b"")
    running = Program(tmp_path / "logs")
    assert running.started[0].startswith("Serving 1 topic with 1 partition at ")
    status, _, _ = running.stop(signal.SIGTERM)
    assert status == 0


def test_a_selection_of_nothing_is_refused(log_dir: Path) -> None:
    assert run_kdump(["serve", "--topic", "other", str(log_dir)], log_dir).exit_status == 16
