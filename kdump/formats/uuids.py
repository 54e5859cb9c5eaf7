"""Kafka's text form of a UUID: 16 bytes in URL-safe base64 without padding, 22 characters."""

from __future__ import annotations

import base64
import re
import uuid
from typing import Final

ZERO_UUID: Final = uuid.UUID(int=0)
"""Means "none" wherever Kafka stores a UUID."""

_TEXT: Final = re.compile(r"([A-Za-z0-9_-]{22})(?:==)?")


def parse_uuid(text: str) -> uuid.UUID | None:
    """Parse a UUID as ``org.apache.kafka.common.Uuid.fromString`` does; None where that throws."""
    match = _TEXT.fullmatch(text)
    return match and uuid.UUID(bytes=base64.urlsafe_b64decode(match[1] + "=="))


def format_uuid(value: uuid.UUID) -> str:
    """Format a UUID as ``org.apache.kafka.common.Uuid.toString`` does."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")
