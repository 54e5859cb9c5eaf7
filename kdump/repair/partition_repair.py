"""Repair a partition by a policy."""

from __future__ import annotations

from msgspec.structs import replace

from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.loader import recover_partition
from kdump.broker.loader.metadata_log import finish_metadata_log, metadata_context
from kdump.broker.loader.recovered_partition import Recovered
from kdump.log.partition import Partition
from kdump.repair.policies import Policy
from kdump.target.refusal import Refusal
from kdump.target.virtual_directory import VirtualDirectory


def repair_partition(
    partition: Partition,
    context: LoadContext,
    policy: Policy = Policy.BROKER,
) -> Recovered | Refusal:
    """Compute the target state of ``partition`` by ``policy``; reads only.

    The cluster's metadata has rules of its own, whatever the policy. The caller decides whether it
    may be written to.

    Args:
        partition: of Kafka 0.8 or later; for one of 0.7 see ``kdump.repair.salvage.recover_0_7``.
        context: as for the loader.
        policy: what to do with damaged data.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    if not partition.is_cluster_metadata:
        return _repair(partition, context, policy)
    outcome = _repair(partition, metadata_context(context), policy)
    if isinstance(outcome, Refusal):
        return outcome
    return finish_metadata_log(partition, outcome, context.settings)


def _repair(partition: Partition, context: LoadContext, policy: Policy) -> Recovered | Refusal:
    match policy:
        case Policy.BROKER:
            return recover_partition(partition, context)
        case Policy.TRUNCATE:
            return recover_partition(partition, replace(context, is_clean=False, recovery_point=0))
        case Policy.SALVAGE:
            # Importing it takes time, and it is rarely asked for.
            from kdump.repair.salvage.salvage import salvage_partition

            return salvage_partition(VirtualDirectory(partition.path, context.store), context)
