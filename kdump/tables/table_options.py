"""The options of tables other than ``records``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from kdump.clock import current_time_ms
from kdump.storage.location import Location
from kdump.tables.kafka_log.options import OptionParser, given_options
from kdump.tables.kafka_log.selected_offsets import SelectedTopics
from kdump.tables.table import Table, TableColumn, named_columns
from kdump.tiered.named_places import named_locations

LEVELS: Final = ("quick", "default", "deep")


class TableOptions(Struct, frozen=True):
    """What to read.

    Attributes:
        paths: as named.
        columns: to return if no schema selects any.
        level: how much to verify: ``quick``, ``default`` or ``deep``.
        remote: where remote segments of tiered storage are; None to read local ones only.
        private_key: decrypts them; None without one.
    """

    table: Table
    paths: tuple[str, ...]
    topics: SelectedTopics
    columns: tuple[TableColumn, ...]
    now_ms: int
    level: str
    remote: str | None = None
    private_key: str | None = None

    def locations(self) -> list[Location]:
        """The paths, with the remote segments of their partitions if there are any.

        Raises:
            KdumpError: there are no remote segments at the place that is named.
        """
        return named_locations(self.paths, self.remote, self.private_key)


def parse_table_options(options: Mapping[str, str], table: Table) -> TableOptions:
    """Parse options; the case of their names does not matter.

    Raises:
        UsageProblem: the table has no such option, or an option has an invalid value.
    """
    whose = f"table {table.name} of kafka-log"
    parser = OptionParser(given_options(options, table.options, whose))
    columns = table.default_columns
    text = parser.text("columns")
    if text is not None:
        named = [name.strip() for name in text.split(",") if name.strip()]
        columns = named_columns(named, table.columns, whose)
    level = (parser.text("level") or LEVELS[1]).lower()
    if level not in LEVELS:
        parser.refuse("level", ", ".join(LEVELS))
    now_ms = parser.time("now")
    return TableOptions(
        table,
        parser.paths(),
        parser.topics(),
        columns,
        current_time_ms() if now_ms is None else now_ms,
        level,
        parser.place("remote"),
        parser.place("privateKey"),
    )
