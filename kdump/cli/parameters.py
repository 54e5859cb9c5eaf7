"""Types of option values that several commands take."""

from __future__ import annotations

import datetime as dt

import click


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


TIME = TimeParameter()
