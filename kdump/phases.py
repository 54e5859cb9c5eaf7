"""What a command is doing right now, for whoever shows it to people.

Every part of kdump that may take long says what it does with :func:`phase`, and counts its steps
where it has any. Nobody has to be told: a display looks at :func:`current` from time to time. Where
nobody looks, as in a worker or a library, it costs next to nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import ParamSpec, Protocol, Self, TypeVar

Item = TypeVar("Item")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Reading(Protocol):
    """A file that is read front to back."""

    @property
    def size_bytes(self) -> int:
        """How many bytes there are."""
        ...

    @property
    def reached_bytes(self) -> int:
        """How far it was read."""
        ...


class Phase:
    """Something that is being done; a context that ends it.

    Attributes:
        what: in words, as in ``listing /data/1``.
        done: how many steps are done.
        total: of how many; None where nobody knows.
        reading: the file that is read, if it is one.
    """

    __slots__ = ("done", "reading", "total", "what")

    def __init__(self, what: str, total: int | None = None, reading: Reading | None = None) -> None:
        self.what = what
        self.done = 0
        self.total = total
        self.reading = reading

    def step(self, count: int = 1) -> None:
        """So many steps more are done."""
        self.done += count

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """Give ``items``, and count a step after each."""
        for item in items:
            yield item
            self.done += 1

    def __enter__(self) -> Self:
        _begun.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Generators may end in another order than they began.
        _begun.remove(self)
        if not _begun and _watcher is not None:
            _watcher.idle()


class PhaseWatcher(Protocol):
    """Is told when nothing more is being done."""

    def idle(self) -> None: ...


_begun: list[Phase] = []
_watcher: PhaseWatcher | None = None


def phase(what: str, total: int | None = None, reading: Reading | None = None) -> Phase:
    """Begin something that may take more than a moment; to be used in a ``with`` statement.

    Args:
        what: is done, a verb with an -ing first, and the file or directory.
        total: how many steps it has, where that is known.
        reading: the file that is read, where it is one.
    """
    return Phase(what, total, reading)


def during(
    what: str,
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Let every call of a function be a phase; not for generators, which work after the call."""

    def decorated(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @functools.wraps(function)
        def called(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            with Phase(what):
                return function(*args, **kwargs)

        return called

    return decorated


def each_during(what: str, items: Iterable[Item], reading: Reading | None = None) -> Iterator[Item]:
    """Give ``items``; to find the next one is a phase, what is done with it is not."""
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
    """What is being done: the phase that began last."""
    return _begun[-1] if _begun else None


def watch(watcher: PhaseWatcher | None) -> None:
    """Let ``watcher`` be told when nothing more is being done; None for nobody."""
    global _watcher
    _watcher = watcher
