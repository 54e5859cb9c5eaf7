"""Copies of real disks, damaged at random."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

_PARTITION: Final = re.compile(r"-\d+$")
Wreck = Callable[[Path, list[Path], random.Random], Iterable[Path]]
"""Damages a file, given all files, and returns the files and directories that it changed."""


def copy_disks(source: Path, names: Sequence[str], topics: Sequence[str], target: Path) -> Path:
    """Copy log directories, with the partitions of topics that begin with one of ``topics``."""

    def left_out(folder: str, entries: list[str]) -> list[str]:
        if Path(folder).parent != source:
            return []
        return [
            name
            for name in entries
            if (Path(folder) / name).is_dir() and not name.startswith(tuple(topics))
        ]

    for name in names:
        shutil.copytree(source / name, target / name, ignore=left_out)
    return target


def wreck(root: Path, rng: random.Random, count: int) -> dict[Path, str]:
    """Damage ``count`` files below ``root``; returns what was done to which paths."""
    done: dict[Path, str] = {}
    for _ in range(count):
        files = [path for path in sorted(root.rglob("*")) if path.is_file()]
        victim = rng.choice(files)
        act = rng.choice(WRECKS)
        for path in act(victim, files, rng):
            done[path] = act.__name__
    return done


def flip_bytes(path: Path, files: list[Path], rng: random.Random) -> Iterable[Path]:
    """Change a few bytes; of a sparse index often padding."""
    content = bytearray(path.read_bytes())
    for _ in range(rng.randrange(1, 4)):
        if content:
            content[rng.randrange(min(len(content), 1 << 16))] ^= rng.randrange(1, 256)
    _replace(path, bytes(content))
    return [path]


def cut(path: Path, files: list[Path], rng: random.Random) -> Iterable[Path]:
    """Cut a file short."""
    _replace(path, path.read_bytes()[: rng.randrange(min(path.stat().st_size, 1 << 16) + 1)])
    return [path]


def empty(path: Path, files: list[Path], rng: random.Random) -> Iterable[Path]:
    """Leave nothing in a file."""
    _replace(path, b"")
    return [path]


def overwrite(path: Path, files: list[Path], rng: random.Random) -> Iterable[Path]:
    """Overwrite part of a file with zeroes or noise."""
    content = bytearray(path.read_bytes())
    start, size = rng.randrange(len(content) + 1), rng.randrange(1, 600)
    content[start : start + size] = bytes(size) if rng.random() < 0.5 else rng.randbytes(size)
    _replace(path, bytes(content))
    return [path]


def remove(path: Path, files: list[Path], rng: random.Random) -> Iterable[Path]:
    """Remove a file."""
    path.unlink()
    return [path]


def rename(path: Path, files: list[Path], rng: random.Random) -> Iterable[Path]:
    """Give a file another name: of a leftover, of another segment, or of none."""
    name = rng.choice(
        [
            f"{path.name}.deleted",
            f"{path.name}.swap",
            f"{path.name}.cleaned",
            f"{rng.randrange(1 << 40):020d}{path.suffix}",
            "x" * 200,
            "ü\n",
        ]
    )
    path.rename(path.with_name(name))
    return [path, path.with_name(name)]


def make_fifo(path: Path, files: list[Path], rng: random.Random) -> Iterable[Path]:
    """Put a FIFO in the place of a file: who opens it waits."""
    path.unlink()
    os.mkfifo(path)
    return [path]


def make_directory(path: Path, files: list[Path], rng: random.Random) -> Iterable[Path]:
    """Put a directory in the place of a file."""
    path.unlink()
    path.mkdir()
    return [path]


def make_link(path: Path, files: list[Path], rng: random.Random) -> Iterable[Path]:
    """Put a symbolic link in the place of a file: to itself, or to nothing."""
    path.unlink()
    path.symlink_to(rng.choice([path.name, "/nowhere"]))
    return [path]


def swap(path: Path, files: list[Path], rng: random.Random) -> Iterable[Path]:
    """Exchange a file with one of that name, in another partition or on another disk."""
    others = [each for each in files if each.name == path.name and each != path]
    if not others:
        return []
    other = rng.choice(others)
    content, others_content = path.read_bytes(), other.read_bytes()
    _replace(path, others_content)
    _replace(other, content)
    return [path, other]


def swap_partitions(path: Path, files: list[Path], rng: random.Random) -> Iterable[Path]:
    """Exchange the directories of two partitions."""
    folders = sorted({each.parent for each in files if _PARTITION.search(each.parent.name)})
    one, other = rng.sample(folders, 2)
    aside = one.with_name("aside-0")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)
    return [one, other]


WRECKS: Final[Sequence[Wreck]] = (
    flip_bytes,
    flip_bytes,
    flip_bytes,
    cut,
    cut,
    empty,
    overwrite,
    remove,
    rename,
    make_fifo,
    make_directory,
    make_link,
    swap,
    swap_partitions,
)


def _replace(path: Path, content: bytes) -> None:
    """Write a file again, whatever its permissions are."""
    path.unlink()
    path.write_bytes(content)
