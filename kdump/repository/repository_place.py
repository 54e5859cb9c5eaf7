"""Where a repository lies: what it needs of a directory, or of an object store.

Names are those of the format, with slashes, from the repository on; what they mean is
:mod:`~kdump.storage.repository`'s. Reading whole files and ranges of them is the business of
:class:`~kdump.storage.location.Location`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from kdump.storage.location import Location
from kdump.storage.repository_documents import RepositoryPiece
from kdump.storage.unfinished_file import UnfinishedFile


class NamedFile(NamedTuple):
    """A file of a repository.

    Attributes:
        name: from the repository on.
        age_s: how long ago it was written, by the clock of what stores it.
    """

    name: str
    size_bytes: int
    age_s: float


class HeldLock(Protocol):
    """A lock of a repository while it is held."""

    def require_held(self) -> None:
        """Make sure that nobody else can have taken it.

        Raises:
            RepositoryError: somebody may have.
        """
        ...


class RepositoryPlace(Protocol):
    """A value that can be pickled: workers write pieces, too.

    What one call writes is complete under its name, or not there, whenever the machine stops.
    """

    @property
    def location(self) -> Location:
        """Of the repository, to read from."""
        ...

    @property
    def most_piece_bytes(self) -> int | None:
        """What is larger is stored as several pieces; None: nothing is."""
        ...

    @property
    def is_listed(self) -> bool:
        """Whether to list what it has takes less time than to ask for each piece."""
        ...

    def make(self) -> None:
        """Make the place itself, unless it is there.

        Raises:
            OSError: it cannot be made.
        """
        ...

    def make_folders(self, names: Iterable[str]) -> None:
        """Make folders, durably; those that are there stay as they are.

        Raises:
            OSError: they cannot be made.
        """
        ...

    def found(self) -> set[str]:
        """The names of what is in it.

        Raises:
            UsageProblem: it cannot be a repository.
            OSError: it cannot be listed.
        """
        ...

    def free_bytes(self) -> int | None:
        """How much fits into it; None if there is no limit.

        Raises:
            OSError: that cannot be found out.
        """
        ...

    def files(self, folder: str) -> Iterator[NamedFile]:
        """All files in a folder of the repository, at any depth.

        Raises:
            OSError: they cannot be listed.
        """
        ...

    def new_piece(self) -> UnfinishedFile:
        """Begin to write a piece, whose name is known at its end; only its owner can read it.

        Raises:
            OSError: it cannot be created.
        """
        ...

    def keep(self, new: Sequence[tuple[UnfinishedFile, RepositoryPiece]]) -> list[str]:
        """Keep pieces that are written; any process can.

        A large one that a store has already, with its size, is not sent again.

        Returns:
            What :meth:`place` needs to know of each.

        Raises:
            WriteFailedError: they cannot be written.
        """
        ...

    def place(self, kept: Sequence[tuple[str, RepositoryPiece]]) -> None:
        """Give pieces their names, unless they have them; those that are there are replaced.

        They may be damaged.

        Raises:
            OSError: they cannot be written.
        """
        ...

    def settle(self, folders: Collection[str] | None) -> None:
        """Make durable which names there are in folders; None for all that have pieces.

        Raises:
            OSError: they cannot be written.
        """
        ...

    def put(self, name: str, data: bytes) -> None:
        """Write a file; it is durable then.

        Raises:
            OSError: it cannot be written.
        """
        ...

    def note(self, lines: Sequence[bytes]) -> str:
        """Note lines for the next run; returns the name of the file that has them.

        Raises:
            OSError: they cannot be written.
        """
        ...

    def move(self, name: str, new_name: str) -> None:
        """Give a file another name.

        Raises:
            OSError: it cannot be written.
        """
        ...

    def delete(self, names: Iterable[str], require: Callable[[], None] = lambda: None) -> None:
        """Delete files; what is missing counts as deleted.

        Args:
            require: called before what cannot be taken back; what it raises ends it.

        Raises:
            OSError: they cannot be deleted.
        """
        ...

    def drop_unfinished(self) -> None:
        """Delete the temporary files that earlier runs did not finish.

        Raises:
            OSError: it cannot be deleted.
        """
        ...

    def locked_to_write(self) -> AbstractContextManager[HeldLock]:
        """Lock it to write to it: one process at a time does.

        Raises:
            RepositoryError: another kdump writes to it.
            OSError: it cannot be locked.
        """
        ...

    def locked_to_remove(self) -> AbstractContextManager[HeldLock]:
        """Lock it to remove something from it.

        Raises:
            RepositoryError: another kdump writes to it or reads it.
            OSError: it cannot be locked.
        """
        ...

    def locked_to_read(self) -> AbstractContextManager[None]:
        """Keep other processes from removing anything while it is read.

        Where nothing can be locked, nothing can be removed either.

        Raises:
            RepositoryError: another kdump removes something from it.
        """
        ...
