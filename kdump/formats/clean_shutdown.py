"""``.kafka_cleanshutdown``: the marker that a broker leaves when it stopped cleanly.

That it exists is what counts: a starting broker then recovers nothing in that directory. Its
content, ``{"version":0,"brokerEpoch":301}`` without a line end, came with Kafka 3.7; before, the
file was empty. Follows ``CleanShutdownFileHandler``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kdump.formats.java.json_object import decode_json_object, integer_field

VERSION: Final = 0
NAME: Final = ".kafka_cleanshutdown"


@dataclass(frozen=True, slots=True)
class CleanShutdown:
    """The marker's content.

    Attributes:
        version: of the content; None for the empty file of a Kafka before 3.7.
        broker_epoch: the broker's last one, -1 where whoever wrote it had none; None likewise.
    """

    version: int | None
    broker_epoch: int | None


def decode_clean_shutdown(data: bytes) -> CleanShutdown:
    """Read the marker.

    Raises:
        FormatError: for content that Kafka cannot read. A broker then goes on as if it had no
            broker epoch, and still takes the directory for clean.
    """
    if not data:
        return CleanShutdown(None, None)
    fields = decode_json_object(data, NAME)
    version = integer_field(fields, "version", NAME, 32, default=VERSION)
    epoch = integer_field(fields, "brokerEpoch", NAME, 64)
    return CleanShutdown(version, epoch)


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """The marker that Kafka writes."""
    return f'{{"version":{VERSION},"brokerEpoch":{broker_epoch}}}'.encode()
