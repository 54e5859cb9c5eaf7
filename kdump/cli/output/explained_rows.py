"""What the rows of ``kdump explain`` are."""

from __future__ import annotations

from typing import Final

from kdump.rows.row_type import TEXT, Field, JsonAnswer, RowType, list_of, one_of

EXPLANATION: Final = RowType(
    "explanation",
    "What the manual says about the findings of a code.",
    (
        Field("code", TEXT, "The code, as findings have it."),
        Field("severity", one_of("info", "warning", "error", "severe"), "The usual severity."),
        Field("meaning", TEXT, "What is wrong, in a few words; for people."),
        Field(
            "remedy",
            TEXT.or_null,
            "What verify --repair does about it, for people; null if nothing.",
        ),
        Field("text", TEXT, "The paragraphs of the manual, for people, with a blank line between."),
    ),
)

BROKER_MESSAGE: Final = RowType(
    "broker_message",
    "A message of a broker or client, and the findings behind it.",
    (
        Field("text", TEXT, "As Kafka writes it; … stands for what varies."),
        Field("meaning", TEXT, "What it says about the log directory; for people."),
        Field("codes", list_of(TEXT), "The codes of the findings that kdump verify reports then."),
        Field("advice", TEXT, "What to do first; for people."),
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "explain",
        (
            EXPLANATION,
            BROKER_MESSAGE,
        ),
    ),
)
