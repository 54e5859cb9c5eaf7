"""The runbook for a pod that crash-loops, line by line, over a broker that does not start."""

from __future__ import annotations

from pathlib import Path

from builders.batches import batches
from builders.in_process import run_kdump
from builders.log_directories import write_log_directory, write_partition
from builders.runbook import Followed
from kdump.formats import names


def test_its_lines_lead_from_the_message_to_a_directory_that_loads(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "data", clean=False)
    write_partition(root / "orders-0", {0: b"".join(batches(3)) + bytes(1000)})
    (root / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(b"garbage")
    properties = tmp_path / "server.properties"
    properties.write_text(f"node.id=7\nlog.dirs={root}\n")
    instead = {"FILE": str(properties), "DIR...": str(root)}

    followed = Followed("pod-crash-loops", tmp_path, instead)

    explain, identity, ls, verify = followed.run("explain", "identity", "ls", "verify")
    assert b"truncate the log" in explain.stdout
    assert identity.exit_status == 0
    assert b"orders" in ls.stdout
    assert b"checkpoint-malformed" in verify.stdout
    preview, preview_of_repair, repair, recover = followed.run(
        "recover", "verify", "verify", "recover"
    )
    assert b"nothing written" in preview.stdout
    assert b"nothing written" in preview_of_repair.stdout
    assert repair.exit_status == 1
    assert recover.exit_status in (0, 1)
    assert run_kdump(["verify", str(root)], tmp_path).exit_status == 0
    assert (root / names.CLEAN_SHUTDOWN_MARKER).exists()
