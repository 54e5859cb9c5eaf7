"""Voters of a controllers' quorum as people write them: ``ID@HOST:PORT[:DIRECTORY_ID]``.

Follows ``DynamicVoter.parse``, which requires a directory id; without one this is an entry of
``controller.quorum.voters``.
"""

from __future__ import annotations

import re
import uuid
from typing import Final

from msgspec import Struct

from kdump.formats.java.java_numbers import parse_int
from kdump.formats.uuids import format_uuid, parse_uuid

_VOTER: Final = re.compile(
    r"(?P<id>\d+)@(?:\[(?P<quoted>[^\[\]]+)\]|(?P<host>[^:\[\]@\s]+)):(?P<port>\d+)"
    r"(?::(?P<directory>\S+))?",
    re.ASCII,
)
_MOST_PORT: Final = 65535


class DynamicVoter(Struct, frozen=True):
    """A voter, and where it is reached.

    Attributes:
        directory_id: of its metadata directory; None if it was not given.
    """

    node_id: int
    host: str
    port: int
    directory_id: uuid.UUID | None = None

    @property
    def address(self) -> str:
        """The voter without its directory id, as ``controller.quorum.voters`` has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.node_id}@{host}:{self.port}"

    def __str__(self) -> str:
        suffix = "" if self.directory_id is None else f":{format_uuid(self.directory_id)}"
        return self.address + suffix


def parse_dynamic_voter(text: str) -> DynamicVoter:
    """Parse a voter.

    Raises:
        ValueError: it is not one; the message says why.
    """
    match = _VOTER.fullmatch(text.strip())
    node_id = None if match is None else parse_int(match["id"])
    if match is None or node_id is None:
        raise ValueError(f"{text!r} is not ID@HOST:PORT or ID@HOST:PORT:DIRECTORY_ID")
    port = parse_int(match["port"])
    if port is None or port > _MOST_PORT:
        raise ValueError(f"{text!r}: {match['port']} is not a port")
    directory_id = None
    if match["directory"] is not None:
        directory_id = parse_uuid(match["directory"])
        if directory_id is None:
            raise ValueError(f"{text!r}: {match['directory']!r} is not a directory id")
    return DynamicVoter(node_id, match["quoted"] or match["host"], port, directory_id)
