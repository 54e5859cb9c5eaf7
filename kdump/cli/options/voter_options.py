"""Voters on the command line."""

from __future__ import annotations

import click

from kdump.formats.dynamic_voter import DynamicVoter, parse_dynamic_voter


class VoterParameter(click.ParamType[DynamicVoter]):
    """A voter, as ``ID@HOST:PORT`` or ``ID@HOST:PORT:DIRECTORY_ID``."""

    name = "voter"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> DynamicVoter:
        if isinstance(value, DynamicVoter):
            return value
        try:
            return parse_dynamic_voter(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


VOTER = VoterParameter()
