"""Voters on the command line."""

from __future__ import annotations

from kdump.cli.options.parameters import NotParsedError, WordParameter
from kdump.formats.dynamic_voter import DynamicVoter, parse_dynamic_voter


class VoterParameter(WordParameter[DynamicVoter]):
    """A voter, as ``ID@HOST:PORT`` or ``ID@HOST:PORT:DIRECTORY_ID``."""

    name = "id@host:port[:directory_id]"

    def parse(self, text: str) -> DynamicVoter:
        try:
            return parse_dynamic_voter(text)
        except ValueError as error:
            raise NotParsedError(str(error)) from error


VOTER = VoterParameter()
