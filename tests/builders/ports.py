"""Ports for servers that are stopped and started again, at the same address."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from typing import Final

HOST: Final = "127.0.0.1"
_PORTS: Final = range(15_000, 31_000)
"""Below those that outgoing connections get."""
_WORKERS: Final = 8
_given_ports: set[int] = set()


def free_port() -> int:
    """Find a free port that stays free: no other server or worker of the tests gets it."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    for _ in range(1_000):
        port = random.choice(_PORTS[worker::_WORKERS])
        if port in _given_ports:
            continue
        with contextlib.suppress(OSError), socket.create_server((HOST, port)):
            _given_ports.add(port)
            return port
    raise AssertionError("no free port")
