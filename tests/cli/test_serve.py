"""``kdump serve`` as a program: what it says, whom it lets in, and how it ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.batches import batches
from builders.in_process import run_kdump
from builders.log_directories import write_log_directory, write_partition
from builders.trees import contents_of
from kdump.formats import names

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


@pytest.mark.parametrize("address", ["0.0.0.0:9092", "10.1.2.3:9092", "example.org:9092"])
def test_other_machines_are_not_let_in(address: str, log_dir: Path) -> None:
    done = run_kdump(["serve", "--listen", address, str(log_dir)], log_dir)
    assert done.exit_status == 16
    assert b"is not an address of this machine alone" in done.stderr


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536"])
def test_an_address_has_a_port(address: str, log_dir: Path) -> None:
    done = run_kdump(["serve", "--listen", address, str(log_dir)], log_dir)
    assert done.exit_status == 16
    assert b"is not HOST:PORT" in done.stderr


def test_an_unknown_broker_is_refused(log_dir: Path) -> None:
    done = run_kdump(["serve", "--broker", "99", str(log_dir)], log_dir)
    assert done.exit_status == 16
    assert b"no log directory is of broker 99: they are of 7" in done.stderr


def test_a_log_directory_of_kafka_0_7_is_refused(tmp_path: Path) -> None:
    (tmp_path / "logs" / "orders-0").mkdir(parents=True)
    (tmp_path / "logs" / "orders-0" / "00000000000000000000.kafka").write_bytes(b"")
    done = run_kdump(["serve", "logs"], tmp_path)
    assert done.exit_status == 16
    assert b"Kafka 0.7, which is not served" in done.stderr


def test_a_selection_of_nothing_is_refused(log_dir: Path) -> None:
    assert run_kdump(["serve", "--topic", "other", str(log_dir)], log_dir).exit_status == 16
