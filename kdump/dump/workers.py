"""Processes that format parts of a large segment, so that all cores are used.

A worker is a fork of this process: it has the options, and is sent the file and the bytes to print.
Its answer comes through a pipe, which blocks until it is read, so that at most one window of text
waits anywhere.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

from msgspec import Struct

from kdump.dump.text_options import TextOptions
from kdump.dump.window_text import Notes, window_texts
from kdump.errors import KdumpError
from kdump.processes.worker_pool import WorkerPool, start_method, usable_cpus
from kdump.scan.batches import PADDING_BYTES, Window, read_windows
from kdump.storage.location import Location, StoredFile

WORTHWHILE_BYTES: Final = 16 << 20
"""Below this size, one process finishes before another has imported its modules."""
MOST_WORKERS: Final = 3

_PIECE_BYTES: Final = 1 << 20


class _Part(Struct, frozen=True):
    """Complete batches of a file, for a worker to print."""

    location: Location
    start: int
    end: int


class Answer:
    """A worker's answer for a window."""

    def __init__(self, connection: Connection[Any, Any], position: int) -> None:
        self._connection = connection
        self.position = position
        """Of the window, in its file."""
        self.notes = Notes()
        """About the window, once all texts were taken."""

    def texts(self) -> Iterator[bytes]:
        """The text, in pieces.

        Raises:
            OSError: when the file cannot be read, or the worker is gone.
            KdumpError: the worker failed for an unexpected reason.
        """
        while True:
            try:
                piece = self._connection.recv_bytes()
            except EOFError:
                raise OSError("a worker process ended early") from None
            if piece:
                yield piece
                continue
            outcome = self._connection.recv()
            if isinstance(outcome, OSError | KdumpError):
                raise outcome
            self.notes = outcome
            return


class Worker:
    """A process that prints windows."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection

    def ask(self, window: Window) -> Answer:
        """Have ``window`` of a file printed."""
        assert isinstance(window.source, StoredFile), "a worker reads files"
        end = window.start + len(window.data) - PADDING_BYTES
        self._connection.send(_Part(window.source.location, window.start, end))
        return Answer(self._connection, window.start)


@contextlib.contextmanager
def start_workers(options: TextOptions, size_bytes: int) -> Iterator[Sequence[Worker]]:
    """Open workers for printing ``size_bytes`` of segments: none where they would not save time.

    None either where workers cannot be forked.
    """
    count = min(usable_cpus() - 1, MOST_WORKERS)
    # A spawned worker would still import when this process is done.
    if size_bytes < WORTHWHILE_BYTES or count < 1 or start_method() != "fork":
        yield ()
        return
    with WorkerPool(functools.partial(_serve_parts, options), count, "fork") as pool:
        yield [Worker(pipe) for pipe in pool.pipes]


def _serve_parts(options: TextOptions, pipe: Connection[Any, Any]) -> None:
    """Run a worker: receive parts of files, send their text."""
    while True:
        part: _Part = pipe.recv()
        notes = Notes()
        outcome: Notes | OSError | KdumpError = notes
        try:
            for text in _texts(part, options, notes):
                for first in range(0, len(text), _PIECE_BYTES):
                    pipe.send_bytes(text[first : first + _PIECE_BYTES])
        except (BrokenPipeError, ConnectionResetError):
            raise
        except OSError as failure:
            outcome = failure
        except Exception as failure:  # noqa: BLE001 - raised again, by whoever asked
            outcome = _unforeseen(part, failure)
        pipe.send_bytes(b"")
        pipe.send(outcome)


def _unforeseen(part: _Part, failure: Exception) -> KdumpError:
    error = KdumpError(
        f"{part.location} from byte {part.start}:"
        f" internal error: {type(failure).__name__}: {failure}"
    )
    error.trace = "".join(traceback.format_exception(failure))
    return error


def _texts(part: _Part, options: TextOptions, notes: Notes) -> Iterator[bytes | memoryview]:
    with part.location.open_file() as source:
        size = part.end - part.start
        for window in read_windows(source, part.start, part.end, window_bytes=size):
            yield from window_texts(window, options, notes)
