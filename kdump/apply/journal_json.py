"""Encode journals as JSON, and decode them.

Anybody who can write to the log directory may have written a journal, so every field is checked for
its type and range here. Whether a well-formed journal makes sense, and is safe to execute, is
checked by :mod:`kdump.apply.journal_validation`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from kdump.apply.files import Metadata
from kdump.apply.journal import (
    BeforeImage,
    Cut,
    Derived,
    DirectoryMove,
    Fingerprint,
    Journal,
    KeptRange,
    Piece,
)
from kdump.apply.journal_record import JournalRecord, RecordKind
from kdump.formats.json_document import LEAST_TIME_NS, MOST_TIME_NS

Value = TypeVar("Value")

_MOST: Final = 2**63 - 1
_MOST_ID: Final = 2**32 - 2
_MOST_MODE: Final = 0o7777
_MOST_CHECKSUM: Final = 2**32 - 1
_YEAR_10000_MS: Final = 253_402_300_800_000
_ENCODED_AT_ONCE: Final = 1000


def encode_journal(journal: Journal) -> Iterator[bytes]:
    """The JSON object of a journal, in pieces: a journal can have a million entries.

    The keys are the format on disk.
    """
    lock = None if journal.lock is None else _encode_metadata(journal.lock)
    return _object(
        {
            "number": _value(journal.number),
            "command": _value(journal.command),
            "created_ms": _value(journal.created_ms),
            "can_undo": _value(journal.can_undo),
            "lock": _value(lock),
            "directories": _entries(journal.directories, _encode_metadata),
            "before": _entries(journal.before_images, _encode_before_image),
            "staged": _entries(journal.staged, str),
            "steps": _rows(journal.redo_records, _encode_record),
            "undo_steps": _rows(journal.undo_records, _encode_record),
            "marks": _entries(journal.fingerprints, _encode_fingerprint),
            "after": _entries(journal.after, _encode_fingerprint),
            "meanwhile": _entries(journal.interim, _encode_fingerprint),
            "kept": _entries(journal.undo_files, _encode_fingerprint),
            "moves": _rows(journal.moves, _encode_move),
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


def _entries(values: Mapping[str, Value], encode: Callable[[Value], Any]) -> Iterator[bytes]:
    """An object, some members at a time."""
    encoded = ((key, encode(value)) for key, value in values.items())
    return _joined(b"{", (_dumped(dict(some)) for some in _batched(encoded)), b"}")


def _rows(values: Iterable[Value], encode: Callable[[Value], Any]) -> Iterator[bytes]:
    """An array, some elements at a time."""
    return _joined(b"[", (_dumped(some) for some in _batched(map(encode, values))), b"]")


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
    return json.dumps(value, separators=(",", ":")).encode()


def decode_journal(value: Any) -> Journal:
    """Convert what :mod:`json` has read back to a journal.

    Each section is removed from ``value`` once it is converted, so that both are never in memory.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: it is not an encoded journal.
    """
    return Journal(
        number=_number(value.pop("number")),
        command=_text(value.pop("command")),
        created_ms=_number(value.pop("created_ms"), most=_YEAR_10000_MS - 1),
        can_undo=_bool(value.pop("can_undo")),
        lock=_optional(_decode_metadata, value.pop("lock")),
        directories=_mapping(_decode_metadata, value.pop("directories")),
        before_images=_mapping(_decode_before_image, value.pop("before")),
        staged=_mapping(_text, value.pop("staged")),
        redo_records=_list(_decode_record, value.pop("steps")),
        undo_records=_list(_decode_record, value.pop("undo_steps")),
        fingerprints=_mapping(_decode_fingerprint, value.pop("marks")),
        after=_mapping(_decode_fingerprint, value.pop("after")),
        interim=_mapping(_decode_fingerprint, value.pop("meanwhile")),
        undo_files=_mapping(_decode_fingerprint, value.pop("kept")),
        moves=_list(_decode_move, value.pop("moves")),
    )


def _number(value: Any, *, least: int = 0, most: int = _MOST) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"not a number from {least} to {most}: {value!r:.100}")
    return value


def _time_ns(value: Any) -> int:
    return _number(value, least=LEAST_TIME_NS, most=MOST_TIME_NS)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"not a string: {value!r:.100}")
    return value


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"not a boolean: {value!r:.100}")
    return value


def _list(decode: Callable[[Any], Value], value: Any) -> tuple[Value, ...]:
    if type(value) is not list:
        raise TypeError(f"not a list: {value!r:.100}")
    return tuple(map(decode, value))


def _mapping(decode: Callable[[Any], Value], value: Any) -> dict[str, Value]:
    if type(value) is not dict:
        raise TypeError(f"not an object: {value!r:.100}")
    return {key: decode(value) for key, value in value.items()}


def _optional(decode: Callable[[Any], Value], value: Any) -> Value | None:
    return None if value is None else decode(value)


def _fields(value: Any, count: int) -> list[Any]:
    if type(value) is not list or len(value) != count:
        raise ValueError(f"not a list of {count}: {value!r:.100}")
    return value


def _encode_metadata(metadata: Metadata) -> list[int]:
    return [
        metadata.mode,
        metadata.uid,
        metadata.gid,
        metadata.accessed_ns,
        metadata.modified_ns,
    ]


def _decode_metadata(value: Any) -> Metadata:
    mode, uid, gid, accessed_ns, modified_ns = _fields(value, 5)
    return Metadata(
        _number(mode, most=_MOST_MODE),
        _number(uid, most=_MOST_ID),
        _number(gid, most=_MOST_ID),
        _time_ns(accessed_ns),
        _time_ns(modified_ns),
    )


def _encode_move(move: DirectoryMove) -> list[Any]:
    metadata = _encode_metadata(move.metadata)
    attributes = {name: value.hex() for name, value in move.attributes}
    return [move.before, move.between, move.after, move.is_kept, metadata, attributes]


def _decode_move(value: Any) -> DirectoryMove:
    # A journal of an earlier kdump has no attributes.
    with_attributes = [*value, {}] if type(value) is list and len(value) == 5 else value
    before, between, after, is_kept, metadata, attributes = _fields(with_attributes, 6)
    if before is None and between is None:
        raise ValueError("a directory without a name")
    return DirectoryMove(
        _optional(_text, before),
        _optional(_text, between),
        _optional(_text, after),
        _bool(is_kept),
        _decode_metadata(metadata),
        tuple(_mapping(_bytes, attributes).items()),
    )


def _bytes(value: Any) -> bytes:
    return bytes.fromhex(_text(value))


def _encode_fingerprint(fingerprint: Fingerprint) -> list[int | None]:
    return [fingerprint.size_bytes, fingerprint.modified_ns, fingerprint.checksum]


def _decode_fingerprint(value: Any) -> Fingerprint:
    size_bytes, modified_ns, checksum = _fields(value, 3)
    return Fingerprint(
        _number(size_bytes),
        _time_ns(modified_ns),
        None if checksum is None else _number(checksum, most=_MOST_CHECKSUM),
    )


def _encode_record(record: JournalRecord) -> list[Any]:
    return [record.kind.value, record.path, record.source, record.size_bytes, record.paths]


def _decode_record(value: Any) -> JournalRecord:
    kind, path, source, size_bytes, paths = _fields(value, 5)
    return JournalRecord(
        RecordKind(_text(kind)),
        _text(path),
        _text(source),
        _number(size_bytes),
        _list(_text, paths),
    )


def _encode_ranges(ranges: Iterable[KeptRange]) -> list[list[int]]:
    return [[each.position, each.size_bytes, each.kept_at] for each in ranges]


def _decode_range(value: Any) -> KeptRange:
    position, size_bytes, kept_at = _fields(value, 3)
    return KeptRange(_number(position), _number(size_bytes), _number(kept_at))


def _encode_before_image(before: BeforeImage) -> list[Any]:
    cut, derived = before.cut, before.derived
    return [
        before.size_bytes,
        _encode_metadata(before.metadata),
        before.is_own,
        before.link,
        None if cut is None else [cut.position, _encode_ranges(cut.kept_ranges)],
        None
        if derived is None
        else [
            [[piece.path, piece.start, piece.end, piece.position] for piece in derived.pieces],
            _encode_ranges(derived.kept_ranges),
            derived.is_rename,
        ],
    ]


def _decode_before_image(value: Any) -> BeforeImage:
    size_bytes, metadata, is_own, link, cut, derived = _fields(value, 6)
    return BeforeImage(
        _number(size_bytes),
        _decode_metadata(metadata),
        _bool(is_own),
        _optional(_text, link),
        _optional(_decode_cut, cut),
        _optional(_decode_derived, derived),
    )


def _decode_cut(value: Any) -> Cut:
    position, ranges = _fields(value, 2)
    return Cut(_number(position), _list(_decode_range, ranges))


def _decode_derived(value: Any) -> Derived:
    pieces, ranges, is_rename = _fields(value, 3)
    return Derived(_list(_decode_piece, pieces), _list(_decode_range, ranges), _bool(is_rename))


def _decode_piece(value: Any) -> Piece:
    path, start, end, position = _fields(value, 4)
    return Piece(_text(path), _number(start), _number(end), _number(position))
