"""What the parts of a repair give that can be asked for one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kdump.broker.loader.account import Leftover
from kdump.target.refusal import Refusal
from kdump.target.target_file import Kept, WantedFile
from kdump.target.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Repaired:
    """The files of a partition that such a part changes, and what it cannot put right.

    Attributes:
        files: by name, only those that do not stay as they are.
        refusals: why others stay as they are although they may be wrong.
        leftovers: what became of each, where that was asked.
        forgotten: ids of the producers that an old snapshot knows, and the log has no batch of.
    """

    files: Mapping[str, WantedFile]
    refusals: tuple[Refusal, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    forgotten: tuple[int, ...] = ()


def changes(workspace: Workspace, names: Iterable[str]) -> dict[str, WantedFile]:
    """Those of the files ``names`` that do not stay as they are."""
    wanted = workspace.wanted()
    return {
        name: wanted[name]
        for name in names
        if name in wanted and not isinstance(wanted[name], Kept)
    }
