"""Why a payload cannot be shown as text."""

from __future__ import annotations

from typing import Final

_MOST_CHARACTERS: Final = 200


class PayloadError(Exception):
    """A payload, or the schema that it was written with, cannot be used; with a sentence."""


class SchemaProblem(PayloadError):
    """A schema cannot be used, whatever the payload."""


def describe_foreign(failure: Exception) -> str:
    """Format an exception of a library on one line of a limited length."""
    text = " ".join(str(failure).split()) or type(failure).__name__
    text = text.encode("utf-8", "backslashreplace").decode()
    if isinstance(failure, KeyError | IndexError | AttributeError | TypeError | AssertionError):
        text = f"{type(failure).__name__}: {text}"
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."
