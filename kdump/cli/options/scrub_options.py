"""The options that say how much of the data is read."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct
from msgspec.structs import replace

from kdump.cli.options.conflicts import require_at_most_one
from kdump.cli.options.option_group import option_group
from kdump.cli.options.parameters import SIZE, NotParsedError, SizeParameter, WordParameter
from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.errors import UsageProblem
from kdump.jobs.verify.subset import Subset
from kdump.storage.local_disk import LOCAL_DISK

if TYPE_CHECKING:
    from kdump.jobs.verify.check_history import CheckHistory
    from kdump.jobs.verify.scrub import Scrub
    from kdump.storage.gentle_disk import Bandwidth
    from kdump.storage.location import Location

_PART: Final = re.compile(r"([0-9]{1,9})/([0-9]{1,9})", re.ASCII)
_DURATION: Final = re.compile(
    r"(?:([0-9]{1,5})d)?(?:([0-9]{1,7})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?", re.ASCII
)
_SECONDS: Final = (86_400, 3_600, 60, 1)
_PERCENT: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)%", re.ASCII)


class SubsetParameter(WordParameter[Subset]):
    """A part, a share or an amount of the data: ``1/30``, ``5%``, ``10G``."""

    name = "subset"

    def parse(self, text: str) -> Subset:
        if part := _PART.fullmatch(text):
            number, parts = int(part[1]), int(part[2])
            if 1 <= number <= parts:
                return Subset(text, part=(number, parts))
        elif percent := _PERCENT.fullmatch(text):
            if 0 < float(percent[1]) <= 100:
                return Subset(text, percent=float(percent[1]))
        elif size_bytes := self._size(text):
            return Subset(text, size_bytes=size_bytes)
        raise NotParsedError(
            f"{text!r} is not a part such as 1/30, a share such as 5%, or a size such as 10G"
        )

    def _size(self, text: str) -> int:
        try:
            return SIZE.parse(text)
        except NotParsedError:
            return 0


class PositiveSizeParameter(SizeParameter):
    """A number of bytes that is not 0."""

    def parse(self, text: str) -> int:
        size_bytes = super().parse(text)
        if not size_bytes:
            raise NotParsedError(f"{text!r} is not a size such as 50M")
        return size_bytes


class DurationParameter(WordParameter[int]):
    """A number of seconds: ``90s``, ``15m``, ``2h``, ``1h30m``."""

    name = "duration"

    def parse(self, text: str) -> int:
        found = _DURATION.fullmatch(text)
        seconds = 0
        for number, unit_seconds in zip(found.groups() if found else (), _SECONDS, strict=False):
            seconds += int(number or 0) * unit_seconds
        if not seconds:
            raise NotParsedError(f"{text!r} is not a duration such as 2h, 1h30m or 90s")
        return seconds


class ScrubArguments(Struct, frozen=True):
    """How much of the data is read, as typed.

    Attributes:
        subset: of ``--read-data-subset``.
        deadline: when the time of ``--max-duration`` is over, by ``time.monotonic``.
        state: the file of ``--state``.
        bytes_per_second: of ``--bandwidth``.
    """

    subset: Subset | None
    deadline: float | None
    state: str | None
    bytes_per_second: int | None

    def given(self) -> str | None:
        """One of the options that was given; None if none was."""
        options = {
            "--read-data-subset": self.subset,
            "--max-duration": self.deadline,
            "--state": self.state,
            "--bandwidth": self.bytes_per_second,
        }
        return next((name for name, value in options.items() if value is not None), None)

    def engine(self, options: EngineOptions) -> EngineOptions:
        """The engine: other machines have other clocks, and limits of their own.

        Raises:
            UsageProblem: another one was asked for.
        """
        if self.deadline is None and self.bytes_per_second is None:
            return options
        require_at_most_one(
            {
                "--bandwidth" if self.deadline is None else "--max-duration": True,
                "--engine spark": options.choice is EngineChoice.SPARK,
                "--master": options.master is not None,
            }
        )
        # Workers would each have a limit of their own.
        processes = options.processes if self.bytes_per_second is None else 1
        return replace(options, choice=EngineChoice.LOCAL, processes=processes)

    def bandwidth(self, paths: Iterable[Location]) -> Bandwidth | None:
        """The limit of reads.

        Raises:
            UsageProblem: one of the paths is not on a local disk.
        """
        if self.bytes_per_second is None:
            return None
        from kdump.storage.gentle_disk import Bandwidth

        for each in paths:
            if each.storage != LOCAL_DISK:
                raise UsageProblem(f"--bandwidth limits reads of local disks only: {each}")
        return Bandwidth(self.bytes_per_second)

    def chosen(self, history: CheckHistory | None) -> Scrub | None:
        """What to read; None for everything."""
        if self.subset is None and self.deadline is None and history is None:
            return None
        from kdump.jobs.verify.scrub import Scrub

        return Scrub(self.subset, history, self.deadline)


def _scrub_arguments(
    read_data_subset: Subset | None,
    max_duration: int | None,
    state: str | None,
    bandwidth: int | None,
) -> ScrubArguments:
    deadline = None if max_duration is None else time.monotonic() + max_duration
    return ScrubArguments(read_data_subset, deadline, state, bandwidth)


scrub_options: Final = option_group(
    "scrub",
    _scrub_arguments,
    click.option(
        "--read-data-subset",
        type=SubsetParameter(),
        help="Read only a part of the segments, such as 1/30, 5% or 10G (default: all).",
    ),
    click.option(
        "--max-duration",
        type=DurationParameter(),
        help="Begin no segment after DURATION, such as 2h or 90m (default: no limit).",
    ),
    click.option(
        "--state",
        type=click.Path(),
        metavar="FILE",
        help="Keep in FILE what was checked when, and read first what was checked longest ago.",
    ),
    click.option(
        "--bandwidth",
        type=PositiveSizeParameter(),
        help="Read at most SIZE in a second, such as 50M, in one process (default: no limit).",
    ),
)
"""Adds the options, as the argument ``scrub``: :class:`ScrubArguments`."""
