"""A run over very many files takes little memory beyond what describes the files."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from kdump.apply import files
from kdump.apply.files import DISK, Metadata
from kdump.apply.journal import Fingerprint, Journal, RunState
from kdump.apply.journal_file import read_journal, write_journal
from kdump.apply.journal_record import JournalRecord, RecordKind

COUNT = 20_000


def peak_bytes(call: Callable[[], object]) -> int:
    """Return how much memory a call takes at most, beyond what is there before."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def journal_of(count: int) -> Journal:
    paths = [f"orders-0/{number:020d}.index" for number in range(count)]
    metadata = Metadata(0o644, 0, 0, 1, 2)
    return Journal(
        number=1,
        command="test",
        created_ms=1,
        can_undo=True,
        lock=None,
        directories={".": metadata, "orders-0": metadata},
        before_images={},
        staged={},
        redo_records=(),
        undo_records=tuple(JournalRecord(RecordKind.REMOVE, path) for path in paths),
        fingerprints={path: Fingerprint(8, 1, 3) for path in paths},
        after={},
        interim={},
        undo_files={},
    )


def test_a_journal_is_not_encoded_in_memory(tmp_path: Path) -> None:
    journal = journal_of(COUNT)

    peak = peak_bytes(lambda: write_journal(tmp_path, journal, RunState.APPLIED, DISK))

    path = tmp_path / ".kdump-1.applied"
    assert peak < path.stat().st_size / 2
    assert read_journal(path) == journal


def test_syncing_takes_no_memory_for_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path] * COUNT
    synced: list[None] = []
    monkeypatch.setattr(files, "_sync", lambda _: synced.append(None))

    assert peak_bytes(lambda: DISK.sync(paths)) < COUNT * 500
    assert len(synced) == COUNT
