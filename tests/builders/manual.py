"""The pages of the manual, parsed with the parts that they include."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import docutils.core
from docutils import nodes

MANUAL: Final = Path(__file__).resolve().parents[2] / "man"


def document_of(page: str) -> nodes.document:
    """Parse a page such as ``kdump-ls``; any warning of docutils is a failure."""
    path = MANUAL / f"{page}.rst"
    document: nodes.document = docutils.core.publish_doctree(
        path.read_text(encoding="utf-8"),
        source_path=str(path),
        settings_overrides={"halt_level": 2, "_disable_config": True},
    )
    return document
