"""A real browser for tests of pages: Chromium of the distribution, without a window."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

PROGRAMS: Final = ("chromium", "chromedriver")


class Browser:
    """A page in Chromium.

    Attributes:
        driver: of selenium.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self._devtools("Network.enable")

    def _devtools(self, command: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, arguments)

    def open(self, page: Path, *, width: int = 1400, scheme: str = "light") -> None:
        """Open a file, as a double click does."""
        self.resize(width)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._devtools("Emulation.setEmulatedMedia", media="", features=features)
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(page.as_uri())

    def resize(self, width: int, height: int = 1000) -> None:
        self._devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def show_as_printed(self) -> None:
        """Use the style for paper, until the next page is opened."""
        self._devtools("Emulation.setEmulatedMedia", media="print")

    def run(self, script: str) -> Any:
        """Run the body of a function, and return what it returns."""
        return self.driver.execute_script(script)

    def complaints(self) -> list[str]:
        """What the console has: errors, and violations of the Content-Security-Policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses that the page asked for, besides its own and those inside it."""
        entries = [json.loads(entry["message"])["message"] for entry in self._performance()]
        asked = [
            entry["params"]["request"]["url"]
            for entry in entries
            if entry["method"] == "Network.requestWillBeSent"
        ]
        own = self.driver.current_url.partition("#")[0]
        return [url for url in asked if url != own and not url.startswith("data:")]

    def _performance(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.driver.get_log("performance")
        return entries

    def screenshot(self, path: Path, *, height: int | None = None) -> None:
        """Write a picture of the page, from its top."""
        size = self._devtools("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"]}
        taken = self._devtools(
            "Page.captureScreenshot",
            captureBeyondViewport=True,
            clip={**clip, "scale": 1},
        )
        path.write_bytes(base64.b64decode(taken["data"]))

    def print_to(self, path: Path) -> None:
        """Print the page as a PDF."""
        printed = self._devtools("Page.printToPDF", printBackground=True)
        path.write_bytes(base64.b64decode(printed["data"]))


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Start Chromium; skips the test where there is none."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)}: install the packages of the distribution")
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(shutil.which("chromium"))
    for argument in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(str(shutil.which("chromedriver")))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
