"""Pages of the manual as Markdown with HTML, from their reStructuredText."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import docutils.core
import docutils.io
import docutils.readers.doctree
import docutils.utils
from docutils import nodes

_REFERENCE: Final = re.compile(r"(?:<(strong|em)>)?(kdump(?:-[a-z]+)*)(?:</\1>)?\s?\(1\)")
_BLOCK: Final = re.compile(r'<pre class="literal-block">(.*?)</pre>', re.DOTALL)
_TABLE: Final = re.compile(r"<table[^>]*>")


def manual_page(page: Path) -> str:
    """Return a page of the manual as Markdown.

    The headings are Markdown's, for the table of contents; what is between them is HTML.
    """
    document = docutils.core.publish_doctree(
        page.read_bytes(),
        source_path=str(page),
        settings_overrides={
            "halt_level": 2,
            "input_encoding": "utf-8",
            "smart_quotes": False,
            "_disable_config": True,
            "doctitle_xform": True,
        },
    )
    subtitle = next(iter(document.findall(nodes.subtitle)), None)
    lines = [f"# {page.stem}"]
    if subtitle is not None:
        lines.append(subtitle.astext().capitalize() + ".")
    lines += _sections(document, 2)
    return "\n\n".join(lines) + "\n"


def _sections(parent: nodes.Element, level: int) -> Iterator[str]:
    own = [
        each
        for each in parent.children
        if not isinstance(each, nodes.section | nodes.title | nodes.subtitle | nodes.docinfo)
    ]
    if own:
        yield _html(own)
    for section in parent.children:
        if isinstance(section, nodes.section):
            title = section.next_node(nodes.title)
            assert title is not None, "a section has a title"
            text = title.astext()
            yield f"{'#' * level} {text.capitalize() if text.isupper() else text}"
            yield from _sections(section, level + 1)


def _html(content: list[nodes.Node]) -> str:
    """Return nodes as HTML, in which other pages of the manual are links."""
    document = docutils.utils.new_document("", None)
    document.extend([each.deepcopy() for each in content])
    parts = docutils.core.publish_parts(
        document,
        reader=docutils.readers.doctree.Reader(),
        source_class=docutils.io.DocTreeInput,
        writer="html5",
        settings_overrides={"embed_stylesheet": False, "_disable_config": True},
    )
    linked = _REFERENCE.sub(r'<a href="\2.html">\2(1)</a>', parts["fragment"].strip())
    # The theme lets tables without a class, and code in a block, scroll where they are too wide.
    scrolling = _TABLE.sub("<table>", _BLOCK.sub(r"<pre><code>\1</code></pre>", linked))
    return f"<div>\n{scrolling}\n</div>"
