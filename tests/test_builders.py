"""The map of ``tests/builders``: a page that says which builder is for what."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

BUILDERS: Final = Path(__file__).parent / "builders"


def test_the_map_has_every_builder_and_no_other() -> None:
    named = set(re.findall(r"`(\w+)`", (BUILDERS / "README.md").read_text(encoding="utf-8")))
    assert named == {path.stem for path in BUILDERS.glob("*.py")}
