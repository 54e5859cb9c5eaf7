"""Remove the snapshots of a repository that no rule keeps, and then what no snapshot needs.

First the snapshots, durably, then the pieces: whenever a run is stopped, every snapshot that is
there has all its pieces. Pieces that are left are removed by the next run, those of the last day
by none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from kdump.phases import phase
from kdump.repository.known_places import place_at
from kdump.repository.repository_writer import read_progress, remove, unneeded_pieces
from kdump.storage.places import concurrent_reads
from kdump.storage.repository import Repository, RepositoryError, later_snapshots
from kdump.storage.repository_documents import (
    BackedUpLogDirectory,
    RepositoryPiece,
    Snapshot,
    stored_bytes,
)

_PERIODS: Final = {
    "hourly": "%Y-%m-%dT%H",
    "daily": "%Y-%m-%d",
    "weekly": "%G-%V",
    "monthly": "%Y-%m",
    "yearly": "%Y",
}
RULES: Final = ("last", *_PERIODS)
FUTURE: Final = "future"
"""Keeps what no rule can judge: when snapshots with a time later than now were made."""
_MS_PER_S: Final = 1000
YOUNG_SECONDS: Final = 86_400
"""Pieces that are younger stay: a backup that was stopped, or that lost its lock while its machine
stood still, may have stored them for a snapshot that is not there yet."""
_REFUSED: Final = (
    "nothing was removed, because it is not known what this snapshot needs: run 'kdump backup"
    " check'; to do without it, delete its file"
)


class PrunedSnapshot(Struct, frozen=True):
    """A snapshot, and what keeps it.

    Attributes:
        kept_by: the rules, or :data:`FUTURE`; empty if it is removed.
    """

    name: str
    begun_ms: int
    kept_by: tuple[str, ...]


class PruneResult(Struct):
    """What was removed, or would be.

    Attributes:
        snapshots: the oldest first.
        later: the names of those with a time later than now.
        removed_pieces: how many pieces no snapshot needs.
        removed_bytes: in them.
        young_pieces: how many no snapshot needs either, and are kept: they are too young.
    """

    snapshots: list[PrunedSnapshot]
    later: list[str]
    removed_pieces: int = 0
    removed_bytes: int = 0
    young_pieces: int = 0


def prune(
    repository: Repository, rules: Mapping[str, int], now_ms: int, *, is_preview: bool
) -> PruneResult:
    """Remove what no rule keeps.

    Args:
        repository: where it can be written, too.
        rules: how many snapshots each of :data:`RULES` keeps.
        now_ms: the current time; later snapshots are kept, and take no place from others.

    Raises:
        RepositoryError: a snapshot that is to be kept is damaged, another kdump uses the
            repository, or its disk fails; says what to do.
        OSError: the repository cannot be read.
    """
    path, where = repository.path, place_at(repository.path)
    with nullcontext() if is_preview else where.locked_to_remove() as lock:
        snapshots = dict(_snapshots(repository))
        later = later_snapshots(snapshots, now_ms)
        certain = {name: each for name, each in snapshots.items() if name not in later}
        kept_by = kept(certain, rules) | {name: [FUTURE] for name in later}
        result = PruneResult(
            [
                PrunedSnapshot(name, snapshot.begun_ms, tuple(kept_by.get(name, ())))
                for name, snapshot in snapshots.items()
            ],
            later,
        )
        needed = _needed(repository, {name: snapshots[name] for name in kept_by})
        with phase(f"listing {path}"):
            # What an unfinished backup has stored is there when that goes on.
            needed |= {
                piece.sha256
                for files in read_progress(where).values()
                for file in files.values()
                for piece in file.pieces
            }
            unneeded = list(unneeded_pieces(where, needed))
        pieces = [piece for piece, age_s in unneeded if age_s >= YOUNG_SECONDS]
        result.young_pieces = len(unneeded) - len(pieces)
        result.removed_pieces = len(pieces)
        result.removed_bytes = stored_bytes(pieces)
        if lock is not None:
            removed = [name for name in snapshots if name not in kept_by]
            remove(where, lock, removed, pieces)
    return result


def kept(snapshots: Mapping[str, Snapshot], rules: Mapping[str, int]) -> dict[str, list[str]]:
    """The snapshots that rules keep, and the rules that keep each.

    Each log directory is looked at by itself: hosts that share a repository do not drive out each
    other's snapshots.

    Args:
        snapshots: by name, the oldest first.
        rules: how many to keep by each.
    """
    by_log_dir = defaultdict[object, list[str]](list)
    for name in sorted(snapshots, reverse=True):
        for disk in {_disk(each) for each in snapshots[name].log_dirs}:
            by_log_dir[disk].append(name)
    found = defaultdict[str, set[str]](set)
    for names in by_log_dir.values():
        for rule, count in rules.items():
            for name in _last_of(names, snapshots, rule)[:count]:
                found[name].add(rule)
    return {name: [rule for rule in RULES if rule in found[name]] for name in sorted(found)}


def _disk(log_dir: BackedUpLogDirectory) -> object:
    """The same for all backups of a log directory, also if it got a directory id meanwhile."""
    return log_dir.host, log_dir.path, log_dir.cluster_id, log_dir.node_id


def _last_of(names: Sequence[str], snapshots: Mapping[str, Snapshot], rule: str) -> list[str]:
    """The last snapshot of each period, the newest first."""
    if rule == "last":
        return [*names]
    last: dict[str, str] = {}
    for name in names:
        begun = datetime.fromtimestamp(snapshots[name].begun_ms // _MS_PER_S, UTC)
        last.setdefault(begun.strftime(_PERIODS[rule]), name)
    return [*last.values()]


def _snapshots(repository: Repository) -> Iterator[tuple[str, Snapshot]]:
    with phase(f"reading the snapshots of {repository.path}"):
        for name in repository.snapshot_ids():
            try:
                yield name, repository.snapshot(name)
            except RepositoryError as failure:
                raise RepositoryError(f"{failure}; {_REFUSED}") from None


def _needed(repository: Repository, snapshots: Mapping[str, Snapshot]) -> set[str]:
    """The SHA-256 of all pieces that snapshots need.

    Raises:
        RepositoryError: a document of one cannot be read.
    """
    read: set[RepositoryPiece] = set()
    needed: set[str] = set()
    with phase(f"reading the directories of {repository.path}"):
        for name, snapshot in snapshots.items():
            for log_dir in snapshot.log_dirs:
                for each in repository.directories(log_dir.root, read, threads=concurrent_reads()):
                    if each.directory is None:
                        file = repository.snapshot_file(name)
                        raise RepositoryError(f"{each.failure}; needed by {file}; {_REFUSED}")
                    for stored in each.directory.files:
                        needed.update(piece.sha256 for piece in stored.pieces)
    return needed | {each.sha256 for each in read}
