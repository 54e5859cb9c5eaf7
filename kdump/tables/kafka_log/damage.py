"""Damage in a query over ``kafka-log``: it fails the query, or is skipped and logged."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

from kdump.errors import ExitStatus, KdumpError
from kdump.formats.errors import OverLimitError
from kdump.log.valid_windows import Damage
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


class DamagedLogError(KdumpError):
    """Bytes of a log are damaged, and the mode is ``FAILFAST``."""

    exit_status = ExitStatus.DAMAGE_LEFT

    def __init__(self, damage: Damage) -> None:
        super().__init__(
            f"{damage} (mode DROPMALFORMED skips damage; run kdump verify for details)"
        )


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
