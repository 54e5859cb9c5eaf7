"""What the steps of a journal come to, by names: for a preview, before any of them is taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kdump.apply.journal import Journal
from kdump.apply.journal_record import JournalRecord, RecordKind
from kdump.apply.pinned_directory import status_of
from kdump.formats.names import KDUMP_PREFIX


@dataclass(frozen=True, slots=True)
class Content:
    """What a name has: the file that has ``name`` now, or had before the run.

    Attributes:
        name: of that file.
        is_before: whether it is the file before the run.
    """

    name: str
    is_before: bool = False


def predict_names(
    log_dir: Path, journal: Journal, steps: Iterable[JournalRecord]
) -> dict[str, Content | None]:
    """What every name has afterwards that ``steps`` give something else, or None where it is gone.

    Raises:
        OSError: something cannot be looked at.
    """
    names = _Names(log_dir)
    for step in steps:
        match step.kind:
            case RecordKind.MOVE:
                names.move(step.source, step.path)
            case RecordKind.REMOVE:
                if not step.source or names.at(step.source) is not None:
                    names.give(step.path, None)
            case RecordKind.PUT:
                names.give(step.path, Content(step.source, is_before=True))
            case RecordKind.CUT:
                names.give(step.path, Content(step.path, is_before=True))
            case RecordKind.FILL:
                link = journal.before_images[step.source].link
                if link is None:
                    names.give(step.source, Content(step.source, is_before=True))
            case RecordKind.SYNC:
                pass
    return names.changed()


@dataclass(slots=True)
class _Names:
    log_dir: Path
    _now: dict[str, Content | None] = field(default_factory=dict)
    _then: dict[str, Content | None] = field(default_factory=dict)

    def at(self, name: str) -> Content | None:
        if name not in self._then:
            is_there = status_of(self.log_dir / name) is not None
            self._now[name] = self._then[name] = Content(name) if is_there else None
        return self._then[name]

    def give(self, name: str, content: Content | None) -> None:
        self.at(name)
        self._then[name] = content

    def move(self, source: str, name: str) -> None:
        content = self.at(source)
        if content is not None:
            self.give(source, None)
            self.give(name, content)

    def changed(self) -> dict[str, Content | None]:
        return {
            name: content
            for name, content in self._then.items()
            if content != self._now[name] and not name.startswith(KDUMP_PREFIX)
        }
