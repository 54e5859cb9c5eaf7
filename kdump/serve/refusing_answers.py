"""Answers to requests that would change something: they are refused, for each partition.

Only ``Produce`` is offered nevertheless: librdkafka takes a broker for too old to have records of
today's format if it does not offer that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from kdump.serve.answering import Answering, Caller
from kdump.serve.message_shapes import MalformedMessage
from kdump.serve.messages import Answer, Request

PRODUCE: Final = 0
_NO_ANSWER: Final = 0
"""``acks`` of a producer that reads no response."""
_NO_OFFSET: Final = -1
_WHY: Final = "kdump serves a dead cluster read-only"


class RefusingAnswers:
    """Refuses ``Produce``."""

    def handlers(self) -> Mapping[int, Answering]:
        return {PRODUCE: self.produce}

    async def produce(self, request: Request, _caller: Caller) -> Answer:
        """Refuse the records of each partition.

        Raises:
            MalformedMessage: the producer reads no response; its connection ends, as in a broker.
        """
        if request.body.acks == _NO_ANSWER:
            raise MalformedMessage("produce without an answer: the cluster is served read-only")
        return {
            "responses": [
                {
                    "name": getattr(topic, "name", None),
                    "topic_id": getattr(topic, "topic_id", None),
                    "partition_responses": [
                        {
                            "index": each.index,
                            "error_code": ErrorCode.topic_authorization_failed,
                            "base_offset": _NO_OFFSET,
                            "record_errors": (),
                            "error_message": _WHY,
                        }
                        for each in topic.partition_data
                    ],
                }
                for topic in request.body.topic_data
            ]
        }
