"""What the server tells the operator: damage that clients meet, and what it left out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct, field

from kdump.formats.names import TopicPartition
from kdump.log.valid_windows import Damage
from kdump.words import counted

_MOST_LINES: Final = 1000
"""So many different things are said; clients decide how often they happen."""
_MOST_REFUSALS: Final = 100
"""So many of them are refusals: strangers must not keep others from being said."""


class ServedNotices(Struct):
    """Collects what is said; each thing is said once.

    Attributes:
        say: shows a line.
        skips_damage: whether damaged batches are left out.
        fetched_bytes: how many bytes of records were sent.
        clients: how many connections were made.
        refused: how many requests were refused with their connection.
        has_damage: whether a client met damage.
    """

    say: Callable[[str], None]
    skips_damage: bool = False
    fetched_bytes: int = 0
    clients: int = 0
    refused: int = 0
    has_damage: bool = False
    _said: set[str] = field(default_factory=set)
    _refusals: set[str] = field(default_factory=set)
    _lost: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    _losses: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, line: str) -> None:
        """Say something that was not said before."""
        with self._lock:
            if line in self._said or len(self._said) >= _MOST_LINES:
                return
            self._said.add(line)
        self.say(line)

    def note_refusal(self, line: str) -> None:
        """Count a refused request, and say why."""
        self.refused += 1
        if line in self._refusals:
            return
        if len(self._refusals) >= _MOST_REFUSALS:
            line = f"more than {_MOST_REFUSALS} kinds of refusals: no others are said"
        else:
            self._refusals.add(line)
        self.note(line)

    def note_damage(
        self, key: TopicPartition, damages: Iterable[Damage], lost: tuple[int, int]
    ) -> None:
        """Say what is damaged, and remember the lost offsets; the end is exclusive."""
        start, end = lost
        with self._lock:
            self.has_damage = True
            starts = self._lost.setdefault(key, {})
            if starts.get(end, end) <= start:
                return  # known, from where the damage begins
            starts[end] = start
        for damage in damages:
            self.note(f"{key}: offsets {start} to {end - 1} are {self._done}: {damage}")

    def lost_ranges(self, key: TopicPartition) -> list[tuple[int, int]]:
        """The offsets of a partition that were lost with damage, in order; ends are exclusive."""
        return sorted((start, end) for end, start in self._lost.get(key, {}).items())

    def note_loss(self, key: TopicPartition, what: str) -> None:
        """Say that records are missing at the end of a log; again at the end."""
        line = f"{key}: {what}"
        with self._lock:
            if line in self._losses:
                return
            self.has_damage = True
            self._losses.append(line)
        self.note(line)

    @property
    def _done(self) -> str:
        return "left out" if self.skips_damage else "not served"

    def summary(self) -> Iterator[str]:
        """What was done, at the end."""
        yield (
            f"{counted(self.clients, 'connection')}, {self.fetched_bytes} bytes of records served,"
            f" {counted(self.refused, 'request')} refused"
        )
        for key in sorted(self._lost):
            ranges = self.lost_ranges(key)
            offsets = ", ".join(f"{start} to {end - 1}" for start, end in ranges)
            yield f"{key}: damaged, {self._done}: offsets {offsets}"
        yield from self._losses
