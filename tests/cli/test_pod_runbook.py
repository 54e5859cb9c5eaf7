"""The runbook for a pod that crash-loops, line by line, over a broker that does not start."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from builders.batches import batches
from builders.in_process import Outcome, run_kdump
from builders.kubectl_kdump import IMAGE, printed_job
from builders.kubernetes_api import KubernetesApi
from builders.kubernetes_brokers import claim, pod
from builders.log_directories import write_log_directory, write_partition
from builders.runbook import commands_of
from kdump.formats import names

RUNBOOK: Final = "pod-crash-loops"


def kdump_arguments(line: str, root: Path) -> list[str]:
    """What kdump is given by a line, whose pod has one log directory."""
    api = KubernetesApi()
    env = {"KAFKA_LOG_DIRS": str(root)}
    broker = pod("POD", {"data": str(root.parent)}, env=env, context={"runAsUser": 1})
    broker["status"] = {"phase": "Pending"}
    api.add(broker, claim("data"))
    job = printed_job(api, f"--image={IMAGE}", *shlex.split(line)[2:])
    (container,) = job["spec"]["template"]["spec"]["containers"]
    args: list[str] = container["args"]
    is_written = "readOnly" not in container["volumeMounts"][0]
    assert is_written == ("--write" in line)
    return args


def test_its_lines_lead_from_the_message_to_a_directory_that_loads(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "data", clean=False)
    write_partition(root / "orders-0", {0: b"".join(batches(3)) + bytes(1000)})
    (root / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(b"garbage")
    lines = commands_of(RUNBOOK, "kdump", "kubectl kdump")

    def run(line: str, command: str) -> Outcome:
        is_here = line.startswith("kdump")
        words = shlex.split(line)[1:] if is_here else kdump_arguments(line, root)
        assert words[0] == command
        return run_kdump(words, tmp_path)

    explain, identity, ls, verify = map(run, lines, ("explain", "identity", "ls", "verify"))
    assert b"truncate the log" in explain.stdout
    assert identity.exit_status == 0
    assert b"orders" in ls.stdout
    assert b"checkpoint-malformed" in verify.stdout
    preview, preview_of_repair, repair, recover = map(
        run, lines[4:], ("recover", "verify", "verify", "recover")
    )
    assert b"nothing written" in preview.stdout
    assert b"nothing written" in preview_of_repair.stdout
    assert repair.exit_status == 1
    assert recover.exit_status in (0, 1)
    assert len(lines) == 8
    assert run_kdump(["verify", str(root)], tmp_path).exit_status == 0
    assert (root / names.CLEAN_SHUTDOWN_MARKER).exists()
    undo = kdump_arguments(f"kubectl kdump POD -- undo {root}", root)
    assert run_kdump(undo, tmp_path).exit_status == 0
    assert not (root / names.CLEAN_SHUTDOWN_MARKER).exists()
