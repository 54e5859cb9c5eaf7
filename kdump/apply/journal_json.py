"""Journals as JSON, and back.

Anybody may have written what is decoded here, so that every field is held against its type and its
range. What a journal that is well-formed may *say* is the business of
:mod:`kdump.apply.journal_validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from kdump.apply.files import Metadata
from kdump.apply.journal import BeforeImage, Cut, Derived, Fingerprint, Journal, KeptRange, Piece
from kdump.apply.journal_record import JournalRecord, RecordKind

Value = TypeVar("Value")

_MOST: Final = 2**63 - 1
_MOST_ID: Final = 2**32 - 2
_MOST_MODE: Final = 0o7777
_MOST_CHECKSUM: Final = 2**32 - 1
_YEAR_10000_MS: Final = 253_402_300_800_000


def encoded(journal: Journal) -> dict[str, Any]:
    """A journal as what JSON has."""
    return {
        "number": journal.number,
        "command": journal.command,
        "created_ms": journal.created_ms,
        "can_undo": journal.can_undo,
        "lock": None if journal.lock is None else _of_metadata(journal.lock),
        "directories": {path: _of_metadata(each) for path, each in journal.directories.items()},
        "before": {path: _of_before(each) for path, each in journal.before_images.items()},
        "staged": journal.staged,
        "steps": [_of_step(each) for each in journal.redo_records],
        "undo_steps": [_of_step(each) for each in journal.undo_records],
        "marks": _of_marks(journal.fingerprints),
        "after": _of_marks(journal.after),
        "meanwhile": _of_marks(journal.interim),
        "kept": _of_marks(journal.undo_files),
    }


def decoded(said: Any) -> Journal:
    """The journal that was encoded as ``said``.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: there is none.
    """
    return Journal(
        number=_number(said["number"]),
        command=_text(said["command"]),
        created_ms=_number(said["created_ms"], most=_YEAR_10000_MS - 1),
        can_undo=_truth(said["can_undo"]),
        lock=_optional(_to_metadata, said["lock"]),
        directories=_mapping(_to_metadata, said["directories"]),
        before_images=_mapping(_to_before, said["before"]),
        staged=_mapping(_text, said["staged"]),
        redo_records=_list(_to_step, said["steps"]),
        undo_records=_list(_to_step, said["undo_steps"]),
        fingerprints=_mapping(_to_mark, said["marks"]),
        after=_mapping(_to_mark, said["after"]),
        interim=_mapping(_to_mark, said["meanwhile"]),
        undo_files=_mapping(_to_mark, said["kept"]),
    )


def _number(said: Any, *, least: int = 0, most: int = _MOST) -> int:
    if type(said) is not int or not least <= said <= most:
        raise ValueError(f"not a number from {least} to {most}: {said!r:.100}")
    return said


def _text(said: Any) -> str:
    if type(said) is not str:
        raise TypeError(f"not a string: {said!r:.100}")
    return said


def _truth(said: Any) -> bool:
    if type(said) is not bool:
        raise TypeError(f"neither true nor false: {said!r:.100}")
    return said


def _list(decode: Callable[[Any], Value], said: Any) -> tuple[Value, ...]:
    if type(said) is not list:
        raise TypeError(f"not a list: {said!r:.100}")
    return tuple(map(decode, said))


def _mapping(decode: Callable[[Any], Value], said: Any) -> dict[str, Value]:
    if type(said) is not dict:
        raise TypeError(f"not an object: {said!r:.100}")
    return {key: decode(value) for key, value in said.items()}


def _optional(decode: Callable[[Any], Value], said: Any) -> Value | None:
    return None if said is None else decode(said)


def _fields(said: Any, count: int) -> list[Any]:
    if type(said) is not list or len(said) != count:
        raise ValueError(f"not a list of {count}: {said!r:.100}")
    return said


def _of_metadata(metadata: Metadata) -> list[int]:
    return [
        metadata.mode,
        metadata.uid,
        metadata.gid,
        metadata.accessed_ns,
        metadata.modified_ns,
    ]


def _to_metadata(said: Any) -> Metadata:
    mode, uid, gid, accessed_ns, modified_ns = _fields(said, 5)
    return Metadata(
        _number(mode, most=_MOST_MODE),
        _number(uid, most=_MOST_ID),
        _number(gid, most=_MOST_ID),
        _number(accessed_ns, least=-_MOST),
        _number(modified_ns, least=-_MOST),
    )


def _of_marks(marks: dict[str, Fingerprint]) -> dict[str, list[int | None]]:
    return {
        path: [mark.size_bytes, mark.modified_ns, mark.checksum] for path, mark in marks.items()
    }


def _to_mark(said: Any) -> Fingerprint:
    size_bytes, modified_ns, checksum = _fields(said, 3)
    return Fingerprint(
        _number(size_bytes),
        _number(modified_ns, least=-_MOST),
        None if checksum is None else _number(checksum, most=_MOST_CHECKSUM),
    )


def _of_step(step: JournalRecord) -> list[Any]:
    return [step.kind.value, step.path, step.source, step.size_bytes, step.paths]


def _to_step(said: Any) -> JournalRecord:
    kind, path, source, size_bytes, paths = _fields(said, 5)
    return JournalRecord(
        RecordKind(_text(kind)),
        _text(path),
        _text(source),
        _number(size_bytes),
        _list(_text, paths),
    )


def _of_runs(runs: Iterable[KeptRange]) -> list[list[int]]:
    return [[run.position, run.size_bytes, run.kept_at] for run in runs]


def _to_run(said: Any) -> KeptRange:
    position, size_bytes, kept_at = _fields(said, 3)
    return KeptRange(_number(position), _number(size_bytes), _number(kept_at))


def _of_before(before: BeforeImage) -> list[Any]:
    cut, derived = before.cut, before.derived
    return [
        before.size_bytes,
        _of_metadata(before.metadata),
        before.is_own,
        before.link,
        None if cut is None else [cut.position, _of_runs(cut.kept_ranges)],
        None
        if derived is None
        else [
            [[piece.path, piece.start, piece.end, piece.position] for piece in derived.pieces],
            _of_runs(derived.kept_ranges),
            derived.is_rename,
        ],
    ]


def _to_before(said: Any) -> BeforeImage:
    size_bytes, metadata, is_own, link, cut, derived = _fields(said, 6)
    return BeforeImage(
        _number(size_bytes),
        _to_metadata(metadata),
        _truth(is_own),
        _optional(_text, link),
        _optional(_to_cut, cut),
        _optional(_to_derived, derived),
    )


def _to_cut(said: Any) -> Cut:
    position, runs = _fields(said, 2)
    return Cut(_number(position), _list(_to_run, runs))


def _to_derived(said: Any) -> Derived:
    pieces, runs, is_rename = _fields(said, 3)
    return Derived(_list(_to_piece, pieces), _list(_to_run, runs), _truth(is_rename))


def _to_piece(said: Any) -> Piece:
    path, start, end, position = _fields(said, 4)
    return Piece(_text(path), _number(start), _number(end), _number(position))
