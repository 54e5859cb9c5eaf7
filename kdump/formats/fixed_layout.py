"""Layouts of fixed size: fields in the order of their bytes, each a name and a struct format."""

from __future__ import annotations

import struct


def layout(fields: tuple[tuple[str, str], ...]) -> struct.Struct:
    """The layout of some fields."""
    return struct.Struct(">" + "".join(code for _, code in fields))


def field_start(fields: tuple[tuple[str, str], ...], name: str) -> int:
    """Where a field begins."""
    before = [field_name for field_name, _ in fields].index(name)
    return layout(fields[:before]).size
