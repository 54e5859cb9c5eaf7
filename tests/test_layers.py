"""Imports go down the floors of the house: a room knows none above it, and not its neighbours."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

import kdump

FLOORS: Final = (
    ("storage", "formats", "processes"),
    ("scan",),
    ("target",),
    ("log",),
    ("dump", "apply"),
    ("state",),
    ("check", "broker", "engine"),
    ("repair", "tables"),
    ("jobs",),
    ("cli", "pipeline"),
)
"""The rooms from the ground up. A room may import itself and the rooms of the floors below."""
FLOOR_OF: Final = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

CODECS: Final = {"crc32c", "lz4", "snappy", "cramjam", "zstandard"}
TOUCHES_THE_SYSTEM: Final = {
    "asyncio",
    "fcntl",
    "glob",
    "mmap",
    "multiprocessing",
    "os",
    "pathlib",
    "shutil",
    "socket",
    "subprocess",
    "tempfile",
    "time",
    "urllib",
}
"""Modules of the standard library that formats have no business with."""

PACKAGE: Final = Path(kdump.__file__).parent


@dataclass(frozen=True, slots=True)
class Import:
    """One name that a module imports."""

    path: Path
    line: int
    name: str
    inside_function: bool

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE.parent)}:{self.line} imports {self.name}"

    @property
    def room(self) -> str:
        """The room that imports, or "" for a module beside the rooms."""
        parts = self.path.relative_to(PACKAGE).parts
        return parts[0] if len(parts) > 1 else ""

    @property
    def distribution(self) -> str:
        return self.name.partition(".")[0]

    @property
    def imported_room(self) -> str:
        """The room that is imported, or "" for what is none."""
        parts = self.name.split(".")
        return parts[1] if parts[0] == "kdump" and len(parts) > 1 and parts[1] in FLOOR_OF else ""


def imports_of(path: Path) -> Iterator[Import]:
    def visit(node: ast.AST, inside_function: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name, inside_function)
        elif isinstance(node, ast.ImportFrom):
            # "from kdump import formats" names a room as "import kdump.formats" does.
            for alias in node.names:
                yield Import(path, node.lineno, f"{node.module}.{alias.name}", inside_function)
        inside_function |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside_function)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), False)


MODULES: Final = tuple(sorted(PACKAGE.rglob("*.py")))
IMPORTS: Final = tuple(found for path in MODULES for found in imports_of(path))


def listing(offences: Iterator[Import]) -> list[str]:
    return [str(offence) for offence in offences]


def test_every_package_is_a_room() -> None:
    packages = {path.parent.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/*.py")}
    assert packages == set(FLOOR_OF)


@pytest.mark.parametrize("room", FLOOR_OF)
def test_a_room_imports_only_from_the_floors_below(room: str) -> None:
    assert not listing(
        found
        for found in IMPORTS
        if found.room == room
        and found.imported_room not in ("", room)
        and FLOOR_OF[found.imported_room] >= FLOOR_OF[room]
    )


def test_no_name_of_a_module_stands_more_than_twice() -> None:
    counts = Counter(path.name for path in MODULES if path.name != "__init__.py")
    assert not {name: count for name, count in counts.items() if count > 2}


ABOVE_THE_ROOMS: Final = {"__main__.py", "api.py"}


def test_only_entry_point_and_public_interface_stand_outside_the_rooms_and_use_them() -> None:
    assert not listing(
        found
        for found in IMPORTS
        if not found.room and found.imported_room and found.path.name not in ABOVE_THE_ROOMS
    )


def test_no_room_uses_the_public_interface() -> None:
    assert not listing(
        found for found in IMPORTS if found.room and found.name.startswith("kdump.api")
    )


def test_formats_know_nothing_of_how_failures_are_worded() -> None:
    assert not listing(
        found
        for found in IMPORTS
        if found.room == "formats" and found.name.startswith("kdump.errors")
    )


def test_formats_import_only_pure_things_and_codecs() -> None:
    allowed = ((sys.stdlib_module_names - TOUCHES_THE_SYSTEM) | CODECS) | {"kdump", "numpy"}
    assert not listing(
        found for found in IMPORTS if found.room == "formats" and found.distribution not in allowed
    )


def test_formats_open_no_files() -> None:
    opening = [
        f"{path}:{node.lineno}"
        for path in PACKAGE.glob("formats/**/*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]
    assert not opening


OPENING: Final = {"open", "read_bytes", "read_text"}
OPENS_OTHER_FILES: Final = {
    "apply/pinned_directory.py",
    "apply/files.py",
    "apply/lock.py",
    "cli/options/config_options.py",
    "cli/main.py",
    "cli/output/streams.py",
    "engine/class_archive.py",
    "engine/spark.py",
    "engine/spark_installation.py",
    "engine/spark_java.py",
    "processes/worker_pool.py",
    "storage/regular_files.py",
}
"""Modules that write, or read files that are not of a log directory."""


def test_files_of_log_directories_are_opened_in_one_place() -> None:
    opening = [
        f"{path}:{node.lineno}"
        for path in MODULES
        if str(path.relative_to(PACKAGE)) not in OPENS_OTHER_FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in OPENING
        and "directory" not in ast.unparse(node.func.value)
        and ast.unparse(node.func.value) != "self"
    ]
    assert not opening


@pytest.mark.parametrize("distribution", ["click", "rich"])
def test_only_the_command_line_knows_terminals(distribution: str) -> None:
    assert not listing(
        found for found in IMPORTS if found.room != "cli" and found.distribution == distribution
    )


def test_only_engine_and_tables_know_spark_and_only_once_a_job_begins() -> None:
    assert not listing(
        found
        for found in IMPORTS
        if found.distribution in {"pyspark", "py4j"}
        and not (found.room in {"engine", "tables"} and found.inside_function)
    )
