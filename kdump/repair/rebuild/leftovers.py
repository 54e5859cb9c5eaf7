"""Finish or delete the leftover files of a partition."""

from __future__ import annotations

from kdump.broker.loader.interrupted_swaps import drop_orphan
from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.load_report import LeftoverOutcome, Recorder, SwapLoss
from kdump.broker.loader.swap_losses import SwapRules, resolve_swaps
from kdump.formats import names
from kdump.log.partition import Partition
from kdump.repair.rebuild.repaired import Repaired, changes
from kdump.repair.verdict.verdict import lost_with
from kdump.target.refusal import Refusal, Refused
from kdump.target.virtual_directory import INDEX_SUFFIXES, VirtualDirectory, Written

_TEMPORARY_NAMES = sorted(name + names.TEMPORARY_SUFFIX for name in names.PARTITION_FILES)


def resolve_leftovers(partition: Partition, context: LoadContext) -> Repaired:
    """Apply the loader's rules for leftover files, and nothing else.

    Files that were being deleted or written are deleted; complete replacements are renamed into
    place; then indexes without a log are deleted. Temporary files of small files are deleted if the
    small file exists; a broker leaves them until it writes the file again.

    A partition in which a swap would lose records is refused and stays as it is.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    if partition.is_cluster_metadata or partition.is_0_7:
        return Repaired({})
    directory = VirtualDirectory(partition.path)
    recorder = Recorder(directory)
    try:
        resolve_swaps(directory, context.settings, recorder, SwapRules.of(context))
        for name in directory.names():
            if name.endswith(INDEX_SUFFIXES):
                drop_orphan(directory, name, recorder)
    except Refused as refused:
        return Repaired({}, (refused.refusal,))
    losses = recorder.finish({}).swap_losses
    if losses:
        return Repaired({}, tuple(map(_losing_swap, losses)))
    for name in _TEMPORARY_NAMES:
        if name in directory and name.removesuffix(names.TEMPORARY_SUFFIX) in directory:
            recorder.leftover(name, LeftoverOutcome.DELETED)
            directory.remove(name)
    for name in directory.names():
        if isinstance(directory.content(name), Written):
            directory.remove(name)  # an index that a broker creates, because it was missing
    leftovers = recorder.finish({}).leftovers
    return Repaired(changes(directory, directory.all_names()), leftovers=leftovers)


def _losing_swap(swap: SwapLoss) -> Refusal:
    if swap.is_unfinished:
        return Refusal(
            f"deleting it would lose {lost_with(swap.loss)} that no segment has;"
            " kdump recover --policy salvage keeps them",
            swap.name,
            "",
        )
    return Refusal(
        f"its .swap is incomplete, and replacing the segment would lose {lost_with(swap.loss)};"
        " kdump recover --policy salvage keeps the segment",
        swap.name,
        "",
    )
