"""The job that computes what a partition becomes when a broker loads it, or kdump salvages it.

A task reads one partition and returns its target state; it writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.loader.loader import recover_usual
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats import names
from kdump.jobs.loading.load_split import LoadSplit
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.directory import read_lone_partition
from kdump.repair.partition_repair import repair_partition
from kdump.repair.policies import Policy
from kdump.repair.salvage.recovered_0_7 import Recovered07
from kdump.state.epochs.follower_truncation import LoadedReplica
from kdump.storage.entries import Entry
from kdump.target.content_store import without_content
from kdump.target.refusal import Refusal
from kdump.target.target_file import TargetFile

Outcome = Recovered | Recovered07 | Refusal | Unreadable


class RecoverJob(Struct, frozen=True):
    """Computes what a partition becomes."""

    def run(self, split: LoadSplit, /) -> Outcome:
        """Load one partition; a file that cannot be read is an outcome, too."""
        try:
            outcome = load(split)
            if isinstance(outcome, Recovered | Recovered07):
                return replace(outcome, files=put_away(split, outcome.files))
        except OSError as failure:
            return Unreadable.of(failure, split.path)
        return outcome


def load(
    split: LoadSplit, entries: Iterable[Entry] | None = None
) -> Recovered | Recovered07 | Refusal:
    """Compute what a broker makes of a partition when it starts, or what the policy does.

    The one answer of all commands that need it: recovery, comparison, and the plan for a cluster.

    Args:
        entries: of its directory, if it was just listed.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    # Most partitions are listed and read once.
    if split.policy is Policy.BROKER and not split.name.startswith(names.CLUSTER_METADATA_TOPIC):
        recovered = recover_usual(split.path, split.context, entries)
        if recovered is not None:
            return recovered
    partition = read_lone_partition(split.path, split.name)
    if partition.is_0_7:
        # Imported here, because they are rare.
        from kdump.repair.salvage.recover_0_7 import repair_0_7

        return repair_0_7(partition, split.policy)
    return repair_partition(partition, split.context, split.policy)


def loaded_replica(outcome: Outcome, high_watermark: int | None) -> LoadedReplica | None:
    """The log that a broker then has; None if it does not load it.

    Args:
        outcome: of :func:`load`, with the policy of a broker.
        high_watermark: as checkpointed; None if unknown.
    """
    if not isinstance(outcome, Recovered):
        return None
    return LoadedReplica(
        outcome.log_start_offset, outcome.log_end_offset, high_watermark, outcome.leader_epochs
    )


def put_away(split: LoadSplit, files: Mapping[str, TargetFile]) -> dict[str, TargetFile]:
    """The same files, whose large content is where the split says.

    Raises:
        OSError: it cannot be written.
    """
    if split.is_preview:
        return {name: without_content(file) for name, file in files.items()}
    store = split.context.store
    return {name: file if store is None else store.staged(file) for name, file in files.items()}
