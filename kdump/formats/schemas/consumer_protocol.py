"""Subscriptions and assignments of a classic consumer group, inside the group's record.

(``ConsumerProtocol``)
"""

from __future__ import annotations

from typing import Final

from kdump.formats.schemas.definitions import read_messages

_MESSAGES: Final = read_messages("consumer_protocol.txt")
CONSUMER_PROTOCOL_SUBSCRIPTION: Final = _MESSAGES["ConsumerProtocolSubscription"]
CONSUMER_PROTOCOL_ASSIGNMENT: Final = _MESSAGES["ConsumerProtocolAssignment"]
