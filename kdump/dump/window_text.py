"""The text of a part of a segment, and the problems of that part."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct, field

from kdump.dump.log_text import batches_text, message_set_text, records_text
from kdump.dump.text_options import Damage, TextOptions
from kdump.formats.errors import FormatError
from kdump.scan.batches import Column, Window
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, expand_window


class Notes(Struct):
    """Problems of consecutive parts of a segment.

    Attributes:
        damage: the position of a batch, and what is wrong with its records.
        has_invalid: whether a batch's checksum is wrong.
        first_offset: of the first record; None where there is none.
        last_offset: of the last one.
        gaps: offsets that do not follow the one before: pairs of both.
    """

    damage: list[tuple[int, FormatError]] = field(default_factory=list)
    has_invalid: bool = False
    first_offset: int | None = None
    last_offset: int | None = None
    gaps: list[tuple[Column, Column]] = field(default_factory=list)

    def add(self, step: Window | RecordColumns | MessageSet) -> None:
        """Add the next part."""
        batches = step.window.batches if isinstance(step, MessageSet) else step.batches
        self.has_invalid |= not batches.is_valid.all()
        if isinstance(step, RecordColumns):
            self._add_offsets(step.offset)
        elif isinstance(step, MessageSet):
            self._add_offsets(np.array([message.offset for message in step.messages], np.int64))

    def add_damage(self, position: int, problem: FormatError) -> None:
        """Add a problem with the records of the batch at ``position``."""
        self.damage.append((position, problem))

    def _add_offsets(self, offset: Column) -> None:
        if not len(offset):
            return
        if self.last_offset is None:
            self.first_offset = int(offset[0])
            previous, offset = offset[:-1], offset[1:]
        else:
            previous = np.concatenate([[self.last_offset], offset[:-1]])
        is_gap = offset != previous + 1
        if is_gap.any():
            self.gaps.append((previous[is_gap], offset[is_gap]))
        self.last_offset = int(offset[-1]) if len(offset) else self.first_offset


def step_text(
    step: Window | RecordColumns | MessageSet, options: TextOptions, damage: Damage
) -> bytes | memoryview:
    """The lines of a part of a segment."""
    if isinstance(step, Window):
        return batches_text(step, damage)
    if isinstance(step, RecordColumns):
        return records_text(step, options, damage)
    return message_set_text(step, options, damage)


def window_texts(
    window: Window, options: TextOptions, notes: Notes, *, deep: bool = True
) -> Iterator[bytes | memoryview]:
    """Format the lines of all batches of ``window``, and of their records if it is ``deep``.

    Adds problems to ``notes``.
    """
    for step in expand_window(
        window, with_records=deep, largest_record_bytes=options.largest_record_bytes
    ):
        notes.add(step)
        yield step_text(step, options, notes.add_damage)
