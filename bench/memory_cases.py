"""What the bench measures for the table of memory: each command on each hard input."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from case import MANY_KEYS, Data

LIMIT_MB: Final = 300.0


@dataclass(frozen=True, slots=True)
class HardInput:
    """A log directory that is hard to work on.

    Attributes:
        name: its name in the folder with the data.
        data: the call that makes it, and its size with what derives from it.
        config: options for commands that take ``--config``.
        is_preallocated: whether indexes of the unclean directory have the size that a broker
            preallocates.
        copy_gb: what a command writes at most into a copy of it, or beside it.
        is_truncated: whether recovery truncates its first log: a copy has no link to that.
        left_out: reasons for which commands are not run, by glob over their names.
    """

    name: str
    data: Data
    config: tuple[str, ...] = ()
    is_preallocated: bool = True
    copy_gb: float = 1
    is_truncated: bool = False
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemoryCommand:
    """A command to run on every hard input.

    Attributes:
        name: its row in the table.
        words: arguments of kdump. ``{input}`` stands for the clean directory, ``{unclean}`` for
            the unclean one, ``{copy}`` for a copy, ``{empty}`` for another log directory of the
            same broker, ``{partition}`` for the first partition, ``{log}`` for its first log,
            ``{out}`` for a path to write to.
        copies: what ``{copy}`` is a copy of: ``"input"``, ``"unclean"``, ``"deleted"`` (the input
            after all its topics were deleted) or nothing.
        without_indexes: whether the copy lacks the indexes.
        takes_config: whether it has the option ``--config``.
        takes_engine: whether it has the option ``--engine``.
        needs_damage: whether it is run on damaged inputs only.
        first: arguments of a run of kdump that comes before, and is not measured.
    """

    name: str
    words: tuple[str, ...]
    copies: str = ""
    without_indexes: bool = False
    takes_config: bool = False
    takes_engine: bool = True
    needs_damage: bool = False
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryCase:
    """One command on one input, with its limits in MB."""

    command: MemoryCommand
    hard_input: HardInput
    driver_mb: float = LIMIT_MB
    worker_mb: float = LIMIT_MB
    engine: str = "auto"

    @property
    def name(self) -> str:
        """Its name, for ``--only``."""
        is_asked = self.command.takes_engine and self.engine != "auto"
        engine = f" on {self.engine}" if is_asked else ""
        return f"{self.command.name}{engine}, {self.hard_input.name}"

    @property
    def left_out(self) -> str:
        """The reason for which it is not run, or nothing."""
        if self.command.needs_damage and not self.hard_input.is_truncated:
            return "nothing is damaged"
        reasons = self.hard_input.left_out.items()
        name = self.command.name
        return next((why for glob, why in reasons if fnmatch.fnmatchcase(name, glob)), "")


_ONE_SEGMENT: Final = {"compact": "one segment, the active one, is never compacted"}

HARD_INPUTS: Final = (
    HardInput(
        "partitions-10000",
        Data("make_partitions_of_three(10_000, folder)", 1.4, "partitions-10000"),
        is_preallocated=False,
    ),
    HardInput(
        "many-segments-20000", Data("make_segments(20_000, folder)", 0.6, "many-segments-20000")
    ),
    HardInput(
        "one-record-batches-2000000",
        Data("make_one_record_batches(2_000_000, folder)", 0.4, "one-record-batches-2000000"),
        left_out=_ONE_SEGMENT,
    ),
    HardInput(
        "live-producers-100000",
        Data("make_producers(100_000, folder)", 0.1, "live-producers-100000"),
        left_out=_ONE_SEGMENT,
    ),
    HardInput(
        "aborted-txns-50000", Data("make_aborted_txns(50_000, folder)", 0.1, "aborted-txns-50000")
    ),
    HardInput(
        "index-interval-0",
        Data("make_index_interval_0(folder)", 1.5, "index-interval-0"),
        config=("--config", "index.interval.bytes=0"),
        copy_gb=4,
    ),
    HardInput(
        "100-byte-batches",
        Data("make_small_batches(folder)", 1.3, "100-byte-batches"),
        copy_gb=9,
        left_out=_ONE_SEGMENT,
    ),
    HardInput(
        "damaged-10-gib",
        Data("make_damaged('damaged-10-gib', 10, 500, folder)", 11, "damaged-10-gib"),
        copy_gb=11,
        is_truncated=True,
        left_out=dict.fromkeys(("compact", "transplant"), "refused: the log is damaged"),
    ),
    HardInput("many-keys", MANY_KEYS, copy_gb=9),
)

_KNOWN: Final = ("--config", "remote.storage.enable=false")
"""What a command that writes wants to know of topics before it changes them."""

COMMANDS: Final = (
    MemoryCommand("ls", ("ls", "{input}"), takes_engine=False),
    MemoryCommand("info", ("info", "{input}"), takes_engine=False),
    MemoryCommand("verify", ("verify", "{unclean}"), takes_config=True),
    MemoryCommand("verify --deep", ("verify", "--deep", "{input}"), takes_config=True),
    MemoryCommand("recover --dry-run", ("recover", "--dry-run", "{unclean}"), takes_config=True),
    MemoryCommand(
        "recover", ("recover", "{copy}"), "unclean", without_indexes=True, takes_config=True
    ),
    MemoryCommand(
        "recover --policy salvage --dry-run",
        ("recover", "--policy", "salvage", "--dry-run", "{unclean}"),
        takes_config=True,
        needs_damage=True,
    ),
    MemoryCommand(
        "verify --repair",
        ("verify", "--repair", "{copy}"),
        "unclean",
        without_indexes=True,
        takes_config=True,
    ),
    MemoryCommand(
        "undo",
        ("undo", "{copy}"),
        "unclean",
        without_indexes=True,
        takes_engine=False,
        first=("recover", "--undo", "{copy}"),
    ),
    MemoryCommand(
        "compact",
        (
            *("compact", "--topic", "*", *_KNOWN, "--config", "cleanup.policy=compact"),
            *("--config", "delete.retention.ms=86400000", "{copy}"),
        ),
        "input",
        takes_config=True,
    ),
    MemoryCommand(
        "retain --dry-run",
        (
            *("retain", "--dry-run", "--topic", "*", *_KNOWN),
            *("--config", "cleanup.policy=delete", "--config", "retention.ms=86400000", "{input}"),
        ),
        takes_config=True,
    ),
    MemoryCommand(
        "retain",
        (
            *("retain", "--topic", "*", *_KNOWN, "{copy}"),
            *("--config", "cleanup.policy=delete", "--config", "retention.ms=86400000"),
        ),
        "input",
        takes_config=True,
    ),
    MemoryCommand(
        "delete-records",
        (
            *("delete-records", "--before", "-1", "--partition", "{partition}", *_KNOWN),
            *("--config", "cleanup.policy=delete", "{copy}"),
        ),
        "input",
        takes_config=True,
        takes_engine=False,
    ),
    MemoryCommand(
        "erase --dry-run",
        ("erase", "--dry-run", "--topic", "*", "--key", "order-4711", "{input}"),
        takes_config=True,
    ),
    MemoryCommand(
        "rewind --dry-run",
        (
            *("rewind", "--dry-run", "--to", "2020-01-01T00:00:00Z", *_KNOWN),
            *("--config", "cleanup.policy=delete", "{input}"),
        ),
        takes_config=True,
    ),
    MemoryCommand("resolve --dry-run", ("resolve", "--dry-run", "{input}"), takes_config=True),
    MemoryCommand(
        "rebuild-index",
        ("rebuild-index", "{copy}"),
        "input",
        without_indexes=True,
        takes_config=True,
    ),
    MemoryCommand(
        "snapshot rebuild", ("snapshot", "rebuild", "{copy}"), "input", takes_config=True
    ),
    MemoryCommand(
        "checkpoint rebuild", ("checkpoint", "rebuild", "{copy}"), "input", takes_engine=False
    ),
    MemoryCommand("identity", ("identity", "{input}"), takes_engine=False),
    MemoryCommand(
        "move --undo",
        ("move", "--undo", "--drain", "{copy}", "--to", "{empty}"),
        "input",
        takes_engine=False,
    ),
    MemoryCommand("undelete", ("undelete", "{copy}"), "deleted", takes_engine=False),
    MemoryCommand(
        "transplant",
        (
            *("transplant", "{input}/{partition}", "--into", "{empty}"),
            *("--topic-id", "a2R1bXBCZW5jaFRvcGljMQ", "--leader-epoch", "0"),
        ),
        takes_engine=False,
    ),
    MemoryCommand("copy", ("copy", "{input}", "{out}"), takes_engine=False),
    MemoryCommand("diff", ("diff", "{input}", "{unclean}"), takes_config=True),
    MemoryCommand(
        "metadata collect", ("metadata", "collect", "--force", "--out", "{out}.json", "{input}")
    ),
    MemoryCommand(
        "metadata plan",
        (
            *("metadata", "plan", "{out}.json", "--controller", "1000@localhost:9093"),
            *("--force", "--out", "{out}.plan"),
        ),
        takes_engine=False,
        first=("metadata", "collect", "--force", "--out", "{out}.json", "{input}"),
    ),
    MemoryCommand("groups", ("groups", "{input}"), takes_config=True),
    MemoryCommand("txns", ("txns", "{input}")),
    MemoryCommand("lookup", ("lookup", "--offset", "5", "{input}")),
    MemoryCommand("grep", ("grep", "-F", "order-4711", "{input}")),
    MemoryCommand(
        "dump-segment", ("dump-segment", "--print-data-log", "{log}"), takes_engine=False
    ),
    MemoryCommand("export", ("export", "--out", "{out}", "{input}")),
    MemoryCommand(
        "report", ("report", "--force", "--out", "{out}.html", "{input}"), takes_config=True
    ),
    MemoryCommand(
        "query",
        ("query", "--output", "csv", "SELECT count(*), max(offset) FROM records", "{input}"),
        takes_engine=False,
    ),
)

_LARGER: Final = {("compact", "many-keys"): (LIMIT_MB, 800.0)}
"""Limits in MB of driver and workers, where they differ."""


def memory_cases(engine: str = "auto") -> Iterator[MemoryCase]:
    """Yield every command on every input, input by input."""
    for hard_input in HARD_INPUTS:
        for command in COMMANDS:
            limits = _LARGER.get((command.name, hard_input.name), (LIMIT_MB, LIMIT_MB))
            yield MemoryCase(command, hard_input, *limits, engine)
