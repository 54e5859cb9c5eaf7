"""Encode journals as JSON, and decode them.

Anybody who can write to the log directory may have written a journal, so every field is checked for
its type and range here. Whether a well-formed journal makes sense, and is safe to execute, is
checked by :mod:`kdump.apply.journal_validation`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta, convert, to_builtins
from msgspec.structs import replace

from kdump.apply.files import Metadata, Number
from kdump.apply.journal import BeforeImage, DirectoryMove, Fingerprint, Journal
from kdump.apply.journal_record import JournalRecord
from kdump.formats.json_document import LEAST_TIME_NS, MOST_TIME_NS

Value = TypeVar("Value")

_YEAR_10000_MS: Final = 253_402_300_800_000
_CREATED_MS: Final = Annotated[int, Meta(ge=0, lt=_YEAR_10000_MS)]
_FILES: Final = dict[str, Fingerprint]
_RECORDS: Final = tuple[JournalRecord, ...]
_ENCODED_AT_ONCE: Final = 1000


def encode_journal(journal: Journal) -> Iterator[bytes]:
    """The JSON object of a journal, in pieces: a journal can have a million entries.

    The keys are the format on disk; what is in the sections is a list of the fields of its struct.
    """
    return _object(
        {
            "number": _value(journal.number),
            "command": _value(journal.command),
            "created_ms": _value(journal.created_ms),
            "can_undo": _value(journal.can_undo),
            "lock": _value(journal.lock),
            "directories": _entries(journal.directories),
            "before": _entries(journal.before_images),
            "staged": _entries(journal.staged),
            "steps": _rows(journal.redo_records),
            "undo_steps": _rows(journal.undo_records),
            "marks": _entries(journal.fingerprints),
            "after": _entries(journal.after),
            "meanwhile": _entries(journal.interim),
            "kept": _entries(journal.undo_files),
            "moves": _rows(map(_encode_move, journal.moves)),
        }
    )


def _object(members: Mapping[str, Iterator[bytes]]) -> Iterator[bytes]:
    yield b"{"
    for number, (key, pieces) in enumerate(members.items()):
        yield f'{"," if number else ""}"{key}":'.encode()
        yield from pieces
    yield b"}"


def _value(value: Any) -> Iterator[bytes]:
    yield _dumped(value)


def _entries(values: Mapping[str, Any]) -> Iterator[bytes]:
    """An object, some members at a time."""
    return _joined(b"{", (_dumped(dict(some)) for some in _batched(values.items())), b"}")


def _rows(values: Iterable[Any]) -> Iterator[bytes]:
    """An array, some elements at a time."""
    return _joined(b"[", map(_dumped, _batched(values)), b"]")


def _joined(begin: bytes, parts: Iterable[bytes], end: bytes) -> Iterator[bytes]:
    """One object or array of the members or elements of several."""
    yield begin
    for number, part in enumerate(parts):
        yield (b"," if number else b"") + part[1:-1]
    yield end


def _batched(values: Iterable[Value]) -> Iterator[list[Value]]:
    left = iter(values)
    while some := list(itertools.islice(left, _ENCODED_AT_ONCE)):
        yield some


def _dumped(value: Any) -> bytes:
    # msgspec itself encodes no names with bytes that are not UTF-8.
    return json.dumps(to_builtins(value), separators=(",", ":")).encode()


def decode_journal(value: Any) -> Journal:
    """Convert what :mod:`json` has read back to a journal.

    Each section is removed from ``value`` once it is converted, so that both are never in memory.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: it is not an encoded journal.
    """
    journal = Journal(
        number=convert(value.pop("number"), Number),
        command=convert(value.pop("command"), str),
        created_ms=convert(value.pop("created_ms"), _CREATED_MS),
        can_undo=convert(value.pop("can_undo"), bool),
        lock=convert(value.pop("lock"), Metadata | None),
        directories=convert(value.pop("directories"), dict[str, Metadata]),
        before_images=convert(value.pop("before"), dict[str, BeforeImage]),
        staged=convert(value.pop("staged"), dict[str, str]),
        redo_records=convert(value.pop("steps"), _RECORDS),
        undo_records=convert(value.pop("undo_steps"), _RECORDS),
        fingerprints=convert(value.pop("marks"), _FILES),
        after=convert(value.pop("after"), _FILES),
        interim=convert(value.pop("meanwhile"), _FILES),
        undo_files=convert(value.pop("kept"), _FILES),
        moves=tuple(map(_decode_move, convert(value.pop("moves"), list[list[Any]]))),
    )
    _require_times(journal)
    return journal


def _require_times(journal: Journal) -> None:
    """Refuse times that no file has; msgspec limits numbers to 64 bits, which some exceed.

    Raises:
        ValueError: there is one.
    """
    images = (each.metadata for each in journal.before_images.values())
    moves = (each.metadata for each in journal.moves)
    lock = () if journal.lock is None else (journal.lock,)
    files = (journal.fingerprints, journal.after, journal.interim, journal.undo_files)
    metadata = list(chain(lock, journal.directories.values(), images, moves))
    for time_ns in chain(
        (each.accessed_ns for each in metadata),
        (each.modified_ns for each in metadata),
        (each.modified_ns for section in files for each in section.values()),
    ):
        if not LEAST_TIME_NS <= time_ns <= MOST_TIME_NS:
            raise ValueError(f"not a time of a file: {time_ns!r:.100}")


def _encode_move(move: DirectoryMove) -> list[Any]:
    attributes = {name: value.hex() for name, value in move.attributes}
    return [*to_builtins(replace(move, attributes=()))[:-1], attributes]


def _decode_move(value: list[Any]) -> DirectoryMove:
    # A journal of an earlier kdump has no attributes.
    *fields, attributes = value if len(value) == 6 else [*value, {}]
    move = convert(fields, DirectoryMove)
    if move.before is None and move.between is None:
        raise ValueError("a directory without a name")
    named = convert(attributes, dict[str, str]).items()
    return replace(move, attributes=tuple((name, bytes.fromhex(each)) for name, each in named))
