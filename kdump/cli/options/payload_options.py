"""The options that make text of keys and values: their formats, and where schemas are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct

from kdump.cli.options.option_group import option_group
from kdump.cli.options.parameters import LocationParameter
from kdump.errors import UsageProblem
from kdump.payloads.payload_format import PayloadFormat
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.payloads.record_payloads import RecordPayloads


class PayloadArguments(Struct, frozen=True):
    """These options as given on the command line.

    Attributes:
        key: the format of keys; None if it was not given.
        schemas: where schemas are; empty to look for the registry's topic.
    """

    key: PayloadFormat | None
    value: PayloadFormat | None
    schemas: tuple[Location, ...]

    @property
    def formats(self) -> tuple[PayloadFormat, ...]:
        """The formats that were given."""
        return tuple(each for each in (self.key, self.value) if each is not None)

    def read(self, paths: Iterable[Location], diagnostics: Diagnostics) -> RecordPayloads | None:
        """Read the schemas, and return what decodes records; None if no format was given.

        Args:
            paths: of the data; without ``--schemas`` the registry's topic is looked for in the log
                directories that it is in.
        """
        if not self.formats:
            return None
        from kdump.payloads.record_payloads import RecordPayloads
        from kdump.state.schema_registry import SchemaRegistry

        registry = SchemaRegistry()
        if any(each.uses_schemas for each in self.formats):
            from kdump.cli.options.schemas import read_registry

            registry = read_registry(self.schemas, paths, diagnostics)
        return RecordPayloads.of(self.key, self.value, registry)


schemas_option: Final = click.option(
    "--schemas",
    type=LocationParameter(readable=False),
    multiple=True,
    help="Read schemas from PATH, a log directory with the topic _schemas, a file of JSON or a"
    " directory of files; may be repeated (default: _schemas beside the data).",
)
"""Adds the option, as the argument ``schemas``: locations."""


def _payload_arguments(
    key_format: PayloadFormat | None,
    value_format: PayloadFormat | None,
    schemas: tuple[Location, ...],
) -> PayloadArguments:
    payloads = PayloadArguments(key_format, value_format, schemas)
    if schemas and not payloads.formats:
        raise UsageProblem("--schemas has no effect without --key-format or --value-format")
    return payloads


payload_options: Final = option_group(
    "payloads",
    _payload_arguments,
    click.option(
        "--key-format",
        type=click.Choice(PayloadFormat, case_sensitive=False),
        metavar="FORMAT",
        help="Decode keys, with the same choice of formats.",
    ),
    click.option(
        "--value-format",
        type=click.Choice(PayloadFormat, case_sensitive=False),
        metavar="FORMAT",
        help="Decode values: with the schemas of a schema registry (auto, or only avro, json,"
        " protobuf), as string or as hex.",
    ),
    schemas_option,
)
"""Adds the options, as the argument ``payloads``: :class:`PayloadArguments`."""
