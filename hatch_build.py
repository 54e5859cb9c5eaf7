"""Build the manual: each ``man/*.rst`` becomes ``share/man/man1/*.1`` of the wheel's prefix.

Pages include their shared parts from ``man/common``, and the findings from ``kdump/check``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import docutils.core
from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def roff_of(page: Path) -> str:
    """Return the manual page ``page`` (reStructuredText) as roff; raises if it is malformed."""
    roff: str = docutils.core.publish_string(
        page.read_bytes(),
        source_path=str(page),
        writer="manpage",
        settings_overrides={
            "halt_level": 2,  # warnings too
            "report_level": 2,
            "input_encoding": "utf-8",
            "output_encoding": "unicode",
            "smart_quotes": False,
            "_disable_config": True,
        },
    )
    return roff.replace(".SH Name\n", ".SH NAME\n", 1)  # as the other headings are written


class ManualHook(BuildHookInterface[BuilderConfig]):
    """Hatchling's hook: write the pages and add them to the wheel as shared data."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        built = root / "build" / "man"
        built.mkdir(parents=True, exist_ok=True)
        for page in sorted((root / "man").glob("*.rst")):
            roff = built / f"{page.stem}.1"
            roff.write_text(roff_of(page), encoding="utf-8")
            build_data["shared_data"][str(roff)] = f"share/man/man1/{roff.name}"
