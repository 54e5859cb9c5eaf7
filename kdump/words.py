"""Counts and commands in sentences, for every layer that writes one."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Final

_FIRST_STRAY_BYTE: Final = 0xDC80
"""Stands for a byte of a file name that is not UTF-8."""


def counted(count: int, one: str, many: str = "") -> str:
    """So many of something: ``1 segment``, ``1200 segments``.

    Args:
        count: how many.
        one: the noun for a single thing.
        many: its plural; ``one`` with an s if not given.
    """
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def first_of(things: Collection[object], most: int, count: int | None = None) -> str:
    """The first of many, and how many more there are: ``a, b and 3 more``.

    Args:
        things: in the order to name them.
        most: how many to name.
        count: how many there are, if not all are given.
    """
    named = ", ".join(map(str, itertools.islice(things, most)))
    more = (len(things) if count is None else count) - most
    return f"{named} and {more} more" if more > 0 else named


def shell_command(words: str, paths: Iterable[object]) -> str:
    """A command to copy into a shell: ``kdump``, its words, and paths."""
    return f"kdump {words} {shell_words(paths)}"


def shell_words(words: Iterable[object]) -> str:
    """Words for a shell, on one line."""
    return " ".join(_shell_quoted(str(each)) for each in words)


def kafka_transactions_command(words: Sequence[str]) -> str:
    """A command of Kafka's own tool, to copy into a shell; the address is left to the user."""
    return f"kafka-transactions.sh --bootstrap-server HOST:PORT {shell_words(words)}"


def _shell_quoted(word: str) -> str:
    """A word for a shell on one line: Bash and others read escapes between $' and '."""
    import shlex

    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    if _FIRST_STRAY_BYTE <= code < _FIRST_STRAY_BYTE + 0x80:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\U{code:08x}"


def undo_command(log_dir: object, undo_id: str | int) -> str:
    """The command that undoes a run."""
    return f"{shell_command('undo', [log_dir])} {undo_id}"


def discard_command(log_dir: object, undo_id: str | int) -> str:
    """The command that discards the undo data of a run."""
    return f"{shell_command('undo --discard', [log_dir])} {undo_id}"
