"""Thousands of hostile clients: nothing is written, nothing fails within, memory does not grow."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import struct
from collections import deque
from pathlib import Path
from typing import Final

import pytest

from builders.served_process import started
from builders.serving import CLUSTER, answer_at, connected
from builders.trees import tree_of
from kdump.serve.messages import versions_of

pytestmark = pytest.mark.soak

CLIENTS: Final = 3000
MOST_GROWTH_BYTES: Final = 64 << 20
MOST_OPEN: Final = 20
ALPHABET: Final = (
    *(b"\0", b"\0\0", b"\0\0\0\0", b"\1", b"\2", b"\0\0\0\1", b"\0\0\0\3", b"\x7f", b"\xff"),
    *(b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\0\1", b"\x80"),
    *(b"\0\6orders", b"\7orders", b"\0\x09g-classic", b"\x0ag-classic", b"\0\5range"),
)
"""What requests are made of: counts, lengths, flags and names."""
NO_LINGERING: Final = struct.pack("ii", 1, 0)
"""Ends a connection as the kill of a client does, with what is on its way lost."""


class Attack:
    """Clients of all bad kinds, one after the other; some stay connected."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._rng = random.Random(seed)
        asked = answer_at(port, 18, 3, client_software_name="test", client_software_version="1")
        self._keys = [each.api_key for each in asked.api_keys]
        self._open: deque[socket.socket] = deque()

    def run(self, clients: int) -> None:
        for _ in range(clients):
            client = connected(self._port)
            with contextlib.suppress(ConnectionError):
                for _ in range(self._rng.randint(1, 4)):
                    client.sendall(self._request())
            if self._rng.random() < 0.5:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGERING)
            self._open.append(client)
            if len(self._open) > self._rng.randint(1, MOST_OPEN):
                self._open.popleft().close()

    def close(self) -> None:
        while self._open:
            self._open.pop().close()

    def _request(self) -> bytes:
        rng = self._rng
        key = rng.choice(self._keys)
        version = rng.randint(*versions_of(key))
        head = struct.pack(">hhi", key, version, 7) + rng.choice((b"\xff\xff", b"\0\0"))
        is_flexible = rng.random() < 0.5
        body = b"".join(rng.choices(ALPHABET, k=rng.randrange(40)))
        data = head + (b"\0" if is_flexible else b"") + body
        size = len(data) + rng.choice((0, 0, 0, 0, 1, 1000, 1 << 30, -len(data)))
        sent = size.to_bytes(4, "big", signed=True) + data
        return sent if rng.random() < 0.9 else sent[: rng.randrange(len(sent))]


def resident_bytes(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


def test_a_long_attack_leaves_no_trace(fixtures: Path) -> None:
    disks = [fixtures / "states" / "clean" / name for name in CLUSTER]
    before = [tree_of(each) for each in disks]
    with started(["serve", *map(str, disks)]) as server:
        port = int(server.address.rpartition(":")[2])
        attack = Attack(port, 1)
        attack.run(CLIENTS // 3)
        usual = resident_bytes(server.process_id)
        attack.run(CLIENTS)
        grown = resident_bytes(server.process_id) - usual
        attack.close()
        assert answer_at(port, 3, 12, topics=[{"name": "orders", "topic_id": None}]).topics
    assert server.exit_status == 0
    text = "\n".join(server.said)
    assert "Traceback" not in text
    assert "could not be answered" not in text
    assert grown < MOST_GROWTH_BYTES
    assert [tree_of(each) for each in disks] == before
