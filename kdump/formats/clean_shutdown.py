"""``.kafka_cleanshutdown``: the clean shutdown marker.

If it exists, a starting broker recovers nothing in the directory. Since Kafka 3.7 it contains
``{"version":0,"brokerEpoch":301}`` without a line end; before, it was empty. Follows
``CleanShutdownFileHandler``.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kdump.formats.java.json_object import decode_json_object, integer_field

VERSION: Final = 0
NAME: Final = ".kafka_cleanshutdown"


class CleanShutdown(Struct, frozen=True):
    """The marker's content.

    Attributes:
        version: of the content; None for an empty file, from before Kafka 3.7.
        broker_epoch: the broker's last epoch, -1 where the writer had none; None for an empty file.
    """

    version: int | None
    broker_epoch: int | None


def decode_clean_shutdown(data: bytes) -> CleanShutdown:
    """Read the marker.

    Raises:
        FormatError: for content that Kafka cannot read. A broker then continues without a broker
            epoch, and still treats the directory as clean.
    """
    if not data:
        return CleanShutdown(None, None)
    fields = decode_json_object(data, NAME)
    version = integer_field(fields, "version", NAME, 32, default=VERSION)
    epoch = integer_field(fields, "brokerEpoch", NAME, 64)
    return CleanShutdown(version, epoch)


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """Encode the marker as Kafka writes it."""
    return f'{{"version":{VERSION},"brokerEpoch":{broker_epoch}}}'.encode()
