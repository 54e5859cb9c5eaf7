"""The option ``--remote``: where the remote segments of tiered storage are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from kdump.cli.options.parameters import LocationParameter
from kdump.storage.location import Location

Command = TypeVar("Command", bound=Callable[..., Any])


def remote_option(command: Command) -> Command:
    """Add ``--remote``, as ``remote``: a location, or None if it was not given."""
    return click.option(
        "--remote",
        type=LocationParameter(file_okay=False, readable=False),
        metavar="URI",
        help="Also read the remote segments of tiered storage in the directory URI.",
    )(command)


def with_remote(paths: Sequence[Location], remote: Location | None) -> Sequence[Location]:
    """The paths with the remote segments of their partitions, if there are any.

    Raises:
        KdumpError: ``remote`` is not a directory of remote segments, or cannot be listed.
    """
    if remote is None:
        return paths
    from kdump.phases import phase
    from kdump.tiered.tiered_storage import tiered_locations

    with phase(f"listing {remote}"):
        return tiered_locations(paths, remote)
