"""An import inside a function delays loading a module. One that delays nothing stands at the top.

Commands start fast because what is slow to import is imported where it is needed
(``test_startup.py``). A hidden import of a module that is loaded together with the importing one
anyway only hides what a module depends on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import kdump

PACKAGE: Final = Path(kdump.__file__).parent


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES: Final = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}

Statement = ast.Import | ast.ImportFrom


def imports_in(node: ast.AST, inside_function: bool = False) -> Iterator[tuple[Statement, bool]]:
    """Yield imports that run, each with whether it is inside a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, Statement):
            yield child, inside_function
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports_in(child, inside_function or is_function)


def loaded_by(statement: Statement) -> set[str]:
    """The modules that a statement names; a name may be a module in a package."""
    if isinstance(statement, ast.Import):
        return {alias.name for alias in statement.names}
    names = {f"{statement.module}.{alias.name}" for alias in statement.names}
    return {name if name in MODULES else str(statement.module) for name in names}


def with_packages(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[: at + 1]) for at in range(len(parts))}


IMPORTS: Final = {
    name: list(imports_in(ast.parse(path.read_text(encoding="utf-8"))))
    for name, path in MODULES.items()
}
AT_THE_TOP: Final = {
    name: {
        package
        for statement, is_hidden in found
        for loaded in loaded_by(statement)
        for package in with_packages(loaded)
        if not is_hidden
    }
    for name, found in IMPORTS.items()
}


def loaded_with(name: str) -> set[str]:
    """All modules that are loaded when a module is, as far as kdump imports them."""
    found = set[str]()
    left = with_packages(name)
    while left:
        each = left.pop()
        found.add(each)
        left |= AT_THE_TOP.get(each, set()) - found
    return found


def test_a_hidden_import_delays_something() -> None:
    unneeded = [
        f"{name}:{statement.lineno} {ast.unparse(statement)}"
        for name, found in IMPORTS.items()
        for statement, is_hidden in found
        if is_hidden and loaded_by(statement) & loaded_with(name)
    ]
    assert unneeded == []
