"""The options ``--remote`` and ``--private-key``: where remote segments of tiered storage are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kdump.cli.options.conflicts import require_with
from kdump.cli.options.parameters import LocationParameter
from kdump.phases import phase
from kdump.storage.location import Location, each_once

if TYPE_CHECKING:
    from kdump.log.remote_files import RemotePlace

Command = TypeVar("Command", bound=Callable[..., Any])


def remote_option(command: Command) -> Command:
    """Add ``--remote`` and ``--private-key``, as the argument ``remote``.

    That is a :class:`~kdump.log.remote_files.RemotePlace`, or None if there is no ``--remote``.
    """

    @functools.wraps(command)
    def with_place(
        *args: Any, remote: Location | None, private_key: Location | None, **others: Any
    ) -> Any:
        if remote is None:
            require_with("--remote", {"--private-key": private_key is not None})
            return command(*args, remote=None, **others)
        from kdump.log.remote_files import RemotePlace

        return command(*args, remote=RemotePlace(remote, private_key), **others)

    decorated: Any = with_place
    for option in (
        click.option(
            "--private-key",
            type=LocationParameter(dir_okay=False, readable=False),
            metavar="FILE",
            help="With --remote, decrypt segments with the RSA private key in FILE (PEM).",
        ),
        click.option(
            "--remote",
            type=LocationParameter(file_okay=False, readable=False),
            metavar="URI",
            help="Also read the remote segments of tiered storage in the directory URI.",
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


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
