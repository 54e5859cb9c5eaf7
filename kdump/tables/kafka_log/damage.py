"""Damage in a query over ``kafka-log``: it fails the query, or is skipped and logged."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from kdump.errors import ExitStatus, KdumpError, UsageProblem, reason_of
from kdump.formats.errors import OverLimitError
from kdump.log.problems import FileProblem
from kdump.log.valid_windows import Damage
from kdump.payloads.undecoded import Undecoded
from kdump.words import counted

_LOG: Final = logging.getLogger(__name__)

STATUS_FIELD: Final = "exit_status"
"""The field of a log record that has the exit status of what it reports."""


def with_status(status: ExitStatus) -> Mapping[str, ExitStatus]:
    """The extra fields of a log record with an exit status."""
    return {STATUS_FIELD: status}


def status_of(damage: Damage) -> ExitStatus:
    """The exit status of a range that was skipped; one over the limit need not be damaged."""
    is_over = isinstance(damage.problem, OverLimitError)
    return ExitStatus.OPERATIONAL_ERROR if is_over else ExitStatus.DAMAGE_LEFT


def failure_text(failure: OSError | KdumpError) -> str:
    """What cannot be read, and why, in one line."""
    if isinstance(failure, KdumpError):
        return str(failure)
    where = f"{failure.filename}: " if failure.filename else ""
    return f"{where}{reason_of(failure)}"


def failure_status(failure: OSError | KdumpError) -> ExitStatus:
    """The exit status of what cannot be read."""
    if isinstance(failure, KdumpError):
        return failure.exit_status
    return ExitStatus.OPERATIONAL_ERROR


@contextlib.contextmanager
def unreadable_logged(*, is_skipped: bool) -> Iterator[None]:
    """End at what cannot be read, and log it; or let it fail the query."""
    try:
        yield
    except (OSError, KdumpError) as failure:
        if not is_skipped or isinstance(failure, UsageProblem):
            raise
        _LOG.warning("%s", failure_text(failure), extra=with_status(failure_status(failure)))


class DamagedLogError(KdumpError):
    """Bytes of a log are damaged, and the mode is ``FAILFAST``."""

    exit_status = ExitStatus.DAMAGE_LEFT

    def __init__(self, damage: Damage) -> None:
        super().__init__(
            f"{damage} (mode DROPMALFORMED skips damage; run kdump verify for details)"
        )


class CheckpointError(KdumpError):
    """A checkpoint cannot be read or is malformed, and the mode is ``FAILFAST``."""

    def __init__(self, problem: FileProblem) -> None:
        super().__init__(f"{problem} (mode DROPMALFORMED reads deleted records, too)")
        if problem.is_damage:
            self.exit_status = ExitStatus.DAMAGE_LEFT


class UndecodedError(KdumpError):
    """Keys or values cannot be decoded, the mode is ``FAILFAST``, and nobody reads why."""

    def __init__(self, where: object, undecoded: Undecoded) -> None:
        super().__init__(
            f"{where}: {undecoded} (the columns key_problem and value_problem, or mode"
            " DROPMALFORMED, keep such records, with null for the text)"
        )


def log_undecoded(where: object, undecoded: Undecoded) -> None:
    """Log a warning about the records of a split that cannot be decoded."""
    if undecoded.records:
        status = with_status(ExitStatus.OPERATIONAL_ERROR)
        _LOG.warning("%s: %s", where, undecoded, extra=status)


class CountedDamage:
    """The damage of a partition: the first ranges, and how many more, so that memory has a bound.

    Attributes:
        more: how many ranges are not listed.
    """

    def __init__(self, most: int) -> None:
        """List at most ``most`` ranges."""
        self.more = 0
        self._most = most
        self._listed: dict[tuple[str, int, str], Damage] = {}
        self._until = ("", -1)

    def add(self, damage: Damage) -> None:
        """Take damage that a reading of the log comes to.

        Each reading comes to all of it in order, so what another one has found farther on, looking
        for the end of a transaction, counts once.
        """
        place = damage.path, damage.start
        if place > self._until:
            self._until = place
            self.add_other(damage)

    def add_other(self, damage: Damage) -> None:
        """Take damage that no other reading finds: of records, or offsets that are missing."""
        place = damage.path, damage.start, str(damage.problem)
        if len(self._listed) < self._most:
            self._listed.setdefault(place, damage)
        elif place not in self._listed:
            self.more += 1

    def listed(self) -> list[Damage]:
        """The ranges that are listed, in order."""
        return [self._listed[place] for place in sorted(self._listed)]


class SkippedRanges:
    """Counts the ranges of a split that are skipped, and logs them together."""

    def __init__(self) -> None:
        self._ranges = Counter[ExitStatus]()
        self._bytes = Counter[ExitStatus]()

    def add(self, damage: Damage) -> None:
        status = status_of(damage)
        self._ranges[status] += 1
        self._bytes[status] += damage.end - damage.start

    def log(self, where: object) -> None:
        """Log a warning about those that are damaged, and one about those over the limit.

        Args:
            where: the split, as messages name it.
        """
        for status, ranges in self._ranges.items():
            is_damage = status is ExitStatus.DAMAGE_LEFT
            _LOG.warning(
                "%s: skipped %s in %s%s",
                where,
                counted(self._bytes[status], "byte"),
                counted(ranges, "damaged range" if is_damage else "range"),
                "" if is_damage else " not decoded: over the limit",
                extra=with_status(status),
            )
