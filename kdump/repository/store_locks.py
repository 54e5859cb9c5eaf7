"""Locks of a repository in an object store, which has none of its own.

They are objects below ``locks``:

- ``NNNNNNNN``, a claim: whoever creates the next number, on the condition that it is not there, may
  write. Of two at once the store lets one.
- ``NNNNNNNN-write-ID`` and ``NNNNNNNN-remove-ID``, signs of life of whoever has that claim, and
  ``read-ID`` of who reads everything. They are written again every minute.

Whoever has written its own sign lists the others, and gives up if another is in its way: so at most
one goes on also in a store that ignores the condition, as long as it lists what was written before.
A sign that is older than :data:`DEAD_SECONDS`, by the clock of the store, counts as that of a run
that was killed, and so does that of a process of this machine that is gone. A run that could not
write its sign for :data:`TRUSTED_SECONDS` makes no snapshot, and removes nothing: what it had asked
for before that has arrived, or is given up, until its sign is too old.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kdump.errors import KdumpError, UsageProblem, reason_of
from kdump.phases import phase
from kdump.processes.known_process import is_gone, this_process
from kdump.storage.location import Location
from kdump.storage.object_writer import ListedObject, ObjectWriter
from kdump.storage.repository import RepositoryError

LOCKS: Final = "locks"
SIGN_SECONDS: Final = 60.0
TRUSTED_SECONDS: Final = 300.0
DEAD_SECONDS: Final = 900.0
_LONGEST_TIMEOUT_SECONDS: Final = 300.0
_LAST_SIGN_SECONDS: Final = 30.0
"""So long a run that ends waits for its last sign to be written."""
_NAME: Final = re.compile(r"(?:(\d{8})(?:-(write|remove)-[0-9a-f]{16})?|read-[0-9a-f]{16})")

WRITE: Final = "write"
REMOVE: Final = "remove"
READ: Final = "read"
_WHAT: Final = {
    WRITE: "writes to",
    REMOVE: "removes snapshots from",
    READ: "checks or restores from",
}


class _Sign(NamedTuple):
    """A lock object that was listed.

    Attributes:
        path: in the bucket.
        number: of its claim; 0 for that of a reader.
        kind: what its run does; a bare claim is one to write.
        age_s: how long ago it was written.
    """

    path: str
    number: int
    kind: str
    age_s: float

    @classmethod
    def listed(cls, found: ListedObject) -> _Sign | None:
        match = _NAME.fullmatch(found.path.rpartition("/")[2])
        if match is None:
            return None
        number, kind = match.groups()
        if number is None:
            return cls(found.path, 0, READ, found.age_s)
        return cls(found.path, int(number), kind or WRITE, found.age_s)


class StoreLock:
    """A lock that this process holds; a thread writes its sign again."""

    def __init__(self, location: Location, writer: ObjectWriter, kind: str) -> None:
        """Prepare a lock; nothing is written yet.

        Args:
            kind: what it is for.
        """
        self._location = location
        self._writer = writer
        self._kind = kind
        self._folder = (location / LOCKS).path
        self._owner = json.dumps({**this_process(), "id": secrets.token_hex(8)}).encode()
        self._own: list[str] = []
        self._sign = f"{self._folder}/{READ}-{secrets.token_hex(8)}"
        self._signed_s = 0.0
        self._ended = threading.Event()
        self._renewing = threading.Thread(target=self._renew, daemon=True, name="kdump lock")

    def require_held(self) -> None:
        """Make sure that nobody else can have taken the lock.

        Raises:
            RepositoryError: somebody may have: the store did not answer for too long.
        """
        silent_s = _now_s() - self._signed_s
        if silent_s > TRUSTED_SECONDS:
            raise RepositoryError(
                f"{self._location}: the lock could not be renewed for {silent_s:.0f} s, so that"
                " another kdump may have taken it; run the same command again to continue"
            )

    def take(self) -> None:
        """Take the lock.

        Raises:
            UsageProblem: requests may take so long that nobody can know when a run has ended.
            RepositoryError: another run is in the way.
            OSError: the store does not answer.
        """
        if self._writer.timeout_s > _LONGEST_TIMEOUT_SECONDS:
            raise UsageProblem(
                f"{self._location}: timeout is at most {_LONGEST_TIMEOUT_SECONDS:.0f} seconds for a"
                " repository"
            )
        dead: list[_Sign] = []
        if self._kind != READ:
            found = self._others(dead)
            self._claim(1 + max((each.number for each in (*found, *dead)), default=0))
        self._write_sign()
        # Once more: in a store that ignores the condition, another run may have claimed the same.
        self._others(dead)
        if self._kind != READ:
            self._writer.delete(dict.fromkeys(each.path for each in dead))
        self._renewing.start()

    def give_back(self) -> None:
        """Give the lock back; what cannot be deleted counts as dead later. Never fails."""
        self._ended.set()
        if self._renewing.is_alive():
            # A sign that is just being written would be there again.
            self._renewing.join(_LAST_SIGN_SECONDS)
        with contextlib.suppress(OSError, KdumpError):
            self._writer.delete(self._own)

    def _claim(self, number: int) -> None:
        claim = f"{self._folder}/{number:08}"
        if not self._writer.create(claim, self._owner):
            raise self._refusal(WRITE, "it has just begun")
        self._own.append(claim)
        self._sign = f"{claim}-{self._kind}-{secrets.token_hex(8)}"

    def _write_sign(self) -> None:
        begun_s = _now_s()
        if self._sign not in self._own:
            self._own.append(self._sign)
        self._writer.put(self._sign, self._owner)
        # Not from its end on: another run counts from when it was written.
        self._signed_s = begun_s

    def _renew(self) -> None:
        while not self._ended.wait(SIGN_SECONDS):
            if _now_s() - self._signed_s > TRUSTED_SECONDS:
                return  # it may be another's by now
            with contextlib.suppress(Exception):
                self._write_sign()

    def _others(self, dead: list[_Sign]) -> list[_Sign]:
        """The locks of others that are not in the way, because they are no longer used or shared.

        Args:
            dead: gets those of runs that were killed.

        Raises:
            RepositoryError: one is in the way.
        """
        found = []
        for listed in self._writer.listed(self._folder):
            sign = _Sign.listed(listed)
            if sign is None or sign.path in self._own:
                continue
            if sign.kind in self._not_beside:
                owner = {} if sign.age_s > DEAD_SECONDS else self._owner_of(sign)
                if owner is None or sign.age_s > DEAD_SECONDS or is_gone(owner):
                    dead.append(sign)
                    continue
                raise self._refusal(sign.kind, _described(owner, sign.age_s))
            found.append(sign)
        return found

    @property
    def _not_beside(self) -> frozenset[str]:
        return {
            READ: frozenset({REMOVE}),
            WRITE: frozenset({WRITE, REMOVE}),
            REMOVE: frozenset({WRITE, REMOVE, READ}),
        }[self._kind]

    def _owner_of(self, sign: _Sign) -> dict[str, Any] | None:
        """Who has written a lock; None if it was given back meanwhile."""
        try:
            owner = json.loads(self._writer.read(sign.path))
        except FileNotFoundError:
            return None
        except ValueError:
            return {}
        return owner if isinstance(owner, dict) else {}

    def _refusal(self, kind: str, who: str) -> RepositoryError:
        what = f"another kdump {_WHAT[kind]} this repository"
        return RepositoryError(f"{self._location}: {what} ({who}); wait until it ends")


@contextlib.contextmanager
def _locked(location: Location, writer: ObjectWriter, kind: str) -> Iterator[StoreLock]:
    lock = StoreLock(location, writer, kind)
    try:
        with phase(f"locking {location}"):
            lock.take()
        yield lock
    finally:
        with phase(f"unlocking {location}"):
            lock.give_back()


def locked_store_to_write(
    location: Location, writer: ObjectWriter
) -> contextlib.AbstractContextManager[StoreLock]:
    """Lock a repository to write to it.

    Raises:
        RepositoryError: another kdump writes to it.
        OSError: the store does not answer.
    """
    return _locked(location, writer, WRITE)


@contextlib.contextmanager
def locked_store_to_remove(location: Location, writer: ObjectWriter) -> Iterator[StoreLock]:
    """Lock a repository to remove something from it.

    Raises:
        RepositoryError: another kdump writes to it or reads it, or the store does not answer.
    """
    try:
        with _locked(location, writer, REMOVE) as lock:
            yield lock
    except PermissionError as failure:
        raise RepositoryError(f"{failure.filename}: {reason_of(failure)}") from failure


@contextlib.contextmanager
def locked_store_to_read(location: Location, writer: ObjectWriter) -> Iterator[None]:
    """Keep others from removing anything while a repository is read.

    Whoever may not write to it reads it without a lock.

    Raises:
        RepositoryError: another kdump removes something from it.
        OSError: the store does not answer.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(PermissionError):
            stack.enter_context(_locked(location, writer, READ))
        yield


def _described(owner: dict[str, Any], age_s: float) -> str:
    """Which run it is, and until when its lock counts if it was killed."""
    host, pid = owner.get("host"), owner.get("pid")
    who = f"pid {pid} on {host!s:.80}, " if isinstance(pid, int) else ""
    left_s = DEAD_SECONDS - age_s
    return f"{who}seen {age_s:.0f} s ago; if it was killed, its lock ends in {left_s:.0f} s"


def _now_s() -> float:
    """Seconds that go on while the machine sleeps, where the system has such a clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)
