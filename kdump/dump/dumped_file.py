"""A file as the official tool names it, and the files that belong to the same segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kdump.dump.problems import DumpProblem
from kdump.formats.java.java_numbers import parse_long
from kdump.formats.names import FileKind, FileStage, set_aside_from
from kdump.storage.local_disk import local
from kdump.storage.location import Location

_LATER_STAGES: Final = {
    FileStage.CLEANED: (FileStage.CLEANED, FileStage.SWAP, FileStage.LIVE),
    FileStage.SWAP: (FileStage.SWAP, FileStage.LIVE),
    FileStage.DELETED: (FileStage.DELETED, FileStage.LIVE),
    FileStage.LIVE: (FileStage.LIVE,),
}
"""Where a neighbour of a file may be: Kafka renames the files of a segment one by one."""


@dataclass(frozen=True, slots=True)
class DumpedFile:
    """One file that a dump was asked for.

    Attributes:
        name: as given, and as ``java.io.File`` prints it: runs of slashes are one, the last is
            cut, and (unlike :class:`pathlib.Path`) a leading ``./`` stays.
    """

    name: str

    @classmethod
    def named(cls, text: str) -> DumpedFile:
        """The file that an argument ``text`` of the command means."""
        while "//" in text:
            text = text.replace("//", "/")
        return cls(text.rstrip("/") or text[:1])

    @property
    def path(self) -> Location:
        return local(self.name)

    @property
    def absolute_name(self) -> str:
        """As ``java.io.File.getAbsolutePath`` gives it: not resolved, only made absolute."""
        if self.name.startswith("/"):
            return self.name
        directory = str(local(".").as_absolute()).rstrip("/")
        return f"{directory}/{self.name}" if self.name else directory or "/"

    @property
    def base_offset(self) -> int | None:
        """What stands before the first dot, or None where that is no 64-bit number."""
        return parse_long(self._stem)

    @property
    def base_offset_problem(self) -> DumpProblem | None:
        """That there is no :attr:`base_offset`, if so."""
        if self.base_offset is not None:
            return None
        return DumpProblem(
            self.path,
            None,
            "file name does not begin with an offset, offsets are counted from 0",
            "a number before the first dot",
            repr(self._stem),
        )

    @property
    def stage(self) -> FileStage:
        """Live, or left over from something, by the end of the name."""
        for stage in (FileStage.CLEANED, FileStage.SWAP, FileStage.DELETED):
            if self.name.endswith(stage.value):
                return stage
        return FileStage.LIVE

    def neighbour(self, kind: FileKind) -> Location:
        """The file of that kind of the same segment; where there is none, where it should be."""
        wanted = [
            self.path.with_name(f"{self._stem}{kind.value}{stage.value}")
            for stage in _LATER_STAGES[self.stage]
        ]
        return next((path for path in wanted if path.kind() is not None), wanted[0])

    @property
    def _stem(self) -> str:
        name = self.path.name
        return (set_aside_from(name) or name).partition(".")[0]
