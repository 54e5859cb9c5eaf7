"""The places that options name: log directories, and the remote segments of their partitions."""

from __future__ import annotations

from collections.abc import Sequence

from kdump.log.remote_files import RemotePlace
from kdump.storage.location import Location, each_once
from kdump.storage.places import parse_location, parse_locations
from kdump.tiered.tiered_storage import tiered_locations


def named_locations(
    paths: Sequence[str], remote: str | None, private_key: str | None
) -> list[Location]:
    """The locations of paths, each directory once, with the remote segments of their partitions.

    Args:
        paths: as parse_location takes them.
        remote: where remote segments are; None to read local ones only.
        private_key: the file that decrypts them; None without one.

    Raises:
        KdumpError: there are no remote segments at ``remote``, or they cannot be listed.
    """
    named = each_once(parse_locations(paths))
    if remote is None:
        return named
    key = None if private_key is None else parse_location(private_key)
    return tiered_locations(named, RemotePlace(parse_location(remote), key))
