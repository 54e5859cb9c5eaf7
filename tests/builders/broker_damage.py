"""Random changes to the log directories of a stopped broker, as people or disks make them."""

from __future__ import annotations

import os
import random
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kdump.formats import names

_NAMES: Final = ("junk", "junk-0", "foo-abc", "x-0.tmp", "-0", "x-", ".hidden-0", "lost+found")
_MORE_NAMES: Final = ("y-2147483648", "grown-5", "z-0-delete", "q-0.abc-stray", "q-0.abc-future")
_STEMS: Final = (
    *("0" * 20, f"{7:020}", f"{1000:020}", f"{2**63 - 1:020}", f"{5:021}", f"{-5:020}", "5", "+5"),
    *("", "x", f"{2**63:020}", f"{5:020} (copy)", f"{5:020}.bak", "-1", f"{2**31:020}"),
)
_SUFFIXES: Final = (
    *(".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint", ".kafka"),
    *(".log.swap", ".index.swap", ".log.cleaned", ".txnindex.cleaned", ".log.deleted"),
    *(".snapshot.deleted", ".swap", ".cleaned", ".deleted", ".tmp", ".LOG", ".log.swap.swap"),
)
_METADATA_NAMES: Final = (
    *(f"{3:020}-{1:010}.checkpoint{suffix}" for suffix in ("", ".part", ".deleted", ".tmp")),
    *(f"{10**6:020}-{9:010}.checkpoint", "x.checkpoint", "x.checkpoint.deleted", "x.swap"),
    *("quorum-state.tmp", "partition.metadata.tmp", f"{3:020}-{1:010}-7.checkpoint.part", "x"),
)
_LINES: Final = ("", " ", "a b", "1 2 3 4", "\0")
_NUMBERS: Final = ("0", "1", "10", "1000", "10000000", "-1", str(2**63 - 1), str(2**63), "x", "")


class BrokerDamage:
    """Changes the log directories of one broker.

    Attributes:
        done: what was changed, in words.
    """

    def __init__(self, rng: random.Random, log_dirs: Sequence[Path]) -> None:
        self._rng = rng
        self._log_dirs = log_dirs
        self.done: list[str] = []

    def change(self) -> None:
        """Make one change."""
        kinds = _OF_DIRECTORIES if self._rng.random() < 0.4 else _OF_FILES
        kind = self._rng.choice(kinds)
        kind(self)

    def _say(self, what: str, path: Path, more: object = "") -> None:
        self.done.append(f"{what} {path.relative_to(self._log_dirs[0].parent)} {more}")

    # What is changed

    def _partition(self) -> Path:
        found = [
            path
            for path in self._rng.choice(self._log_dirs).iterdir()
            if path.is_dir() and names.is_accepted_name(path.name)
        ]
        found = [path for path in found if not path.name.startswith(names.CLUSTER_METADATA_TOPIC)]
        return self._rng.choice(sorted(found))

    def _file(self) -> Path:
        files: list[Path] = []
        while not files:
            files = sorted(path for path in self._partition().iterdir() if path.is_file())
        small = [path for path in files if path.suffix in ("", ".metadata", ".snapshot")]
        return self._rng.choice(small if small and self._rng.random() < 0.4 else files)

    def _root_file(self) -> Path:
        kept = (names.META_PROPERTIES, names.BOOTSTRAP_CHECKPOINT)
        found = (path for path in self._rng.choice(self._log_dirs).iterdir() if path.is_file())
        return self._rng.choice(sorted(path for path in found if path.name not in kept))

    def _id(self) -> str:
        return uuid.UUID(int=self._rng.getrandbits(128)).hex

    # Directories

    def rename(self) -> None:
        path = self._partition()
        state = self._rng.choice(("delete", "stray", "future"))
        self._say("renamed", path, state)
        path.rename(path.with_name(f"{path.name}.{self._id()}-{state}"))

    def copy_to_the_other_disk(self) -> None:
        path = self._partition()
        other = next(each for each in self._log_dirs if each != path.parent)
        state = self._rng.choice(("", f".{self._id()}-delete", f".{self._id()}-stray"))
        if not (other / f"{path.name}{state}").exists():
            self._say("copied to the other disk", path, state)
            shutil.copytree(path, other / f"{path.name}{state}")

    def move_to_the_other_disk(self) -> None:
        path = self._partition()
        other = next(each for each in self._log_dirs if each != path.parent)
        if not (other / path.name).exists():
            self._say("moved to the other disk", path)
            shutil.move(path, other)

    def remove(self) -> None:
        path = self._partition()
        self._say("removed", path)
        shutil.rmtree(path)

    def empty(self) -> None:
        path = self._partition()
        self._say("emptied", path)
        shutil.rmtree(path)
        path.mkdir()

    def exchange(self) -> None:
        one, other = self._partition(), self._partition()
        if one != other:
            self._say("exchanged", one, other.name)
            between = one.with_name("between")
            one.rename(between)
            other.rename(one)
            between.rename(other)

    def add(self) -> None:
        path = self._rng.choice(self._log_dirs) / self._rng.choice(_NAMES + _MORE_NAMES)
        if not path.exists():
            is_file = self._rng.random() < 0.3
            self._say("added", path, "a file" if is_file else "a directory")
            if is_file:
                path.touch()
            else:
                path.mkdir()

    # Files

    def flip(self) -> None:
        path = self._file()
        content = bytearray(path.read_bytes())
        if content:
            at = self._rng.randrange(len(content))
            self._say("flipped a bit of", path, at)
            content[at] ^= 1 << self._rng.randrange(8)
            path.write_bytes(content)

    def truncate(self) -> None:
        path = self._file()
        to = self._rng.choice((0, self._rng.randrange(path.stat().st_size + 1)))
        self._say("truncated", path, to)
        os.truncate(path, to)

    def append(self) -> None:
        path = self._file()
        count = self._rng.randrange(1, 80)
        self._say("appended to", path, count)
        with path.open("ab") as file:
            file.write(bytes(count) if self._rng.random() < 0.5 else self._rng.randbytes(count))

    def delete(self) -> None:
        path = self._file()
        self._say("deleted", path)
        path.unlink()

    def replace_by_a_directory(self) -> None:
        path = self._file()
        self._say("replaced by a directory", path)
        path.unlink()
        path.mkdir()

    def replace_by_another(self) -> None:
        other = self._file()
        path = self._partition() / other.name
        self._say("replaced", path, f"by that of {other.parent.name}")
        path.write_bytes(other.read_bytes())

    def add_suffix(self) -> None:
        path = self._file()
        suffix = self._rng.choice((".swap", ".cleaned", ".deleted", ".tmp"))
        self._say("added a suffix to", path, suffix)
        path.rename(path.with_name(f"{path.name}{suffix}"))

    def rename_to_another_offset(self) -> None:
        path = self._file()
        parsed = names.parse_offset_file_name(path.name)
        if parsed is not None:
            offset = max(0, parsed.offset + self._rng.choice((-100, -1, 1, 5, 100)))
            new = path.with_name(f"{offset:020}{path.suffix}")
            if not new.exists():
                self._say("renamed", path, new.name)
                path.rename(new)

    def add_an_odd_name(self) -> None:
        path = self._partition() / (self._rng.choice(_STEMS) + self._rng.choice(_SUFFIXES))
        self._add_here(path)

    def add_to_the_metadata(self) -> None:
        metadata = f"{names.CLUSTER_METADATA_TOPIC}-0"
        self._add_here(self._log_dirs[0] / metadata / self._rng.choice(_METADATA_NAMES))

    def _add_here(self, path: Path) -> None:
        if os.path.lexists(path):
            return
        kind = self._rng.choice(("empty", "content", "directory", "full"))
        self._say("added", path, kind)
        if kind == "directory":
            path.mkdir()
        elif kind == "full":
            (path / "x").mkdir(parents=True)
        else:
            path.write_bytes(self._file().read_bytes() if kind == "content" else b"")

    def add_swaps(self) -> None:
        log = self._file()
        parsed = names.parse_offset_file_name(log.name)
        if parsed is not None:
            logs = sorted(log.parent.glob("*.log"))
            for offset in (parsed.offset, parsed.offset + self._rng.choice((0, 1, 5, 100))):
                path = log.with_name(f"{offset:020}.log.{self._rng.choice(('swap', 'cleaned'))}")
                if logs and not path.exists():
                    content = self._rng.choice(logs)
                    self._say("added", path, content.name)
                    shutil.copy(content, path)

    def change_partition_metadata(self) -> None:
        path = self._partition() / names.PARTITION_METADATA
        other = self._partition() / names.PARTITION_METADATA
        found = [
            each.read_text(errors="replace").split("\n") if each.is_file() else []
            for each in (path, other)
        ]
        if all(len(each) > 1 for each in found):
            (version, topic_id, *_), (_, other_id, *_) = found
            lines = self._rng.choice(
                (
                    (version, other_id),
                    ("version: 1", topic_id),
                    ("version: -1", topic_id),
                    (topic_id, version),
                    (version, topic_id, topic_id),
                    (version, topic_id, "", ""),
                    (version, f"{topic_id}="),
                    (version, "topic_id: AAAAAAAAAAAAAAAAAAAAAA"),
                    (version, "topic_id: AAAAAAAAAAAAAAAAAAAAAQ"),
                    (f" {version}", topic_id),
                    ("version:0", topic_id),
                )
            )
            self._say("changed", path, lines)
            path.write_text("\n".join(lines))

    def change_leader_epochs(self) -> None:
        path = self._partition() / names.LEADER_EPOCH_CHECKPOINT
        entries = [
            (
                self._rng.choice((0, 1, 2, 5, 2**31 - 1, 2**31)),
                self._rng.choice((0, 3, 50, 10**6, -1)),
            )
            for _ in range(self._rng.randrange(4))
        ]
        self._say("changed", path, entries)
        lines = ["0", str(len(entries)), *(f"{epoch} {offset}" for epoch, offset in entries), ""]
        if path.is_file():
            path.write_text("\n".join(lines))

    def change_meta_properties(self) -> None:
        path = self._rng.choice(self._log_dirs) / names.META_PROPERTIES
        lines = path.read_text().split("\n")
        at = self._rng.randrange(len(lines))
        change = self._rng.choice(("twice", "other", "first", "gone", "continued"))
        name = lines[at].partition("=")[0]
        self._say("changed", path, f"{lines[at]}: {change}")
        if change == "twice":
            lines.append(lines[at])
        elif change == "other":
            lines.append(f"{name}=1")
        elif change == "first":
            lines.insert(0, f"{name}=1")
        elif change == "gone":
            del lines[at]
        else:
            lines[at] += "\\"
        path.chmod(0o600)
        path.write_text("\n".join(lines))

    def change_a_line(self) -> None:
        path = self._root_file()
        if self._rng.random() < 0.3:
            path = self._partition() / names.LEADER_EPOCH_CHECKPOINT
        if path.is_file():
            lines = path.read_text(errors="replace").split("\n")
            at = self._rng.randrange(len(lines))
            before = lines[at].rpartition(" ")[0]
            line = self._rng.choice((f"{before} {self._rng.choice(_NUMBERS)}", *_LINES))
            self._say("changed a line of", path, f"{at}: {line!r}")
            lines[at : at + 1] = self._rng.choice(([], [line], [line], [lines[at], line]))
            path.write_text("\n".join(lines))

    def remove_from_the_root(self) -> None:
        path = self._root_file()
        self._say("removed", path)
        path.unlink()


_OF_DIRECTORIES: Final[tuple[Callable[[BrokerDamage], None], ...]] = (
    BrokerDamage.rename,
    BrokerDamage.copy_to_the_other_disk,
    BrokerDamage.move_to_the_other_disk,
    BrokerDamage.remove,
    BrokerDamage.empty,
    BrokerDamage.exchange,
    BrokerDamage.add,
)
_OF_FILES: Final[tuple[Callable[[BrokerDamage], None], ...]] = (
    BrokerDamage.flip,
    BrokerDamage.truncate,
    BrokerDamage.append,
    BrokerDamage.delete,
    BrokerDamage.replace_by_a_directory,
    BrokerDamage.replace_by_another,
    BrokerDamage.add_suffix,
    BrokerDamage.rename_to_another_offset,
    BrokerDamage.change_a_line,
    BrokerDamage.remove_from_the_root,
    BrokerDamage.add_an_odd_name,
    BrokerDamage.add_an_odd_name,
    BrokerDamage.add_to_the_metadata,
    BrokerDamage.add_swaps,
    BrokerDamage.change_partition_metadata,
    BrokerDamage.change_leader_epochs,
    BrokerDamage.change_meta_properties,
)
