"""Refusals: why Kafka cannot load a partition."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

_IO_EXCEPTIONS: Final = ("FileNotFoundException", "FileSystemException", "NoSuchFileException")

OFFLINE: Final = "take the log directory offline, or refuse to start"


class Refusal(Struct, frozen=True):
    """Why Kafka aborts loading with an exception: the broker does not start, or drops the disk.

    A failure that ``LogDirFailureChannel`` is told of takes the directory offline. Loading goes on
    then (``LogManager.loadLogs``), but fails at a log of that directory that is read or renamed.

    Attributes:
        reason: what is wrong, a sentence without a full stop.
        file: name of the file in the partition's directory.
        exception: simple class name of Kafka's exception; empty if kdump itself refuses.
        position: byte of the file, if one can be named.
    """

    reason: str
    file: str
    exception: str
    position: int | None = None

    @property
    def what_happens(self) -> str:
        """What a broker does that loads the partition."""
        if self.is_io_error or self.exception == "KafkaStorageException":
            return OFFLINE
        return "refuse to start"

    @property
    def is_io_error(self) -> bool:
        """Whether it is an ``IOException``: then Kafka empties an unflushed segment."""
        return self.exception in _IO_EXCEPTIONS

    def __str__(self) -> str:
        at = "" if self.position is None else f" at byte {self.position}"
        exception = f"{self.exception}, " if self.exception else ""
        return f"{self.reason} ({exception}{self.file}{at})"


class Refused(Exception):
    """Carries a :class:`Refusal` to the function that returns it; never leaves the rules."""

    def __init__(self, reason: str, file: str, exception: str, position: int | None = None) -> None:
        super().__init__(reason)
        self.refusal = Refusal(reason, file, exception, position)
