"""How an engine says how far it is. What becomes of that is up to the command line."""

from __future__ import annotations

from typing import Final, Protocol


class Progress(Protocol):
    """Is told about the progress of one job after another, from one thread.

    Everything but :meth:`tick` is called at most a few times for each split.
    """

    @property
    def is_shown(self) -> bool:
        """Whether anybody looks: if not, an engine need not wake up to call :meth:`tick`."""
        ...

    def begin(self, total_bytes: int) -> None:
        """A job begins, over so many bytes."""
        ...

    def working_on(self, label: str) -> None:
        """Work on a split begins; ``label`` is that split's."""
        ...

    def advance(self, size_bytes: int) -> None:
        """So many bytes more are done."""
        ...

    def tick(self) -> None:
        """Time has passed; called several times a second while an engine waits."""
        ...

    def end(self) -> None:
        """The job is over, one way or another."""
        ...


class Silent:
    """Tells nobody."""

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
"""How long an engine waits at most before it calls :meth:`Progress.tick` again."""
