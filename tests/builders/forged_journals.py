"""Journals forged by somebody with write access to the log directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crc32c
from msgspec.structs import replace

from builders.written_files import PARTITION, plan_of, write_files
from kdump.apply.apply import apply_plan
from kdump.apply.files import DISK, Metadata
from kdump.apply.journal import BeforeImage, Cut, Fingerprint, Journal, RunState
from kdump.apply.journal_file import read_journal, write_journal
from kdump.apply.journal_record import JournalRecord, RecordKind
from kdump.formats import names
from kdump.target.target_file import Gone, KeptUpTo, NewBytes

LOG = "00000000000000000000.log"
FOREIGN = "foreign"
Forge = Callable[[Journal], Journal]


def log_dir_with_a_run(tmp_path: Path) -> Path:
    """Make a log directory with a completed run, and a foreign file beside it."""
    log_dir = tmp_path / "logs"
    write_files(log_dir, {LOG: b"12345678", "b": b"b", "c": b"c"})
    (log_dir / names.RECOVERY_POINT_CHECKPOINT).write_bytes(b"0\n0\n")
    foreign = tmp_path / FOREIGN
    foreign.write_bytes(b"of somebody else")
    foreign.chmod(0o600)
    plan = plan_of(log_dir, {LOG: KeptUpTo(6), "b": Gone(), "c": NewBytes(b"C")})
    apply_plan(plan, keep_undo=True, command="kdump recover")
    return log_dir


def forge(log_dir: Path, forged: Forge, state: RunState = RunState.APPLIED) -> Path:
    """Change the journal of run 1 or its state."""
    path = log_dir / ".kdump-1.applied"
    journal = read_journal(path)
    path.unlink()
    write_journal(log_dir, forged(journal), state, DISK)
    return log_dir / f".kdump-1{state.value}"


def with_steps(*steps: JournalRecord) -> Forge:
    return lambda journal: replace(journal, undo_records=(*journal.undo_records, *steps))


def before_of(path: str, metadata: Metadata) -> Forge:
    """Claim that a file was truncated."""
    before = BeforeImage(100, metadata, True, None, Cut(0, ()), None)
    return lambda journal: replace(
        journal,
        before_images=journal.before_images | {path: before},
        undo_records=(*journal.undo_records, JournalRecord(RecordKind.FILL, source=path)),
    )


SET_ID = Metadata(0o6755, 0, 0, 0, 0)
PLAIN = Metadata(0o666, 0, 0, 0, 0)
MARK = Fingerprint(0, 0)
KEPT = ".kdump-1-old-0"


def linked_to(name: str) -> Forge:
    """Claim that a kept file has another name."""

    def forged(journal: Journal) -> Journal:
        path = f"{PARTITION}/b"
        before = replace(journal.before_images[path], link=name)
        return replace(journal, before_images=journal.before_images | {path: before})

    return forged


def paths_of(foreign: str) -> dict[str, Forge]:
    """Return forged journals that use ``foreign`` in place of each kind of file name."""
    return {
        "remove": with_steps(JournalRecord(RecordKind.REMOVE, foreign)),
        "remove-guard": with_steps(JournalRecord(RecordKind.REMOVE, f"{PARTITION}/c", foreign)),
        "move-from": with_steps(JournalRecord(RecordKind.MOVE, f"{PARTITION}/x", foreign)),
        "move-to": with_steps(JournalRecord(RecordKind.MOVE, foreign, f"{PARTITION}/c")),
        "put": with_steps(JournalRecord(RecordKind.PUT, foreign, f"{PARTITION}/b")),
        "put-from": with_steps(JournalRecord(RecordKind.PUT, f"{PARTITION}/b", foreign)),
        "fill": before_of(foreign, PLAIN),
        "sync": with_steps(JournalRecord(RecordKind.SYNC, paths=(foreign,))),
        "link": linked_to(foreign),
        "kept": lambda journal: replace(journal, undo_files=journal.undo_files | {foreign: MARK}),
        "marks": lambda journal: replace(
            journal, fingerprints=journal.fingerprints | {foreign: MARK}
        ),
        "after": lambda journal: replace(journal, after=journal.after | {foreign: MARK}),
    }


def rewritten(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the JSON of a journal, and correct its checksum."""
    _, _, body = path.read_bytes().partition(b"\n")
    said = json.loads(body)
    change(said)
    with_right_head(path, json.dumps(said).encode())


def with_right_head(path: Path, body: bytes, version: object = 3) -> None:
    head = {"kdump": version, "size_bytes": len(body), "crc32c": crc32c.crc32c(body)}
    path.write_bytes(json.dumps(head).encode() + b"\n" + body)
