"""Imports go down the floors: a room imports no room above it or on its own floor."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

import pytest

import kdump

FLOORS: Final = (
    ("formats", "processes", "compiled", "rows"),
    ("storage",),
    ("scan",),
    ("target",),
    ("log",),
    ("dump", "apply"),
    ("state",),
    ("check", "broker", "engine", "payloads"),
    ("tiered", "repository"),
    ("repair", "tables"),
    ("jobs",),
    ("pipeline", "serve"),
    ("cli",),
)
"""The rooms from the ground up. A room may import itself and the rooms on the floors below."""
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
"""Modules of the standard library that formats must not use."""

PACKAGE: Final = Path(kdump.__file__).parent


@dataclass(frozen=True, slots=True)
class Import:
    """A name that a module imports."""

    path: Path
    line: int
    name: str
    inside_function: bool

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE.parent)}:{self.line} imports {self.name}"

    @property
    def room(self) -> str:
        """The importing room, or "" for a module outside the rooms."""
        parts = self.path.relative_to(PACKAGE).parts
        return parts[0] if len(parts) > 1 else ""

    @property
    def distribution(self) -> str:
        return self.name.partition(".")[0]

    @property
    def imported_room(self) -> str:
        """The imported room, or "" for a module outside the rooms."""
        parts = self.name.split(".")
        return parts[1] if parts[0] == "kdump" and len(parts) > 1 and parts[1] in FLOOR_OF else ""


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


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

    yield from visit(parsed(path), False)


MODULES: Final = tuple(sorted(PACKAGE.rglob("*.py")))


@functools.cache
def imports() -> tuple[Import, ...]:
    """Return the imports of all modules; each process that only collects tests needs none."""
    return tuple(found for path in MODULES for found in imports_of(path))


def listing(offences: Iterator[Import]) -> list[str]:
    return [str(offence) for offence in offences]


def test_every_package_is_a_room() -> None:
    packages = {path.parent.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/*.py")}
    assert packages == set(FLOOR_OF)


ARCHITECTURE: Final = PACKAGE.parent / "docs" / "architecture.md"


def test_the_architecture_page_has_the_same_rooms_on_the_same_floors() -> None:
    floors: list[set[str]] = []
    rows = re.findall(
        r"^\| *(\d*) *\| `(\w+)/` \|", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE
    )
    for number, room in rows:
        if number:
            floors.append(set())
        floors[-1].add(room)
    assert [number for number, _ in rows if number] == [str(n) for n in range(len(FLOORS), 0, -1)]
    assert floors[::-1] == [set(rooms) for rooms in FLOORS]


def test_the_architecture_page_names_every_module_outside_the_rooms() -> None:
    beside = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    text = ARCHITECTURE.read_text(encoding="utf-8")
    assert set(re.findall(r"`(\w+\.py)`", text.partition("Beside the floors")[2])) == beside


def test_every_path_on_the_architecture_page_exists() -> None:
    paths = set(
        re.findall(r"`([\w/]+/[\w/]*\w(?:\.\w+)?)`", ARCHITECTURE.read_text(encoding="utf-8"))
    )
    assert len(paths) > 20
    roots = (PACKAGE, PACKAGE.parent)
    assert [path for path in paths if not any((root / path).exists() for root in roots)] == []


@pytest.mark.parametrize("room", FLOOR_OF)
def test_a_room_imports_only_from_the_floors_below(room: str) -> None:
    assert not listing(
        found
        for found in imports()
        if found.room == room
        and found.imported_room not in ("", room)
        and FLOOR_OF[found.imported_room] >= FLOOR_OF[room]
    )


FLOORS_OF_THE_COMMAND_LINE: Final = ("output", "options", "shared", "commands")
"""From the ground up. Commands import none of each other but the parts of their own."""


@pytest.mark.parametrize("floor", FLOORS_OF_THE_COMMAND_LINE)
def test_a_floor_of_the_command_line_imports_only_from_those_below(floor: str) -> None:
    number = FLOORS_OF_THE_COMMAND_LINE.index(floor)
    above = FLOORS_OF_THE_COMMAND_LINE[number + 1 :]
    assert not listing(
        found
        for found in imports()
        if found.path.is_relative_to(PACKAGE / "cli" / floor)
        and any(found.name.startswith(f"kdump.cli.{other}.") for other in above)
    )


def test_no_command_imports_another() -> None:
    """A part of a command, such as ``_metadata_plan``, has an underscore before its name."""
    assert not listing(
        found
        for found in imports()
        if found.path.is_relative_to(PACKAGE / "cli" / "commands")
        and found.name.startswith("kdump.cli.commands.")
        and not found.name.startswith(f"kdump.cli.commands._{found.path.stem}_")
    )


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {module_of(path) for path in MODULES}
    graph: dict[str, set[str]] = {name: set() for name in names}
    for found in imports():
        imported = found.name if found.name in names else found.name.rpartition(".")[0]
        if imported in names:
            graph[module_of(found.path)].add(imported)
    for name, imported_names in graph.items():
        imported_names.discard(name)
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def has_an_engine(path: Path) -> bool:
    """Tell whether a module has a class that runs jobs, other than the interface."""
    methods = [
        {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
    ]
    return any({"run", "shuffle"} <= names for names in methods) and path.stem != "engine"


READ_BY_ENGINE: Final = {"storage", "formats", "processes", "scan", "log"}
"""Rooms that splitting a segment needs; none of them has rules of Kafka's."""


def test_only_the_choice_of_an_engine_knows_the_engines() -> None:
    engines = {module_of(path) for path in (PACKAGE / "engine").glob("*.py") if has_an_engine(path)}
    importing = {
        module_of(found.path)
        for found in imports()
        if found.name.rpartition(".")[0] in engines or found.name in engines
    }
    assert {"kdump.engine.local", "kdump.engine.spark"} <= engines
    assert importing == {"kdump.engine.engine_choice"}


def test_engines_do_not_import_kafkas_rules() -> None:
    assert not listing(
        found
        for found in imports()
        if found.room == "engine" and found.imported_room not in {"", "engine", *READ_BY_ENGINE}
    )


def test_no_module_name_is_used_more_than_twice() -> None:
    counts = Counter(path.name for path in MODULES if path.name != "__init__.py")
    assert not {name: count for name, count in counts.items() if count > 2}


ABOVE_THE_ROOMS: Final = {"program.py", "api.py"}


OF_KAFKA_0_7: Final = re.compile(r"0_?7")


def test_no_public_class_name_is_used_twice() -> None:
    """Modules about Kafka 0.7 may use names of later formats, such as a message, again."""
    counts = Counter(
        node.name
        for path in MODULES
        if not OF_KAFKA_0_7.search(path.stem)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert not {name: count for name, count in counts.items() if count > 1}


def test_only_the_entry_point_and_public_interface_use_the_rooms_from_outside() -> None:
    assert not listing(
        found
        for found in imports()
        if not found.room and found.imported_room and found.path.name not in ABOVE_THE_ROOMS
    )


def test_no_room_uses_the_public_interface() -> None:
    assert not listing(
        found for found in imports() if found.room and found.name.startswith("kdump.api")
    )


def test_formats_do_not_import_the_wording_of_failures() -> None:
    assert not listing(
        found
        for found in imports()
        if found.room == "formats" and found.name.startswith("kdump.errors")
    )


def test_formats_import_only_pure_modules_and_codecs() -> None:
    others = {"kdump", "msgspec", "numpy"}
    allowed = (sys.stdlib_module_names - TOUCHES_THE_SYSTEM) | CODECS | others
    assert not listing(
        found
        for found in imports()
        if found.room == "formats" and found.distribution not in allowed
    )


def test_no_dataclass_has_the_fields_of_structs() -> None:
    """A type checker accepts ``msgspec.field`` there; its value would be an attribute's."""
    wrong = []
    for path in MODULES:
        nodes = list(ast.walk(parsed(path)))
        of_structs = {
            alias.name
            for node in nodes
            if isinstance(node, ast.ImportFrom) and node.module == "msgspec"
            for alias in node.names
        }
        for node in nodes:
            if isinstance(node, ast.ClassDef) and "field" in of_structs:
                decorators = "".join(map(ast.unparse, node.decorator_list))
                calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
                if "dataclass" in decorators and "field" in map(ast.unparse, calls):
                    wrong.append(f"{path}: {node.name}")
    assert not wrong


DISK_METHODS: Final = {name for name in dir(Path) if not hasattr(PurePath, name)}
"""Methods of a path that need a disk."""
DISK_MODULES: Final = {"fcntl", "glob", "mmap", "shutil", "tempfile"}
NOT_OF_THE_DISK: Final = {
    "PathLike",
    "cpu_count",
    "devnull",
    "environ",
    "get_terminal_size",
    "getcwd",
    "getpid",
    "kill",
    "killpg",
    "nice",
    "pathsep",
    "sched_getaffinity",
    "sep",
    "strerror",
}
"""Names of `os` that do not use the disk."""
OTHER_OBJECTS: Final = {
    "group": "click|self",
    "open": r".*\bdirectory|self(\._directory)?",
    "rename": r".*\bdirectory|part",
    "replace": ".*",
    "touch": r"self\._order",
    "unlink": r"self\.files",
}
"""Objects other than paths that have a method of the same name, such as virtual directories."""
USES_THE_DISK: Final = {
    "apply": "writes",
    "storage": "reads, and writes whole files for the modules below",
    "engine/class_archive.py": "keeps an archive of Java classes",
    "engine/spark.py": "starts processes",
    "engine/stored_pieces.py": "keeps the pieces of a shuffle",
    "engine/spark_archive.py": "starts processes",
    "engine/spark_installation.py": "finds programs",
    "engine/spark_java.py": "starts processes",
    "engine/spark_session.py": "starts processes",
    "processes": "starts processes",
    "jobs/export/export_directory.py": "writes the files of an export",
    "repository/local_place.py": "writes the files of a repository",
    "cli/command_group.py": "lists the modules of the commands",
    "cli/main.py": "writes what is known of a crash",
    "cli/shared/query_history.py": "keeps what was typed at a prompt",
    "cli/output/out_file.py": "writes the file of --out",
    "cli/output/streams.py": "opens standard streams",
}
"""Rooms and modules that may use the disk without a location, and why."""


def uses_of_the_disk(path: Path) -> Iterator[str]:
    """List everything in a module that uses a disk, or could."""
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Import(names=imported):
                if any(alias.name in DISK_MODULES for alias in imported):
                    yield f"{path}:{node.lineno}: {ast.unparse(node)}"
            case ast.ImportFrom(module=module, names=imported):
                names = {alias.name for alias in imported}
                if module in DISK_MODULES or (module == "os" and names - NOT_OF_THE_DISK):
                    yield f"{path}:{node.lineno}: {ast.unparse(node)}"
            case ast.Call(func=ast.Name(id="open")):
                yield f"{path}:{node.lineno}: open"
            case ast.Attribute(value=ast.Name(id="os"), attr=name):
                if name not in NOT_OF_THE_DISK:
                    yield f"{path}:{node.lineno}: os.{name}"
            case ast.Attribute(value=ast.Name(id="Path"), attr=name) if name in DISK_METHODS:
                yield f"{path}:{node.lineno}: Path.{name}"
            case ast.Call(func=ast.Attribute(attr=name) as function) if name in DISK_METHODS:
                receiver = ast.unparse(function.value)
                # Only a path's `replace` has a single argument.
                is_path = name == "replace" and len(node.args) == 1 and not node.keywords
                if is_path or not re.fullmatch(OTHER_OBJECTS.get(name, ""), receiver):
                    yield f"{path}:{node.lineno}: {receiver}.{name}()"
            case _:
                pass


def may_use_the_disk(path: Path) -> bool:
    own = path.relative_to(PACKAGE)
    return any(str(each) in USES_THE_DISK for each in (own, *own.parents))


def test_only_storage_and_what_writes_or_starts_processes_uses_the_disk() -> None:
    readers = [path for path in MODULES if not may_use_the_disk(path)]
    assert not [use for path in readers for use in uses_of_the_disk(path)]


@pytest.mark.parametrize("name", USES_THE_DISK)
def test_modules_that_may_use_the_disk_do(name: str) -> None:
    found = PACKAGE / name
    modules = found.rglob("*.py") if found.is_dir() else [found]
    assert any(use for module in modules for use in uses_of_the_disk(module))


@pytest.mark.parametrize("distribution", ["click", "prompt_toolkit", "rich"])
def test_only_the_command_line_uses_terminals(distribution: str) -> None:
    assert not listing(
        found for found in imports() if found.room != "cli" and found.distribution == distribution
    )


def test_only_engine_and_pipeline_import_spark_and_only_when_a_job_begins() -> None:
    assert not listing(
        found
        for found in imports()
        if found.distribution in {"pyspark", "py4j"}
        and not (found.room in {"engine", "pipeline"} and found.inside_function)
    )


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


Statement = ast.Import | ast.ImportFrom


def imports_that_run(node: ast.AST, inside_function: bool) -> Iterator[tuple[Statement, bool]]:
    """Yield imports that are not only for types, each with whether it is inside a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, Statement):
            yield child, inside_function
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports_that_run(child, inside_function or is_function)


def loaded_by(statement: Statement, modules: Collection[str]) -> set[str]:
    """The modules that a statement names; a name may be a module in a package."""
    if isinstance(statement, ast.Import):
        return {alias.name for alias in statement.names}
    names = {f"{statement.module}.{alias.name}" for alias in statement.names}
    return {name if name in modules else str(statement.module) for name in names}


def with_packages(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[: at + 1]) for at in range(len(parts))}


def test_a_hidden_import_delays_something() -> None:
    """An import in a function is there because its module is slow to load, and seldom needed.

    One whose module is loaded together with the importing one anyway stands at the top.
    """
    found = {module_name(path): [*imports_that_run(parsed(path), False)] for path in MODULES}
    at_the_top = {
        name: {
            package
            for statement, is_hidden in imports
            for loaded in loaded_by(statement, found)
            for package in with_packages(loaded)
            if not is_hidden
        }
        for name, imports in found.items()
    }

    def loaded_with(name: str) -> set[str]:
        loaded = set[str]()
        left = with_packages(name)
        while left:
            each = left.pop()
            loaded.add(each)
            left |= at_the_top.get(each, set()) - loaded
        return loaded

    unneeded = [
        f"{name}:{statement.lineno} {ast.unparse(statement)}"
        for name, imports in found.items()
        for statement, is_hidden in imports
        if is_hidden and loaded_by(statement, found) & loaded_with(name)
    ]
    assert unneeded == []
