"""Counts and commands in sentences, for every layer that writes one."""

from __future__ import annotations

from collections.abc import Iterable


def counted(count: int, one: str, many: str = "") -> str:
    """So many of something: ``1 segment``, ``1200 segments``.

    Args:
        count: how many.
        one: the noun for a single thing.
        many: its plural; ``one`` with an s if not given.
    """
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def shell_command(words: str, paths: Iterable[object]) -> str:
    """A command to copy into a shell: ``kdump``, its words, and paths."""
    import shlex

    return f"kdump {words} {shlex.join(map(str, paths))}"


def undo_command(log_dir: object, undo_id: str | int) -> str:
    """The command that undoes a run."""
    return f"{shell_command('undo', [log_dir])} {undo_id}"


def discard_command(log_dir: object, undo_id: str | int) -> str:
    """The command that discards the undo data of a run."""
    return f"{shell_command('undo --discard', [log_dir])} {undo_id}"
