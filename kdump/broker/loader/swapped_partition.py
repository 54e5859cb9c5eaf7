"""The segments of a partition as a starting broker loads them, with interrupted swaps finished.

In a partition with an interrupted swap, records are there twice, or only in ``.swap`` files. Code
that reads or counts records asks here first. The loader's rules decide (``LogLoader.load``);
nothing is written.
"""

from __future__ import annotations

from msgspec.structs import replace

from kdump.errors import ExitStatus, KdumpError
from kdump.formats.names import FileStage
from kdump.log.partition import Partition, list_partition


class UnfinishedSwapError(KdumpError):
    """An interrupted swap that a starting broker cannot finish."""

    exit_status = ExitStatus.DAMAGE_LEFT


def as_loaded(partition: Partition) -> Partition:
    """Return ``partition`` with the segments and snapshots that a starting broker loads.

    Complete ``.swap`` files replace the segments that they stand for; ``names_on_disk`` has their
    names. Leftover files, foreign names and the total size stay those of the directory. Without
    ``.swap`` files this costs nothing and returns the same partition.

    Raises:
        UnfinishedSwapError: a broker cannot load the partition because of the swap.
        OSError: a file of the partition cannot be read.
    """
    if partition.is_0_7 or not any(
        name.endswith(FileStage.SWAP.value) for name in partition.unused_names()
    ):
        return partition
    # Importing the loader takes time, and few directories need it.
    from kdump.broker.loader.interrupted_swaps import finish_swaps
    from kdump.broker.loader.load_context import IndexSettings
    from kdump.broker.loader.load_report import Recorder
    from kdump.target.refusal import Refused
    from kdump.target.target_file import CopiedFrom
    from kdump.target.virtual_directory import VirtualDirectory

    directory = VirtualDirectory(partition.path)
    try:
        finish_swaps(directory, IndexSettings(), Recorder(directory))
    except Refused as refused:
        raise UnfinishedSwapError(
            f"{partition.path}: an interrupted swap cannot be finished: {refused.refusal};"
            " kdump verify says more"
        ) from None
    stored = {
        name: content
        for name in directory.names()
        if isinstance(content := directory.content(name), CopiedFrom)
    }
    loaded = list_partition(
        partition.path,
        partition.topic_partition,
        partition.state,
        ((name, content.size_bytes) for name, content in stored.items()),
    )
    return replace(
        partition,
        segments=loaded.segments,
        producer_snapshots=loaded.producer_snapshots,
        names_on_disk={
            name: content.name for name, content in stored.items() if content.name != name
        },
    )
