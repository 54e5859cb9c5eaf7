"""Build the manual, and compile the loops over segments if there is a C compiler.

Each ``man/*.rst`` becomes ``share/man/man1/*.1`` of the wheel's prefix. Pages include their shared
parts from ``man/common``, and the findings from ``kdump/check``.

``kdump/compiled/segments.c`` becomes the library ``libsegments.so.1`` beside it, with ``cc`` or
what ``CC`` names. It needs nothing of Python, so the wheel then is for this kind of machine and any
Python. Without a compiler the wheel is for all machines, and kdump decodes with NumPy.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
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


def compile_library(folder: Path, compiler: str | None = None) -> Path | None:
    """Compile ``segments.c`` in a folder to a library beside it; None if that does not succeed.

    Args:
        compiler: the command of the C compiler (default: what ``CC`` names, or else ``cc``).
    """
    library = folder / "libsegments.so.1"
    library.unlink(missing_ok=True)
    words = shlex.split(compiler or os.environ.get("CC", "cc"))
    options = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-o", library.name, "segments.c")
    try:
        command = [*words, *options]
        subprocess.run(command, cwd=folder, capture_output=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return None
    return library if library.exists() else None


class BuildHook(BuildHookInterface[BuilderConfig]):
    """Hatchling's hook: write the pages, compile, and add both to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        source = root / "kdump" / "compiled"
        is_editable = version == "editable"
        # The library beside the source is that with which a clone runs: it is not for a wheel,
        # which may be for another kind of machine.
        self._compiled = tempfile.TemporaryDirectory()
        folder = source if is_editable else Path(self._compiled.name)
        if not is_editable:
            shutil.copy(source / "segments.c", folder)
        library = compile_library(folder)
        if library is not None:
            if is_editable:
                build_data["artifacts"].append(str(library.relative_to(root)))
            else:
                build_data["force_include"][str(library)] = f"kdump/compiled/{library.name}"
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"
        built = root / "build" / "man"
        built.mkdir(parents=True, exist_ok=True)
        for page in sorted((root / "man").glob("*.rst")):
            roff = built / f"{page.stem}.1"
            roff.write_text(roff_of(page), encoding="utf-8")
            build_data["shared_data"][str(roff)] = f"share/man/man1/{roff.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._compiled.cleanup()
