"""Removals of a plan that can be done first, because they need no free space.

A starting broker deletes some files whatever else it finds (``LogLoader``): ``.deleted`` files, a
``.cleaned`` and the ``.swap`` files that it makes invalid, and everything in the directory of a
deleted topic. Deleting them first does not affect the rest of the plan: if kdump is stopped between
two of them, a broker does what it would have done anyway, and so does the next run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kdump.apply.operations import DirectoryPlan, Operation, OperationKind, OperationPhase
from kdump.formats.names import FileStage, PartitionState

_DELETED: Final = FileStage.DELETED.value
_DELETE_DIRECTORY: Final = PartitionState.DELETE.value


def find_early_removals(partitions: Sequence[DirectoryPlan]) -> tuple[tuple[Path, ...], ...]:
    """Find the files that can be deleted first, in groups; those of a partition in their order."""
    independent: list[tuple[int, Path]] = []
    ordered: list[tuple[Path, ...]] = []
    for partition in partitions:
        in_order = []
        for operation in partition.operations:
            if not _may_go(partition, operation):
                continue
            path = partition.path / operation.name
            if operation.name.endswith(_DELETED):
                independent.append((partition.states[operation.name].allocated_bytes, path))
            else:
                in_order.append(path)
        if in_order:
            ordered.append(tuple(in_order))
    # The largest first, so that as few as possible are deleted early.
    independent.sort(key=lambda each: (-each[0], each[1]))
    return (*((path,) for _, path in independent), *ordered)


def _may_go(partition: DirectoryPlan, operation: Operation) -> bool:
    is_leftover = operation.phase is OperationPhase.TEMPORARY
    is_of_deleted_topic = partition.path.name.endswith(_DELETE_DIRECTORY)
    return operation.kind is OperationKind.REMOVE and (is_leftover or is_of_deleted_topic)
