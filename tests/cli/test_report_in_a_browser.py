"""The page of ``kdump report`` in a real browser: nothing is refused, nothing is fetched."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders.browser import Browser, open_browser
from builders.in_process import run_kdump
from builders.report_directories import write_large_broker
from builders.verified import NOW_MS, LogModel, file
from kdump.errors import ExitStatus
from kdump.formats.names import FileKind

pytestmark = pytest.mark.slow

HOSTILE: Final = "<img src=x onerror=alert(1)>\u2028\"'&amp;</script><b>"
"""A name of a log directory: names of topics cannot have such characters, names of files can."""
TABLE: Final = "document.querySelector('[data-table=partitions]')"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about a log directory with a hostile name, and damage in one of three partitions."""
    folder = tmp_path_factory.mktemp("page")
    root = folder / HOSTILE.replace("/", "\\")
    first = LogModel().write(root)
    for name in ("orders-10", "payments-0"):
        shutil.copytree(first, root / name)
    log = file(root / "payments-0", 0, FileKind.LOG)
    log.write_bytes(b"\1" + log.read_bytes()[:-40])
    (root / "orders-10" / "<svg onload=alert(2)>").write_bytes(b"?")
    out = folder / "report.html"
    run_kdump(["report", "--now", str(NOW_MS), "--out", str(out), str(root)], folder)
    return out


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 420])
def test_the_page_opens_without_a_complaint_or_a_request(
    width: int, scheme: str, browser: Browser, page: Path
) -> None:
    browser.open(page, width=width, scheme=scheme)
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.run("return document.querySelectorAll('svg rect').length") > 3
    assert browser.run("return document.documentElement.scrollWidth") <= width


def test_hostile_names_are_text(browser: Browser, page: Path) -> None:
    browser.open(page)
    made = "return document.querySelectorAll('img, b, iframe, svg[onload], [onerror]').length"
    assert browser.run(made) == 0
    shown = browser.run("return document.body.innerText")
    assert "<img src=x onerror=alert(1)>\\u2028\"'&amp;<\\script><b>" in shown


def rows(browser: Browser, column: int) -> list[Any]:
    """The cells of a column of the table of partitions, from top to bottom."""
    found: list[Any] = browser.run(
        f"return [...{TABLE}.querySelectorAll('.row')]"
        ".sort((a, b) => a.getAttribute('aria-rowindex') - b.getAttribute('aria-rowindex'))"
        f".map((row) => row.children[{column}].textContent)"
    )
    return found


def test_a_table_sorts_by_each_heading_and_back(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert rows(browser, 1)[0] == "payments-0"
    click = f"{TABLE}.querySelectorAll('.head button')[1].click()"
    browser.run(click)
    assert rows(browser, 1) == ["orders-0", "orders-10", "payments-0"]
    browser.run(click)
    assert rows(browser, 1) == ["payments-0", "orders-10", "orders-0"]
    sorts = f"return {TABLE}.querySelectorAll('[aria-sort=descending]').length"
    assert browser.run(sorts) == 1


def test_a_table_filters_by_text_and_by_severity(browser: Browser, page: Path) -> None:
    browser.open(page)
    typed = (
        f"const box = {TABLE}.querySelector('input'); box.value = 'ORDERS';"
        "box.dispatchEvent(new Event('input'));"
    )
    browser.run(typed)
    assert sorted(rows(browser, 1)) == ["orders-0", "orders-10"]
    browser.run(typed.replace("ORDERS", ""))
    browser.run(
        f"const box = {TABLE}.querySelector('select');"
        "box.value = [...box.options].find((each) => each.text.startsWith('error')).value;"
        "box.dispatchEvent(new Event('change'));"
    )
    assert rows(browser, 1) == ["payments-0"]


def test_a_chosen_row_is_shown_in_full(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run(f"{TABLE}.querySelector('.row').click()")
    detail = browser.run(f"return {TABLE}.querySelector('.detail').innerText")
    assert "payments-0" in detail
    assert "a broker would" in detail


def test_offsets_show_on_the_map(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run(
        "document.querySelector('#maps rect.damaged-bytes')"
        ".dispatchEvent(new PointerEvent('pointermove', {clientX: 200, clientY: 200}))"
    )
    words = browser.run("return document.getElementById('tip').textContent")
    assert words.startswith("damaged: ")
    assert "before offset" in words or "after offset" in words


def test_printing_opens_details_and_lists_rows(
    browser: Browser, page: Path, tmp_path: Path
) -> None:
    browser.open(page)
    browser.run(
        "window.addEventListener('beforeprint', () => {"
        "window.found = [document.querySelectorAll('details:not([open])').length,"
        f"{TABLE}.querySelectorAll('.row').length]; }})"
    )
    browser.print_to(tmp_path / "page.pdf")
    assert browser.run("return window.found") == [0, 3]
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    assert browser.complaints() == []


def test_printed_tables_are_as_wide_as_the_paper(browser: Browser, page: Path) -> None:
    browser.open(page, width=720)
    browser.show_as_printed()
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.run("return document.documentElement.scrollWidth") <= 720
    edges = f"[...{TABLE}.querySelectorAll('.cell')].map((each) => each.getBoundingClientRect())"
    assert browser.run(f"return Math.max(...{edges}.map((each) => each.right))") <= 720


@pytest.mark.soak
def test_ten_thousand_partitions_are_a_small_page_that_stays_fluid(
    browser: Browser, tmp_path: Path
) -> None:
    root = write_large_broker(tmp_path / "many", 10_000)
    out = tmp_path / "report.html"
    outcome = run_kdump(["report", "--out", str(out), str(root)], tmp_path)
    assert outcome.exit_status == ExitStatus.DAMAGE_LEFT
    assert out.stat().st_size < 6 << 20
    browser.open(out)
    assert browser.run(f"return {TABLE}.querySelectorAll('.row').length") < 100
    typed, rows_left = browser.run(
        f"const begin = performance.now(); const box = {TABLE}.querySelector('input');"
        "box.value = 'orders.1'; box.dispatchEvent(new Event('input'));"
        f"return [performance.now() - begin, {TABLE}.querySelector('.shown').textContent]"
    )
    assert typed < 1000
    assert rows_left.endswith(" of 10,000 rows")
    assert browser.complaints() == []
