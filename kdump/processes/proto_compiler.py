"""Compile ``.proto`` text in a process of its own.

The text is hostile input to a compiler in C++, which reads files. It sees a private directory with
the text in it, and nothing else; its time and memory are limited.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kdump.processes.isolation import child_environment

_SECONDS: Final = 20
_MEMORY_BYTES: Final = 1 << 30
_MOST_MESSAGE: Final = 300
_SCRIPT: Final = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY_BYTES}, {_MEMORY_BYTES}))
from grpc_tools import _protoc_compiler
sys.exit(_protoc_compiler.run_main([each.encode() for each in sys.argv[1:]]))
"""


class CompilerError(Exception):
    """The text cannot be compiled; with a sentence."""


def compile_proto(files: Mapping[str, str], root: str, known: bytes) -> bytes:
    """Compile a file, and return the ``FileDescriptorSet`` of it and the files that it imports.

    Args:
        files: the text of each file by the path in imports, relative and without ``..``.
        root: the path of the file to compile.
        known: a ``FileDescriptorSet`` of what may be imported as well.

    Raises:
        CompilerError: it is malformed, or takes too much.
        ImportError: grpcio-tools is not installed.
    """
    import grpc_tools as _  # noqa: F401 - only whether it is there

    with tempfile.TemporaryDirectory(prefix="kdump-proto-") as made:
        directory = Path(made)
        sources, out = directory / "sources", directory / "out"
        sources.mkdir()
        for name, text in files.items():
            path = sources / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", errors="surrogatepass")
        (directory / "known").write_bytes(known)
        arguments = [
            "protoc",
            f"--proto_path={sources}",
            f"--descriptor_set_in={directory / 'known'}",
            f"--descriptor_set_out={out}",
            "--include_imports",
            # As an absolute path: the compiler takes a name with @ for a file of options, and one
            # with - for an option, and an option may run a program.
            str(sources / root),
        ]
        try:
            done = subprocess.run(  # noqa: S603 - this Python, and arguments of kdump's own
                [sys.executable, "-c", _SCRIPT, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=os.environ | child_environment(),
                cwd=directory,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CompilerError(f"compiling it takes more than {_SECONDS} s") from None
        if done.returncode or not out.exists():
            raise CompilerError(_problem(done.stderr, sources, done.returncode))
        return out.read_bytes()


def _problem(said: bytes, sources: Path, status: int) -> str:
    lines = said.decode(errors="replace").replace(f"{sources}/", "").split("\n")
    line = next((each.strip() for each in lines if each.strip()), f"protoc ended with {status}")
    return line[:_MOST_MESSAGE]
