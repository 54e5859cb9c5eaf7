"""The site opens from disk, loads nothing from elsewhere, and its search works there."""

from __future__ import annotations

import html.parser
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import markdown_it
import pytest

from builders.browser import Browser, open_browser
from kdump.check.broker_messages import BROKER_MESSAGES
from kdump.check.invariants import INVARIANTS

pytestmark = pytest.mark.slow

SEARCH: Final = """
    const input = document.querySelector("[data-md-component=search-query]");
    document.querySelector("#__search").click();
    input.focus();
    input.value = arguments[0];
    input.dispatchEvent(new Event("keyup", { bubbles: true }));
"""
RESULTS: Final = "return [...document.querySelectorAll('.md-search-result__link')].map(e => e.href)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, repository_root: Path) -> Path:
    """The site; a link that leads nowhere would fail here."""
    folder = tmp_path_factory.mktemp("site")
    program = (
        "import sys; from pathlib import Path; from make_site import make_site;"
        "make_site(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    html = folder / "html"
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder / "pages"), str(html)],
        cwd=repository_root / "site",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return html


class Shape(html.parser.HTMLParser):
    """The lists, items and blocks of code of a page, in their order, with the text of code.

    What a page should be is asked of markdown-it, which comes with rich.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._in_code = False
        _, _, article = page.rpartition("<article")
        self.feed(article.partition("</article>")[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and self.parts == other.parts

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("ol", "ul", "li", "pre"):
            self.parts.append(tag)
        self._in_code |= tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        self._in_code &= tag != "pre"

    def handle_data(self, data: str) -> None:
        if self._in_code:
            self.parts += data.split("\n")


def page_of(source: Path, site: Path) -> Path:
    """Return the page of a file in Markdown."""
    return site / ("index.html" if source.name == "README.md" else source.with_suffix(".html"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


def test_each_finding_and_each_message_has_a_page(site: Path) -> None:
    assert {f"{code}.html" for code in INVARIANTS} < {f.name for f in site.glob("findings/*.html")}
    assert len(list(site.glob("messages/*.html"))) == len(BROKER_MESSAGES) + 1


def test_each_page_of_the_manual_is_there(site: Path, repository_root: Path) -> None:
    expected = {page.stem for page in repository_root.glob("man/*.rst")}
    assert {page.stem for page in site.glob("man/*.html")} == expected


def test_steps_and_code_of_each_page_are_those_of_its_source(
    site: Path, repository_root: Path
) -> None:
    different = [
        source.name
        for source in [repository_root / "README.md", *repository_root.glob("docs/**/*.md")]
        if Shape(markdown_it.MarkdownIt().render(source.read_text()))
        != Shape(page_of(source.relative_to(repository_root), site).read_text())
    ]
    assert different == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize(
    "page", ["index", "docs/runbooks/disk-full", "findings/batch-checksum", "man/kdump-recover"]
)
def test_a_page_opens_from_disk_and_loads_nothing_from_elsewhere(
    page: str, width: int, scheme: str, browser: Browser, site: Path
) -> None:
    browser.open(site / f"{page}.html", width=width, scheme=scheme)
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("file:")] == []
    assert browser.run("return document.documentElement.scrollWidth") <= width


NOT_REACHED_BY_KEYBOARD: Final = """
    return [...document.querySelectorAll("pre > code, .md-typeset__scrollwrap")]
      .filter(e => e.scrollWidth > e.clientWidth && e.tabIndex < 0).length
"""
LANDMARKS_WITHOUT_NAME: Final = """
    return [...document.querySelectorAll("nav, [role=dialog]")]
      .filter(e => !e.hasAttribute("aria-label") && !e.hasAttribute("aria-labelledby"))
      .filter(e => e.getAttribute("role") !== "none").length
"""
LINKS_THAT_ARE_ONLY_A_COLOUR: Final = """
    return [...document.querySelectorAll(".md-typeset a:not(.headerlink)")]
      .filter(e => !getComputedStyle(e).textDecoration.includes("underline")).length
"""
EMPTY_HEADINGS: Final = """
    return [...document.querySelectorAll("th")].filter(e => !e.textContent.trim()).length
"""


@pytest.mark.parametrize(
    "question",
    [
        NOT_REACHED_BY_KEYBOARD,
        LANDMARKS_WITHOUT_NAME,
        LINKS_THAT_ARE_ONLY_A_COLOUR,
        EMPTY_HEADINGS,
    ],
    ids=["keyboard", "landmarks", "links", "headings"],
)
@pytest.mark.parametrize("page", ["index", "docs/bundle", "docs/tables"])
def test_screen_readers_and_keyboards_reach_everything(
    page: str, question: str, browser: Browser, site: Path
) -> None:
    browser.open(site / f"{page}.html", width=400)
    assert browser.run(question) == 0


SPLIT_OPTIONS: Final = r"""
    const texts = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT)
    const split = []
    for (let text; (text = texts.nextNode()); ) {
      if (text.parentElement.closest("pre")) continue
      for (const found of text.data.matchAll(/(?<!\S)--[a-z][a-z-]+/g)) {
        const range = document.createRange()
        range.setStart(text, found.index)
        range.setEnd(text, found.index + found[0].length)
        if (range.getClientRects().length > 1) split.push(found[0])
      }
    }
    return split
"""


@pytest.mark.parametrize("width", [1280, 1000, 400, 330])
@pytest.mark.parametrize(
    "page", ["man/kdump-verify", "docs/kafka-log", "findings/batch-checksum", "man/kdump-recover"]
)
def test_an_option_is_not_split_at_its_hyphens(
    page: str, width: int, browser: Browser, site: Path
) -> None:
    browser.open(site / f"{page}.html", width=width)
    assert browser.run(SPLIT_OPTIONS) == []


def test_commands_in_sentences_about_findings_are_code(site: Path) -> None:
    page = (site / "findings" / "batch-checksum.html").read_text()
    assert "<code>kdump recover --policy salvage LOG_DIR</code> keeps the batches after it" in page


def test_a_message_that_goes_on_is_marked(site: Path) -> None:
    names = {path.name: path.read_text() for path in site.glob("messages/corrupt-time-*.html")}
    (page,) = names.values()
    assert "<h1 " in page
    assert "Corrupt time index found, time index file (…" in page


def test_colours_are_those_that_the_browser_prefers_now(browser: Browser, site: Path) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    seen = []
    for scheme in ("light", "dark"):
        browser.open(site / "index.html", scheme=scheme)
        seen.append(browser.run(background))
    assert seen[0] == "rgb(255, 255, 255)"
    assert seen[1] != seen[0]


def test_what_people_paste_is_found_from_disk(browser: Browser, site: Path) -> None:
    browser.open(site / "index.html")
    browser.driver.execute_script(SEARCH, "Found a corrupted index file")
    deadline = time.monotonic() + 60
    while not (found := browser.run(RESULTS)) and time.monotonic() < deadline:
        browser.driver.execute_script(SEARCH, "Found a corrupted index file")
    assert any("messages/found-a-corrupted-index-file" in href for href in found)
