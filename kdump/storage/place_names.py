"""The names of places, and the commands that name them: text only, nothing is looked at."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from kdump.words import shell_command, shell_words

_STORE_URI: Final = re.compile(r"(s3|gs|gcs|abfss?)://[^/]|(hdfs|viewfs)://", re.DOTALL)
_IN_ARCHIVE: Final = re.compile(
    r"(?P<archive>.*?\.(?:tar(?:\.(?:gz|zst|xz))?|tgz|tzst|txz))!(?P<path>/.*)?", re.DOTALL
)

_SNAPSHOT: Final = r"!(?P<snapshot>latest|\d{4}[0-9TZ.a-f-]*)"
IN_SNAPSHOT: Final = re.compile(rf"{_SNAPSHOT}(?=/|\Z)")
"""What follows the name of a repository in that of a snapshot: a name of one, or its beginning."""
_WHOLE_SNAPSHOT: Final = re.compile(rf".*{_SNAPSHOT}/?", re.DOTALL)
_IN_WHOLE_NAME: Final = re.compile(r"!\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z-[0-9a-f]{8}(/|\Z)")

_spool: Final[list[Path]] = []
"""The directory for unpacked archives, if one was named."""


def name_spool_folder(folder: Path | None) -> None:
    """Note which directory archives are unpacked into from now on."""
    _spool[:] = [] if folder is None else [folder]


def spool_folder() -> Path | None:
    """The directory that archives are unpacked into; None if none was named."""
    return _spool[0] if _spool else None


class TypedName(NamedTuple):
    """How a command names a location.

    Attributes:
        text: a path, or a URI with its options.
        left_out: what has to be in the environment, because it must not be shown; empty for none.
    """

    text: str
    left_out: str = ""


class ArchivePath(Struct, frozen=True):
    """A path in an archive.

    Attributes:
        archive: as it is named.
        path: from the root of the archive.
    """

    archive: str
    path: str

    @property
    def is_compressed(self) -> bool:
        """Whether the archive is compressed, by its name."""
        return not split_options(self.archive)[0].endswith(".tar")


def split_archive(text: str) -> ArchivePath | None:
    """Take a path in an archive apart; None if it is in no archive."""
    named, options = split_options(text)
    found = _IN_ARCHIVE.fullmatch(named)
    if found is None:
        return None
    path = posixpath.normpath(found["path"] or "/").replace("//", "/")
    return ArchivePath(f"{found['archive']}{options}", path)


def name_in_archive(archive: str, path: str, *, separator: str = "!") -> str:
    """The text that :func:`split_archive` takes apart.

    Args:
        separator: what is between the two: nothing after the name of a snapshot.
    """
    named, options = split_options(archive)
    text = f"{named}{separator}{path}"
    return f"{text}{options or '?'}" if options or (is_store_uri(text) and "?" in text) else text


def split_options(text: str) -> tuple[str, str]:
    """A path, and the options of a URI, which follow its last question mark, with that."""
    if not is_store_uri(text) or "?" not in text:
        return text, ""
    named, mark, options = text.rpartition("?")
    return named, mark + options


def refusal_of(name: str, typed: TypedName) -> str:
    """The refusal of a path that is not on a local disk, with the command that copies it to one."""
    base = name.rstrip("/").rpartition("/")[2]
    is_whole = (
        name.endswith("!/")
        or (is_store_uri(name) and name.count("/") == 2)
        or _WHOLE_SNAPSHOT.fullmatch(name) is not None
    )
    # A name that looks like an option would be taken for one.
    target = "copy" if is_whole else f"./{base}" if base.startswith("-") else base
    return f"{name} is not on a local disk; copy it to one first: {copy_command(typed, target)}"


def copy_command(source: TypedName, target: str) -> str:
    """The command that copies a log directory to a local disk."""
    return kdump_command("copy", [source, target])


def kdump_command(words: str, arguments: Iterable[TypedName | str]) -> str:
    """A command to copy into a shell, with ``--spool`` where it needs that.

    What has to be in the environment, because a command must not show it, is in a comment.

    Args:
        words: of the command, as they are.
        arguments: names and other words, which are quoted.
    """
    typed = [TypedName(each) if isinstance(each, str) else each for each in arguments]
    archives = filter(None, (split_archive(each.text) for each in typed))
    if any(each.is_compressed for each in archives):
        words = f"{shell_words(['--spool', spool_folder() or '.'])} {words}"
    command = shell_command(words, [each.text for each in typed])
    left_out = dict.fromkeys(each.left_out for each in typed if each.left_out)
    return f"{command}  # with {' and '.join(left_out)} in the environment" if left_out else command


def is_store_uri(text: str) -> bool:
    """Whether a path is a URI of an object store."""
    return _STORE_URI.match(text) is not None


def is_local_name(text: str) -> bool:
    """Whether a path names a file or directory of this machine that is in no archive or snapshot.

    Args:
        text: the name of a location: snapshots have their whole names in it.
    """
    is_packed = _IN_ARCHIVE.fullmatch(text) or _IN_WHOLE_NAME.search(text)
    return not is_store_uri(text) and is_packed is None


def is_bare_archive(text: str) -> bool:
    """Whether a path names an archive, and no directory in it."""
    return _IN_ARCHIVE.fullmatch(f"{text}!") is not None and "!" not in text
