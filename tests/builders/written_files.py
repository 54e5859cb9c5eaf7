"""Small log directories of arbitrary files, and their target states."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kdump.apply.plan import Plan, TargetDirectory, TargetPartition, make_plan
from kdump.target.target_file import TargetFile

PARTITION = "orders-0"


def write_files(log_dir: Path, files: Mapping[str, bytes]) -> Path:
    """Write files into a partition of ``log_dir``; return the partition."""
    partition = log_dir / PARTITION
    partition.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (partition / name).write_bytes(content)
    return partition


def target_of(
    log_dir: Path,
    files: Mapping[str, TargetFile],
    root: Mapping[str, TargetFile] | None = None,
) -> TargetDirectory:
    """Make a target state: ``files`` of the partition, and ``root`` of the log directory."""
    return TargetDirectory(log_dir, (TargetPartition(log_dir / PARTITION, files),), root or {})


def plan_of(
    log_dir: Path,
    files: Mapping[str, TargetFile],
    root: Mapping[str, TargetFile] | None = None,
) -> Plan:
    """Plan such a target state."""
    return make_plan(target_of(log_dir, files, root))
