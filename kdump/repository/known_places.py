"""The place of a repository for a location as people name it."""

from __future__ import annotations

from kdump.errors import UsageProblem
from kdump.repository.local_place import LocalPlace
from kdump.repository.repository_place import RepositoryPlace
from kdump.storage.local_disk import LOCAL_DISK
from kdump.storage.location import Location


def place_at(location: Location) -> RepositoryPlace:
    """The place for a location.

    Raises:
        UsageProblem: there are no repositories.
    """
    if location.storage == LOCAL_DISK:
        return LocalPlace(location)
    from kdump.repository.store_place import StorePlace, is_writable_store

    if is_writable_store(location):
        return StorePlace(location)
    raise UsageProblem(
        f"{location}: a repository is a directory on a local disk, or in a bucket of S3 (s3://)"
    )
