"""Lists as Python-Markdown has to have them.

The pages are CommonMark, as a forge shows them: what belongs to an item is indented up to the text
of its first line, by two columns after ``-`` and by three after ``1.``. Python-Markdown wants four;
with less, each step would be a list of its own that begins with 1, and its commands would be text.
An item that follows a paragraph of the one before also needs an empty line between them.
"""

from __future__ import annotations

import re
from typing import Final

_ITEM: Final = re.compile(r" *(?:[-*+]|\d+[.)]) +(?=\S)")
_FENCE: Final = re.compile(r" *(?:```|~~~)")
_COLUMNS: Final = 4


def widen_lists(text: str) -> str:
    """Indent what belongs to items of lists by four columns for each list that it is in.

    Args:
        text: of a page, in CommonMark without tabs.
    """
    contents: list[int] = []  # the column of the text, of each item that is open
    fenced = False
    separate = True  # by an empty line, or by following an item
    written = []
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        if not line.strip():
            written.append("")
            separate = True
            continue
        if not fenced:
            while contents and indent < contents[-1]:
                contents.pop()
        outer = min(contents[-1], indent) if contents else 0
        item = None if fenced or indent - outer >= _COLUMNS else _ITEM.match(line)
        if item and not separate:
            written.append("")
        written.append(" " * (_COLUMNS * len(contents)) + line[outer:])
        fenced ^= _FENCE.match(line) is not None
        if item:
            contents.append(item.end())
        separate = item is not None
    return "\n".join(written)
