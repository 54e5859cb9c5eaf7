"""Apply a target state to a copy of a directory, without the precautions of a repair."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kdump.target.target_file import (
    CopiedFrom,
    Gone,
    JoinedFrom,
    Kept,
    KeptUpTo,
    NewBytes,
    RenamedFrom,
    StagedBytes,
    TargetFile,
)


def apply_target(directory: Path, files: Mapping[str, TargetFile]) -> None:
    """Change each of ``files`` to its target."""
    contents = {name: _content(directory, name, target) for name, target in files.items()}
    for name, content in contents.items():
        path = directory / name
        if content is None:
            path.unlink(missing_ok=True)
        elif not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def _content(directory: Path, name: str, target: TargetFile) -> bytes | None:
    """Read the target content of a file, before anything is changed; None for no file."""
    match target:
        case Gone():
            return None
        case Kept():
            return (directory / name).read_bytes()
        case KeptUpTo(size_bytes):
            return _range(directory / name, 0, size_bytes)
        case RenamedFrom(source, size_bytes):
            return _range(directory / source, 0, size_bytes)
        case CopiedFrom(source, start, end):
            return _range(directory / source, start, end)
        case JoinedFrom(pieces):
            ranges = (_range(directory / piece.name, piece.start, piece.end) for piece in pieces)
            return b"".join(ranges)
        case NewBytes(data):
            return data
        case StagedBytes(_, name):
            return (directory.parent / name).read_bytes()


def _range(path: Path, start: int, end: int) -> bytes:
    content = path.read_bytes()[start:end]
    assert len(content) == end - start, f"{path} is too short"
    return content
