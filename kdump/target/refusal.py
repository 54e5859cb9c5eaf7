"""That Kafka cannot load a partition, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_IO_EXCEPTIONS: Final = ("FileNotFoundException", "FileSystemException", "NoSuchFileException")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Kafka's loading ends with an exception; a broker then does not start, or drops the disk.

    Attributes:
        reason: what the loader cannot cope with, a sentence without a full stop.
        file: name of the file in the partition's directory that it lies in.
        exception: the simple name of what Kafka throws; empty where it is kdump that refuses.
        position: byte of the file, where one can be named.
    """

    reason: str
    file: str
    exception: str
    position: int | None = None

    @property
    def is_io_error(self) -> bool:
        """Whether Kafka throws an ``IOException``: over it, an unflushed segment is emptied."""
        return self.exception in _IO_EXCEPTIONS

    def __str__(self) -> str:
        at = "" if self.position is None else f" at byte {self.position}"
        exception = f"{self.exception}, " if self.exception else ""
        return f"{self.reason} ({exception}{self.file}{at})"


class Refused(Exception):
    """Carries a :class:`Refusal` out of the steps of loading; it never leaves this layer."""

    def __init__(self, reason: str, file: str, exception: str, position: int | None = None) -> None:
        super().__init__(reason)
        self.refusal = Refusal(reason, file, exception, position)
