"""A selection of partitions as the words that one types for it."""

from __future__ import annotations

from kdump.log.selection import PartitionSelection


def selection_words(selection: PartitionSelection) -> list[str]:
    """Return the options as typed, to suggest a command with the same selection."""
    words = []
    for option, globs in (("--topic", selection.topics), ("--partition", selection.partitions)):
        for glob in globs:
            words += [option, glob]
    return words
