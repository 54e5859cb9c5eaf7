"""Documents of directories that a repository elsewhere has, kept in the user's cache.

A backup reads those of its last snapshot, one for each partition: in an object store, each would be
a request. A document is found by its SHA-256, which whoever reads it compares: what is kept is that
document, or is not used.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kdump.storage.private_folder import cache_folder, is_private, make_private_folder

UNUSED_DAYS: Final = 30
_FILE: Final = "documents-1.sqlite"
_DAY_SECONDS: Final = 86_400
_LOCKED_SECONDS: Final = 5.0
_WRITTEN_TOGETHER: Final = 1000
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS documents"
    " (sha256 BLOB PRIMARY KEY, used_day INTEGER NOT NULL, data BLOB NOT NULL) WITHOUT ROWID"
)


class DocumentCache:
    """The documents that were read or written by runs of this user; never fails."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._today = int(time.time()) // _DAY_SECONDS
        self._new: dict[bytes, bytes] = {}
        self._used: set[bytes] = set()
        self._database: sqlite3.Connection | None = None
        folder = cache_folder(environment)
        with contextlib.suppress(OSError, sqlite3.Error):
            if folder is not None and make_private_folder(folder):
                self._database = _opened(folder / _FILE)

    def find(self, sha256: str) -> bytes | None:
        """A document that is kept; None if it is not."""
        key = bytes.fromhex(sha256)
        with self._lock:
            if key in self._new or self._database is None:
                return self._new.get(key)
            with contextlib.suppress(sqlite3.Error):
                query = "SELECT data FROM documents WHERE sha256 = ?"
                for (data,) in self._database.execute(query, (key,)):
                    self._used.add(key)
                    return data if isinstance(data, bytes) else None
        return None

    def keep(self, sha256: str, data: bytes) -> None:
        """Keep a document."""
        if self._database is None:
            return
        with self._lock:
            self._new[bytes.fromhex(sha256)] = data
            if len(self._new) >= _WRITTEN_TOGETHER:
                self._write()

    def close(self) -> None:
        """Write what was kept, and drop what was not used for long."""
        with self._lock:
            if self._database is None:
                return
            self._write()
            with contextlib.suppress(sqlite3.Error), self._database:
                used = [(self._today, key, self._today) for key in self._used]
                self._database.executemany(
                    "UPDATE documents SET used_day = ? WHERE sha256 = ? AND used_day < ?", used
                )
                self._database.execute(
                    "DELETE FROM documents WHERE used_day < ?", (self._today - UNUSED_DAYS,)
                )
            self._database.close()
            self._database = None

    def _write(self) -> None:
        new, self._new = self._new, {}
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error), self._database:
                self._database.executemany(
                    "INSERT OR REPLACE INTO documents VALUES (?, ?, ?)",
                    [(key, self._today, data) for key, data in new.items()],
                )


def _opened(path: Path) -> sqlite3.Connection | None:
    """Open the file, which only this user can write to.

    Raises:
        OSError, sqlite3.Error: it cannot be opened.
    """
    path.touch(mode=0o600)
    if not is_private(path):
        return None
    database = sqlite3.connect(path, timeout=_LOCKED_SECONDS, check_same_thread=False)
    try:
        database.execute(_TABLE)
    except sqlite3.OperationalError:
        database.close()  # another process uses it for long, or the disk fails: it may be whole
        return None
    except sqlite3.DatabaseError:
        database.close()
        path.unlink()  # it is damaged; the next run makes another
        return None
    return database
