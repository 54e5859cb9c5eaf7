"""The options of commands that free space: compact, retain and delete-records."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import click

from kdump.cli.options.option_group import option_group
from kdump.cli.options.parameters import now_option
from kdump.cli.options.repair_options import freeing_options
from kdump.cli.output.write_arguments import DeletionArguments, RepairArguments
from kdump.errors import UsageProblem
from kdump.formats import names

if TYPE_CHECKING:
    from kdump.log.selection import PartitionSelection


class HighWatermark(enum.Enum):
    """Which high watermark to assume; the value is the word for ``--high-watermark``."""

    END = "end"


def _deletion_arguments(
    repair: RepairArguments, now_ms: int, high_watermark: HighWatermark | None
) -> DeletionArguments:
    return DeletionArguments(
        dry_run=repair.dry_run,
        keep_undo=repair.keep_undo,
        output_format=repair.output_format,
        verbose=repair.verbose,
        now_ms=now_ms,
        is_replicated=high_watermark is HighWatermark.END,
    )


deletion_options: Final = option_group(
    "deletion",
    _deletion_arguments,
    now_option("Evaluate retention and compaction as of TIME"),
    click.option(
        "--high-watermark",
        type=click.Choice(HighWatermark, case_sensitive=False),
        help="Assume with end that every log is fully replicated (default: use "
        "replication-offset-checkpoint; a partition without a line in it loses nothing).",
    ),
    freeing_options(verbose="List every change, and partitions without any."),
)
"""Adds the options of commands that free space, as the argument ``deletion``."""


def refuse_cluster_metadata(selection: PartitionSelection) -> None:
    """Refuse to delete records of the cluster's metadata.

    Raises:
        UsageProblem: the selection names it.
    """
    if selection.names(names.CLUSTER_METADATA_PARTITION):
        raise UsageProblem(
            f"{names.CLUSTER_METADATA_TOPIC}: only the controller's Raft layer deletes"
            " its records, after a snapshot"
        )
