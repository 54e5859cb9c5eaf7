"""The words by which people choose how keys and values become text."""

from __future__ import annotations

import enum


class PayloadFormat(enum.StrEnum):
    """How keys or values become text."""

    AUTO = "auto"
    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"
    STRING = "string"
    HEX = "hex"

    @property
    def uses_schemas(self) -> bool:
        """Whether schemas matter to it."""
        return self not in (PayloadFormat.STRING, PayloadFormat.HEX)
