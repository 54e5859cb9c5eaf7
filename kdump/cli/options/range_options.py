"""The options that choose records by offset, time and transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from kdump.cli.options.option_group import Command, option_group
from kdump.cli.options.parameters import edge_options
from kdump.log.special_times import IsolationLevel

if TYPE_CHECKING:
    from kdump.engine.range_splits import RecordRange


class RangeArguments(Struct, frozen=True):
    """These options as given on the command line.

    Attributes:
        from_offset: where to start; None for the beginning.
        to_offset: before which offset to stop; None for the end.
        from_time_ms: only records from this time on; None for all.
        to_time_ms: only records before this time; None for all.
        isolation_level: of a consumer that gets these records.
    """

    from_offset: int | None
    to_offset: int | None
    from_time_ms: int | None
    to_time_ms: int | None
    isolation_level: IsolationLevel

    @property
    def offsets(self) -> RecordRange:
        """Which offsets to read; an index finds the first of a time."""
        from kdump.engine.range_splits import RecordRange

        return RecordRange(self.from_offset or 0, self.to_offset, self.from_time_ms)

    @property
    def is_committed(self) -> bool:
        """Whether records of aborted and open transactions are left out."""
        return self.isolation_level is IsolationLevel.READ_COMMITTED


def range_options(verb: str) -> Callable[[Command], Command]:
    """Add the options to a command, as its argument ``records``: a :class:`RangeArguments`."""
    return option_group(
        "records",
        RangeArguments,
        edge_options(verb),
        click.option(
            "--isolation-level",
            type=click.Choice(IsolationLevel, case_sensitive=False),
            default=IsolationLevel.READ_UNCOMMITTED,
            help=f"{verb} all records (read_uncommitted, default) or, as read_committed consumers "
            "do, not those of aborted and open transactions.",
        ),
    )
