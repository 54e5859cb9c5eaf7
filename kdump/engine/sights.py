"""Whether a worker of a cluster sees what the driver sees under the same path.

Every host of a cluster may have a ``/data/kafka`` of its own. So what is sent to a worker says what
the driver sees there: size and time of each file, and those of the log directory around it. Its
``.lock``, which the driver has just made if it is going to write, is among them.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.errors import KdumpError
from kdump.formats.names import LOCK_FILE, META_PROPERTIES
from kdump.log.lock_holders import is_locked
from kdump.storage.entries import EntryKind
from kdump.storage.location import Location, Storage

_ADVICE: Final = "give all executors the same directories and credentials, or omit --master"

Mark = tuple[int, int]
"""Size of a file, and the time when it was last modified, in nanoseconds."""


class AnotherPlaceError(KdumpError):
    """A worker sees something else than the driver under the same path."""


class Sight(Struct, frozen=True):
    """What the driver sees.

    Attributes:
        place: a file or directory.
        mark: of a file; None for a directory, which only has to be there.
        may_grow: whether a broker may append to it: the log directory has a lock file, by which
            it is known already.
    """

    place: Location
    mark: Mark | None = None
    may_grow: bool = False

    def difference(self) -> str | None:
        """What is different here; None if nothing is."""
        try:
            found = _mark(self.place)
        except (OSError, KdumpError) as failure:
            what = getattr(failure, "strerror", None) or failure
            return f"cannot read {self.place}: {what}; the driver could"
        if self.mark is None or found == self.mark:
            return None
        if (
            self.may_grow
            and found is not None
            and found[0] > self.mark[0]
            and found[1] > self.mark[1]
        ):
            return None
        return f"has another {self.place} than the driver ({_compared(found, self.mark)})"


def require_same(sights: Iterable[Sight]) -> None:
    """Refuse to work on another file or directory than the driver means.

    Raises:
        AnotherPlaceError: there is another here, or none.
    """
    for sight in sights:
        if sight.place.storage.local_path(sight.place.path) is None:
            if sight.place in _reached:
                continue
            _reached.add(sight.place)
        if (difference := sight.difference()) is not None:
            raise AnotherPlaceError(
                f"the executor on {socket.gethostname()} {difference}: {_ADVICE}"
            )


_reached: Final = set[Location]()
"""What this process was able to read in object stores and archives."""


class DriverSights:
    """What the driver sees at the places of its splits; each log directory is looked at once."""

    def __init__(self) -> None:
        self._log_dirs: dict[Location, tuple[Sight, ...]] = {}
        self._elsewhere: dict[Storage, Sight | None] = {}

    def of(self, places: Iterable[Location]) -> tuple[Sight, ...]:
        """What a worker has to see that reads these places."""
        return tuple(dict.fromkeys(sight for place in places for sight in self._at(place)))

    def _at(self, place: Location) -> Iterator[Sight]:
        if place.storage.local_path(place.path) is None:
            # A store has one directory of a name. Whether it can be reached, one place tells.
            if self._elsewhere.get(place.storage) is None:
                self._elsewhere[place.storage] = _seen(place, is_known=False)
            found = self._elsewhere[place.storage]
            if found is not None:
                yield found
            return
        may_grow = False
        for around in (place, place.parent, place.parent.parent):
            if around not in self._log_dirs:
                self._log_dirs[around] = _marks_of(around)
            marks = self._log_dirs[around]
            has_lock = any(each.place.name == LOCK_FILE for each in marks)
            may_grow = may_grow or has_lock
            yield from marks
            if has_lock and is_locked(around):
                # Its broker may replace or delete any file before a worker looks at it.
                return
        for each in _files_at(place):
            yield replace(each, may_grow=may_grow)


def _marks_of(log_dir: Location) -> tuple[Sight, ...]:
    """What tells a log directory from every other."""
    named = (_seen(log_dir / name) for name in (META_PROPERTIES, LOCK_FILE))
    return tuple(sight for sight in named if sight is not None)


def _files_at(place: Location) -> Iterator[Sight]:
    """The files that the driver can look at: a worker may have trouble with no other."""
    sight = _seen(place)
    if sight is None:
        return
    yield sight
    if sight.mark is None:
        try:
            entries = place.entries()
        except OSError:
            return
        for entry in entries:
            if entry.kind is EntryKind.FILE:
                yield Sight(place / entry.name, (entry.size_bytes, entry.modified_ns))


def _seen(place: Location, *, is_known: bool = True) -> Sight | None:
    try:
        mark = _mark(place)
    except (OSError, KdumpError):
        return None
    return Sight(place, mark if is_known else None)


def _mark(place: Location) -> Mark | None:
    entry = place.status()
    is_file = entry.kind is EntryKind.FILE
    return (entry.size_bytes, entry.modified_ns) if is_file else None


def _compared(found: Mark | None, expected: Mark) -> str:
    if found is None:
        return "there it is no file"
    if found[0] != expected[0]:
        return f"{found[0]} bytes there, {expected[0]} here"
    return "changed at another time"
