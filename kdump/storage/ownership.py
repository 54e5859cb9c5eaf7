"""Owners, permissions and links, which only some kinds of storage have."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable


class Ownership(NamedTuple):
    """Who may do what with a file or directory.

    Attributes:
        group_id: the owner's group.
        permissions: the permission bits, 0 to 0o7777.
    """

    user_id: int
    group_id: int
    permissions: int
    is_directory: bool = False


class OwnedEntry(NamedTuple):
    """One name in a directory, and who may do what with it; links are not followed.

    Attributes:
        name: within the directory.
        is_link: whether it is a symbolic link.
        ownership: of the entry itself, or why it is not known.
    """

    name: str
    is_link: bool
    ownership: Ownership | OSError


@runtime_checkable
class OwnedStorage(Protocol):
    """A storage whose files have owners, and which has symbolic links."""

    def ownership(self, path: str) -> Ownership:
        """Who may do what with a file or directory; links are followed.

        Raises:
            OSError: it is missing, or cannot be looked at.
        """
        ...

    def owned_entry(self, path: str) -> OwnedEntry:
        """The same without following links.

        Raises:
            OSError: it is missing, or cannot be looked at.
        """
        ...

    def owned_entries(self, path: str) -> list[OwnedEntry]:
        """All entries of a directory, in no order.

        Raises:
            OSError: it cannot be listed.
        """
        ...

    def link_target(self, path: str) -> str:
        """What a symbolic link contains.

        Raises:
            OSError: it is no link, or cannot be read.
        """
        ...
