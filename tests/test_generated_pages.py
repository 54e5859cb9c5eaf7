"""The files in ``docs`` that are derived from declared rows are up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.generated_pages import pages

PAGES = pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_says_what_the_rows_say(path: Path) -> None:
    assert path.read_text("utf-8") == PAGES[path], "run ./dev pages"
