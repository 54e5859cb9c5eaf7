"""Rules for every file of the repository."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]

LARGEST_FILE_BYTES: Final = 2 << 20
MACHINE: Final = re.compile(
    r"/(?:work|root|home|Users)/"
    r"|(?:repo1?\.maven|pypi|pythonhosted|index-url|artifactory|nexus)[./ =]",
    re.IGNORECASE,
)
"""Places that exist only on one machine or in one network."""

BANNED_WORDS: Final = re.compile(
    r"\b(?:anew|what\s+becomes\s+of|of\s+which|puts?\s+right|gone\s+on\s+with|told\s+apart"
    r"|foretell\w*|foretold|that\s+(?:is|are)\s+meant|mend(?:s|ed|ing)?)\b",
    re.IGNORECASE,
)
"""Banned phrases: there is always a plainer one."""
FOREIGN_PACKAGE: Final = re.compile(
    r"\bpip install\b[^\n]*?[ '\"]kdump(?=$|[\[`'\"*),. ])"
    r"|(?<![-\w])kdump\[(?:encryption|hdfs|protobuf|s3|test)\]",
    re.MULTILINE,
)
"""An instruction to install ``kdump`` by that name: in the index that is another program."""
PLAIN_ENGLISH: Final = ("kdump", "man", "docs", "bench", "bundle", "site", "dev", "tests", ".ci")
"""Folders that must not contain them, besides the pages in the root."""


def repository_files() -> list[Path]:
    """Return the files that are, or would be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("this is not a clone: git does not list its files")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def texts() -> Iterator[tuple[str, str]]:
    """Yield path and content of files written by people, not by brokers and tools."""
    for path in repository_files():
        name = path.relative_to(ROOT)
        is_data = name.parts[0] == "fixtures" or name.suffix == ".png"
        if not is_data or name.suffix == ".md":
            yield str(name), path.read_bytes().decode("utf-8")


def test_text_is_clean() -> None:
    blemishes = {
        "a carriage return": re.compile(r"\r"),
        "a tabulator": re.compile(r"\t"),
        "a blank before the end of a line": re.compile(r" +$", re.MULTILINE),
        "no line end at the end, or more than one": re.compile(r"[^\n]\Z|\n\n\Z"),
    }
    found = [
        f"{name}: {what}"
        for name, text in texts()
        for what, pattern in blemishes.items()
        if pattern.search(text)
    ]
    assert not found


def test_nothing_names_a_place_on_one_machine() -> None:
    here = str(Path(__file__).relative_to(ROOT))
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for name, text in texts()
        if name != here
        for match in MACHINE.finditer(text)
    ]
    assert not found


def test_no_banned_phrase_is_used() -> None:
    here = str(Path(__file__).relative_to(ROOT))
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for name, text in texts()
        if name != here
        and (name.partition("/")[0] in PLAIN_ENGLISH or name.endswith(".md"))
        and name != "CHANGELOG.md"
        for match in BANNED_WORDS.finditer(text)
    ]
    assert not found


def test_nothing_says_to_install_the_package_of_another_project() -> None:
    here = str(Path(__file__).relative_to(ROOT))
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for name, text in texts()
        if name != here
        for match in FOREIGN_PACKAGE.finditer(text)
    ]
    assert not found


def test_no_file_is_large() -> None:
    assert not [path for path in repository_files() if path.stat().st_size > LARGEST_FILE_BYTES]


def test_the_version_has_a_heading_in_the_changelog_or_is_unreleased() -> None:
    headings = re.findall(
        r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert headings[0] == "Unreleased"


@pytest.mark.parametrize("page", sorted(path.relative_to(ROOT) for path in ROOT.glob("*.md")))
def test_links_inside_the_repository_exist(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert not [target for target in targets if not (ROOT / page.parent / target).exists()]


@pytest.mark.parametrize("script", ["dev", ".ci/run"])
def test_the_scripts_are_executable(script: str) -> None:
    assert (ROOT / script).stat().st_mode & 0o111 == 0o111


def test_each_runbook_is_followed_by_a_test() -> None:
    tests = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")
    )
    runbooks = [path.stem for path in (ROOT / "docs" / "runbooks").glob("*.md")]
    followed = set(re.findall(r'(?:commands_of\(|Followed\(|: Final = )\s*"([a-z-]+)"', tests))

    assert {*runbooks} <= followed
