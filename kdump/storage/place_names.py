"""The names of places, and the commands that name them: text only, nothing is looked at."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kdump.words import shell_command, shell_words

_STORE_URI: Final = re.compile(r"(s3|gs|gcs|abfss?)://[^/]|(hdfs|viewfs)://", re.DOTALL)
IN_ARCHIVE: Final = re.compile(
    r"(?P<archive>.*?\.(?:tar(?:\.(?:gz|zst|xz))?|tgz|tzst|txz))!(?P<path>/.*)?", re.DOTALL
)

_spool: Final[list[Path]] = []
"""The directory for unpacked archives, if one was named."""


def name_spool_folder(folder: Path | None) -> None:
    """Note which directory archives are unpacked into from now on."""
    _spool[:] = [] if folder is None else [folder]


def spool_folder() -> Path | None:
    """The directory that archives are unpacked into; None if none was named."""
    return _spool[0] if _spool else None


def refusal_of(name: str) -> str:
    """The refusal of a path that is not on a local disk, with the command that copies it to one."""
    base = name.rstrip("/").rpartition("/")[2]
    is_whole = name.endswith("!/") or (is_store_uri(name) and name.count("/") == 2)
    # A name that looks like an option would be taken for one.
    target = "copy" if is_whole else f"./{base}" if base.startswith("-") else base
    return f"{name} is not on a local disk; copy it to one first: {copy_command(name, target)}"


def copy_command(source: str, target: str) -> str:
    """The command that copies a log directory to a local disk."""
    return kdump_command("copy", [typed_uri(source) if is_store_uri(source) else source, target])


def typed_uri(name: str, options: str = "") -> str:
    """The URI to type for one that has no options yet: they follow its last question mark."""
    return f"{name}?{options}" if options or "?" in name else name


def kdump_command(words: str, arguments: Iterable[object]) -> str:
    """A command to copy into a shell, with ``--spool`` where it needs that.

    Args:
        words: of the command, as they are.
        arguments: paths and other words, which are quoted.
    """
    texts = [str(each) for each in arguments]
    archives = filter(None, map(IN_ARCHIVE.fullmatch, texts))
    if any(map(is_compressed, archives)):
        words = f"{shell_words(['--spool', spool_folder() or '.'])} {words}"
    return shell_command(words, texts)


def is_compressed(named: re.Match[str]) -> bool:
    """Whether a match of :data:`IN_ARCHIVE` is a compressed archive, by its name."""
    return not named["archive"].endswith(".tar")


def path_in_archive(named: re.Match[str]) -> str:
    """The path in the archive of a match of :data:`IN_ARCHIVE`, from its root."""
    return posixpath.normpath(named["path"] or "/").replace("//", "/")


def is_store_uri(text: str) -> bool:
    """Whether a path is a URI of an object store."""
    return _STORE_URI.match(text) is not None


def is_local_name(text: str) -> bool:
    """Whether a path names a file or directory of this machine that is in no archive."""
    return not is_store_uri(text) and IN_ARCHIVE.fullmatch(text) is None


def is_bare_archive(text: str) -> bool:
    """Whether a path names an archive, and no directory in it."""
    return IN_ARCHIVE.fullmatch(f"{text}!") is not None and "!" not in text
