"""Keeps the current directory out of what processes import and execute.

A user often runs kdump in a log directory, which belongs to a broker and may hold anything:
a ``struct.py`` there must not run. Python looks into the current directory for ``-c`` and ``-m``,
and for each empty or relative entry of ``PYTHONPATH``; a shell and the dynamic linker do so for
such entries of ``PATH`` and ``LD_LIBRARY_PATH``. What Python itself imports before the first line
of kdump runs is out of reach.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_PYTHON_PATH: Final = "PYTHONPATH"
_SEARCHED: Final = ("PATH", "LD_LIBRARY_PATH", _PYTHON_PATH)
"""Variables whose entries are directories that are searched for what is executed."""


def protect_process() -> None:
    """Import nothing more from the current directory, here and in processes started from here.

    For programs of kdump's own: changes ``sys.path`` and the environment of this process.
    """
    sys.path[:] = _trusted(sys.path)
    os.environ["PYTHONSAFEPATH"] = "1"
    _set({name: absolute_entries(os.environ[name]) for name in _SEARCHED if name in os.environ})


def python_path() -> str:
    """The ``PYTHONPATH`` by which workers find the modules that this process finds.

    Workers run the same Python, so what comes with it they have anyway; what is not there on
    another machine does no harm.
    """
    own = str(Path(__file__).resolve().parents[2])
    found = [entry for entry in (own, *_trusted(sys.path)) if not entry.endswith(".zip")]
    return os.pathsep.join(dict.fromkeys(e for e in found if not e.startswith(_inherent())))


def child_environment() -> dict[str, str]:
    """The variables to set for a process that runs Python, or starts one that does."""
    found = {name: absolute_entries(os.environ[name]) for name in _SEARCHED if name in os.environ}
    return found | {_PYTHON_PATH: python_path(), "PYTHONSAFEPATH": "1"}


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def absolute_entries(search_path: str) -> str:
    """A search path without the entries that depend on the current directory."""
    return os.pathsep.join(e for e in search_path.split(os.pathsep) if e.startswith("/"))


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _trusted(path: list[str]) -> list[str]:
    """The entries of ``sys.path`` that do not come from the current directory.

    Python makes relative entries of ``PYTHONPATH`` absolute before anyone sees them.
    """
    given = os.environ.get(_PYTHON_PATH)
    relative = [] if given is None else [e for e in given.split(os.pathsep) if e[:1] != "/"]
    untrusted = set[str]()
    # An empty variable is none, and has no entry.
    if given and relative:
        # In a directory that was deleted they lead nowhere.
        with contextlib.suppress(OSError):
            untrusted = {os.path.abspath(entry) for entry in relative}  # noqa: PTH100 - as site
    return [
        entry
        for entry in path
        if entry.startswith("/") and (entry not in untrusted or entry.startswith(_inherent()))
    ]


def _inherent() -> tuple[str, ...]:
    """Where the libraries of this Python are."""
    own = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    return tuple(str(Path(prefix) / "lib") + os.sep for prefix in own)
