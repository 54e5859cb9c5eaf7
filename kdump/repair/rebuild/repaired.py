"""What the parts of a repair give that can be asked for one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kdump.broker.loader.load_report import HandledLeftover
from kdump.target.refusal import Refusal
from kdump.target.target_file import Kept, TargetFile
from kdump.target.virtual_directory import VirtualDirectory


@dataclass(frozen=True, slots=True)
class Repaired:
    """The files of a partition that such a part changes, and what it cannot put right.

    Attributes:
        files: by name, only those that do not stay as they are.
        refusals: why others stay as they are although they may be wrong.
        leftovers: what became of each, where that was asked.
        forgotten: ids of the producers that an old snapshot knows, and the log has no batch of.
    """

    files: Mapping[str, TargetFile]
    refusals: tuple[Refusal, ...] = ()
    leftovers: tuple[HandledLeftover, ...] = ()
    forgotten: tuple[int, ...] = ()


def changes(directory: VirtualDirectory, names: Iterable[str]) -> dict[str, TargetFile]:
    """Those of the files ``names`` that do not stay as they are."""
    target = directory.target_files()
    return {
        name: target[name]
        for name in names
        if name in target and not isinstance(target[name], Kept)
    }
