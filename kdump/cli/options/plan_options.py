"""The options of commands that plan a cluster's metadata."""

from __future__ import annotations

from typing import Final

import click

from kdump.cli.options.option_group import options
from kdump.cli.options.parameters import MOMENT, PropertyParameter
from kdump.cli.options.voter_options import VOTER

plan_options: Final = options(
    click.option(
        "--controller",
        "controllers",
        type=VOTER,
        multiple=True,
        required=True,
        help="A controller of the new quorum; may be repeated. Name the directory id of a"
        " directory that is formatted already.",
    ),
    click.option(
        "--set",
        "settings",
        type=PropertyParameter(),
        multiple=True,
        help="Decide this yourself, as topic.orders.partition.3.leader=2; may be repeated.",
    ),
    click.option(
        "--accept-loss",
        is_flag=True,
        help="Write the plan although it drops something that a disk has.",
    ),
)
"""Adds ``--controller``, ``--set`` and ``--accept-loss``.

They are the arguments ``controllers``, ``settings`` and ``accept_loss``.
"""

to_option: Final = click.option(
    "--to",
    "time_ms",
    type=MOMENT,
    help="Take topics, configurations, ACLs, quotas and credentials as they were at TIME: ISO 8601"
    " or epoch milliseconds.",
)
"""Adds ``--to``, the argument ``time_ms``."""
