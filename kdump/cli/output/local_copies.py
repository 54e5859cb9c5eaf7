"""Advice to change what is not on a local disk: copy it first, then change the copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kdump.storage.location import Location
from kdump.storage.place_names import copy_command, is_local_name

_NAME: Final = "copy"
"""Not the name of what is copied, which a report may have to leave out."""


class LocalCopies:
    """The copies that the commands of some advice work on."""

    def __init__(self) -> None:
        self._names: dict[Location, str] = {}
        """By what they are copies of."""

    def of(self, log_dirs: Iterable[Location]) -> list[str]:
        """Name what a command that writes can take instead of each log directory."""
        return list(map(self._of, log_dirs))

    def lines(self) -> Iterator[str]:
        """Yield the commands that make them."""
        for source, target in self._names.items():
            command = copy_command(source.typed, target)
            yield f"{source} is not on a local disk; copy it first: {command}"

    def _of(self, source: Location) -> str:
        if is_local_name(str(source)):
            return str(source)
        number = len(self._names) + 1
        return self._names.setdefault(source, _NAME if number == 1 else f"{_NAME}-{number}")
