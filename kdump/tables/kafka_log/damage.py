"""The failure of a query over ``kafka-log`` that may not skip damage."""

from __future__ import annotations

from kdump.errors import ExitStatus, KdumpError
from kdump.log.valid_windows import Damage


class DamagedLogError(KdumpError):
    """Bytes of a log are damaged, and the mode is ``FAILFAST``."""

    exit_status = ExitStatus.DAMAGE_LEFT

    def __init__(self, damage: Damage) -> None:
        super().__init__(
            f"{damage} (mode DROPMALFORMED skips damage; run kdump verify for details)"
        )
