"""A file by the official tool's name for it, and the other files of its segment."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from msgspec import Struct

from kdump.dump.problems import DumpProblem
from kdump.formats.java.java_numbers import parse_long
from kdump.formats.names import FileKind, FileStage, quarantined_from
from kdump.storage.local_disk import LOCAL_DISK
from kdump.storage.location import Location, Storage
from kdump.storage.places import parse_location

_LATER_STAGES: Final = {
    FileStage.CLEANED: (FileStage.CLEANED, FileStage.SWAP, FileStage.LIVE),
    FileStage.SWAP: (FileStage.SWAP, FileStage.LIVE),
    FileStage.DELETED: (FileStage.DELETED, FileStage.LIVE),
    FileStage.LIVE: (FileStage.LIVE,),
}
"""Suffixes of the other files of a segment: Kafka renames them one by one."""


class DumpedFile(Struct, frozen=True):
    """A file to dump.

    Attributes:
        name: as given, normalized as by ``java.io.File``: repeated slashes become one, the last is
            removed, and (unlike with :class:`pathlib.Path`) a leading ``./`` stays.
        storage: where it is.
        stored_path: within the storage; None if that is the name, as on a local disk.
    """

    name: str
    storage: Storage = LOCAL_DISK
    stored_path: str | None = None

    @classmethod
    def named(cls, text: str) -> DumpedFile:
        """Give the file for an argument ``text`` of the command."""
        location = parse_location(text)
        if location.storage != LOCAL_DISK:
            return cls(str(location), location.storage, location.path)
        while "//" in text:
            text = text.replace("//", "/")
        return cls(text.rstrip("/") or text[:1])

    @property
    def path(self) -> Location:
        if self.stored_path is not None:
            return Location(self.storage, self.stored_path)
        return Location(self.storage, str(PurePath(self.name)))

    @property
    def absolute_name(self) -> str:
        """The path as ``java.io.File.getAbsolutePath`` gives it: absolute, but not resolved."""
        if self.name.startswith("/") or self.stored_path is not None:
            return self.name
        directory = self.storage.as_absolute(".").rstrip("/")
        return f"{directory}/{self.name}" if self.name else directory or "/"

    @property
    def base_offset(self) -> int | None:
        """The number before the first dot; None where that is not a 64-bit number."""
        return parse_long(self._stem)

    @property
    def base_offset_problem(self) -> DumpProblem | None:
        """The problem that there is no :attr:`base_offset`; None where there is one."""
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
        """The stage of the file, by the end of its name."""
        for stage in (FileStage.CLEANED, FileStage.SWAP, FileStage.DELETED):
            if self.name.endswith(stage.value):
                return stage
        return FileStage.LIVE

    def neighbour(self, kind: FileKind) -> Location:
        """Give the path of the file of that kind of the same segment, whether it exists or not."""
        wanted = [
            self.path.with_name(f"{self._stem}{kind.value}{stage.value}")
            for stage in _LATER_STAGES[self.stage]
        ]
        return next((path for path in wanted if path.kind() is not None), wanted[0])

    @property
    def _stem(self) -> str:
        name = self.path.name
        return (quarantined_from(name) or name).partition(".")[0]
