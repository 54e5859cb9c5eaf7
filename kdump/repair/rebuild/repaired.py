"""The result of a repair of some files of a partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from kdump.broker.loader.load_report import HandledLeftover
from kdump.target.refusal import Refusal
from kdump.target.target_file import Kept, TargetFile
from kdump.target.virtual_directory import VirtualDirectory


class Repaired(Struct, frozen=True):
    """The files of a partition that a repair changes, and what it cannot repair.

    Attributes:
        files: the target files by name, only those that change.
        refusals: why others stay although they may be damaged.
        leftovers: what became of each, where that was asked.
        forgotten: ids of the producers that an old snapshot knows, and the log has no batch of.
    """

    files: Mapping[str, TargetFile]
    refusals: tuple[Refusal, ...] = ()
    leftovers: tuple[HandledLeftover, ...] = ()
    forgotten: tuple[int, ...] = ()


def changes(directory: VirtualDirectory, names: Iterable[str]) -> dict[str, TargetFile]:
    """The files among ``names`` that change."""
    target = directory.target_files()
    return {
        name: target[name]
        for name in names
        if name in target and not isinstance(target[name], Kept)
    }
