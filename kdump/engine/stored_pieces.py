"""The pieces of a shuffle as files: the local engine's way to exchange more than memory holds.

Each split that is mapped has a file with its pieces, one after another. A bucket is the places of
its pieces in these files; whoever reduces it reads only these.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Generic

from msgspec import Struct

from kdump.engine.job import PieceT, ReducedT, ResultT, ShuffleJob, Split, SplitT
from kdump.errors import KdumpError
from kdump.storage.local_disk import local


class StoredPiece(Struct, frozen=True):
    """Where a piece is."""

    path: str
    start: int
    size_bytes: int


class BucketSplit(Split, frozen=True, kw_only=True):
    """A bucket as work: its pieces, in the order of the splits that they were made from."""

    pieces: tuple[StoredPiece, ...]


@contextlib.contextmanager
def stored_pieces() -> Iterator[str]:
    """Make a directory for pieces; leaving the context removes it.

    Raises:
        KdumpError: it cannot be created.
    """
    with contextlib.ExitStack() as stack:
        with _storing(tempfile.gettempdir()):
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="kdump-shuffle-", ignore_cleanup_errors=True)
            )
        yield folder


@contextlib.contextmanager
def _storing(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        raise KdumpError(
            f"{folder}: {failure.strerror}: set TMPDIR to a directory with more space"
        ) from failure


class MapToFiles(Struct, Generic[SplitT, ResultT, PieceT], frozen=True):
    """The map step of a shuffle, which stores the pieces."""

    job: ShuffleJob[SplitT, ResultT, PieceT, Any]
    buckets: int
    folder: str

    def run(self, split: SplitT, /) -> tuple[ResultT, Mapping[int, StoredPiece]]:
        result, pieces = self.job.map(split, self.buckets)
        if not pieces:
            return result, {}
        with _storing(self.folder):
            descriptor, path = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(descriptor, "wb") as file:
                return result, {
                    bucket: _store(piece, path, file) for bucket, piece in pieces.items()
                }


def _store(piece: object, path: str, file: IO[bytes]) -> StoredPiece:
    start = file.tell()
    pickle.dump(piece, file, pickle.HIGHEST_PROTOCOL)
    return StoredPiece(path, start, file.tell() - start)


def bucket_splits(folder: str, mapped: Iterable[Mapping[int, StoredPiece]]) -> list[BucketSplit]:
    """The buckets that have pieces, given those of each split in order."""
    by_bucket: dict[int, list[StoredPiece]] = defaultdict(list)
    for own in mapped:
        for bucket, piece in own.items():
            by_bucket[bucket].append(piece)
    return [
        BucketSplit(
            local(folder), size_bytes=sum(each.size_bytes for each in own), pieces=tuple(own)
        )
        for own in by_bucket.values()
    ]


class ReduceFiles(Struct, Generic[PieceT, ReducedT], frozen=True):
    """The reduce step of a shuffle, whose pieces are stored."""

    job: ShuffleJob[Any, Any, PieceT, ReducedT]

    def run(self, split: BucketSplit, /) -> ReducedT:
        return self.job.reduce([_stored(each) for each in split.pieces])


def _stored(piece: StoredPiece) -> Any:
    with Path(piece.path).open("rb") as file:
        file.seek(piece.start)
        return pickle.load(file)  # noqa: S301 - this run of kdump wrote it, in a private directory
