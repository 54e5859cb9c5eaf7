"""Where tasks put large new content of files, so that nobody holds it in memory.

While a command writes, it is in the log directory from the start. A preview needs only its size.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.apply.early_content import EarlyContent
from kdump.jobs.loading.load_split import LoadSplit
from kdump.jobs.writing.execution import Writing
from kdump.storage.location import Location

SplitT = TypeVar("SplitT", bound=LoadSplit)


class LargeContent(Struct):
    """Large content of one plan for each log directory.

    Attributes:
        writing: how the command writes; None leaves all content in memory.
    """

    writing: Writing | None = None
    _of_runs: dict[Location, EarlyContent] = field(default_factory=dict)

    def split(self, split: SplitT, log_dir: Location) -> SplitT:
        """The same split, whose task knows where to put large content.

        Raises:
            KdumpError: there cannot be another run in the log directory.
            OSError: the log directory cannot be read.
        """
        if self.writing is None:
            return split
        if self.writing.dry_run:
            return replace(split, is_preview=True)
        if log_dir not in self._of_runs:
            self._of_runs[log_dir] = EarlyContent.of_next_run(log_dir.local_path)
        store = self._of_runs[log_dir]
        return replace(split, context=replace(split.context, store=store))
