"""The interface by which an engine reports progress; the command line shows it."""

from __future__ import annotations

from typing import Final, Protocol


class Progress(Protocol):
    """Receives the progress of one job after another, from one thread.

    Apart from :meth:`tick`, each method is called at most a few times per split.
    """

    @property
    def is_shown(self) -> bool:
        """Whether progress is shown; if not, engines need not wake up to call :meth:`tick`."""
        ...

    def begin(self, total_bytes: int) -> None:
        """A job over ``total_bytes`` begins."""
        ...

    def working_on(self, label: str) -> None:
        """Work on the split with this label begins."""
        ...

    def advance(self, size_bytes: int) -> None:
        """Another ``size_bytes`` are done."""
        ...

    def tick(self) -> None:
        """Time passes; called several times a second while an engine waits."""
        ...

    def end(self) -> None:
        """The job has ended, successfully or not."""
        ...


class Silent:
    """Shows nothing."""

    is_shown = False

    def begin(self, total_bytes: int) -> None:
        pass

    def working_on(self, label: str) -> None:
        pass

    def advance(self, size_bytes: int) -> None:
        pass

    def tick(self) -> None:
        pass

    def end(self) -> None:
        pass


SILENT: Final[Progress] = Silent()

TICK_SECONDS: Final = 0.2
"""The longest time between two calls of :meth:`Progress.tick`."""
