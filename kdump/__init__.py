"""kdump: look into, check and repair the log directories of a stopped Apache Kafka broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kdump.api import (
        DamagedLogError,
        Finding,
        KdumpError,
        LogBounds,
        LogDir,
        LogPartition,
        LogSegment,
        PartitionVerdict,
        Place,
        PlannedOperation,
        PlannedPartition,
        RecoveryPlan,
        Severity,
        UsageProblem,
        VerifyReport,
        open_log_dir,
        plan_recovery,
        verify,
    )

__all__ = [
    "DamagedLogError",
    "Finding",
    "KdumpError",
    "LogBounds",
    "LogDir",
    "LogPartition",
    "LogSegment",
    "PartitionVerdict",
    "Place",
    "PlannedOperation",
    "PlannedPartition",
    "RecoveryPlan",
    "Severity",
    "UsageProblem",
    "VerifyReport",
    "open_log_dir",
    "plan_recovery",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import the public interface when it is first used: it needs NumPy and Arrow."""
    if name not in __all__:
        raise AttributeError(f"module 'kdump' has no attribute {name!r}")
    from kdump import api

    return getattr(api, name)
