"""The options ``--remote`` and ``--private-key``: where remote segments of tiered storage are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from kdump.cli.options.conflicts import require_with
from kdump.cli.options.option_group import option_group
from kdump.cli.options.parameters import LocationParameter
from kdump.phases import phase
from kdump.storage.location import Location, each_once

if TYPE_CHECKING:
    from kdump.log.remote_files import RemotePlace


def _remote_place(remote: Location | None, private_key: Location | None) -> RemotePlace | None:
    if remote is None:
        require_with("--remote", {"--private-key": private_key is not None})
        return None
    from kdump.log.remote_files import RemotePlace

    return RemotePlace(remote, private_key)


remote_option: Final = option_group(
    "remote",
    _remote_place,
    click.option(
        "--remote",
        type=LocationParameter(file_okay=False, readable=False),
        metavar="URI",
        help="Also read the remote segments of tiered storage in the directory URI.",
    ),
    click.option(
        "--private-key",
        type=LocationParameter(dir_okay=False, readable=False),
        help="With --remote, decrypt segments with the RSA private key in FILE (PEM).",
    ),
)
"""Adds ``--remote`` and ``--private-key``, as the argument ``remote``.

That is a :class:`~kdump.log.remote_files.RemotePlace`, or None if there is no ``--remote``.
"""


def with_remote(paths: Sequence[Location], remote: RemotePlace | None) -> Sequence[Location]:
    """The paths, each directory once, with the remote segments of their partitions, if any.

    Raises:
        KdumpError: ``remote`` is not a directory of remote segments, or cannot be listed.
    """
    with phase("looking at what is named"):
        paths = each_once(paths)
    if remote is None:
        return paths
    from kdump.tiered.tiered_storage import tiered_locations

    with phase(f"listing {remote}"):
        return tiered_locations(paths, remote)
