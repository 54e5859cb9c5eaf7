"""What of a plan can be done first, without a byte of free space.

A starting broker deletes some files whatever else it finds (``LogLoader``): ``.deleted`` files, a
``.cleaned`` and the ``.swap`` files that it makes invalid, and all that is in the directory of a
deleted topic. Deleting them first changes nothing about the rest of the plan: stopped between two
of them, a broker goes on as it would have done, and so does kdump.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kdump.apply.operations import DirectoryPlan, Operation, OperationKind, Phase
from kdump.formats.names import FileStage, PartitionState

_DELETED: Final = FileStage.DELETED.value
_DELETE_DIRECTORY: Final = PartitionState.DELETE.value


def early_removals(partitions: Sequence[DirectoryPlan]) -> tuple[tuple[Path, ...], ...]:
    """The files that may go before all else, in groups; within each partition in their order."""
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
    # The largest first, so that few have to go before their time.
    independent.sort(key=lambda each: (-each[0], each[1]))
    return (*((path,) for _, path in independent), *ordered)


def _may_go(partition: DirectoryPlan, operation: Operation) -> bool:
    is_leftover = operation.phase is Phase.TEMPORARY
    is_of_deleted_topic = partition.path.name.endswith(_DELETE_DIRECTORY)
    return operation.kind is OperationKind.REMOVE and (is_leftover or is_of_deleted_topic)
