"""The runbook for a consumer that is stuck, line by line, over a leader with a damaged batch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from builders import log_directories
from builders.batches import batches
from builders.in_process import run_kdump
from builders.runbook import Followed


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    """Write the disks of a leader whose second batch is damaged, and of a follower."""
    log = batches(3)
    for node, broken in enumerate((True, False)):
        path = log_directories.write_log_directory(tmp_path / f"node-{node}", clean=False)
        properties = path / "meta.properties"
        properties.write_text(re.sub(r"node.id=.*", f"node.id={node}", properties.read_text()))
        data = bytearray(b"".join(log))
        if broken:
            data[len(log[0]) + len(log[1]) - 1] ^= 1
        log_directories.write_partition(path / "orders-0", {0: bytes(data)})
    return tmp_path


def test_its_lines_lead_from_the_offset_to_a_log_that_is_valid_again(disks: Path) -> None:
    names = {
        "TOPIC-N": "orders-0",
        "OFFSET": "4",
        "DIR...": str(disks / "node-0"),
        "OTHER...": str(disks / "node-1"),
        "DIR": str(disks / "node-0"),
    }
    followed = Followed("stuck-consumer", disks, names)
    lookup, verify, diff, preview, salvage = followed.run(
        "lookup", "verify", "diff", "recover", "recover"
    )
    assert followed.left == []

    assert b"bytes 106 to 212: its checksum is wrong" in lookup.stderr
    assert b"offset 4 is lost" in lookup.stdout
    assert b"batch-checksum" in verify.stdout
    assert diff.exit_status != 0
    assert "lost: offsets 3\u20135" in preview.stdout.decode()
    assert salvage.exit_status == 1
    again = run_kdump(["verify", str(disks / "node-0")], disks)
    assert b"batch-checksum" not in again.stdout
