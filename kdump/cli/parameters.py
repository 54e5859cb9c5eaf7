"""Types of option values that several commands take."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

_SIZE: Final = re.compile(r"(\d+)\s*(?:([KMGTP])(?:iB|B)?|B)?", re.IGNORECASE)
_POWERS: Final = "KMGTP"


class TimeParameter(click.ParamType[int]):
    """A point in time, as epoch milliseconds: those themselves, or ISO 8601 (UTC without zone)."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        text = str(value)
        try:
            return int(text)
        except ValueError:
            pass
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"{text!r} is neither epoch milliseconds nor a time such as 2026-11-21T05:00:00Z",
                param,
                ctx,
            )
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=dt.UTC)
        return round(moment.timestamp() * 1000)


class SizeParameter(click.ParamType[int]):
    """A number of bytes: ``1073741824``, ``1g``, ``512 MiB``; units are powers of 1024."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{str(value)!r} is not a size such as 512MiB or 1g", param, ctx)
        power = _POWERS.index(match[2].upper()) + 1 if match[2] else 0
        return int(match[1]) * int(1024**power)


class PropertyParameter(click.ParamType[tuple[str, str]]):
    """A property and its value, as ``KEY=VALUE``."""

    name = "property"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, separator, content = str(value).partition("=")
        if not separator or not key.strip():
            self.fail(f"{str(value)!r} is not of the form KEY=VALUE", param, ctx)
        return key.strip(), content


TIME = TimeParameter()


def paths_argument(metavar: str) -> Callable[[Command], Command]:
    """One path or more, as the argument ``paths``; whether they can be read is seen later."""
    return click.argument(
        "paths",
        metavar=f"{metavar}...",
        nargs=-1,
        required=True,
        type=click.Path(readable=False, path_type=Path),
    )
