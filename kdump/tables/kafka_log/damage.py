"""Damage in a query over ``kafka-log``: it fails the query, or is skipped and logged."""

from __future__ import annotations

import logging
from typing import Final

from kdump.errors import ExitStatus, KdumpError
from kdump.log.valid_windows import Damage
from kdump.words import counted

_LOG: Final = logging.getLogger(__name__)


class DamagedLogError(KdumpError):
    """Bytes of a log are damaged, and the mode is ``FAILFAST``."""

    exit_status = ExitStatus.DAMAGE_LEFT

    def __init__(self, damage: Damage) -> None:
        super().__init__(
            f"{damage} (mode DROPMALFORMED skips damage; run kdump verify for details)"
        )


class SkippedRanges:
    """Counts the damaged ranges of a split, which are skipped, and logs them together."""

    def __init__(self) -> None:
        self._count = 0
        self._bytes = 0

    def add(self, damage: Damage) -> None:
        self._count += 1
        self._bytes += damage.end - damage.start

    def log(self, where: object) -> None:
        """Log a warning, if there are any.

        Args:
            where: the split, as messages name it.
        """
        if self._count:
            _LOG.warning(
                "%s: skipped %s in %s",
                where,
                counted(self._bytes, "byte"),
                counted(self._count, "damaged range"),
            )
