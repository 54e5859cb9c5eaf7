"""Kafka's text form of a UUID: 16 bytes in URL-safe base64 without padding, 22 characters."""

from __future__ import annotations

import base64
import re
import uuid
from typing import Final

ZERO_UUID: Final = uuid.UUID(int=0)
"""Stands for "none" wherever Kafka stores a UUID."""

_TEXT: Final = re.compile(r"([A-Za-z0-9_-]{22})(?:==)?")


def parse_uuid(text: str) -> uuid.UUID | None:
    """The UUID that ``org.apache.kafka.common.Uuid.fromString`` gives, or None where it throws."""
    match = _TEXT.fullmatch(text)
    return match and uuid.UUID(bytes=base64.urlsafe_b64decode(match[1] + "=="))


def format_uuid(value: uuid.UUID) -> str:
    """The text that ``org.apache.kafka.common.Uuid.toString`` gives."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")
