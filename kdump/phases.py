"""What a command is doing right now, for a display of progress.

Code that may take long announces it with :func:`phase`, and counts its steps. A display polls
:func:`current`. Without a display, as in a worker or a library, this costs almost nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import ParamSpec, Protocol, Self, TypeVar

Item = TypeVar("Item")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Reading(Protocol):
    """A file that is read from front to back."""

    @property
    def size_bytes(self) -> int:
        """How many bytes there are."""
        ...

    @property
    def reached_bytes(self) -> int:
        """How far it was read."""
        ...


class Phase:
    """Work in progress; leaving its context ends it.

    Attributes:
        what: in words, such as ``listing /data/1``.
        done: how many steps are done.
        total: how many steps there are; None if this is not known.
        reading: the file being read, if it is one file.
    """

    __slots__ = ("done", "reading", "total", "what")

    def __init__(self, what: str, total: int | None = None, reading: Reading | None = None) -> None:
        self.what = what
        self.done = 0
        self.total = total
        self.reading = reading

    def step(self, count: int = 1) -> None:
        """Count more steps as done."""
        self.done += count

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield ``items`` and count a step after each."""
        for item in items:
            yield item
            self.done += 1

    def __enter__(self) -> Self:
        _begun.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        # Generators may end in a different order than they began.
        _begun.remove(self)
        if not _begun and _watcher is not None:
            _watcher.idle()


class PhaseWatcher(Protocol):
    """Is notified when the last phase ends."""

    def idle(self) -> None: ...


_begun: list[Phase] = []
_watcher: PhaseWatcher | None = None


def phase(what: str, total: int | None = None, reading: Reading | None = None) -> Phase:
    """Announce work that may take long, in a ``with`` statement.

    Args:
        what: a verb with -ing, and the file or directory.
        total: how many steps it has, if known.
        reading: the file being read, if it is one file.
    """
    return Phase(what, total, reading)


def during(
    what: str,
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Make every call of a function a phase; not for generators, which work after the call."""

    def decorated(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @functools.wraps(function)
        def called(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            with Phase(what):
                return function(*args, **kwargs)

        return called

    return decorated


def each_during(what: str, items: Iterable[Item], reading: Reading | None = None) -> Iterator[Item]:
    """Yield ``items``; producing the next one is a phase, using it is not."""
    begun = Phase(what, reading=reading)
    iterator = iter(items)
    while True:
        with begun:
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


def current() -> Phase | None:
    """Return the phase that began last; None if there is none."""
    return _begun[-1] if _begun else None


def watch(watcher: PhaseWatcher | None) -> None:
    """Notify ``watcher`` when the last phase ends; None for nobody."""
    global _watcher
    _watcher = watcher
