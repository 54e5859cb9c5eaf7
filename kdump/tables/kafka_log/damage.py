"""What becomes of damage that a reading of ``kafka-log`` meets."""

from __future__ import annotations

from collections.abc import Callable

from kdump.errors import ExitStatus, KdumpError
from kdump.log.sound import Damage


class DamagedLogError(KdumpError):
    """Bytes of a log are damaged, and reading was to fail then."""

    exit_status = ExitStatus.DAMAGE_LEFT

    def __init__(self, damage: Damage) -> None:
        super().__init__(
            f"{damage} (mode DROPMALFORMED passes over what is damaged; kdump verify says more)"
        )


OnDamage = Callable[[Damage], None]
"""Takes damage that was met; raises where reading is to fail."""
